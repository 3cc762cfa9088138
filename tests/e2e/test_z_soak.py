"""Many jobs in one namespace, one after another and side by side: nothing is left of them, and none has another's output."""

from concurrent.futures import ThreadPoolExecutor

from lab import Job, on_all, wait_for

ONE_AFTER_ANOTHER = 30
# Each name is a part of another one.
SIDE_BY_SIDE = ["job", "job-1", "a-job", "job-worker", "job-1-launcher"]
KINDS = (
    "job,pod,statefulset,service,secret,configmap,lease,serviceaccount,role,rolebinding,controllerrevision"
)
# A StatefulSet keeps its last ten, which nobody sees.
REVISION = "controllerrevision"


def start(job, tmp_path, text, workers=2):
    """Install a job whose ranks print this text."""
    small = {"requests": {"cpu": "10m", "memory": "32Mi"}}
    job.install(
        tmp_path,
        workers={"count": workers, "resources": small},
        launcher={"resources": small},
        run={"command": on_all(f"echo said by {text}", workers, job.name)},
    )


def said(job):
    """What the ranks printed."""
    return sorted(line for line in job.log().splitlines() if ": said by " in line)


def expected(job, text, workers=2):
    return [f"{job.name}-worker-{i}: said by {text}" for i in range(workers)]


def left(namespace):
    """All that jobs have made in the namespace."""
    names = namespace.kubectl("get", KINDS, "-o", "name").split()
    return [one for one in names if not one.endswith(("/default", "/kube-root-ca.crt"))]


def uninstall(job):
    job.namespace.helm("uninstall", job.name)


def test_thirty_jobs_one_after_another_leave_nothing(namespace, tmp_path):
    """Every second one is a new run of the same release; the others come and go."""
    again = Job(namespace, "again")
    objects = set()
    for i in range(ONE_AFTER_ANOTHER):
        job = again if i % 2 else Job(namespace, f"job-{i}")
        start(job, tmp_path, f"run {i}")
        assert job.wait_ended(90) == "Complete", job.describe()
        job.wait_released(30)
        assert said(job) == expected(job, f"run {i}")
        if job is again:
            # What an earlier run of the release had is gone, or would be more each time.
            found = namespace.kubectl("get", KINDS, "-l", job.selector, "-o", "name").split()
            objects.add(sum(not one.startswith(REVISION) for one in found))
        else:
            uninstall(job)
    uninstall(again)
    assert len(objects) == 1, objects
    wait_for(lambda: not left(namespace), 60, lambda: f"left: {left(namespace)}")


def test_five_jobs_side_by_side_do_not_mix(namespace, tmp_path):
    jobs = [Job(namespace, name) for name in SIDE_BY_SIDE]
    with ThreadPoolExecutor(len(jobs)) as pool:
        list(pool.map(lambda job: start(job, tmp_path, job.name), jobs))
        assert set(pool.map(lambda job: job.wait_ended(120), jobs)) == {"Complete"}
    for job in jobs:
        job.wait_released(30)
        assert said(job) == expected(job, job.name)
        # dsjob finds the job of this name and no other.
        assert f"said by {job.name}\n" in namespace.dsjob("logs", job.name)
    for job in jobs:
        uninstall(job)
        others = [one.name for one in jobs[jobs.index(job) + 1 :]]
        for other in others:
            assert "Succeeded" in namespace.dsjob("status", other)
    wait_for(lambda: not left(namespace), 60, lambda: f"left: {left(namespace)}")
