"""What the launcher makes of what happens to the command and to the workers. The commands are real, the workers are played."""

import ast
import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import command
import launcher
import pytest
import restarts
from common import Refusal
from fake_workers import FakeWorkers, nobody_comes
from launcher import Launcher
from link import Unreachable
from waiting import wait_for

FILES = Path(launcher.__file__).parent
TESTS = Path(__file__).parent
RUN = {
    "name": "job", "stem": "job-worker", "workers": 2, "slots": 1, "port": 2222, "maxRestarts": 0, "countLostWorkers": True,
    "startTimeout": 60, "gracePeriod": 30, "deadline": 0,
    "stallTimeout": 0, "logdir": "", "interactive": False, "release": "Always", "elastic": {}, "run": {"command": "true"},
}  # fmt: skip
ELASTIC = {"min": 1, "max": 4, "patience": 3600}
HOSTS = [f"job-worker-{i}.job" for i in range(4)]
TWO, THREE = HOSTS[:2], HOSTS[:3]


class Life:
    """One life of the launcher: it works elsewhere, so that a test can do what happens meanwhile."""

    def __init__(self, run):
        self.launcher = Launcher()
        self.workers = self.launcher.workers
        self._results = queue.Queue()

    def start(self):
        threading.Thread(target=lambda: self._results.put(self.launcher.work()), daemon=True).start()
        return self

    def end(self):
        """Its last verdict."""
        return self._results.get(timeout=20)

    def until_it_says(self, text):
        """Wait until the command has written this line."""
        return wait_for(lambda: (running := self.launcher.command) and text in running.last_lines and running)

    def told(self, key):
        """What was told of this key, in order."""
        return [facts[key] for facts in self.workers.roster.told if key in facts]


@pytest.fixture
def life(monkeypatch, tmp_path):
    """Make a life for a run; `come` is who comes to each attempt, `answers` what they report."""
    monkeypatch.setattr(launcher, "Workers", FakeWorkers)
    monkeypatch.setattr(launcher, "ORDER_SECONDS", 0.05)
    monkeypatch.setattr(restarts, "LONGEST_PAUSE_SECONDS", 0)
    monkeypatch.setattr(command, "TROUBLE_GRACE_SECONDS", 0.2)
    monkeypatch.chdir(tmp_path)

    def make(shell="true", come=(TWO,), answers=(), **run):
        text = shell if isinstance(shell, dict) else {"command": shell}
        monkeypatch.setattr(launcher, "load_run", lambda: {**RUN, "run": text, **run})
        monkeypatch.setattr(FakeWorkers, "come", come)
        monkeypatch.setattr(FakeWorkers, "answers", dict(answers))
        return Life(run)

    return make


def report(*codes, oom=0):
    return {
        "sessions": [{"startedAt": 1.0, "pid": 7, "exitCode": code, "endedAt": 2.0} for code in codes],
        "oomKills": oom,
    }


# A command that ends with 0 the N-th time.
GOOD_AT = "echo x >> tried; test $(wc -l < tried) -ge {n}"


# What becomes of a command


def test_a_command_that_ends_with_0_on_workers_that_ended_with_0_is_done(life):
    one = life("echo up", answers={HOSTS[0]: report(0), HOSTS[1]: report(0)}).start()
    verdict = one.end()
    assert (verdict["phase"], verdict["exitCode"], verdict["reason"]) == ("Succeeded", 0, "Completed")
    assert one.workers.roster.told == [{"phase": "Running", "members": 2}]
    assert (one.workers.attempts, one.workers.reported, one.workers.parted) == (1, 1, 1)


def test_a_command_that_fails_has_its_code_and_its_last_lines(life):
    verdict = life("echo boom; exit 3").start().end()
    assert (verdict["reason"], verdict["exitCode"], verdict["lastLines"]) == ("CommandFailed", 3, ["boom"])


def test_a_rank_that_failed_is_named_although_the_command_ended_with_0(life):
    verdict = life(answers={HOSTS[1]: report(3)}).start().end()
    assert (verdict["reason"], verdict["host"]) == ("RankFailed", "job-worker-1")


def test_a_program_that_is_not_there_is_named(life):
    verdict = life({"command": ["no-such-program"]}).start().end()
    assert (verdict["reason"], verdict["exitCode"]) == ("CommandFailed", 127)
    assert verdict["message"] == "no-such-program: No such file or directory"


def test_the_command_finds_our_programs_first_and_the_variables_of_its_attempt(life):
    one = life("echo $PATH; echo $PDSH_RCMD_TYPE $workers; exit 1", come=(THREE,), elastic=ELASTIC).start()
    path, others = one.end()["lastLines"]
    assert path == f"/opt/deepspeed-job:{os.environ['PATH']}"
    assert others == "ssh 3"


# Attempts that cannot begin


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Refusal("the image of the launcher lacks pdsh"), "CannotStart"),
        (TimeoutError("1 of 2 workers do not run in time"), "StartTimeout"),
        (Unreachable(HOSTS[1], "authenticate", "Permission denied"), "WorkerUnreachable"),
    ],
)
def test_why_an_attempt_cannot_begin_is_told(life, error, reason):
    one = life(come=(error,)).start()
    verdict = one.end()
    assert (verdict["phase"], verdict["exitCode"], verdict["reason"]) == ("Failed", 1, reason)
    assert verdict["message"] == str(error)
    assert verdict["host"] == ("job-worker-1" if reason == "WorkerUnreachable" else "")
    assert one.workers.parted == 1


def test_an_elastic_run_goes_on_without_a_worker_that_is_lost_before_its_command_runs(life):
    one = life(come=(Unreachable(HOSTS[1], "connect", "Broken pipe"), TWO), elastic=ELASTIC).start()
    assert one.end()["reason"] == "Completed"
    assert one.told("restarts") == [1]


def test_an_attempt_that_did_not_begin_was_short(life, monkeypatch):
    """Or its pause would never grow."""
    lasted = []
    one = life(come=(Unreachable(HOSTS[1], "connect", "refused"),), maxRestarts=2)
    count = one.launcher.restarts.count
    monkeypatch.setattr(
        one.launcher.restarts, "count", lambda *facts: lasted.append(facts[1]) or count(*facts)
    )
    one.start().end()
    assert len(lasted) == 2
    assert max(lasted) < 60


# Restarts


def test_a_command_that_fails_is_started_again_as_often_as_was_asked_for(life):
    one = life(GOOD_AT.format(n=3), maxRestarts=2).start()
    assert one.end()["reason"] == "Completed"
    assert one.workers.attempts == one.workers.parted == 3
    assert one.told("phase") == ["Running", "Restarting", "Running", "Restarting", "Running"]
    assert one.told("restarts") == [1, 2]
    causes = one.told("causes")[-1]
    assert len(causes) == 2
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ the command failed with exit code 1", causes[0])
    assert one.launcher.restarts.told() == {"restarts": 2, "causes": causes}


def test_the_last_verdict_is_the_one_that_counts(life, capsys):
    one = life("echo x >> tried; exit $(wc -l < tried)", maxRestarts=2).start()
    assert one.end()["exitCode"] == 3
    said = capsys.readouterr().out
    assert "restart 1 (1 of 2 counted)" in said
    assert "restart 2 (2 of 2 counted)" in said


def test_what_would_fail_again_is_not_started_again(life):
    one = life(come=(Refusal("no"),), maxRestarts=5).start()
    assert one.end()["reason"] == "CannotStart"
    assert one.workers.attempts == 1


# Lost workers


def test_a_lost_worker_ends_the_command_and_the_others_are_told_at_once(life):
    one = life("echo up; sleep 60").start()
    one.until_it_says("up")
    one.workers.lose(1)
    verdict = one.end()
    assert (verdict["reason"], verdict["host"]) == ("WorkerLost", "job-worker-1")
    wait_for(lambda: one.workers.stopped)


@pytest.mark.parametrize(("step", "forgotten"), [("stay", [HOSTS[1]]), ("connect", [])])
def test_a_pod_that_ends_is_waited_for_anew_and_one_that_was_cut_off_may_still_be_there(
    life, step, forgotten
):
    one = life("echo up; sleep 60").start()
    one.until_it_says("up")
    one.workers.lose(1, step)
    one.end()
    assert one.workers.roster.forgotten == forgotten


def test_a_worker_that_is_lost_between_its_login_and_the_command_is_noticed(life):
    def comes_and_goes(workers, deadline):
        workers.links[HOSTS[1]].lost = Unreachable(HOSTS[1], "stay", "its pod was told to end")
        return TWO

    one = life("sleep 60", come=(comes_and_goes,)).start()
    assert one.end()["reason"] == "WorkerLost"
    assert one.workers.roster.forgotten == [HOSTS[1]]


def test_a_worker_that_takes_no_part_may_come_and_go(life):
    one = life("echo up; sleep 0.5").start()
    running = one.until_it_says("up")
    one.workers.lose(3)
    one.workers.on_failed(HOSTS[3])
    assert not running.trouble.is_set()
    assert one.end()["reason"] == "Completed"
    assert one.workers.roster.forgotten == []


def test_a_rank_that_fails_ends_the_command_although_its_launcher_waits(life):
    one = life("echo up; sleep 60", answers={HOSTS[1]: report(3)}).start()
    one.until_it_says("up")
    one.workers.on_failed(HOSTS[1])
    verdict = one.end()
    assert (verdict["reason"], verdict["host"]) == ("RankFailed", "job-worker-1")


@pytest.mark.parametrize(
    ("run", "attempts"), [({}, 1), ({"countLostWorkers": False}, 2), ({"elastic": ELASTIC}, 2)]
)
def test_a_restart_for_a_lost_worker_is_free_where_it_was_said(life, run, attempts):
    one = life("echo x >> tried; echo up; test $(wc -l < tried) -ge 2 || sleep 60", **run).start()
    one.until_it_says("up")
    one.workers.lose(1)
    assert one.end()["reason"] == ("WorkerLost" if attempts == 1 else "Completed")
    assert one.workers.attempts == attempts


# An elastic run follows the number of workers

UNTIL_THERE_ARE = 'echo "up $workers"; test $workers = {n} || sleep 60'


def test_a_scale_that_shrinks_is_followed_at_once(life):
    one = life(UNTIL_THERE_ARE.format(n=2), come=(THREE, TWO), elastic=ELASTIC).start()
    one.until_it_says("up 3")
    one.workers.roster.asked_for = TWO
    one.workers.on_changed()
    assert one.end()["reason"] == "Completed"
    assert one.told("members") == [3, 2]
    assert one.told("restarts") == [1]
    assert "the number of workers changes from 3 to 2" in one.told("causes")[0][0]
    assert one.workers.stopped == 1, "the ranks are told to end"
    assert one.workers.reported == 2, "and waited for"


def test_workers_that_come_are_taken_in_after_the_time_of_patience(life):
    one = life(UNTIL_THERE_ARE.format(n=3), come=(TWO, THREE), elastic={**ELASTIC, "patience": 0.6}).start()
    one.until_it_says("up 2")
    began = one.launcher.began
    one.workers.roster.asked_for = one.workers.there = THREE
    for _ in range(5):
        one.workers.on_changed()
    assert one.launcher.interruption is None
    wait_for(lambda: one.launcher.interruption or one.workers.attempts == 2)
    assert time.monotonic() >= began + 0.6
    assert one.end()["reason"] == "Completed"
    assert one.told("members") == [2, 3]
    assert one.told("restarts") == [1], "one restart for all that came"


def test_workers_that_come_late_are_taken_in_at_once(life):
    one = life(UNTIL_THERE_ARE.format(n=3), come=(TWO, THREE), elastic={**ELASTIC, "patience": 0}).start()
    one.until_it_says("up 2")
    one.workers.roster.asked_for = one.workers.there = THREE
    one.workers.on_changed()
    assert one.end()["reason"] == "Completed"


def test_a_scale_that_changed_before_the_command_ran_is_followed(life):
    def asks_for_less(workers, deadline):
        workers.roster.asked_for = TWO
        return THREE

    one = life(UNTIL_THERE_ARE.format(n=2), come=(THREE, asks_for_less, TWO), elastic=ELASTIC).start()
    one.until_it_says("up 3")
    one.workers.lose(2)
    assert one.end()["reason"] == "Completed"
    assert one.told("members") == [3, 3, 2]


@pytest.mark.parametrize(
    ("asked_for", "there", "fit"),
    [
        (TWO, TWO, 4),
        (THREE, TWO, 4),  # the third has not come, or it cannot be used
        (HOSTS, THREE, 2),  # and no more than two can share the batch
    ],
)
def test_a_number_that_stays_needs_no_restart(life, monkeypatch, asked_for, there, fit):
    monkeypatch.setattr(FakeWorkers, "count_that_fits", lambda self, present: min(present, fit))
    one = life("echo up; sleep 0.3", elastic={**ELASTIC, "patience": 0}).start()
    one.until_it_says("up")
    one.workers.roster.asked_for, one.workers.there = asked_for, there
    one.workers.on_changed()
    assert one.launcher.interruption is None
    assert one.end()["reason"] == "Completed"
    assert one.workers.attempts == 1


def test_a_run_that_is_not_elastic_follows_nobody(life):
    one = life("echo up; sleep 0.5").start()
    one.until_it_says("up")
    one.workers.roster.asked_for = HOSTS[:1]
    one.workers.on_changed()
    assert one.end()["reason"] == "Completed"


def test_workers_that_report_while_the_launcher_is_being_made_do_no_harm(life, monkeypatch):
    class Early(FakeWorkers):
        def __init__(self, *facts):
            super().__init__(*facts)
            self.on_changed()

    one = life(elastic=ELASTIC)
    monkeypatch.setattr(launcher, "Workers", Early)
    assert Life({}).start().end()["reason"] == "Completed"
    assert one


# An interactive run


def test_an_interactive_run_is_there_until_it_is_told_to_end(life):
    one = life(interactive=True, run={}).start()
    wait_for(lambda: one.told("phase") == ["Interactive"])
    assert one.launcher.command is None
    one.launcher.stop()
    verdict = one.end()
    assert (verdict["reason"], verdict["exitCode"]) == ("Stopped", 143)
    assert (one.workers.stopped, one.workers.attempts, one.workers.parted) == (1, 1, 1)


def test_an_interactive_run_comes_up_again_when_a_worker_is_lost(life):
    one = life(interactive=True).start()
    wait_for(lambda: one.told("phase"))
    one.workers.lose(1)
    wait_for(lambda: one.told("phase") == ["Interactive", "Restarting", "Interactive"])
    assert one.told("restarts") == [1]
    one.launcher.stop()
    assert one.end()["reason"] == "Stopped"


@pytest.mark.parametrize("earlier", [report(3), report(-9, oom=1)])
def test_how_the_commands_of_an_interactive_run_ended_is_no_matter_of_the_run(life, earlier):
    one = life(interactive=True, answers={HOSTS[0]: earlier}).start()
    wait_for(lambda: one.told("phase"))
    one.workers.lose(1)
    wait_for(lambda: one.told("phase") == ["Interactive", "Restarting", "Interactive"])
    assert "job-worker-1 is lost" in one.told("causes")[0][0]
    one.launcher.stop()
    assert one.end()["reason"] == "Stopped"


def test_an_interactive_run_that_is_told_to_end_while_it_asks_about_a_lost_worker_was_stopped(life):
    one = life(interactive=True).start()
    wait_for(lambda: one.told("phase"))
    one.workers.on_report = one.launcher.stop
    one.workers.lose(1)
    assert one.end()["reason"] == "Stopped"


def test_an_interactive_run_has_a_deadline(life):
    one = life(interactive=True, deadline=0.3).start()
    assert one.end()["reason"] == "DeadlineExceeded"


def test_an_interactive_run_never_stalls(life):
    one = life(interactive=True, stallTimeout=0.1, deadline=0.6).start()
    assert one.end()["reason"] == "DeadlineExceeded"


# Limits, and the order to end


def test_a_command_whose_time_is_over_is_ended_for_good(life):
    one = life("echo up; sleep 60", deadline=0.5, maxRestarts=5).start()
    verdict = one.end()
    assert (verdict["reason"], verdict["exitCode"], verdict["lastLines"]) == ("DeadlineExceeded", 124, ["up"])
    assert one.workers.attempts == 1
    assert (one.workers.stopped, one.workers.reported) == (1, 1), "the ranks are told, and waited for"


def test_a_run_whose_time_is_over_before_its_workers_came_has_that_reason(life):
    one = life(come=(nobody_comes,), deadline=0.3, startTimeout=3600).start()
    assert one.end()["reason"] == "DeadlineExceeded"


def test_workers_that_come_too_late_for_the_run_are_not_kept(life):
    def late(workers, deadline):
        time.sleep(max(0, deadline - time.monotonic()))
        return TWO

    one = life("echo up; sleep 60", come=(late,), deadline=0.3).start()
    assert one.end()["reason"] == "DeadlineExceeded"


def test_the_pause_before_a_restart_ends_with_the_runs_time(life, monkeypatch):
    monkeypatch.setattr(restarts, "LONGEST_PAUSE_SECONDS", 60)
    began = time.monotonic()
    one = life("exit 3", deadline=0.5, maxRestarts=5)
    monkeypatch.setattr(one.launcher.restarts, "count", lambda *_: 60)
    assert one.start().end()["reason"] == "DeadlineExceeded"
    assert time.monotonic() < began + 30
    assert one.workers.attempts == 1


def test_a_command_without_a_sign_of_life_is_ended_and_may_be_started_again(life):
    shell = "echo x >> tried; test $(wc -l < tried) -ge 2 || sleep 60"
    verdict = life(shell, stallTimeout=0.3).start().end()
    assert (verdict["reason"], verdict["exitCode"]) == ("Stalled", 124)
    Path("tried").unlink()
    one = life(shell, stallTimeout=0.3, maxRestarts=1).start()
    assert one.end()["reason"] == "Completed"
    assert "no line of output" in one.told("causes")[0][0]


def test_a_command_that_speaks_does_not_stall(life):
    one = life("for i in 1 2 3 4 5 6 7 8 9; do echo $i; sleep 0.1; done", stallTimeout=0.6).start()
    assert one.end()["reason"] == "Completed"


def test_told_to_end_the_ranks_hear_it_first_and_nothing_is_started_again(life):
    one = life(
        "trap 'test -e told && echo told; exit 0' TERM; echo up; sleep 60 & wait",
        maxRestarts=5,
        elastic=ELASTIC,
    ).start()
    one.workers.on_stop = Path("told").touch
    one.until_it_says("up")
    one.launcher.stop()
    verdict = one.end()
    assert (verdict["reason"], verdict["exitCode"]) == ("Stopped", 143), "whatever the command ends with"
    assert verdict["lastLines"] == ["up", "told"]
    assert one.workers.attempts == 1


def test_told_to_end_while_the_number_of_workers_changes_it_was_stopped(life):
    one = life(
        "echo up; trap 'sleep 0.3; exit 0' TERM; sleep 60 & wait", come=(THREE, TWO), elastic=ELASTIC
    ).start()
    one.until_it_says("up")
    one.workers.roster.asked_for = TWO
    one.workers.on_changed()
    one.launcher.stop()
    verdict = one.end()
    assert (verdict["reason"], verdict["exitCode"]) == ("Stopped", 143)
    assert one.workers.attempts == 1


def test_the_first_that_ends_a_command_is_the_reason(life):
    one = life("echo up; trap 'sleep 0.3; exit 0' TERM; sleep 60 & wait", deadline=3600).start()
    one.until_it_says("up")
    one.launcher.stop()
    one.launcher.interrupt(one.launcher.limits.deadline_verdict())
    assert one.end()["reason"] == "Stopped"


def test_told_to_end_before_the_command_runs_it_ends_at_once(life, monkeypatch):
    said, codes = [], []
    monkeypatch.setattr(launcher, "finish", lambda **told: said.append(told))
    monkeypatch.setattr(launcher.os, "_exit", codes.append)
    one = life()
    one.launcher.stop()
    assert codes == [143]
    assert said[0].items() > launcher.STOPPED.items()
    assert (said[0]["restarts"], said[0]["causes"]) == (0, [])
    assert {"startedAt", "endedAt"} < said[0].keys()
    assert one.told("reason") == ["Stopped"], "so that the sidecar frees the workers"


# The whole program

PROGRAM = """\
import json, pathlib, sys
sys.path.insert(0, {tests!r})
import common
common.TERMINATION_LOG = pathlib.Path("told")
import launcher, fake_workers, os, signal
{patch}
launcher.Workers = fake_workers.FakeWorkers
launcher.load_run = lambda: json.loads(pathlib.Path("run.json").read_text())
launcher.os._exit(launcher.main())
"""


@pytest.fixture
def program(tmp_path):
    """Start the program for a run; read the first line that it does not say itself."""

    def start(shell, patch="", **run):
        (tmp_path / "run.json").write_text(json.dumps({**RUN, "run": {"command": shell}, **run}))
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(tests=str(TESTS), patch=patch)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(FILES), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )

    return start


TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


def test_the_containers_end_tells_all(program, tmp_path):
    running = program(GOOD_AT.format(n=2), maxRestarts=1)
    assert running.wait(30) == 0
    told = json.loads((tmp_path / "told").read_text())
    assert (told["phase"], told["exitCode"], told["reason"], told["restarts"]) == (
        "Succeeded",
        0,
        "Completed",
        1,
    )
    assert len(told["causes"]) == 1
    assert re.fullmatch(TIME, told["startedAt"])
    assert re.fullmatch(TIME, told["endedAt"])
    assert told["startedAt"] <= told["endedAt"]
    running.stdout.close()


def test_the_containers_exit_code_is_the_commands(program, tmp_path):
    running = program("exit 7")
    running.communicate(timeout=30)
    assert running.returncode == 7
    assert json.loads((tmp_path / "told").read_text())["exitCode"] == 7


@pytest.mark.parametrize("run", [{}, {"interactive": True}])
def test_the_kubelets_term_is_passed_on(program, tmp_path, run):
    running = program("sleep 0.3; echo up; sleep 60", **run)
    for line in running.stdout:
        if line == "up\n" or "ready: " in line:
            break
    running.terminate()
    running.communicate(timeout=30)
    assert running.returncode == 143
    told = json.loads((tmp_path / "told").read_text())
    assert (told["reason"], told["restarts"], told["causes"]) == ("Stopped", 0, [])


# As `self.lost.wait()` does for a moment.
HOLDS_A_LOCK = """\
catch_up = launcher.Launcher.catch_up
def told(self):
    with self.lost._cond:
        os.kill(os.getpid(), signal.SIGTERM)
        print("told", flush=True)
    catch_up(self)
launcher.Launcher.catch_up = told
"""


@pytest.mark.parametrize("run", [{}, {"interactive": True}])
def test_a_term_that_comes_while_the_main_thread_holds_a_lock_is_no_deadlock(program, run):
    running = program("sleep 60", patch=HOLDS_A_LOCK, **run)
    output, _ = running.communicate(timeout=30)
    assert "told\n" in output
    assert running.returncode == 143


@pytest.mark.parametrize("name", ["launcher", "sidecar", "worker", "direct"])
def test_the_first_process_of_a_container_hears_a_term_while_it_still_imports(name):
    body = ast.parse((FILES / f"{name}.py").read_text()).body
    first = next(one for one in body if isinstance(one, (ast.Import, ast.ImportFrom)))
    assert [one.name for one in first.names] == ["early"]
    code = "import early, os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    assert subprocess.run([sys.executable, "-c", code], cwd=FILES).returncode == 143
