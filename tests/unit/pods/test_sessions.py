"""What a worker knows of its ssh sessions. The processes are real."""

import json
import os
import signal
import subprocess
import sys

import processes
import pytest
import sessions
from waiting import wait_for


@pytest.fixture(autouse=True)
def job_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sessions, "ENVIRONMENT", tmp_path / "environment")
    monkeypatch.setattr(sessions, "RECORDS", tmp_path / "sessions")
    monkeypatch.setattr(sessions, "PARENT", tmp_path / "parent")
    monkeypatch.setattr(sessions, "ATTEMPT", tmp_path / "attempt")
    monkeypatch.setattr(sessions, "CONFIG", tmp_path / "deepspeed.json")


def test_the_environment_survives_whatever_it_holds():
    environment = {
        "EMPTY": "",
        "LINES": "a\nb\n\n",
        "EQUALS": "=x==",
        "QUOTES": "'\"`$HOME",
        "BYTES": "\udcff\udcfe",
        "ÜMLAUT": "ß",
    }
    sessions.save_environment(environment)
    assert sessions.load_environment() == environment
    assert sessions.ENVIRONMENT.stat().st_mode & 0o777 == 0o600


def test_an_attempt_has_variables_and_a_configuration_of_its_own():
    assert sessions.load_attempt() == {}
    for workers in ("3", "2"):
        sessions.begin_attempt({"workers": workers}, {"train_batch_size": 6})
        assert sessions.load_attempt() == {"workers": workers}
    assert json.loads(sessions.CONFIG.read_text()) == {"train_batch_size": 6}


def test_without_a_configuration_none_is_written():
    sessions.begin_attempt({"workers": "3"}, {})
    assert not sessions.CONFIG.exists()


def test_records_come_oldest_first_and_are_forgotten():
    sessions.record("b", startedAt=2.0, pid=1)
    sessions.record("a", startedAt=3.0, pid=1)
    assert [one["startedAt"] for one in sessions.records()] == [2.0, 3.0]
    sessions.forget()
    assert sessions.records() == []


def test_every_process_below_is_ended_also_one_that_left_its_session_and_one_that_is_deaf():
    leaves = "import os, signal, time; os.setsid(); signal.signal(15, signal.SIG_IGN); time.sleep(60)"
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {leaves!r}]).wait()",
        ]
    )
    wait_for(lambda: len(processes.descendants(parent.pid)) == 1)
    grandchild = processes.descendants(parent.pid)[0]
    processes.end_below(parent.pid, grace=0.2)
    wait_for(lambda: not processes.is_alive(grandchild))
    parent.wait()


def test_a_zombie_is_not_alive():
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not processes.is_alive(child.pid)
    child.wait()


def test_settle_waits_for_the_sessions_that_still_run():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    sessions.record("a", startedAt=1.0, pid=child.pid)
    sessions.settle(0.1)
    assert processes.is_alive(child.pid)
    child.send_signal(signal.SIGKILL)
    sessions.settle(10)
    assert not processes.is_alive(child.pid)
    child.wait()


def test_what_an_earlier_attempt_left_is_killed_with_all_below_it():
    code = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']).wait()"
    child = subprocess.Popen([sys.executable, "-c", code])
    sessions.record("a", startedAt=1.0, pid=child.pid)
    wait_for(lambda: processes.descendants(child.pid))
    below = processes.descendants(child.pid)
    sessions.kill_all()
    child.wait()
    wait_for(lambda: not any(processes.is_alive(pid) for pid in below))


# A worker of two children; when its input ends, so does it.
WORKER = """
import subprocess, sys
children = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) for _ in range(2)]
print(*(one.pid for one in children), flush=True)
sys.stdin.read()
children[0].kill()
"""


@pytest.fixture
def worker():
    """A worker, its sshd and an orphan, as pids."""
    running = subprocess.Popen(
        [sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    sshd, orphan = map(int, running.stdout.readline().split())
    yield running.pid, sshd, orphan
    for pid in (sshd, orphan):
        os.kill(pid, signal.SIGKILL)  # zombies, while their parent lives
    running.communicate(timeout=30)


def test_what_a_killed_session_left_is_killed_and_sshd_is_not(worker):
    parent, sshd, orphan = worker
    sessions.PARENT.write_text(json.dumps([parent, sshd]))
    sessions.kill_orphans()
    wait_for(lambda: not processes.is_alive(orphan))
    assert processes.is_alive(sshd)


def test_a_session_that_still_ends_its_command_is_no_orphan(worker):
    parent, sshd, guardian = worker
    sessions.PARENT.write_text(json.dumps([parent, sshd]))
    sessions.record("a", startedAt=1.0, pid=guardian)
    sessions.kill_orphans()
    assert processes.is_alive(guardian)


@pytest.mark.parametrize("written", [None, [1, 2**22], ["parent", 2**22]])
def test_nothing_is_killed_where_it_is_not_certain_whose_children_they_are(worker, written):
    """Outside of the container, or when the worker has just been started again. Process 1 is then another's."""
    parent, sshd, orphan = worker
    if written:
        sessions.PARENT.write_text(json.dumps([parent if written[0] == "parent" else written[0], written[1]]))
    sessions.kill_orphans()
    assert processes.is_alive(sshd)
    assert processes.is_alive(orphan)


def test_a_session_that_is_gone_without_an_exit_code_was_killed():
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    sessions.record("a", startedAt=1.0, pid=child.pid)
    sessions.record("b", startedAt=2.0, pid=child.pid, endedAt=2.5, exitCode=0)
    sessions.record("c", startedAt=3.0, pid=os.getpid())
    sessions.note_killed()
    killed, ended, running = sessions.records()
    assert killed["exitCode"] == -9
    assert killed["endedAt"] > 3
    assert (ended["exitCode"], ended["endedAt"]) == (0, 2.5)
    assert "exitCode" not in running
