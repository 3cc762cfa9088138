"""A first run of the seed's job in its CPU twin, in the order in which its user meets it: real DeepSpeed, three ranks in three pods."""

import re
import signal
import subprocess
import urllib.request
from types import SimpleNamespace

import pytest
import yaml
from browser import chromium, loss_card
from lab import CHART, CPU_TWIN, ENVIRONMENT, SEED_NAME, Job, Namespace, wait_for

STEP = re.compile(r"step +(\d+)/(\d+) +loss +([0-9.]+)")
RANK = re.compile(r"rank (\d+) of 3 on ([a-z0-9-]+)")
STEPS = 80


def check_trained(job):
    """Three ranks in three pods trained, and the loss fell to less than half."""
    log = job.log()
    assert dict(RANK.findall(log)) == {str(i): f"{SEED_NAME}-worker-{i}" for i in range(3)}
    found = STEP.findall(log)
    losses = [float(loss) for _, _, loss in found]
    assert losses[-1] < losses[0] / 2, losses
    assert found[-1][:2] == (str(STEPS), str(STEPS))
    report = job.report()
    assert (report["phase"], report["exitCode"], report["restarts"]) == ("Succeeded", 0, 0)


def rendered_difference(job, values=CPU_TWIN):
    """What `kubectl diff` says of the rendered chart against the live objects."""
    manifests = job.namespace.helm("template", SEED_NAME, CHART, "-f", values)
    return job.namespace.kubectl("diff", "-f", "-", stdin=manifests, code=None).stdout


@pytest.fixture(scope="module")
def story():
    """One run by `dsjob up`, with what was seen while it ran; the tests below look at it one after another."""
    namespace = Namespace("e2e-first-run")
    namespace.claim()
    job = Job(namespace, SEED_NAME)
    up = subprocess.Popen(
        ["dsjob", "up", str(CPU_TWIN), SEED_NAME, "-n", namespace.name],
        env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        wait_for(job.kube_job, 60, "dsjob up makes no Job")
        job.wait_log("loss", 180)
        difference = rendered_difference(job)
        output, _ = up.communicate(timeout=300)
        yield SimpleNamespace(
            job=job, namespace=namespace, output=output, code=up.returncode, difference=difference
        )
    finally:
        up.kill()
        namespace.delete()


def test_dsjob_up_follows_the_run_to_its_end(story):
    assert story.code == 0, story.output
    check_trained(story.job)
    phases = ["validate", "apply", "schedule", "pull", "connect", "train"]
    seen = [
        line.split()[0]
        for line in story.output.splitlines()
        if line.split()[:1] and line.split()[0] in phases
    ]
    assert list(dict.fromkeys(seen)) == phases
    assert STEP.search(story.output), "the log is shown too"
    assert "succeeded" in story.output


def test_workers_are_gone_and_the_log_is_still_there(story):
    story.job.wait_released(10)
    assert STEP.search(story.job.log())
    assert "Succeeded" in story.namespace.dsjob("status", SEED_NAME)


def test_nothing_differs_from_what_was_rendered(story):
    """Neither while it ran nor after: what others write is not rendered."""
    assert story.difference == ""
    assert rendered_difference(story.job) == ""


def test_checkpoints_and_event_files_are_on_the_claim(story):
    folder = "/data/deepspeed_data"
    files = story.namespace.kubectl(
        "exec", f"deploy/{SEED_NAME}-tensorboard", "--", "find", folder, "-type", "f"
    )
    assert "events.out.tfevents" in files
    assert len(set(re.findall(r"zero_pp_rank_(\d+)_mp_rank_00_optim_states", files))) == 3, (
        "every rank writes its own shard"
    )


def test_the_seeds_own_line_shows_the_loss_curve(story, tmp_path):
    line = f"kubectl port-forward svc/{SEED_NAME}-tensorboard 9090:6006"
    forward = subprocess.Popen(
        [*line.split(), "-n", story.namespace.name], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert "Forwarding" in forward.stdout.readline()
        with chromium() as browser:
            card = loss_card(browser, "http://localhost:9090")
            assert f"\n{STEPS}\n" in card.text
            browser.save_screenshot(str(tmp_path / "tensorboard.png"))
    finally:
        forward.kill()
        forward.wait()


def test_dsjob_tensorboard_serves_the_same(story):
    forward = subprocess.Popen(
        ["dsjob", "tensorboard", SEED_NAME, "-n", story.namespace.name],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        address = next(found[0] for line in forward.stdout if (found := re.search(r"http://\S+", line)))
        with urllib.request.urlopen(address, timeout=30) as page:
            assert b"TensorBoard" in page.read()
    finally:
        forward.send_signal(signal.SIGINT)
        assert forward.wait(15) == 0


def test_no_container_but_the_sidecar_has_a_token_and_no_config_map_a_key(story):
    launcher = story.job.launcher()
    with_token = [
        one["name"]
        for one in launcher["spec"]["initContainers"] + launcher["spec"]["containers"]
        if any("serviceaccount" in mount["mountPath"] for mount in one["volumeMounts"])
    ]
    assert with_token == ["workers"]
    assert "PRIVATE KEY" not in story.namespace.kubectl("get", "configmap", "-o", "yaml")


def test_the_same_values_again_start_nothing(story):
    before = story.job.launcher()["metadata"]["uid"]
    story.namespace.helm("upgrade", SEED_NAME, CHART, "-f", CPU_TWIN)
    assert story.job.launcher()["metadata"]["uid"] == before
    assert "nothing to do" in story.namespace.dsjob("up", CPU_TWIN, SEED_NAME)
    assert story.job.pods("worker") == []


def test_another_learning_rate_is_a_new_run_that_resumes(story, tmp_path):
    before = story.job.kube_job()["metadata"]["name"]
    key = story.namespace.get("secret", f"{SEED_NAME}-ssh")["data"]["ssh-privatekey"]
    values = yaml.safe_load(CPU_TWIN.read_text())
    values["deepspeed"]["config"]["optimizer"]["params"]["lr"] = 0.0005
    values["run"]["command"] = values["run"]["command"].replace(f"--steps {STEPS}", f"--steps {STEPS + 10}")
    path = story.job.values_file(tmp_path, values)
    story.namespace.helm("upgrade", SEED_NAME, CHART, "-f", path)
    assert story.job.kube_job()["metadata"]["name"] != before
    assert story.job.wait_ended(240) == "Complete", story.job.describe()
    story.job.wait_released(10)
    steps = [int(step) for step, _, _ in STEP.findall(story.job.log())]
    assert min(steps) > STEPS, "it goes on from the checkpoint"
    assert "lr 0.0005" in story.job.log()
    assert [one["metadata"]["name"] for one in story.namespace.get("job", selector=story.job.selector)] != [
        before
    ]
    assert story.namespace.get("secret", f"{SEED_NAME}-ssh")["data"]["ssh-privatekey"] == key, (
        "the key is kept over upgrades"
    )


def test_uninstall_leaves_the_claim_and_nothing_else(story):
    output = story.namespace.dsjob("down", SEED_NAME)
    assert "training-data, which it used, stays" in output
    kinds = "pod,job,statefulset,deployment,service,secret,configmap,lease,role,rolebinding,serviceaccount"
    left = story.namespace.kubectl("get", kinds, "-o", "name").split()
    assert sorted(left) == ["configmap/kube-root-ca.crt", "serviceaccount/default"]
    assert story.namespace.get("pvc", "training-data")["status"]["phase"] == "Bound"


def by_helm(namespace):
    namespace.helm("install", SEED_NAME, CHART, "-f", CPU_TWIN)


def by_kubectl(namespace):
    manifests = namespace.helm("template", SEED_NAME, CHART, "-f", CPU_TWIN)
    namespace.kubectl("apply", "-f", "-", stdin=manifests)


@pytest.mark.parametrize("way_in", [by_helm, by_kubectl])
def test_the_other_ways_in_are_equal(namespace, way_in):
    namespace.claim()
    job = Job(namespace, SEED_NAME)
    way_in(namespace)
    # dsjob asks the cluster only, so it does not matter who made the job.
    wait_for(lambda: SEED_NAME in namespace.dsjob("list"), 30, "dsjob list does not know it")
    assert job.wait_ended(300) == "Complete", job.describe()
    job.wait_released(10)
    check_trained(job)
    assert "Succeeded" in namespace.dsjob("status", SEED_NAME)


def test_claims_that_the_chart_made_are_kept_and_adopted(namespace, tmp_path):
    job = Job(namespace)
    values = {
        "persistence": {"out": {"size": "1Gi", "mountPath": "/out"}},
        "run": {"command": "ssh job-worker-0.job 'cat /out/mark; echo again >> /out/mark'"},
    }
    for attempt in (1, 2):
        job.install(tmp_path, **values)
        job.wait_ended()
        assert job.log().splitlines().count("again") == attempt - 1, job.describe()
        assert "job-out" in namespace.dsjob("down", "job")
        assert namespace.get("pvc", "job-out")["status"]["phase"] == "Bound"
