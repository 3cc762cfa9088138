"""How a run ends: never a success that was none, the cause named, the workers released whatever happened.

The commands go to the workers by pdsh, as DeepSpeed's do, without torch: seconds instead of a minute.
"""

import time

import pytest
from lab import IMAGE, on_all, wait_for


def python_on_all(script):
    """A command of the launcher that runs a Python script on all three workers."""
    return on_all(f"python3 -uc '{script}'", 3)


def test_success_frees_the_workers_and_keeps_the_log(job, tmp_path):
    job.install(tmp_path, workers={"count": 3}, run={"command": python_on_all("print(6 * 7)")})
    assert job.wait_ended() == "Complete", job.describe()
    job.wait_released()
    assert job.log().count(": 42") == 3
    scale = job.namespace.get("statefulset", "job-worker")["spec"]["replicas"]
    assert scale == 0


def test_an_exit_code_is_told_with_its_host_and_last_line(job, tmp_path):
    script = 'import os, sys; one = os.uname().nodename.endswith("-1"); print("ValueError: boom" if one else "fine"); sys.exit(3 * one)'
    values = {"image": IMAGE, "workers": {"count": 3}, "run": {"command": python_on_all(script)}}
    text = job.namespace.dsjob("up", job.values_file(tmp_path, values), "job", code=1)
    assert "job-worker-1" in text
    assert job.wait_ended() == "Failed"
    job.wait_released()
    report = job.report()
    assert (report["reason"], report["host"], report["exitCode"]) == ("RankFailed", "job-worker-1", 3)
    assert report["lastLines"][-1].endswith("ValueError: boom")
    status = job.namespace.dsjob("status", "job")
    assert "Failed" in status
    assert "exit code 3" in status
    assert "ValueError: boom" in status


def test_a_killed_pdsh_is_no_success(job, tmp_path):
    """The command ends with 0 here, as `deepspeed` does when pdsh dies by a signal."""
    command = f"({' '.join(on_all('sleep 60', 3))} & sleep 2; kill -9 $!); exit 0"
    job.install(tmp_path, workers={"count": 3}, run={"command": command})
    assert job.wait_ended() == "Failed"
    job.wait_released()
    assert job.report()["reason"] == "RankFailed"


def test_a_rank_that_needs_too_much_memory(job, tmp_path):
    script = 'import os; one = os.uname().nodename.endswith("-2"); x = bytearray(512 << 20 if one else 1)'
    workers = {"count": 3, "resources": {"limits": {"memory": "256Mi"}}}
    job.install(tmp_path, workers=workers, run={"command": python_on_all(script)})
    assert job.wait_ended() == "Failed"
    job.wait_released()
    report = job.report()
    assert (report["reason"], report["host"]) == ("OOMKilled", "job-worker-2")
    assert "OOMKilled" in job.namespace.dsjob("status", "job")


def test_a_deleted_worker_ends_the_run(job, tmp_path):
    job.install(
        tmp_path,
        workers={"count": 3},
        run={"command": python_on_all("import time; print(1); time.sleep(600)")},
    )
    job.wait_log("worker-1: 1")
    job.namespace.kubectl("delete", "pod", "job-worker-1", "--wait=false")
    assert job.wait_ended(60) == "Failed"
    job.wait_released(30)
    assert "job-worker-1" in job.report()["message"]


def test_a_launcher_killed_for_memory_frees_the_workers_too(job, tmp_path):
    """The sidecar notices, since the kernel closes the launcher's connection to it."""
    # The first process becomes the one that the kernel kills first.
    hog = "echo 1000 > /proc/1/oom_score_adj; python3 -c 'x = [bytearray(1 << 20) for i in range(4096)]'"
    memory = {"memory": "128Mi"}
    job.install(
        tmp_path,
        workers={"count": 2},
        launcher={"resources": {"requests": memory, "limits": memory}},
        run={"command": hog},
    )
    assert job.wait_ended() == "Failed"
    job.wait_released()
    assert "OOMKilled" in job.namespace.dsjob("status", "job")


def test_a_new_run_replaces_one_that_is_under_way_and_never_are_there_two(job, tmp_path):
    # This command takes its time to end, so that the new launcher is there before the old one has gone.
    job.install(
        tmp_path,
        workers={"count": 3},
        run={"command": "trap 'sleep 15; exit 1' TERM; echo begun; sleep 600 & wait"},
    )
    job.wait_log("begun\n")
    job.install(tmp_path, workers={"count": 3}, run={"command": python_on_all("print(2)")})
    assert job.wait_ended(120) == "Complete", job.describe()
    job.wait_released()
    assert job.log().count(": 2\n") == 3
    assert "which still drives the workers" in job.log("workers")
    assert len(job.namespace.get("job", selector=job.selector)) == 1


CHECKPOINT_ON_TERM = """
import os, pathlib, signal, time
mark = pathlib.Path("/out", os.uname().nodename)
def save(*_):
    time.sleep(3)
    mark.write_text("saved")
    raise SystemExit(143)
signal.signal(signal.SIGTERM, save)
print(1)
time.sleep(600)
"""


def test_ranks_that_are_told_to_end_have_time_for_a_last_checkpoint(job, tmp_path):
    values = {
        "workers": {"count": 2},
        "persistence": {"out": {"size": "1Gi", "mountPath": "/out"}},
        "env": {"RANK_CODE": CHECKPOINT_ON_TERM},
    }
    job.install(
        tmp_path,
        **values,
        run={"command": on_all('exec python3 -uc "$RANK_CODE"')},
    )
    job.wait_log("worker-1: 1")
    job.install(
        tmp_path, **values, run={"command": "ssh job-worker-0.job cat /out/job-worker-0 /out/job-worker-1"}
    )
    assert job.wait_ended(120) == "Complete", job.describe()
    assert job.log().count("saved") == 2, job.describe()


def test_down_of_a_running_job_is_quick(job, tmp_path):
    job.install(
        tmp_path,
        workers={"count": 3},
        run={"command": python_on_all("import time; print(1); time.sleep(600)")},
    )
    job.wait_log("worker-1: 1")
    began = time.monotonic()
    job.namespace.dsjob("down", "job")
    assert time.monotonic() - began < 15


def test_one_rank_fails_while_others_sleep(job, tmp_path):
    script = 'import os, sys, time; one = os.uname().nodename.endswith("-2"); time.sleep(1 if one else 600); sys.exit(7)'
    job.install(tmp_path, workers={"count": 3}, run={"command": python_on_all(script)})
    assert job.wait_ended(60) == "Failed"
    job.wait_released()
    report = job.report()
    assert (report["reason"], report["host"]) == ("RankFailed", "job-worker-2")
    assert "exit code 7" in report["message"]


@pytest.mark.parametrize("victim", ["sshd: .*@notty", "session.py", "python3 -uc"])
def test_whatever_is_killed_on_a_worker_is_no_success(job, tmp_path, victim):
    job.install(
        tmp_path,
        workers={"count": 3},
        run={"command": python_on_all("import time; print(1); time.sleep(600)")},
    )
    job.wait_log("worker-1: 1")
    job.namespace.kubectl("exec", "job-worker-1", "--", "pkill", "-KILL", "-o", "-f", victim)
    assert job.wait_ended(60) == "Failed"
    job.wait_released()
    assert job.report()["host"] == "job-worker-1"


def test_a_link_that_is_dead_and_not_closed_ends_the_run(job, tmp_path):
    """A worker that answers nothing any more, as when its network is cut."""
    job.install(
        tmp_path,
        workers={"count": 3},
        run={"command": python_on_all("import time; print(1); time.sleep(600)")},
    )
    job.wait_log("worker-1: 1")
    job.namespace.kubectl("exec", "job-worker-1", "--", "pkill", "-STOP", "sshd")
    assert job.wait_ended(60) == "Failed"
    job.wait_released(35)
    report = job.report()
    assert (report["reason"], report["host"]) == ("WorkerLost", "job-worker-1")


def test_a_restart_waits_for_a_worker_that_is_replaced(job, tmp_path):
    once = (
        'import os, sys, time; there = os.path.exists("/out/again"); print("again" if there else "first"); '
        "time.sleep(0 if there else 600)"
    )
    values = {"persistence": {"out": {"size": "1Gi", "mountPath": "/out"}}, "workers": {"count": 3}}
    job.install(tmp_path, **values, run={"command": python_on_all(once), "maxRestarts": 1})
    job.wait_log("worker-1: first")
    job.namespace.kubectl("exec", "job-worker-0", "--", "touch", "/out/again")
    job.namespace.kubectl("delete", "pod", "job-worker-1", "--wait=false")
    assert job.wait_ended(120) == "Complete", job.describe()
    assert job.log().count(": again") == 3
    assert job.report()["restarts"] == 1


def test_uninstall_during_a_run_leaves_nothing(job, tmp_path):
    job.install(
        tmp_path,
        workers={"count": 3},
        run={"command": python_on_all("import time; print(1); time.sleep(600)")},
    )
    job.wait_log("worker-1: 1")
    assert "job" in job.namespace.dsjob("down", "job", timeout=60)
    for kind in ("pod", "job", "statefulset", "service", "secret", "lease", "role", "rolebinding"):
        assert job.namespace.get(kind, selector=job.selector) == [], kind


def test_workers_that_cannot_start_are_given_back_in_time(job, tmp_path):
    job.install(
        tmp_path,
        workers={"count": 2, "nodeSelector": {"no": "such-node"}},
        run={"command": ["true"], "startTimeout": 5},
    )
    wait_for(
        lambda: "such-node" in job.namespace.dsjob("status", "job") or job.condition(),
        30,
        "status names no reason",
    )
    assert job.wait_ended(60) == "Failed"
    job.wait_released()
    report = job.report()
    assert report["reason"] == "StartTimeout"
    assert "job-worker-0, job-worker-1" in report["message"]


@pytest.mark.parametrize("command", ["deepsped train.py", ["no-such-program"]])
def test_a_command_that_is_not_there(job, tmp_path, command):
    job.install(tmp_path, run={"command": command})
    assert job.wait_ended() == "Failed"
    assert (job.report()["reason"], job.report()["exitCode"]) == ("CommandFailed", 127)


def test_a_restart_goes_on_after_a_failure(job, tmp_path):
    """The second attempt finds what the first left, as a checkpoint would be."""
    once = (
        'import os, sys; p = "/tmp/here"; there = os.path.exists(p); open(p, "w").close(); '
        'print("resumed" if there else "new"); sys.exit(0 if there else 5)'
    )
    job.install(tmp_path, workers={"count": 3}, run={"command": python_on_all(once), "maxRestarts": 2})
    assert job.wait_ended() == "Complete", job.describe()
    assert job.log().count(": resumed") == 3
    assert job.report()["restarts"] == 1
