"""What runs on a worker when somebody logs in. The processes and their signals are real."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import processes
import pytest
import session
from waiting import wait_for

FILES = Path(session.__file__).parent
# A race is made certain by a patch: the signal comes at a certain point of the program.
PROGRAM = """\
import pathlib, sys, common
common.JOB = common.FILES = pathlib.Path(sys.argv[1])
common.CONFIG = common.JOB / "deepspeed.json"
import os, signal, subprocess, sessions, session
{patch}
sys.exit(session.main())
"""
TOLD_BEFORE = """\
record = sessions.record
def told(name, **facts):
    record(name, **facts)
    if "exitCode" not in facts:
        os.kill(os.getpid(), signal.{signal})
sessions.record = told
"""
# The signal waits, since it is blocked by then.
TOLD_WHILE_IT_IS_STARTED = """\
popen = subprocess.Popen
def told(*args, **more):
    os.kill(os.getpid(), signal.{signal})
    return popen(*args, **more)
subprocess.Popen = told
"""
BETWEEN_FORK_AND_EXEC = """\
listen = session.listen_to_ends
def told():
    os.kill(os.getpid(), signal.{signal})
    listen()
session.listen_to_ends = told
"""


@pytest.fixture
def job(tmp_path):
    (tmp_path / "worker").mkdir()
    (tmp_path / "run.json").write_text('{"gracePeriod": 30}')
    (tmp_path / "worker" / "environment").write_bytes(f"PATH={os.environ['PATH']}\0OF_THE_POD=a b".encode())
    return tmp_path


@pytest.fixture
def start(job):
    """Log in with a command and return the session's process; `patch` sends it the signal `name`."""
    started = []

    def run(command, patch="", name=""):
        started.append(
            subprocess.Popen(
                [sys.executable, "-ESsu", "-c", PROGRAM.format(patch=patch.format(signal=name)), job],
                cwd=FILES,
                env={
                    "SSH_ORIGINAL_COMMAND": command,
                    "PYTHONDONTWRITEBYTECODE": "1",
                    "SSH_ONLY": "1",
                    "TERM": "xterm",
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield run
    for one in started:
        processes.end_below(one.pid, grace=0)
        one.kill()
        one.wait()
        for pipe in (one.stdin, one.stdout, one.stderr):
            pipe.close()


def records(job):
    return [json.loads(path.read_text()) for path in (job / "worker" / "sessions").glob("[!.]*.json")]


def test_a_command_runs_in_the_pods_environment_and_its_end_is_recorded(start, job):
    session = start('echo $OF_THE_POD; echo "[$SSH_ONLY] $TERM $SSH_ORIGINAL_COMMAND"; exit 3')
    output, _ = session.communicate(timeout=30)
    assert output == "a b\n[] xterm \n"
    assert session.returncode == 3
    (record,) = records(job)
    assert (record["pid"], record["exitCode"]) == (session.pid, 3)
    assert record["startedAt"] <= record["endedAt"]


def test_a_command_of_an_elastic_run_has_the_variables_of_its_attempt(start, job):
    (job / "worker" / "attempt").write_text(json.dumps({"workers": "2", "OF_THE_POD": "of the attempt"}))
    output, _ = start("echo $workers $OF_THE_POD").communicate(timeout=30)
    assert output == "2 of the attempt\n"


def test_a_command_that_is_killed_ends_as_in_a_shell(start, job):
    session = start("kill -9 $$")
    session.communicate(timeout=30)
    assert session.returncode == 137
    assert records(job)[0]["exitCode"] == -9


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_session_that_is_told_to_end_before_its_command_runs_never_starts_it(start, job, name):
    session = start("echo started", TOLD_BEFORE, name)
    output, _ = session.communicate(timeout=30)
    assert output == ""
    assert session.returncode == 143
    assert records(job)[0]["exitCode"] == -signal.SIGTERM, "it counts as ended by the order"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_one_that_is_told_while_its_command_is_being_started_ends_it(start, name):
    session = start("sleep 60", TOLD_WHILE_IT_IS_STARTED, name)
    session.communicate(timeout=30)
    assert session.returncode == 143


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_command_that_is_told_before_it_is_itself_ends(start, name):
    session = start("sleep 60", BETWEEN_FORK_AND_EXEC, name)
    session.communicate(timeout=30)
    assert session.returncode == 128 + getattr(signal, name)


def test_a_command_is_not_deaf_for_what_it_is_told_later(start, job):
    """Ranks that inherit an ignored or blocked signal could never save a last checkpoint."""
    output, _ = start("cat /proc/self/status").communicate(timeout=30)
    found = dict(line.split(":\t") for line in output.splitlines() if line.startswith("Sig"))
    for number in (signal.SIGTERM, signal.SIGHUP):
        for mask in ("SigIgn", "SigBlk"):
            assert not int(found[mask], 16) & 1 << (number - 1), (mask, number)


SAVES = "import signal, sys, time; signal.signal(15, lambda *_: (print('saved'), sys.exit(0))); print('up'); time.sleep(60)"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_command_that_runs_is_told_and_has_time_for_a_last_checkpoint(start, job, name):
    session = start(f'exec "{sys.executable}" -uc "{SAVES}"')
    assert session.stdout.readline() == "up\n"
    session.send_signal(getattr(signal, name))
    output, _ = session.communicate(timeout=30)
    assert output == "saved\n"
    assert session.returncode == 0


def test_the_connections_end_after_the_order_to_end_does_not_cut_the_time(start, job):
    slow = SAVES.replace("(print('saved')", "(time.sleep(0.5), print('saved')")
    session = start(f'exec "{sys.executable}" -uc "{slow}"')
    assert session.stdout.readline() == "up\n"
    session.terminate()
    session.send_signal(signal.SIGHUP)
    output, _ = session.communicate(timeout=30)
    assert output == "saved\n"


def test_what_a_command_leaves_behind_is_ended(start, job):
    leaves = "import os, time; os.setsid(); time.sleep(60)"
    session = start(f'"{sys.executable}" -c "{leaves}" >/dev/null 2>&1 & echo $!')
    pid = int(session.stdout.readline())
    session.communicate(timeout=30)
    assert session.returncode == 0
    wait_for(lambda: not processes.is_alive(pid))


def event(watch):
    return json.loads(watch.stdout.readline())


def order(watch, word, **more):
    watch.stdin.write(json.dumps({"order": word, **more}) + "\n")
    watch.stdin.flush()


def test_the_launchers_session_tells_what_ends_and_obeys(start, job):
    watch = start("@watch")
    assert event(watch) == {"event": "ready"}
    order(watch, "begin", environment={"workers": "2"}, config={"train_batch_size": 6})
    assert event(watch) == {"event": "begun"}
    assert json.loads((job / "deepspeed.json").read_text()) == {"train_batch_size": 6}
    start("test $workers = 2").wait(30)
    assert event(watch) == {"event": "ended", "exitCode": 0}
    start("exit 3").wait(30)
    assert event(watch) == {"event": "ended", "exitCode": 3}
    running = start(f'exec "{sys.executable}" -uc "{SAVES}"')
    assert running.stdout.readline() == "up\n"
    order(watch, "stop")
    running.communicate(timeout=30)
    assert event(watch)["event"] == "ended"
    order(watch, "report", settle=15)
    report = event(watch)
    assert [one["exitCode"] for one in report["sessions"]] == [0, 3, 0]
    assert report["oomKills"] == 0
    watch.stdin.close()
    assert watch.wait(30) == 0


def test_a_new_attempt_knows_nothing_of_the_one_before_and_ends_what_it_left(start, job):
    start("exit 3").wait(30)
    left = start("sleep 60")
    wait_for(lambda: len(processes.descendants(left.pid)) >= 1)
    watch = start("@watch")
    assert event(watch) == {"event": "ready"}
    left.wait(30)
    order(watch, "report", settle=15)
    assert event(watch)["sessions"] == []


def test_a_pod_that_is_told_to_end_says_so_once(start, job):
    watch = start("@watch")
    assert event(watch) == {"event": "ready"}
    (job / "worker" / "leaving").touch()
    assert event(watch) == {"event": "leaving"}
    order(watch, "report", settle=15)
    assert event(watch)["event"] == "report"


def test_a_guardian_that_is_killed_is_told_as_a_failure(start, job):
    """Its command goes on and may hold the connection, so nobody else would notice."""
    watch = start("@watch")
    assert event(watch) == {"event": "ready"}
    guardian = start("sleep 60")
    wait_for(lambda: len(processes.descendants(guardian.pid)) >= 1)
    below = processes.descendants(guardian.pid)
    guardian.kill()
    guardian.wait()
    assert event(watch) == {"event": "ended", "exitCode": -9}
    for pid in below:
        os.kill(pid, signal.SIGKILL)
