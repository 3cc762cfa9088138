"""Following: the log through broken connections, phases on a terminal and in a pipe; the forwarded port."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from fakes import FakeCluster
from objects import healthy, job, launcher, objects, running, succeeded, unscheduled, worker, workers_set

from dsjob import follow, forward
from dsjob.cluster import Unreachable
from dsjob.errors import DsjobError, ExitCode
from dsjob.progress import Step

POD = "hello-launcher-1a2b3c4d-x7k2p"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_EVERY", 0.01)


class Broken(FakeCluster):
    """A cluster whose log breaks after three lines, and goes on with the second in which it broke."""

    def log(
        self,
        pod: str,
        container: str,
        *,
        follow: bool = False,
        tail: int | None = None,
        since: str = "",
        timestamps: bool = False,
    ) -> Iterator[str]:
        lines = [f"2026-12-01T12:00:0{n // 2}.{n}Z line {n}" for n in range(6)]
        left = [line for line in lines if line[:19] >= since[:19]]
        yield from left if since else left[:3]
        if not since:
            raise Unreachable("broken", ExitCode.CLUSTER)


def test_no_line_is_lost_or_said_twice(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Broken(states=[healthy()] * 80 + [succeeded()])
    assert follow.follow(cluster, "hello") is ExitCode.OK
    assert capsys.readouterr().out.split("\n")[:-1] == [f"line {n}" for n in range(6)]


def test_a_cluster_that_is_away_for_a_while(capsys: pytest.CaptureFixture[str]) -> None:
    away = Unreachable("it is away", ExitCode.CLUSTER)
    cluster = FakeCluster(states=[healthy(), away, away, succeeded()], logs={POD: ["hi"]})
    assert follow.follow(cluster, "hello") is ExitCode.OK
    assert "waiting for the cluster: it is away" in capsys.readouterr().err


def test_a_cluster_that_stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_PATIENCE", 0.0)
    cluster = FakeCluster(states=[healthy(), Unreachable("it is away", ExitCode.CLUSTER)])
    with pytest.raises(Unreachable):
        follow.follow(cluster, "hello")


def test_a_job_that_is_removed_meanwhile() -> None:
    with pytest.raises(DsjobError, match="the job `hello` is gone"):
        follow.follow(FakeCluster(states=[healthy(), objects()]), "hello")


def test_a_job_whose_launcher_is_gone_for_good() -> None:
    with pytest.raises(DsjobError, match="the job `hello` is gone"):
        follow.follow(FakeCluster(states=[healthy(), objects(workers_set(0))]), "hello")


def test_a_launcher_that_is_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    second = healthy()
    second.pods.append(launcher("Running", running("launcher"), name="hello-launcher-1a2b3c4d-new", ago=5))
    ended_well = succeeded()
    ended_well.pods[0]["metadata"]["name"] = "hello-launcher-1a2b3c4d-new"
    logs = {POD: ["first"], "hello-launcher-1a2b3c4d-new": ["second"]}
    states = [healthy()] * 20 + [second] * 20 + [ended_well]
    follow.follow(FakeCluster(states=states, logs=logs), "hello")
    assert capsys.readouterr().out == "first\nsecond\n"


def test_a_reason_is_said_once_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    waits = worker(0, "Pending", node="", conditions=unscheduled("1 Insufficient cpu"))
    stuck = objects(job(workers=1), workers_set(1), launcher("Running", running("launcher")), waits)
    follow.follow(FakeCluster(states=[stuck] * 5 + [succeeded()], logs={POD: []}), "hello")
    said = capsys.readouterr().err
    assert said.count("1/2 pods have a node; Unschedulable: 1 Insufficient cpu (pod/hello-worker-0)") == 1


@pytest.mark.parametrize("zone", ["Z", "+08:00"])
def test_time_stamps(zone: str) -> None:
    stamps = [f"2026-12-01T12:00:{text}{zone}" for text in ("00", "00.000000001", "00.1", "00.12", "01.05")]
    assert sorted(stamps, key=follow._order) == stamps
    assert follow._second(stamps[3]) == f"2026-12-01T12:00:00{zone}"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_phases_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("NO_COLOR", "1")
    shown = follow.Phases()
    shown.show([Step("schedule", False, "1/3 pods have a node", "x" * 500)])
    shown.show([Step("schedule", True, "3/3 pods have a node"), Step("pull", False, "0/3")])
    shown.clear()
    parts = screen.getvalue().split("\r\033[K")
    assert parts[1].startswith("schedule  1/3 pods have a node; xxx")
    assert len(parts[1]) < 80
    assert parts[2].startswith("schedule  3/3 pods have a node")
    assert parts[-1] == ""


def test_a_port_that_is_taken_and_one_that_is_asked_for() -> None:
    with forward.listen(None) as first, forward.listen(None) as second:
        assert first.getsockname()[0] == second.getsockname()[0] == "127.0.0.1"
        assert first.getsockname()[1] != second.getsockname()[1]
        with pytest.raises(DsjobError, match="cannot be used"):
            forward.listen(first.getsockname()[1])


def pod_that_shouts() -> socket.socket:
    """A tunnel to a pod that answers each piece in capitals."""
    ours, its = socket.socketpair()

    def answer() -> None:
        with contextlib.closing(its), contextlib.suppress(OSError):
            while data := its.recv(65536):
                its.sendall(data.upper())

    threading.Thread(target=answer, daemon=True).start()
    return ours


def test_several_connections_at_once_and_one_that_fails(capsys: pytest.CaptureFixture[str]) -> None:
    tunnels: list[Any] = []

    def tunnel() -> socket.socket:
        tunnels.append(None)
        if len(tunnels) == 2:
            raise DsjobError("no ready pod", ExitCode.TIMEOUT)
        return pod_that_shouts()

    with forward.listen(None) as listener:
        threading.Thread(target=forward.serve, args=(listener, tunnel), daemon=True).start()
        clients = []
        for _ in range(4):
            clients.append(socket.create_connection(listener.getsockname(), timeout=5))
            until = time.monotonic() + 5
            while len(tunnels) < len(clients) and time.monotonic() < until:
                time.sleep(0.001)
        answers = []
        for number, client in enumerate(clients):
            with client, contextlib.suppress(OSError):
                client.sendall(f"hello {number}".encode())
                answers.append(client.recv(100).decode())
    assert answers[-3:] != []
    assert [one for one in answers if one] == ["HELLO 0", "HELLO 2", "HELLO 3"]
    assert "no connection: no ready pod" in capsys.readouterr().err
