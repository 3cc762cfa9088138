"""What reaches the ranks: the container's environment, exact arguments, the hostfile, data; and what must not: tokens, keys."""

import hashlib
import json
import re

import pytest
from lab import Job

NASTY = [
    "",
    "a b",
    "$HOME",
    "`id`",
    "q\"uo'te",
    "%h%n",
    "tab\there",
    "line\nbreak",
    "{{ x }}",
    "a(b)",
    "*",
    "ü",
    "#",
    "\\",
    "$$",
    "$(HOME)",
]
# One write: the ranks of one worker share its output.
SHOW = "import os, sys, json; os.write(1, ('SEEN ' + json.dumps([sys.argv[1:], dict(os.environ)]) + chr(10)).encode())"


def seen(log):
    """What each rank printed, as (arguments, environment)."""
    return [json.loads(found) for found in re.findall(r"SEEN (.*)", log)]


def test_every_rank_has_the_containers_environment_and_no_secret_is_in_a_log_or_config_map(job, tmp_path):
    space = job.namespace
    secret = "hunter2\nsecond line"
    space.kubectl("create", "secret", "generic", "hf", f"--from-literal=token={secret}")
    env = {
        "PLAIN": "a $b 'c' \"d\" $(e) $$",
        "LINES": "x\ny\n",
        "TOKEN": {"secretKeyRef": {"name": "hf", "key": "token"}},
    }
    show = (
        "import os, hashlib; e = os.environ; "
        "print('SEEN', repr(e['PLAIN']), repr(e['LINES']), hashlib.md5(e['TOKEN'].encode()).hexdigest(), e['PATH'])"
    )
    command = 'pdsh -S -w job-worker-[0-1].job "python3 -c \\"$SHOW\\""'
    job.install(tmp_path, workers={"count": 2}, env={**env, "SHOW": show}, run={"command": command})
    assert job.wait_ended() == "Complete", job.describe()
    log = job.log()
    lines = re.findall(r"SEEN (.*)", log)
    assert len(lines) == 2, log
    digest = hashlib.md5(secret.encode()).hexdigest()
    for line in lines:
        assert line.startswith(f"{env['PLAIN']!r} {env['LINES']!r} {digest} /usr/"), line
    assert "hunter2" not in log
    maps = space.kubectl("get", "configmap", "-o", "yaml")
    assert "hunter2" not in maps
    assert "PRIVATE KEY" not in maps


def test_arguments_of_a_script_are_exact_on_every_rank(namespace, tmp_path):
    """By DeepSpeed's real launcher, through pdsh, ssh and two shells."""
    job = Job(namespace)
    values = {
        "run": {
            "script": "/usr/bin/env",
            "args": ["python3", "-c", SHOW, *NASTY],
            "launcherArgs": ["--no_python"],
        }
    }
    job.install(tmp_path, workers={"count": 2, "slots": 2}, env={"DS_ACCELERATOR": "cpu"}, **values)
    assert job.wait_ended(240) == "Complete", job.describe()
    ranks = seen(job.log())
    assert len(ranks) == 4
    assert all(arguments == NASTY for arguments, _ in ranks)
    assert sorted(int(env["RANK"]) for _, env in ranks) == [0, 1, 2, 3]
    assert {env["WORLD_SIZE"] for _, env in ranks} == {"4"}
    assert {env["MASTER_ADDR"] for _, env in ranks} == {"job-worker-0.job"}


def test_one_worker_trains_in_the_worker_and_not_in_the_launcher(job, tmp_path):
    job.install(
        tmp_path,
        run={"command": ["deepspeed", "--no_python", "--no_local_rank", "/bin/hostname"]},
        env={"DS_ACCELERATOR": "cpu"},
    )
    assert job.wait_ended(240) == "Complete", job.describe()
    assert re.search(r"job-worker-0: job-worker-0$", job.log(), re.MULTILINE)


def test_only_the_sidecar_has_a_token(job, tmp_path):
    look = "ls /var/run/secrets/kubernetes.io/serviceaccount 2>&1; true"
    command = f"{look}; ssh job-worker-0.job '{look}'"
    job.install(tmp_path, run={"command": command})
    assert job.wait_ended() == "Complete", job.describe()
    assert job.log().count("No such file or directory") == 2


@pytest.mark.parametrize("ids", [{"runAsUser": 1000}, {"runAsUser": 1000, "fsGroup": 3000}])
def test_keys_work_for_each_user(job, tmp_path, ids):
    job.install(
        tmp_path, podSecurityContext=ids, run={"command": "ssh job-worker-0.job id -u; ls -l /job/ssh/id"}
    )
    assert job.wait_ended() == "Complete", job.describe()
    assert f"\n{ids['runAsUser']}\n" in job.log()


@pytest.mark.parametrize("namespace", ["baseline"], indirect=True)
@pytest.mark.parametrize("group", [{}, {"fsGroup": 0}, {"fsGroup": 3000}])
def test_keys_work_for_root(job, tmp_path, group):
    context = {"runAsNonRoot": False, "runAsUser": 0, "runAsGroup": 0, **group}
    no_limits = {"capabilities": {"drop": []}}
    job.install(
        tmp_path,
        podSecurityContext=context,
        securityContext=no_limits,
        run={"command": "ssh job-worker-0.job id -u"},
    )
    assert job.wait_ended() == "Complete", job.describe()
    assert "\n0\n" in job.log()


def test_a_user_without_an_entry_is_refused_with_the_reason(job, tmp_path):
    job.install(tmp_path, podSecurityContext={"runAsUser": 4242}, run={"command": "true", "startTimeout": 30})
    assert job.wait_ended() == "Failed"
    job.wait_released()
    assert "uid 4242 has no entry in /etc/passwd" in job.report()["message"]
