"""Mode direct: which objects there are and which are not, what both modes share, and what is refused."""

import json
import re

import pytest
from rendering import RenderError

DIRECT = {"mode": "direct", "workers": {"count": 3}}
EVERYTHING = {
    **DIRECT,
    "accelerator": {"count": 2},
    "data": [{"claim": "training-data", "mountPath": "/data"}],
    "persistence": {"ckpt": {"size": "1Gi", "mountPath": "/ckpt"}},
    "tensorboard": {"enabled": True, "logdir": "/data/logs"},
    "env": {"A": "$b", "T": {"secretKeyRef": {"name": "hf", "key": "token"}}},
    "deepspeed": {"config": {"a": 1}},
    "imagePullSecrets": [{"name": "registry"}],
    "scheduling": {"priorityClassName": "high"},
    "workers": {
        "count": 3,
        "resources": {"limits": {"cpu": 8}},
        "nodeSelector": {"pool": "gpu"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
    },
}


def pod_of(objects):
    return objects.get("Job")["spec"]["template"]["spec"]


def test_there_is_no_launcher_no_key_and_no_right(render):
    objects = render(EVERYTHING)
    assert objects.kinds() == [
        "ConfigMap", "ConfigMap", "Deployment", "Job", "PersistentVolumeClaim", "Service", "Service",
    ]  # fmt: skip
    pod = pod_of(objects)
    assert "serviceAccountName" not in pod
    assert pod["automountServiceAccountToken"] is False
    assert "initContainers" not in pod
    assert "secret" not in json.dumps(pod["volumes"])


def test_nothing_of_mode_direct_is_in_mode_launcher(render):
    assert [one["spec"].get("completionMode") for one in render() if one["kind"] == "Job"] == [None]


def test_the_job_has_a_pod_for_each_worker_and_the_first_failure_ends_all(render):
    job = render(DIRECT, name="my-job").get("Job")
    assert re.fullmatch(r"my-job-worker-[0-9a-f]{8}", job["metadata"]["name"])
    spec = job["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 3, 3)
    assert (spec["backoffLimit"], spec["podReplacementPolicy"]) == (0, "Failed")
    assert [rule["action"] for rule in spec["podFailurePolicy"]["rules"]] == ["Ignore"]
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    assert "ttlSecondsAfterFinished" not in spec


def test_every_worker_has_a_name_and_knows_that_of_the_first(render):
    objects = render(DIRECT)
    job, service = objects.get("Job"), objects.get("Service")
    template = job["spec"]["template"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert template["spec"]["subdomain"] == service["metadata"]["name"]
    env = {one["name"]: one.get("value") for one in template["spec"]["containers"][0]["env"]}
    assert env["MASTER_ADDR"] == f"{job['metadata']['name']}-0.job"
    assert (env["workers"], env["MASTER_PORT"]) == ("3", "29500")


def test_it_is_found_by_its_labels(render):
    job = render(EVERYTHING).get("Job")
    for labels in (job["metadata"]["labels"], job["spec"]["template"]["metadata"]["labels"]):
        assert labels["app.kubernetes.io/instance"] == "job"
        assert labels["app.kubernetes.io/component"] == "worker"
        assert job["metadata"]["name"].endswith(labels["deepspeed-job/run"])
    assert job["metadata"]["annotations"] == {
        "deepspeed-job/workers": "3",
        "deepspeed-job/accelerator": "nvidia.com/gpu",
    }


def test_a_worker_is_the_same_in_both_modes_but_for_ssh(render):
    """What a values file says of the workers means the same."""
    direct = pod_of(render(EVERYTHING))
    launcher = render({**EVERYTHING, "mode": "launcher"}).pod("worker")
    one, other = direct["containers"][0], launcher["containers"][0]
    assert direct.keys() - launcher.keys() == {"restartPolicy", "subdomain"}
    assert not launcher.keys() - direct.keys()
    for key in launcher.keys() - {"containers", "volumes"}:
        assert direct[key] == launcher[key], key
    assert direct["volumes"][1:] == launcher["volumes"][1:]
    assert one.keys() == other.keys() - {"ports"}
    for key in one.keys() - {"command", "env"}:
        assert one[key] == other[key], key
    differ = [mine["name"] for mine, its in zip(one["env"], other["env"], strict=True) if mine != its]
    assert differ == ["MASTER_ADDR"]


def test_what_limits_a_run_reaches_every_worker(render):
    values = {**DIRECT, "run": {"deadline": 3600, "stallTimeout": 60, "suspend": True}}
    objects = render(values)
    found = next(one for one in objects if one["kind"] == "ConfigMap" and "-run-" in one["metadata"]["name"])
    run = json.loads(found["data"]["run.json"])
    assert (run["deadline"], run["stallTimeout"]) == (3600, 60)
    assert objects.get("Job")["spec"]["suspend"] is True
    awake = render({**values, "run": {**values["run"], "suspend": False}}).get("Job")
    assert "suspend" not in awake["spec"], "a queue, or `dsjob suspend`, may have set it"
    assert awake["metadata"] == objects.get("Job")["metadata"]


def test_mode_is_a_part_of_what_defines_a_run(render):
    hashes = {
        render({"mode": mode}).get("Job")["metadata"]["labels"]["deepspeed-job/run"]
        for mode in ("launcher", "direct")
    }
    assert len(hashes) == 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mode": "ssh"}, "mode"),
        ({"run": {"maxRestarts": 1}}, "`run.maxRestarts` needs `mode: launcher`"),
        ({"run": {"maxRestarts": 1}}, "could only restart single pods, not the group"),
        ({"ssh": {"existingSecret": "mine"}}, "`ssh.existingSecret` needs `mode: launcher`"),
        ({"run": {"interactive": True}}, "`run.interactive` needs `mode: launcher`"),
        ({"run": {"interactive": True, "command": None}}, "`run.interactive` needs `mode: launcher`"),
        ({"elastic": {"min": 1, "max": 4}}, "`elastic` needs `mode: launcher`"),
        ({"workers": {"count": 3, "release": "Never"}}, "`workers.release` needs `mode: launcher`"),
        ({"workers": {"count": 3, "release": "OnSuccess"}}, "`workers.release` needs `mode: launcher`"),
        ({"run": {"command": None}}, "`run.command` is missing"),
    ],
)
def test_what_has_no_meaning_is_refused_by_name(render, values, message):
    with pytest.raises(RenderError, match=re.escape(message)):
        render({**DIRECT, **values})


def test_root_needs_no_capabilities_without_sshd(render):
    assert (
        pod_of(render({**DIRECT, "podSecurityContext": {"runAsUser": 0}}))["securityContext"]["runAsUser"]
        == 0
    )


@pytest.mark.parametrize(
    ("workers", "longest"), [(1, 45), (10, 45), (11, 44), (101, 43), (1001, 42), (10000, 42)]
)
def test_the_name_of_the_last_host_fits_or_is_refused_with_the_limit(render, workers, longest):
    values = {**DIRECT, "workers": {"count": workers}}
    job = render(values, name="a" * longest).get("Job")
    assert len(f"{job['metadata']['name']}-{workers - 1}") <= 63
    with pytest.raises(RenderError, match=f"at most {longest}"):
        render(values, name="a" * (longest + 1))
