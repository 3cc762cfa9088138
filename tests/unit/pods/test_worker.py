"""The worker's own program: what it tells the launcher, and how it ends."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import rollcall
import worker
from waiting import wait_for

FILES = Path(worker.__file__).parent
RUN = {"name": "job", "port": 2222}
# `refusal` is why it cannot serve; its sshd is a command of the test.
PROGRAM = """\
import json, os, pathlib, sys
import common
common.JOB = folder = pathlib.Path(sys.argv[1])
common.FILES, common.TERMINATION_LOG = folder, folder / "told"
common.POD_NAME = folder / "pod-name"
import worker
def prepare(run):
    if sys.argv[2]:
        raise common.Refusal(sys.argv[2])
    return ["sh", "-c", "sleep 0.3; touch $0/up; exec sleep 10", str(folder)]
worker.prepare = prepare
os._exit(worker.main())
"""


@pytest.fixture
def launcher(tmp_path):
    """A launcher to which the worker reports; the folder has what its pod mounts."""
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(10)
    run = {**RUN, "port": server.getsockname()[1]}
    (tmp_path / "run.json").write_text(json.dumps(run))
    (tmp_path / "ssh-privatekey").write_text("key")
    (tmp_path / "launcher").write_text("127.0.0.1")
    (tmp_path / "pod-name").write_text("job-worker-1")
    yield server
    server.close()


@pytest.fixture
def start(tmp_path):
    started = []

    def run(refusal=""):
        argv = [sys.executable, "-c", PROGRAM, tmp_path, refusal]
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        started.append(subprocess.Popen(argv, cwd=FILES, env=environment, stdout=subprocess.DEVNULL))
        return started[-1]

    yield run
    for one in started:
        one.kill()
        one.wait()


def heard(server, answer=b"ok\n"):
    """The next report."""
    link, _ = server.accept()
    with link:
        report = rollcall.read_report(link.makefile("rb").readline(), b"key")
        link.sendall(answer)
        return report


def test_a_worker_reports_when_it_runs(launcher, start):
    running = start()
    assert heard(launcher) == ("job-worker-1.job", "")
    assert running.poll() is None


def test_a_worker_that_cannot_serve_says_why_to_the_launcher_and_to_kubernetes(launcher, start, tmp_path):
    """It does not mend itself, so the run need not wait for its time to start."""
    running = start("the image of the worker lacks sshd")
    assert heard(launcher) == ("job-worker-1.job", "the image of the worker lacks sshd")
    assert running.wait(10) == 1
    assert (tmp_path / "told").read_text() == "the image of the worker lacks sshd"


def test_a_pod_that_is_told_to_end_says_so_to_the_launchers_session_and_ends_its_ranks_first(
    launcher, start, tmp_path
):
    running = start()
    heard(launcher)
    wait_for((tmp_path / "up").exists)
    leaving = tmp_path / "worker" / "leaving"
    rank = subprocess.Popen(["sleep", "60"])
    sessions = tmp_path / "worker" / "sessions"
    sessions.mkdir()
    (sessions / "a.json").write_text(json.dumps({"pid": rank.pid, "startedAt": 1.0}))
    assert not leaving.exists()
    running.send_signal(signal.SIGTERM)
    assert rank.wait(10) == -signal.SIGTERM
    assert running.wait(10) == 0
    assert leaving.exists()


def test_a_container_that_was_started_again_is_not_leaving(launcher, start, tmp_path):
    leaving = tmp_path / "worker" / "leaving"
    leaving.parent.mkdir()
    leaving.touch()
    start()
    heard(launcher)
    wait_for(lambda: not leaving.exists())
