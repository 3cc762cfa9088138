"""What an image or a cluster lacks: told within seconds, by name, with the role that needs it and what to do.

The images are the stages of images/Dockerfile, named by what they lack.
"""

import re

import pytest
from lab import IMAGE, wait_for
from test_5_direct import CPU, DirectJob

# Much less than run.startTimeout: nobody waits for what does not come.
SOON = 60


def image(tag):
    return {"repository": "localhost/deepspeed-test", "tag": tag}


def fails_soon(job):
    """Wait for the end; return what the launcher and `dsjob status` tell of it."""
    assert job.wait_ended(SOON) == "Failed", job.describe()
    # A worker that is starting may not hear that it is to end, and has its grace period.
    job.wait_released(40)
    return job.report(), job.namespace.dsjob("status", job.name)


@pytest.mark.parametrize(
    ("tag", "role", "program"),
    [("bare", "launcher", "ssh-keygen"), ("no-sshd", "worker", "sshd"), ("no-pkill", "worker", "pkill")],
)
def test_a_program_of_ssh(job, tmp_path, tag, role, program):
    """A worker that cannot serve says so to the launcher, which need not wait for it."""
    job.install(tmp_path, image=image(tag), workers={"count": 2}, run={"command": "true"})
    report, status = fails_soon(job)
    assert (report["reason"], report["exitCode"]) == ("CannotStart", 1)
    for told in (report["message"], status):
        assert re.search(
            f"the image of the {role} lacks .*{program}: install openssh-server, openssh-client", told
        )
        assert "`mode: direct`, which needs none" in told
    assert role == "launcher" or report["message"].startswith("job-worker-")


def test_mode_direct_needs_none_of_them(namespace, tmp_path):
    job = DirectJob(namespace)
    job.install(tmp_path, image=image("bare"), workers={"count": 2}, run={"command": "echo up"})
    assert job.wait_ended(SOON) == "Complete", job.describe()
    assert all("\nup\n" in log for log in job.logs())


@pytest.mark.parametrize(
    ("tag", "told"),
    [
        ("no-pdsh", "deepspeed: the image of the launcher lacks pdsh"),
        ("no-deepspeed", "deepspeed: not found in the image: install it"),
    ],
)
def test_what_the_command_deepspeed_needs(job, tmp_path, tag, told):
    job.install(tmp_path, image=image(tag), workers={"count": 2}, run={"script": "/train.py"})
    report, status = fails_soon(job)
    assert (report["reason"], report["exitCode"]) == ("CommandFailed", 127)
    assert told in report["lastLines"][-1]
    assert told in status


def test_the_module_deepspeed_in_mode_direct(namespace, tmp_path):
    job = DirectJob(namespace)
    job.install(tmp_path, image=image("bare"), workers={"count": 2}, env=CPU, run={"script": "/train.py"})
    assert job.wait_ended(SOON) == "Failed"
    assert "has no module `deepspeed`: install it in the image" in namespace.dsjob("status", job.name)


@pytest.mark.parametrize("mode", ["launcher", "direct"])
def test_python(job, tmp_path, mode):
    """Nothing of ours can run, so only `dsjob status` can tell."""
    job.install(tmp_path, mode=mode, image=image("no-python"), run={"command": "true"})

    def told():
        status = job.namespace.dsjob("status", job.name)
        return 'cannot start: exec: "python3"' in status and "the image has no program python3" in status

    wait_for(told, SOON, lambda: f"{job.namespace.dsjob('status', job.name)}\n{job.describe()}")


@pytest.mark.parametrize(
    "run",
    [{"script": "/no/such.py"}, {"command": "pdsh -S -w job-worker-[0-1].job python3 /no/such.py"}],
    ids=["script", "command"],
)
def test_the_script(job, tmp_path, run):
    job.install(tmp_path, image=IMAGE, workers={"count": 2}, env=CPU, run=run)
    report, status = fails_soon(job)
    assert (report["reason"], report["exitCode"]) == ("RankFailed", 2)
    assert report["message"] == f"{report['host']} failed with exit code 2"
    for told in (report["lastLines"][-1], status):
        assert "can't open file '/no/such.py'" in told
    assert "exit code 2" in status


def test_a_script_that_the_launcher_runs_by_itself(job, tmp_path):
    job.install(tmp_path, run={"command": "bash /no/such.sh"})
    report, status = fails_soon(job)
    assert (report["reason"], report["exitCode"]) == ("CommandFailed", 127)
    for told in (report["lastLines"][-1], status):
        assert "/no/such.sh: No such file or directory" in told


def waits(job, tmp_path, workers, why, remedy):
    """The launcher's own log tells what the first worker waits for, and so does its end; `dsjob status` says what helps."""
    job.install(tmp_path, workers={"count": 2, **workers}, run={"command": "true", "startTimeout": 15})
    job.wait_log(f"waiting for workers: 0/2 run; waiting for job-worker-0: {why}: ")
    assert remedy in job.namespace.dsjob("status", job.name)
    report, _ = fails_soon(job)
    assert report["reason"] == "StartTimeout"
    assert f"job-worker-0, job-worker-1; waiting for job-worker-0: {why}: " in report["message"]


def test_a_node_for_the_workers(job, tmp_path):
    waits(job, tmp_path, {"nodeSelector": {"no": "such-node"}}, "not scheduled", "no node has these labels")


def test_quota_for_the_workers(job, tmp_path):
    quota = {"kind": "ResourceQuota", "apiVersion": "v1", "metadata": {"name": "small"}}
    job.namespace.apply({**quota, "spec": {"hard": {"requests.cpu": "1"}}})
    wait_for(
        lambda: job.namespace.get("resourcequota", "small").get("status"), 30, "the quota is not in force"
    )
    requests = {"resources": {"requests": {"cpu": "2"}}}
    waits(job, tmp_path, requests, "it has no pod", "the quota small is used up")
