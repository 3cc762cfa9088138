"""Mode direct: an Indexed Job, each of whose pods starts its own ranks. No launcher, no ssh, no key, no rights."""

import json
import re
import subprocess
import time

import pytest
import yaml
from lab import CHART, CPU_TWIN, ENVIRONMENT, IMAGE, Job, run, wait_for
from test_1_first_run import RANK, STEP, STEPS
from test_3_what_ranks_see import NASTY, seen

INDEX = "batch.kubernetes.io/job-completion-index"
CPU = {"DS_ACCELERATOR": "cpu"}
# In one write: the ranks of a worker share its output.
SHOW = (
    "import os, sys, json; e = {k: os.environ.get(k) for k in ('RANK', 'WORLD_SIZE', 'MASTER_ADDR')}; "
    "os.write(1, ('SEEN ' + json.dumps([sys.argv[1:], e]) + chr(10)).encode())"
)


class DirectJob(Job):
    """A release in mode direct; its pods are its workers."""

    def install(self, tmp_path, **values):
        return super().install(tmp_path, **{"mode": "direct", "workers": {"count": 3}, **values})

    def host(self, index):
        return f"{self.kube_job()['metadata']['name']}-{index}"

    def pod(self, index):
        """The name of a worker's pod, empty if there is none."""
        found = [one for one in self.pods("worker") if one["metadata"]["labels"][INDEX] == str(index)]
        return found[0]["metadata"]["name"] if found else ""

    def log(self, index=0):
        return self.namespace.kubectl("logs", self.pod(index))

    def logs(self):
        return [self.log(index) for index in range(self.kube_job()["spec"]["completions"])]

    def wait_all(self, text, seconds=60):
        """Wait until the log of each of three workers has the text."""

        def said(index):
            pod = self.pod(index)
            return pod and text in self.namespace.kubectl("logs", pod, code=None).stdout

        wait_for(lambda: all(map(said, range(3))), seconds, lambda: f"no {text!r}\n{self.describe()}")

    def running(self):
        return [one for one in self.pods("worker") if one["status"]["phase"] in ("Pending", "Running")]

    def report(self, index=0):
        status = self.namespace.get("pod", self.pod(index))["status"]["containerStatuses"][0]
        return json.loads(status["state"]["terminated"]["message"])


@pytest.fixture
def job(namespace):
    return DirectJob(namespace)


def on_each(script, *args):
    """A run that starts a Python script without torch on each rank, by DeepSpeed's real launcher."""
    return {
        "script": "/usr/bin/env",
        "args": ["python3", "-uc", script, *args],
        "launcherArgs": ["--no_python"],
    }


def test_the_cpu_twin_trains_with_the_same_command(job, tmp_path):
    space = job.namespace
    space.claim()
    values = job.values_file(tmp_path, {**yaml.safe_load(CPU_TWIN.read_text()), "mode": "direct"})
    output = space.dsjob("up", values, job.name)
    assert job.condition() == "Complete", job.describe()
    log = job.log()
    assert dict(RANK.findall("".join(job.logs()))) == {str(index): job.host(index) for index in range(3)}
    found = STEP.findall(log)
    losses = [float(loss) for _, _, loss in found]
    assert losses[-1] < losses[0] / 2, losses
    assert found[-1][:2] == (str(STEPS), str(STEPS))
    assert STEP.search(output), "the log of worker 0 is shown"
    phases = ["validate", "apply", "schedule", "pull", "connect", "train"]
    words = [line.split()[0] for line in output.splitlines() if line.split()]
    assert [one for one in dict.fromkeys(words) if one in phases] == phases
    assert not job.running(), "a finished pod holds nothing"
    assert "Succeeded" in space.dsjob("status", job.name)
    assert "rank 2 of 3" in space.dsjob("logs", job.name, "--worker", "2")
    assert "nothing to do" in space.dsjob("up", values, job.name)
    for kind in ("secret", "serviceaccount", "role", "rolebinding", "lease", "statefulset"):
        assert space.get(kind, selector=job.selector) == [], kind
    assert all("serviceaccount" not in json.dumps(pod["spec"]["volumes"]) for pod in job.pods("worker"))


def test_arguments_of_a_script_are_exact_on_every_rank(job, tmp_path):
    job.install(tmp_path, workers={"count": 3, "slots": 2}, env=CPU, run=on_each(SHOW, *NASTY))
    assert job.wait_ended(240) == "Complete", job.describe()
    ranks = [one for log in job.logs() for one in seen(log)]
    assert all(arguments == NASTY for arguments, _ in ranks)
    assert [int(env["RANK"]) for _, env in sorted(ranks, key=lambda one: int(one[1]["RANK"]))] == list(
        range(6)
    )
    assert {env["WORLD_SIZE"] for _, env in ranks} == {"6"}
    assert {env["MASTER_ADDR"] for _, env in ranks} == {f"{job.host(0)}.job"}


def test_a_deepspeed_command_is_run_on_every_worker_with_its_options(job, tmp_path):
    """Those about other nodes are dropped; a shell may go on after it."""
    command = (
        "deepspeed -H /none --launcher pdsh --force_multi --no_ssh_check --no_python --no_local_rank --num_gpus 2 "
        "/bin/sh -c 'echo \"$RANK of $WORLD_SIZE\"' && echo node $NODE_RANK of $workers is done"
    )
    job.install(tmp_path, env=CPU, run={"command": command})
    assert job.wait_ended(240) == "Complete", job.describe()
    for index, log in enumerate(job.logs()):
        assert set(re.findall(r"^(\d) of 6$", log, re.MULTILINE)) == {str(2 * index), str(2 * index + 1)}
        assert f"node {index} of 3 is done" in log


def test_the_images_own_deepspeed_does_not_train_alone_without_a_word(job, tmp_path):
    """It is found by its path, or by a shell that makes a PATH of its own."""
    command = 'exec "$(PATH=${PATH#*:} command -v deepspeed)" --no_python /bin/echo alone'
    job.install(tmp_path, workers={"count": 2}, env=CPU, run={"command": command})
    assert job.wait_ended() == "Failed"
    assert not any(re.search(r"^alone", job.log(pod), re.MULTILINE) for pod in (0, 1) if job.pod(pod))


def test_an_option_that_has_no_like_is_refused_by_name(job, tmp_path):
    job.install(
        tmp_path, workers={"count": 1}, env=CPU, run={"command": "deepspeed --include worker-0:0 train.py"}
    )
    assert job.wait_ended() == "Failed"
    assert "--include cannot be used in `mode: direct`" in "".join(job.report()["lastLines"])


def test_a_failing_rank_ends_all_and_is_named(job, tmp_path):
    script = (
        "import os, sys, time; time.sleep(1 if os.environ['RANK'] == '1' else 600); "
        "print('ValueError: boom'); sys.exit(3)"
    )
    values = {"mode": "direct", "workers": {"count": 3}, "env": CPU, "run": on_each(script)}
    path = job.install(tmp_path, **values)
    text = job.namespace.dsjob("up", path, job.name, code=1)
    wait_for(lambda: not job.running(), 60, "the other workers go on")
    assert job.condition() == "Failed"
    status = job.namespace.dsjob("status", job.name)
    for said in (text, status):
        assert f"{job.host(1)} failed with exit code 3" in said
        assert "ValueError: boom" in said
    report = job.report(1)
    assert (report["reason"], report["host"], report["exitCode"]) == ("RankFailed", job.host(1), 3)


def test_a_rank_that_needs_too_much_memory(job, tmp_path):
    hog = "import time; x = [bytearray(1 << 20) for i in range(4096)]"
    command = f"[ $NODE_RANK = 2 ] || exec sleep 600; python3 -c '{hog}'"
    limits = {"resources": {"limits": {"memory": "128Mi"}}}
    job.install(tmp_path, workers={"count": 3, **limits}, run={"command": command})
    assert job.wait_ended() == "Failed"
    wait_for(lambda: not job.running(), 60, "the other workers go on")
    status = job.namespace.dsjob("status", job.name)
    assert "OOMKilled" in status
    assert job.pod(2) in status


# In one write, since DeepSpeed's launcher says something at the same moment.
SAVES = (
    "import os, signal, sys, time; signal.signal(15, lambda *_: (time.sleep(2), os.write(1, b'saved' + bytes([10])), os._exit(0))); "
    "print('up'); time.sleep(600)"
)


@pytest.mark.parametrize(
    "how", [{"command": f'python3 -uc "{SAVES}"; echo after'}, on_each(SAVES)], ids=["text", "script"]
)
def test_a_worker_that_is_told_to_end_can_save_and_is_no_success(job, tmp_path, how):
    """Also below a bash, which as a first process would keep the signal to itself."""
    job.install(tmp_path, env=CPU, run=how)
    job.wait_all("\nup\n")
    follower = subprocess.Popen(
        ["kubectl", "-n", job.namespace.name, "logs", "-f", job.pod(1)],
        env=ENVIRONMENT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    job.namespace.kubectl("delete", "pod", job.pod(1), "--wait=false")
    output, _ = follower.communicate(timeout=60)
    assert "\nsaved\n" in output, output
    assert job.wait_ended(60) == "Failed", job.describe()
    wait_for(lambda: not job.running(), 60, "the other workers go on")


def test_an_evicted_worker_is_no_failure_and_is_replaced(job, tmp_path):
    job.install(tmp_path, run={"command": "echo up; sleep 600"})
    job.wait_all("up\n")
    name = job.pod(1)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    path = f"/api/v1/namespaces/{job.namespace.name}/pods/{name}/eviction"
    job.namespace.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
    wait_for(lambda: job.pod(1) not in ("", name), 60, "it is not replaced")
    job.wait_all("up\n")
    assert job.condition() is None
    assert "Running" in job.namespace.dsjob("status", job.name)


def test_down_during_a_run_leaves_nothing_at_once(job, tmp_path):
    job.install(tmp_path, env=CPU, run=on_each("import time; print('up'); time.sleep(600)"))
    job.wait_all("\nup\n")
    began = time.monotonic()
    job.namespace.dsjob("down", job.name, timeout=60)
    assert time.monotonic() - began < 15
    for kind in ("pod", "job", "service"):
        assert job.namespace.get(kind, selector=job.selector) == [], kind


def test_down_while_it_starts(job, tmp_path):
    """The first process is told to end while Python imports torch."""
    job.install(tmp_path, env=CPU, run=on_each("import time; time.sleep(600)"))
    job.wait_all("[deepspeed-job] run:")
    began = time.monotonic()
    job.namespace.dsjob("down", job.name, timeout=60)
    assert time.monotonic() - began < 15


def test_a_worker_that_does_not_find_the_first_says_so(job, tmp_path):
    values = {"mode": "direct", "workers": {"count": 2}, "run": {"command": "true", "startTimeout": 3}}
    path = job.values_file(
        tmp_path, {"image": {"repository": "localhost/deepspeed-hello", "tag": "cpu"}, **values}
    )
    objects = yaml.safe_load_all(job.namespace.helm("template", job.name, CHART, "-f", path))
    job.namespace.apply(*[one for one in objects if one and one["kind"] != "Service"])
    assert job.wait_ended(60) == "Failed"
    assert f"did not find {job.host(0)}.job within 3 s" in job.namespace.dsjob("status", job.name)


def test_a_job_can_change_its_mode_and_back(job, tmp_path):
    """Nothing of the other mode is left, and dsjob knows which it is."""
    for mode, kinds in (("launcher", 1), ("direct", 0), ("launcher", 1)):
        values = {
            "mode": mode,
            "workers": {"count": 2},
            "image": IMAGE,
            "run": {"command": f"echo in {mode}"},
        }
        assert f"\nin {mode}\n" in job.namespace.dsjob("up", job.values_file(tmp_path, values), job.name)
        assert (
            json.loads(run("dsjob", "status", job.name, "-n", job.namespace.name, "-o", "json"))["mode"]
            == mode
        )
        assert [len(job.namespace.get(kind, selector=job.selector)) for kind in ("job", "lease", "role")] == [
            1,
            kinds,
            kinds,
        ]


def test_another_run_replaces_the_job(job, tmp_path):
    job.install(tmp_path, run={"command": "echo up; sleep 600"})
    job.wait_all("up\n")
    first = job.host(0)
    job.install(tmp_path, run={"command": "echo second"})
    assert job.wait_ended(60) == "Complete", job.describe()
    assert job.host(0) != first
    assert [log.count("second\n") for log in job.logs()] == [2, 2, 2], "the command and its output"
    wait_for(lambda: len(job.pods("worker")) == 3, 30, "workers of the first run are left")
