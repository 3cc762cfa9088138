"""`dsjob exec`: which jobs take commands, and a command's streams, terminal and end over a real connection."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pty
import struct
import termios
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import Dsjob
from objects import (
    direct_job,
    direct_worker,
    healthy,
    job,
    launcher,
    lease,
    objects,
    running,
    worker,
    workers_set,
)
from objects import failed as failed_job
from podserver import OK, Command, PodServer, failed
from websocket import ABNF

from dsjob import cluster, execute
from dsjob.channels import Broken, Channels, exit_code
from dsjob.cluster import Forbidden, NotFound
from dsjob.errors import DsjobError, ExitCode
from dsjob.model import Objects
from dsjob.target import Target

POD = "hello-launcher-1a2b3c4d-x7k2p"


def interactive(phase: str = "Interactive", workers: int = 2) -> Objects:
    """A job that takes commands."""
    return objects(
        job(),
        workers_set(),
        launcher("Running", running("launcher")),
        lease(phase),
        *[worker(index) for index in range(workers)],
    )


def run_json(**more: Any) -> dict[str, dict[str, str]]:
    return {"hello-run-1a2b3c4d": {"run.json": json.dumps({"name": "hello", **more})}}


# --- which jobs take commands


def test_a_command_runs_in_the_launcher_and_its_code_is_ours(dsjob: Dsjob, monkeypatch) -> None:
    monkeypatch.setattr(execute, "attach", lambda *_: 41)
    monkeypatch.setattr(os, "isatty", lambda _: False)
    dsjob.cluster.states = [interactive()]
    dsjob("exec", "hello", "-n", "team", "--", "deepspeed", "--num_gpus", "1", "--", "-v", code=41)
    command = ["/opt/deepspeed-job/enter", "deepspeed", "--num_gpus", "1", "--", "-v"]
    assert dsjob.cluster.changes == [("start", POD, "launcher", command, True, False)]


@pytest.mark.parametrize(
    ("terminals", "stdin", "tty"), [({0, 1}, True, True), ({0}, False, False), ({1}, True, False)]
)
def test_a_terminal_where_input_and_output_are_one(
    terminals: set[int], stdin: bool, tty: bool, dsjob: Dsjob, monkeypatch
) -> None:
    monkeypatch.setattr(execute, "attach", lambda *_: 0)
    monkeypatch.setattr(execute, "_raw", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(os, "isatty", lambda fd: fd in terminals)
    dsjob.cluster.states = [interactive()]
    dsjob("exec", "hello", "--", "-x")
    assert dsjob.cluster.changes[0][3:] == (["/opt/deepspeed-job/enter", "-x"], stdin, tty)


def test_ctrl_c_without_a_terminal_says_that_the_command_may_go_on(dsjob: Dsjob, monkeypatch) -> None:
    def interrupted(*_: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(execute, "attach", interrupted)
    monkeypatch.setattr(os, "isatty", lambda _: False)
    dsjob.cluster.states = [interactive()]
    assert f"may go on in {POD}" in dsjob("exec", "hello", "--", "x", code=130).stderr


def test_a_job_that_has_lost_a_worker_takes_commands_with_a_warning(dsjob: Dsjob, monkeypatch) -> None:
    monkeypatch.setattr(execute, "attach", lambda *_: 0)
    dsjob.cluster.states = [interactive(workers=1)]
    assert "warning: 1/2 workers ready" in dsjob("exec", "hello", "--", "x").stderr


NOT_INTERACTIVE, INTERACTIVE = run_json(interactive=False), run_json(interactive=True)
SUSPENDED = objects(job(suspend=True), workers_set(), lease("Interactive"), *interactive().pods)
REFUSALS = {
    "runs its own command": (healthy(), NOT_INTERACTIVE, 2, "set `run.interactive: true`"),
    "of a chart that knows no such key": (healthy(), run_json(), 2, "is not interactive"),
    "mode direct": (
        objects(direct_job(), direct_worker(0), direct_worker(1)),
        {},
        2,
        "it needs `mode: launcher`",
    ),
    "its workers are not there yet": (
        interactive("Starting", workers=1),
        INTERACTIVE,
        4,
        "takes no commands yet: 1/2 workers ready\n  `dsjob status hello -n team` says",
    ),
    "it restarts": (interactive("Restarting"), INTERACTIVE, 4, "2/2 workers ready; restarts"),
    "suspended": (SUSPENDED, INTERACTIVE, 4, "`dsjob resume hello -n team`"),
    "it has ended": (failed_job(), INTERACTIVE, 4, "hello is over: hello-worker-1 failed"),
    "its ConfigMap is gone": (interactive("Starting"), {}, 3, "hello-run-1a2b3c4d is gone"),
    "there is none": (objects(), {}, 3, "no job `hello`"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_who_takes_no_commands_is_told_why(name: str, dsjob: Dsjob) -> None:
    found, configmaps, code, text = REFUSALS[name]
    dsjob.cluster.states, dsjob.cluster.configmaps = [found], configmaps
    assert text in dsjob("exec", "hello", "--", "x", code=code).stderr
    assert dsjob.cluster.changes == []


def test_usage(dsjob: Dsjob) -> None:
    dsjob("exec", "hello", code=2)
    dsjob("exec", "hello", "python", "-c", "x", code=2)  # without --, options would be ours


# --- the connection


@pytest.fixture
def server() -> Iterator[PodServer]:
    found = PodServer()
    yield found
    found.close()


@pytest.fixture
def start(server: PodServer, tmp_path: Path) -> Callable[..., Channels]:
    """Start a command in the pod."""
    api = cluster.connect(Target(kubeconfig=server.kubeconfig(tmp_path)))
    return lambda *command, stdin=False, tty=False: api.start(
        "pod", "launcher", command or ["x"], stdin=stdin, tty=tty
    )


def pipe(data: bytes) -> int:
    """The end of a pipe that gives this data, then ends."""
    out, into = os.pipe()

    def write() -> None:
        with os.fdopen(into, "wb") as sink:
            sink.write(data)

    threading.Thread(target=write, daemon=True).start()
    return out


def test_output_errors_and_code(server: PodServer, start) -> None:
    def command(end: Command) -> None:
        end.send(1, b"out\n\xff")
        end.send(2, b"err")
        end.send(1, b" more")
        end.send(3, failed(3))

    server.command = command
    out, err = io.BytesIO(), io.BytesIO()
    assert execute.attach(start("a b", "--x"), None, out, err) == 3
    assert (out.getvalue(), err.getvalue()) == (b"out\n\xff more", b"err")
    assert server.asked["command"] == ["a b", "--x"]
    assert server.asked["container"] == ["launcher"]
    assert server.asked.keys() == {"command", "container", "stdout", "stderr"}
    assert server.headers["authorization"] == "Bearer secret"
    assert server.headers["sec-websocket-protocol"].startswith("v5.channel.k8s.io")


def test_input_comes_back_whole_through_a_command_that_reads_only_while_it_can_write(
    server: PodServer, start
) -> None:
    heard: list[bytes] = []

    def cat(end: Command) -> None:
        while True:
            channel, data = end.receive()
            if (channel, data) == (255, b"\x00"):
                break
            heard.append(data * 4)
            end.send(
                1, heard[-1]
            )  # more comes back than goes in, so a client that only writes would be stuck
        end.send(3, OK)

    server.command = cat
    data, out = os.urandom(2_000_000), io.BytesIO()
    assert execute.attach(start(stdin=True), pipe(data), out, io.BytesIO()) == 0
    assert out.getvalue() == b"".join(heard)
    assert b"".join(part[: len(part) // 4] for part in heard) == data


def test_a_command_that_ends_before_its_input_does(server: PodServer, start) -> None:
    def head(end: Command) -> None:
        end.receive()
        end.send(1, b"first")
        end.send(3, failed(141))

    server.command = head
    out = io.BytesIO()
    assert execute.attach(start(stdin=True), pipe(b"x" * 5_000_000), out, io.BytesIO()) == 141
    assert out.getvalue() == b"first"


def test_an_old_cluster_cannot_tell_the_end_of_the_input(server: PodServer, start, capsys) -> None:
    def command(end: Command) -> None:
        assert end.receive() == (0, b"hi")
        end.send(3, OK)

    server.protocol, server.command = "v4.channel.k8s.io", command
    assert execute.attach(start(stdin=True), pipe(b"hi"), io.BytesIO(), io.BytesIO()) == 0
    assert "not told when its input ends" in capsys.readouterr().err


def resize(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def test_a_terminal_is_raw_has_its_size_and_is_left_as_it_was(
    server: PodServer, start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execute, "_LOOK", 0.01)
    keyboard, terminal = pty.openpty()
    resize(terminal, 24, 80)
    before = termios.tcgetattr(terminal)
    heard: list[tuple[int, bytes]] = []

    def shell(end: Command) -> None:
        heard.append(end.receive())
        resize(terminal, 50, 132)
        heard.append(end.receive())
        os.write(keyboard, b"\x03")  # Ctrl-C is for the command
        heard.append(end.receive())
        end.send(1, b"$ ")
        end.send(3, failed(130))

    server.command = shell
    out = io.BytesIO()
    channels = start(stdin=True, tty=True)
    with execute._raw(terminal):
        assert not termios.tcgetattr(terminal)[3] & (termios.ICANON | termios.ISIG | termios.ECHO)
        assert execute.attach(channels, terminal, out, io.BytesIO(), terminal) == 130
    assert termios.tcgetattr(terminal) == before
    assert [(channel, json.loads(data) if channel == 4 else data) for channel, data in heard] == [
        (4, {"Width": 80, "Height": 24}),
        (4, {"Width": 132, "Height": 50}),
        (0, b"\x03"),
    ]
    assert server.asked.keys() == {"command", "container", "stdout", "stdin", "tty"}


def test_a_connection_that_breaks_is_no_exit_code(server: PodServer, start) -> None:
    server.command = lambda end: end.send(1, b"half")
    with pytest.raises(Broken, match="may go on in the cluster") as raised:
        execute.attach(start(), None, io.BytesIO(), io.BytesIO())
    assert raised.value.code is ExitCode.CLUSTER


def test_signs_of_life_do_no_harm(server: PodServer, start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "_SIGN", 0)
    monkeypatch.setattr(execute, "_LOOK", 0.01)

    def command(end: Command) -> None:
        for _ in range(3):
            operation, _ = end._websocket.recv_data_frame(True)  # and answers it
            assert operation == ABNF.OPCODE_PING
        end.send(3, OK)

    server.command = command
    assert execute.attach(start(), None, io.BytesIO(), io.BytesIO()) == 0


class ReadAhead:
    """A websocket over TLS with three frames in one record: its socket is readable only once."""

    def __init__(self) -> None:
        self._readable, into = os.pipe()
        os.write(into, b"x")
        self._frames = [
            (ABNF.OPCODE_BINARY, b"\x01hi"),
            (ABNF.OPCODE_BINARY, b"\x03" + OK),
            (ABNF.OPCODE_CLOSE, b""),
        ]
        self.sock = self

    def getheaders(self) -> dict[str, str]:
        return {}

    def fileno(self) -> int:
        return self._readable

    def pending(self) -> int:
        return len(self._frames)

    def recv_data_frame(self, control: bool) -> tuple[int, ABNF]:
        if len(self._frames) == 3:
            os.read(self._readable, 1)
        operation, data = self._frames.pop(0)
        return operation, ABNF(opcode=operation, data=data)


def test_what_tls_has_read_ahead_is_not_forgotten() -> None:
    out = io.BytesIO()
    assert execute.attach(Channels(ReadAhead()), None, out, io.BytesIO()) == 0
    assert out.getvalue() == b"hi"


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (403, Forbidden, 'pods "pod" is forbidden'),
        (404, NotFound, 'pods "pod" not found'),
        (500, DsjobError, "the cluster answers 500: container not found"),
    ],
)
def test_a_refusal_says_what_the_cluster_said(
    code: int, kind: type[DsjobError], text: str, server: PodServer, start
) -> None:
    server.refuse = (code, text.rpartition("500: ")[2])
    with pytest.raises(kind, match=text):
        start()


def test_a_tunnel_to_a_port_and_what_refuses_it(server: PodServer, tmp_path: Path) -> None:
    def echo(end: Command) -> None:
        for channel in (0, 1):
            end.send(channel, (6006).to_bytes(2, "little"))
        channel, data = end.receive()
        end.send(channel, data.upper())
        end.receive()

    server.command = echo
    api = cluster.connect(Target(kubeconfig=server.kubeconfig(tmp_path)))
    with contextlib.closing(api.tunnel("pod", 6006)) as tunnel:
        tunnel.sendall(b"hello")
        assert tunnel.recv(5) == b"HELLO"
    assert server.asked == {"ports": ["6006"]}
    server.refuse = (404, 'pods "pod" not found')
    with pytest.raises(NotFound, match="not found"):
        api.tunnel("pod", 6006)


def test_a_command_that_could_not_be_started_is_no_exit_code() -> None:
    told = {"status": "Failure", "message": "no such file: /opt/deepspeed-job/enter", "code": 500}
    with pytest.raises(DsjobError, match="could not be run: no such file"):
        exit_code(json.dumps(told).encode())
