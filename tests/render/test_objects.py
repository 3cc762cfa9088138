"""Which objects a job is made of, and the promises that each keeps."""

import json

import pytest
from rendering import CHART, MINIMAL, RESTRICTED, merged, run_helm

SEED = {
    "workers": {"count": 3},
    "accelerator": {"count": 1},
    "data": [{"claim": "training-data", "mountPath": "/data"}],
    "tensorboard": {"enabled": True, "logdir": "/data/deepspeed_data"},
}


def pods(objects):
    return [objects.pod(component) for component in ("launcher", "worker", "tensorboard")]


def containers(objects):
    return [one for pod in pods(objects) for one in pod.get("initContainers", []) + pod["containers"]]


def test_the_seeds_job_is_what_the_design_says(render):
    objects = render(SEED, name="deepspeed-helloworld")
    assert objects.kinds() == [
        "ConfigMap", "ConfigMap", "Deployment", "Job", "Lease", "Role", "RoleBinding", "Secret", "Service", "Service",
        "ServiceAccount", "StatefulSet",
    ]  # fmt: skip
    assert objects.get("Service", "-tensorboard")["metadata"]["name"] == "deepspeed-helloworld-tensorboard"
    assert objects.get("Service", "-tensorboard")["spec"]["ports"][0]["port"] == 6006
    assert objects.get("StatefulSet")["metadata"]["name"] == "deepspeed-helloworld-worker"


def test_every_object_can_be_found_by_its_labels(render):
    for one in render(SEED):
        labels = one["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "deepspeed-job"
        assert labels["app.kubernetes.io/instance"] == "job"
        assert "helm.sh/chart" not in labels, "a chart's version in a label makes every bump a change"


def test_the_number_of_workers_is_the_launchers(render):
    """What others write is not rendered: so an upgrade or Argo CD never fights over it."""
    assert "replicas" not in render(SEED).get("StatefulSet")["spec"]


def test_workers_start_together_and_are_replaced_by_the_launcher(render):
    spec = render(SEED).get("StatefulSet")["spec"]
    assert (spec["podManagementPolicy"], spec["updateStrategy"]) == ("Parallel", {"type": "OnDelete"})


def test_the_launcher_gets_one_attempt_and_a_drain_is_none(render):
    spec = render(SEED).get("Job")["spec"]
    assert (spec["backoffLimit"], spec["podReplacementPolicy"]) == (0, "Failed")
    assert spec["podFailurePolicy"]["rules"] == [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    ]
    assert "ttlSecondsAfterFinished" not in spec


def test_the_sidecar_can_watch_and_set_the_scale(render):
    rules = {rule["resources"][0]: rule for rule in render(SEED).get("Role")["rules"]}
    assert rules["statefulsets"]["verbs"] == ["get", "watch"]
    assert rules["statefulsets/scale"]["verbs"] == ["get", "patch"]
    assert rules["leases"]["verbs"] == ["get", "update"]


def test_only_the_sidecar_has_a_token(render):
    objects = render(SEED)
    assert [pod["automountServiceAccountToken"] for pod in pods(objects)] == [False] * 3
    holders = [
        one["name"]
        for one in containers(objects)
        if any(mount["name"] == "token" for mount in one.get("volumeMounts", []))
    ]
    assert holders == ["workers"]
    sidecar = objects.pod("launcher")["initContainers"][0]
    assert (sidecar["name"], sidecar["restartPolicy"]) == ("workers", "Always")


def test_rights_are_by_name(render):
    """But for reading pods, whose names would be as many as the workers."""
    rules = render(SEED).get("Role")["rules"]
    unnamed = [rule for rule in rules if "resourceNames" not in rule]
    assert unnamed == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    for rule in rules:
        assert rule in unnamed or len(rule["resourceNames"]) == 1
        assert not {"*", "create", "delete", "list"} & set(rule["verbs"])


def test_the_secret_is_rendered_empty(render):
    assert "data" not in render().get("Secret")


@pytest.mark.parametrize(
    ("existing", "rights"),
    [("", {"job-ssh": ["get", "patch"]}), ("mine", {"job-ssh": ["get", "patch"], "mine": ["get"]})],
)
def test_the_key_comes_from_the_secret_that_has_it(render, existing, rights):
    objects = render({"ssh": {"existingSecret": existing}})
    secrets = [rule for rule in objects.get("Role")["rules"] if rule["resources"] == ["secrets"]]
    assert {rule["resourceNames"][0]: rule["verbs"] for rule in secrets} == rights
    secrets = [
        one["secret"]
        for one in objects.pod("worker")["volumes"][0]["projected"]["sources"]
        if "secret" in one
    ]
    assert [(one["name"], one["items"][0]["key"]) for one in secrets] == [
        (existing or "job-ssh", "ssh-privatekey"),
        ("job-ssh", "launcher"),
    ]


def test_the_launcher_does_not_mount_the_key(render):
    assert "secret" not in json.dumps(render().pod("launcher")["volumes"])


def test_defaults_pass_pod_security_restricted(render):
    objects = render(SEED)
    for pod in pods(objects):
        context = pod["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["runAsUser"] == 1000
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not any("hostPath" in volume for volume in pod["volumes"])
    assert all(one["securityContext"] == RESTRICTED for one in containers(objects))


def test_everything_has_requests_but_what_the_user_sizes(render):
    named = {one["name"]: one["resources"] for one in containers(render(SEED))}
    assert all(named[name]["requests"] for name in ("workers", "launcher", "tensorboard"))


@pytest.mark.parametrize(("devices", "launcher", "worker"), [(0, "void", "void"), (2, "void", None)])
def test_gpus_of_the_node_are_hidden_from_who_has_asked_for_none(render, devices, launcher, worker):
    objects = render({"accelerator": {"count": devices}})

    def visible(component):
        env = {one["name"]: one.get("value") for one in objects.container(component)["env"]}
        return env.get("NVIDIA_VISIBLE_DEVICES")

    assert (visible("launcher"), visible("worker")) == (launcher, worker)


def test_mesh_injection_is_off_as_a_string(render):
    objects = render(SEED)
    for kind in ("Job", "StatefulSet"):
        assert (
            objects.get(kind)["spec"]["template"]["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"
        )


def test_the_launcher_has_a_name_that_workers_can_resolve(render):
    pod = render(SEED).pod("launcher")
    assert (pod["hostname"], pod["subdomain"]) == ("job-launcher", "job")


def test_hosts_are_selected_and_tensorboard_is_not(render):
    objects = render(SEED)
    selector = objects.get("Service", "job")["spec"]["selector"]
    chosen = {
        kind: selector.items() <= objects.get(kind)["spec"]["template"]["metadata"]["labels"].items()
        for kind in ("Job", "StatefulSet", "Deployment")
    }
    assert chosen == {"Job": True, "StatefulSet": True, "Deployment": False}
    assert objects.get("Service", "job")["spec"]["publishNotReadyAddresses"] is True


def test_tensorboard_reads_the_claim_of_its_logdir(render):
    values = {
        "data": [
            {"claim": "a", "mountPath": "/data"},
            {"claim": "b", "mountPath": "/data/logs", "subPath": "x/y"},
        ],
        "tensorboard": {"enabled": True, "logdir": "/data/logs/run"},
    }
    pod = render(values).pod("tensorboard")
    mount = pod["containers"][0]["volumeMounts"][0]
    assert (mount["mountPath"], mount["subPath"], mount["readOnly"]) == ("/data/logs", "x/y", True)
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == "b"


def test_chart_made_claims_are_kept_by_helm_and_by_argo_cd(render):
    objects = render({"persistence": {"ckpt": {"size": "10Gi", "mountPath": "/ckpt"}}})
    claim = objects.get("PersistentVolumeClaim")
    assert claim["metadata"]["name"] == "job-ckpt"
    assert claim["metadata"]["annotations"] == {
        "helm.sh/resource-policy": "keep",
        "argocd.argoproj.io/sync-options": "Prune=false,Delete=false",
    }
    assert claim["spec"] == {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "10Gi"}}}
    for component in ("launcher", "worker"):
        assert any(mount["mountPath"] == "/ckpt" for mount in objects.container(component)["volumeMounts"])


def test_no_secret_text_stands_in_a_config_map(render_text):
    values = {"env": {"TOKEN": {"secretKeyRef": {"name": "hf", "key": "token"}}}}
    text = render_text(values)
    assert "PRIVATE KEY" not in text
    assert text.count('"secretKeyRef"') == 2  # launcher and worker


@pytest.mark.parametrize("path", sorted((CHART / "ci").glob("*.yaml")), ids=lambda path: path.name)
def test_the_examples_for_the_linter_are_valid(render, path):
    assert render(path.read_text())


def test_two_renders_are_the_same_and_no_larger_for_more_workers(render_text):
    values = json.dumps(merged(MINIMAL, SEED))
    assert run_helm.__wrapped__(values) == run_helm.__wrapped__(values) == render_text(SEED)
    few, many = (render_text({"workers": {"count": count}}) for count in (2, 1000))
    assert len(many) - len(few) < 40


def test_the_deepspeed_configuration_is_json_in_every_pod(render):
    config = {"zero_optimization": {"stage": 1}, "lr": 1e-5, "big": 1000000, "auto": "auto", "on": True}
    objects = render({"deepspeed": {"config": config}})
    run = next(one for one in objects if one["kind"] == "ConfigMap" and "-run-" in one["metadata"]["name"])
    assert json.loads(run["data"]["deepspeed.json"]) == config
    assert "1000000" in run["data"]["deepspeed.json"]
    for component in ("launcher", "worker"):
        env = {one["name"]: one.get("value") for one in objects.container(component)["env"]}
        assert env["DEEPSPEED_CONFIG"] == "/opt/deepspeed-job/deepspeed.json"
