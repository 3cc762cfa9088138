"""Faults that `make chaos` found, each made certain."""

from lab import on_all, wait_for


def test_a_ranks_session_that_is_killed_is_noticed_though_its_rank_goes_on(job, tmp_path):
    """The rank has the connection's pipe, so pdsh waits for it, and it would train beside the next attempt."""
    rank = (
        'echo "begin $(test -e /out/again && echo again)" >> /out/marks; test -e /out/again && exit 0; '
        "echo up; while sleep 1; do echo still >> /out/marks; done"
    )
    job.install(
        tmp_path,
        persistence={"out": {"size": "1Gi", "mountPath": "/out"}},
        workers={"count": 2},
        run={"command": on_all(rank), "maxRestarts": 1},
    )
    for i in range(2):
        job.wait_log(f"worker-{i}: up")
    job.namespace.kubectl("exec", "job-worker-1", "--", "touch", "/out/again")
    # The newest is the rank's; the launcher's own is older.
    job.namespace.kubectl("exec", "job-worker-1", "--", "pkill", "-KILL", "-n", "-f", "session.py")
    assert job.wait_ended(90) == "Complete", job.describe()
    job.wait_released()
    report = job.report()
    assert report["restarts"] == 1
    assert "job-worker-1 failed with exit code 137" in report["causes"][0]
    job.install(
        tmp_path, persistence={"out": {"size": "1Gi", "mountPath": "/out"}}, run={"command": "cat /out/marks"}
    )
    wait_for(lambda: "begin again" in job.log_so_far(), 90, job.describe)
    assert "still" not in job.log_so_far().partition("begin again")[2]


def test_a_call_that_is_killed_before_its_command_begins_is_no_success(job, tmp_path):
    """pdsh ends with 0 when one of its ssh is killed, and the worker knows of nothing that failed."""
    never = "ssh -o ProxyCommand='sleep 60' job-worker-1.job true"
    command = f"ssh job-worker-0.job true; {never} & sleep 2; kill -9 $!; exit 0"
    job.install(tmp_path, workers={"count": 2}, run={"command": command})
    assert job.wait_ended(60) == "Failed", job.describe()
    report = job.report()
    assert (report["reason"], report["host"]) == ("RankFailed", "job-worker-1")
    assert "nothing ran there" in report["message"]


def test_a_sidecar_that_is_killed_as_the_run_ends_leaves_no_workers(job, tmp_path):
    """Kubernetes starts it again only while the launcher runs, so the launcher waits for it."""
    command = "until [ -e /job/end ]; do sleep 0.05; done; sleep 0.3"
    job.install(tmp_path, workers={"count": 2}, run={"command": command})
    job.wait_log("run: ")
    name = job.launcher()["metadata"]["name"]
    # An interrupt ends it at once, as a KILL would, which the first process gets only from outside.
    job.namespace.kubectl("exec", name, "-c", "workers", "--", "sh", "-c", "kill -INT 1; touch /job/end")
    assert job.wait_ended(90) == "Complete", job.describe()
    job.wait_released(30)
    sidecar = job.launcher()["status"]["initContainerStatuses"][0]
    assert sidecar["restartCount"] == 1, (sidecar, job.log("workers"))
