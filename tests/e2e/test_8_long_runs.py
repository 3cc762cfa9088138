"""What long runs need: limits, restarts that are told, workers kept for a look, a pause, and an interactive job."""

import json
import time

import pytest
from lab import on_all, run, wait_for

SLEEP = "python3 -uc 'import time; print(1); time.sleep(600)'"
MODES = ["launcher", "direct"]


def own_processes(job, pod):
    """The command lines of a worker's processes, but for its own: the first process, sshd, and whoever asks."""
    text = job.namespace.kubectl("exec", pod, "-c", "worker", "--", "ps", "-eo", "args", "--no-headers")
    ours = ("/opt/deepspeed-job/worker.py", "sshd", "ps -eo")
    return [line for line in text.splitlines() if not any(word in line for word in ours)]


@pytest.mark.parametrize("mode", MODES)
def test_a_deadline_ends_the_run_with_time_for_a_last_checkpoint(job, tmp_path, mode):
    code = "import signal, time; signal.signal(15, lambda *_: (print('saved', flush=True), exit(1))); print(1); time.sleep(600)"
    command = f'python3 -uc "{code}"'
    run = {"command": on_all(command, mode=mode), "deadline": 15}
    job.install(tmp_path, mode=mode, workers={"count": 2}, run=run)
    assert job.wait_ended(120) == "Failed"
    assert "DeadlineExceeded" in job.namespace.dsjob("status", "job")
    if mode == "launcher":
        job.wait_released()
        assert job.report()["reason"] == "DeadlineExceeded"
        assert job.log().count(": saved") == 2


@pytest.mark.parametrize("mode", MODES)
def test_a_run_that_says_nothing_is_stalled(job, tmp_path, mode):
    command = on_all(SLEEP, mode=mode)
    job.install(tmp_path, mode=mode, workers={"count": 2}, run={"command": command, "stallTimeout": 6})
    assert job.wait_ended(90) == "Failed"
    assert "Stalled" in job.namespace.dsjob("status", "job")


def test_event_files_that_grow_are_a_sign_of_life(job, tmp_path):
    grow = (
        "for i in $(seq 12); do echo x >> /out/logs/events.out.tfevents.1; sleep 1; done; "
        "ssh job-worker-0.job echo done"
    )
    job.install(
        tmp_path,
        persistence={"out": {"size": "1Gi", "mountPath": "/out"}},
        tensorboard={"logdir": "/out/logs"},
        run={"command": f"mkdir -p /out/logs; {grow}", "stallTimeout": 4},
    )
    assert job.wait_ended(90) == "Complete", job.describe()


@pytest.mark.parametrize(("policy", "kept"), [("Never", True), ("OnSuccess", True), ("Always", False)])
def test_workers_of_a_failed_run_are_kept_if_asked_for_and_clean(job, tmp_path, policy, kept):
    """What stays is there to be looked at: no process of the run, and the files that it left."""
    command = "touch /tmp/evidence; sleep 600 & sleep 600 & exit 3"
    job.install(tmp_path, workers={"count": 2, "release": policy}, run={"command": on_all(command)})
    assert job.wait_ended(90) == "Failed"
    if not kept:
        job.wait_released()
        return
    for pod in ("job-worker-0", "job-worker-1"):
        assert own_processes(job, pod) == []
        job.namespace.kubectl("exec", pod, "--", "test", "-e", "/tmp/evidence")
    # A next run has workers of its own.
    job.install(
        tmp_path, workers={"count": 2, "release": policy}, run={"command": on_all("test ! -e /tmp/evidence")}
    )
    assert job.wait_ended(120) == "Complete", job.describe()


def test_restarts_and_their_causes_are_told_while_it_runs_and_after(job, tmp_path):
    once = "test -e /tmp/here && { echo again; sleep ${LAST:-600}; } || { touch /tmp/here; exit 5; }"
    job.install(tmp_path, workers={"count": 2}, run={"command": on_all(once), "maxRestarts": 1})
    job.wait_log("worker-1: again")
    wait_for(lambda: job.told().get("phase") == "Running", 20, lambda: job.told())
    assert job.told()["restarts"] == "1"
    assert "exit code 5" in json.loads(job.told()["causes"])[0]
    assert "exit code 5" in job.namespace.dsjob("status", "job")
    job.namespace.kubectl("exec", "job-worker-1", "--", "pkill", "-KILL", "sleep")
    assert job.wait_ended(60) == "Failed"
    assert job.report()["restarts"] == 1
    assert "exit code 5" in job.report()["causes"][0]


def test_a_worker_that_is_drained_costs_no_restart_if_asked_for(job, tmp_path):
    """Its ranks, and all others, have time for a last checkpoint."""
    code = (
        "import os, signal, time, pathlib as p; mark = p.Path('/out', os.uname().nodename); there = mark.exists(); "
        "signal.signal(15, lambda *_: (mark.write_text('saved'), exit(1))); print('again' if there else 'first'); "
        "time.sleep(0 if there else 600)"
    )
    job.install(
        tmp_path,
        persistence={"out": {"size": "1Gi", "mountPath": "/out"}},
        workers={"count": 3},
        run={"command": on_all(f'python3 -uc "{code}"', 3), "countLostWorkers": False},
    )
    for i in range(3):
        job.wait_log(f"worker-{i}: first")
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "job-worker-1", "namespace": job.namespace.name},
    }
    path = f"/api/v1/namespaces/{job.namespace.name}/pods/job-worker-1/eviction"
    job.namespace.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
    assert job.wait_ended(120) == "Complete", job.describe()
    assert job.log().count(": again") == 3
    assert "job-worker-1 is lost" in job.report()["causes"][0]


def test_a_worker_whose_container_ends_is_lost(job, tmp_path):
    """The pod stays, with its name and address."""
    job.install(tmp_path, workers={"count": 2}, run={"command": on_all(SLEEP)})
    job.wait_log("worker-1: 1")
    job.namespace.kubectl(
        "exec", "job-worker-1", "--", "pkill", "-TERM", "-f", "/opt/deepspeed-job/worker.py"
    )
    assert job.wait_ended(60) == "Failed"
    job.wait_released()
    assert job.report()["host"] == "job-worker-1"


@pytest.mark.parametrize("mode", MODES)
def test_suspend_frees_all_and_resume_goes_on(job, tmp_path, mode):
    code = (
        "import os, signal, sys, time, pathlib as p; mark = p.Path('/out', os.uname().nodename[-1]); "
        "there = mark.exists(); "
        "signal.signal(15, lambda *_: (mark.write_text('saved'), sys.exit(1))); print('again' if there else 'first'); "
        "time.sleep(0 if there else 600)"
    )
    command = f'python3 -uc "{code}"'
    values = {
        "mode": mode,
        "persistence": {"out": {"size": "1Gi", "mountPath": "/out"}},
        "workers": {"count": 2},
        "run": {"command": on_all(command, mode=mode)},
    }
    job.install(tmp_path, **values)

    def logs(text):
        role = "launcher" if mode == "launcher" else "worker"
        pods = [one["metadata"]["name"] for one in job.pods(role)]
        return sum(
            job.namespace.kubectl("logs", pod, "-c", role, code=None).stdout.count(text) for pod in pods
        )

    wait_for(lambda: logs("first\n") == 2, 60, job.describe)
    first = job.kube_job()["metadata"]["name"]
    job.namespace.dsjob("suspend", "job")
    wait_for(lambda: not job.pods("worker") and not job.pods("launcher"), 60, job.describe)
    assert "suspended" in job.namespace.dsjob("status", "job")
    job.namespace.dsjob("resume", "job")
    assert job.wait_ended(120) == "Complete", job.describe()
    assert job.kube_job()["metadata"]["name"] == first
    assert logs("again\n") == 2


def test_suspended_by_values_holds_nothing_and_starts_no_other_run(job, tmp_path):
    command = on_all("echo 42")
    job.install(tmp_path, workers={"count": 2}, run={"command": command, "suspend": True})
    first = job.kube_job()["metadata"]["name"]
    wait_for(lambda: "suspended" in job.namespace.dsjob("status", "job"), 30, "not suspended")
    assert job.pods("worker") == job.pods("launcher") == []
    job.install(tmp_path, workers={"count": 2}, run={"command": command})
    assert job.kube_job()["metadata"]["name"] == first
    assert job.wait_ended(90) == "Complete", job.describe()


def test_an_interactive_job_runs_what_it_is_told_again_and_again(job, tmp_path):
    job.install(tmp_path, workers={"count": 2}, env={"WHO": "me"}, run={"interactive": True})
    job.wait_log("ready")
    wait_for(lambda: job.told().get("phase") == "Interactive", 20, lambda: job.told())
    for _ in range(2):
        # `dsjob -n NAMESPACE` must come before the command.
        argv = ["exec", "job", "-n", job.namespace.name, "--", *on_all("echo $WHO $(hostname)")]
        text = run("dsjob", *argv)
        assert sorted(text.splitlines()) == [f"job-worker-{i}: me job-worker-{i}" for i in range(2)]
    # A worker that is lost is waited for, and then all is ready again.
    job.namespace.kubectl("delete", "pod", "job-worker-1", "--wait=false")
    wait_for(lambda: job.log().count("[deepspeed-job] ready") == 2, 60, job.describe)
    began = time.monotonic()
    job.namespace.dsjob("down", "job")
    assert time.monotonic() - began < 15
