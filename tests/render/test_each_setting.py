"""Each setting reaches the object that it is for, in both modes where it has a meaning there."""

import pytest
from rendering import CHART, RenderError, run_config, run_config_map

MAXIMAL = (CHART / "ci" / "maximal-values.yaml").read_text()
DIRECT = {"mode": "direct"}
EXACT = ["", " x", "a: b #c", "'\"`$HOME $(X) {{ .Values }}", "line\nbreak\r\n", "ünïcode", "---"]


def pods(render, values, name="job"):
    """The pod specs of launcher and workers in mode launcher, and of the workers in mode direct."""
    both = render(values, name=name)
    direct = render({**values, **DIRECT}, name=name)
    return both.pod("launcher"), both.pod("worker"), direct.get("Job")["spec"]["template"]["spec"]


def templates(render, values):
    """The pod templates of the same three."""
    both, direct = render(values), render({**values, **DIRECT})
    return (
        both.get("Job")["spec"]["template"],
        both.get("StatefulSet")["spec"]["template"],
        direct.get("Job")["spec"]["template"],
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("affinity", {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}),
        ("nodeSelector", {"pool": "true"}),
        ("tolerations", [{"key": "gpu", "operator": "Exists"}]),
        (
            "topologySpreadConstraints",
            [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        ),
    ],
)
def test_placement_is_that_of_the_role(render, key, value):
    launcher, worker, direct = pods(render, {"workers": {key: value}})
    assert key not in launcher
    assert worker[key] == direct[key] == value
    launcher, worker, direct = pods(render, {"launcher": {key: value}})
    assert launcher[key] == value
    assert key not in worker
    assert key not in direct


@pytest.mark.parametrize("role", ["launcher", "workers"])
def test_labels_and_annotations_of_a_roles_pods(render, role):
    values = {role: {"labels": {"team": "true"}, "annotations": {"note": "1e6"}}}
    for template, has in zip(templates(render, values), _has(role), strict=True):
        labels = template["metadata"]["labels"]
        assert (labels.get("team") == "true") is has
        assert (template["metadata"].get("annotations", {}).get("note") == "1e6") is has
        assert labels["sidecar.istio.io/inject"] == "false"


def _has(role):
    return (True, False, False) if role == "launcher" else (False, True, True)


def test_a_mesh_can_be_asked_for(render):
    values = {"workers": {"labels": {"sidecar.istio.io/inject": "true"}}}
    assert templates(render, values)[1]["metadata"]["labels"]["sidecar.istio.io/inject"] == "true"


@pytest.mark.parametrize("where", ["labels", "workers", "launcher"])
@pytest.mark.parametrize("key", ["deepspeed-job/host", "app.kubernetes.io/instance"])
def test_the_charts_own_labels_are_refused(render, where, key):
    values = {"labels": {key: "x"}} if where == "labels" else {where: {"labels": {key: "x"}}}
    with pytest.raises(RenderError, match=key):
        render(values)


@pytest.mark.parametrize("role", ["launcher", "workers"])
def test_containers_beside_the_jobs_own(render, role):
    one, two = {"name": "one", "image": "a"}, {"name": "two", "image": "b"}
    values = {role: {"initContainers": [one], "extraContainers": [two]}}
    for spec, has in zip(pods(render, values), _has(role), strict=True):
        assert (one in spec.get("initContainers", [])) is has
        assert (two in spec["containers"]) is has
        assert spec["containers"][0]["name"] in ("launcher", "worker")


def env_of(spec):
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in spec["containers"][0]["env"]}


def test_environment_of_one_role_wins(render):
    values = {"env": {"A": "all", "B": "all"}, "workers": {"env": {"A": "worker"}}}
    launcher, worker, direct = pods(render, values)
    assert [env_of(one)["A"] for one in (launcher, worker, direct)] == ["all", "worker", "worker"]
    assert [env_of(one)["B"] for one in (launcher, worker, direct)] == ["all"] * 3


@pytest.mark.parametrize("text", EXACT)
def test_a_text_of_one_role_is_exact(render, text):
    _, worker, _ = pods(render, {"workers": {"env": {"A": text}}})
    assert env_of(worker)["A"] == text.replace("$", "$$")


def test_keys_of_secrets_and_config_maps(render):
    value = [{"secretRef": {"name": "s"}}, {"prefix": "C_", "configMapRef": {"name": "c", "optional": True}}]
    for spec in pods(render, {"envFrom": value}):
        assert spec["containers"][0]["envFrom"] == value


@pytest.mark.parametrize("text", [*EXACT[1:], "x" * 200_000])
def test_files_are_exact_and_mounted_one_by_one(render, text):
    values = {"files": {"/etc/b.conf": text, "/opt/a.sh": {"content": text, "executable": True}}}
    run = run_config_map(render(values))
    for spec in pods(render, values):
        volume = next(one for one in spec["volumes"] if one["name"] == "own-files")["configMap"]
        assert volume["name"].startswith("job-run-")
        modes = {one["path"]: one["mode"] for one in volume["items"]}
        mounts = {
            one["mountPath"]: one
            for one in spec["containers"][0]["volumeMounts"]
            if one["name"] == "own-files"
        }
        assert set(mounts) == {"/etc/b.conf", "/opt/a.sh"}
        for path, mode in (("/etc/b.conf", 0o444), ("/opt/a.sh", 0o555)):
            assert mounts[path]["readOnly"] is True
            assert modes[mounts[path]["subPath"]] == mode
            assert run["data"][mounts[path]["subPath"]] == text


def test_files_that_a_config_map_cannot_hold_are_refused(render):
    with pytest.raises(RenderError, match=r"`files` has 900001 bytes"):
        render({"files": {"/big": "x" * 900_001}})


def test_folders_of_the_node_and_other_volumes(render):
    values = {
        "hostPaths": [{"path": "/mnt/nvme", "mountPath": "/nvme", "type": "Directory", "readOnly": True}],
        "extraVolumes": [{"name": "scratch", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    }
    for spec in pods(render, values):
        volumes = {one["name"]: one for one in spec["volumes"]}
        mounts = {one["mountPath"]: one for one in spec["containers"][0]["volumeMounts"]}
        assert volumes["host-0"]["hostPath"] == {"path": "/mnt/nvme", "type": "Directory"}
        assert mounts["/nvme"] == {"name": "host-0", "mountPath": "/nvme", "readOnly": True}
        assert volumes["scratch"] == {"name": "scratch", "emptyDir": {}}
        assert mounts["/scratch"] == {"name": "scratch", "mountPath": "/scratch"}


@pytest.mark.parametrize("name", ["files", "job", "data-0", "code-secret"])
def test_names_of_the_charts_own_volumes_are_refused(render_text, name):
    with pytest.raises(RenderError, match=name):
        render_text({"extraVolumes": [{"name": name, "emptyDir": {}}]})


def test_a_deepspeed_configuration_as_text_is_kept_as_it_is(render):
    text = '{"train_batch_size": "auto",\n  "optimizer": {"params": {"lr": 1e-5}}}'
    run = run_config_map(render({"deepspeed": {"config": text}}))
    assert run["data"]["deepspeed.json"] == text


def test_a_deepspeed_configuration_that_is_no_json_is_refused(render):
    with pytest.raises(RenderError, match=r"`deepspeed\.config` is not JSON"):
        render({"deepspeed": {"config": '{"a": 1,}'}})


def test_rdma_devices_go_to_the_workers_with_the_right_to_lock_memory(render):
    values = {"rdma": {"resource": "rdma/hca", "annotations": {"k8s.v1.cni.cncf.io/networks": "ib0"}}}
    launcher, worker, direct = pods(render, values)
    for spec in (worker, direct):
        assert spec["containers"][0]["resources"]["limits"]["rdma/hca"] == 1
        assert spec["containers"][0]["securityContext"]["capabilities"] == {
            "add": ["IPC_LOCK"],
            "drop": ["ALL"],
        }
    assert "rdma/hca" not in launcher["containers"][0]["resources"]["limits"]
    assert "add" not in launcher["containers"][0]["securityContext"]["capabilities"]
    assert templates(render, values)[1]["metadata"]["annotations"] == {"k8s.v1.cni.cncf.io/networks": "ib0"}


def test_the_workers_may_share_the_nodes_namespaces(render):
    launcher, worker, direct = pods(render, {"host": {"network": True, "ipc": True, "pid": True}})
    for spec in (worker, direct):
        assert (spec["hostNetwork"], spec["hostIPC"], spec["hostPID"]) == (True, True, True)
        assert spec["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert "hostNetwork" not in launcher


def test_the_grace_period_is_that_of_the_pods_and_of_the_programs(render):
    values = {"run": {"gracePeriod": 120}}
    assert [one["terminationGracePeriodSeconds"] for one in pods(render, values)] == [120] * 3
    assert run_config(render(values))["gracePeriod"] == 120


def test_scheduler_priority_and_preemption(render):
    values = {
        "scheduling": {"schedulerName": "mine", "priorityClassName": "high", "preemptionPolicy": "Never"}
    }
    for spec in pods(render, values):
        found = (spec["schedulerName"], spec["priorityClassName"], spec["preemptionPolicy"])
        assert found == ("mine", "high", "Never")


@pytest.mark.parametrize("required", [True, False])
def test_workers_are_kept_together(render, required):
    values = {"scheduling": {"colocate": {"topologyKey": "rack", "required": required}}}
    launcher, worker, direct = pods(render, values)
    assert "affinity" not in launcher
    for spec in (worker, direct):
        found = spec["affinity"]["podAffinity"]
        if required:
            (term,) = found["requiredDuringSchedulingIgnoredDuringExecution"]
        else:
            (weighted,) = found["preferredDuringSchedulingIgnoredDuringExecution"]
            term = weighted["podAffinityTerm"]
        assert term["topologyKey"] == "rack"
        assert term["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == "worker"


def test_a_queue_of_kueue(render):
    values = {**DIRECT, "scheduling": {"kueue": {"queue": "team", "priorityClass": "high"}}}
    labels = render(values).get("Job")["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/queue-name"] == "team"
    assert labels["kueue.x-k8s.io/priority-class"] == "high"
    with pytest.raises(RenderError, match="needs `mode: direct`"):
        render({**values, "mode": "launcher"})


def test_who_may_do_what(render):
    account = {"annotations": {"role": "x"}}
    objects = render({"serviceAccount": account})
    assert objects.get("ServiceAccount")["metadata"]["annotations"] == {"role": "x"}
    objects = render({"serviceAccount": {"name": "mine"}, "rbac": {"create": False}})
    assert not {"ServiceAccount", "Role", "RoleBinding"} & set(objects.kinds())
    assert objects.pod("launcher")["serviceAccountName"] == "mine"
    assert render({"serviceAccount": {"name": "mine"}}).get("RoleBinding")["subjects"][0]["name"] == "mine"
    with pytest.raises(RenderError, match=r"name a service account that has them in `serviceAccount.name`"):
        render({"rbac": {"create": False}})
    assert pods(render, {"workers": {"serviceAccountName": "cloud"}})[1]["serviceAccountName"] == "cloud"


def test_network_policies(render):
    values = {
        "networkPolicy": {
            "enabled": True,
            "egress": "closed",
            "tensorboardFrom": [{"namespaceSelector": {}}],
        },
        "data": [{"claim": "c", "mountPath": "/d"}],
        "tensorboard": {"enabled": True, "logdir": "/d"},
    }
    objects = render(values)
    own = {
        "app.kubernetes.io/name": "deepspeed-job",
        "app.kubernetes.io/instance": "job",
        "deepspeed-job/host": "true",
    }
    peers = [{"podSelector": {"matchLabels": own}}]
    hosts = next(
        one for one in objects if one["kind"] == "NetworkPolicy" and one["metadata"]["name"] == "job"
    )
    assert hosts["spec"]["podSelector"]["matchLabels"] == own
    assert hosts["spec"]["ingress"] == [{"from": peers}]
    assert {"to": peers} in hosts["spec"]["egress"]
    board = objects.get("NetworkPolicy", "tensorboard")["spec"]
    assert board["ingress"] == [
        {"from": [*peers, {"namespaceSelector": {}}], "ports": [{"port": 6006, "protocol": "TCP"}]}
    ]
    assert objects.get("NetworkPolicy", "launcher")["spec"]["policyTypes"] == ["Egress"]
    opened = render({**values, "networkPolicy": {"enabled": True}})
    assert next(one for one in opened if one["metadata"]["name"] == "job" and one["kind"] == "NetworkPolicy")[
        "spec"
    ]["policyTypes"] == ["Ingress"]


def test_a_disruption_budget_spares_running_workers(render):
    budget = render({"podDisruptionBudget": {"enabled": True}}).get("PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 0
    assert budget["selector"]["matchLabels"]["app.kubernetes.io/component"] == "worker"


def test_ip_families_of_the_service(render):
    spec = render({"service": {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv4"]}}).get(
        "Service"
    )["spec"]
    assert (spec["ipFamilyPolicy"], spec["ipFamilies"]) == ("PreferDualStack", ["IPv6", "IPv4"])


def test_labels_and_annotations_of_every_object_start_no_other_run(render):
    plain = render()
    marked = render({"labels": {"team": "on"}, "annotations": {"note": "yes"}})
    assert [one["metadata"]["name"] for one in marked] == [one["metadata"]["name"] for one in plain]
    for one in marked:
        assert one["metadata"]["labels"]["team"] == "on"
        assert one["metadata"]["annotations"]["note"] == "yes"
    for before, after in zip(plain, marked, strict=True):
        assert before.get("spec", {}).get("template") == after.get("spec", {}).get("template")


def test_tensorboards_own_settings(render):
    values = {
        "data": [{"claim": "c", "mountPath": "/d"}],
        "tensorboard": {
            "enabled": True, "logdir": "/d", "reloadInterval": 86400, "pathPrefix": "/a/b", "extraArgs": ["--x=$y"],
            "ingress": {"host": "h.example", "className": "nginx", "tlsSecret": "tls", "annotations": {"a": "b"}},
        },
    }  # fmt: skip
    objects = render(values)
    container = objects.container("tensorboard")
    assert {"--reload_interval=86400", "--path_prefix=/a/b", "--x=$$y"} <= set(container["command"])
    assert container["readinessProbe"]["httpGet"]["path"] == "/a/b/"
    ingress = objects.get("Ingress")
    assert ingress["metadata"]["annotations"] == {"a": "b"}
    (rule,) = ingress["spec"]["rules"]
    assert rule["host"] == "h.example"
    assert rule["http"]["paths"][0]["path"] == "/a/b"
    assert rule["http"]["paths"][0]["backend"]["service"]["name"] == "job-tensorboard"
    assert ingress["spec"]["tls"] == [{"hosts": ["h.example"], "secretName": "tls"}]
    assert ingress["spec"]["ingressClassName"] == "nginx"


def test_more_objects_are_rendered_as_they_are(render):
    one = {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "beside"}, "data": {"a": "{{ x }}", "b": "on"},
    }  # fmt: skip
    assert one in render({"extraObjects": [one]})


@pytest.mark.parametrize("name", ["true", "null", "on", "y", "e5"])
def test_names_that_yaml_reads_as_something_else(render, name):
    for one in render(name=name):
        assert one["metadata"]["labels"]["app.kubernetes.io/instance"] == name


GANG = {
    "scheduling": {"gang": {"type": "volcano", "queue": "q"}, "schedulerName": "volcano"},
    "workers": {"count": 3},
}


def test_a_gang_is_the_workers(render):
    objects = render(GANG)
    group = objects.get("PodGroup")
    assert group["apiVersion"] == "scheduling.volcano.sh/v1beta1"
    assert group["spec"] == {"minMember": 3, "queue": "q"}
    worker = objects.get("StatefulSet")["spec"]["template"]
    assert worker["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "job"
    launcher = objects.get("Job")["spec"]["template"]["metadata"]
    assert "scheduling.k8s.io/group-name" not in launcher.get("annotations", {})
    other = {"scheduling": {"gang": {"type": "coscheduling", "timeout": 60}}, "elastic": {"min": 2, "max": 4}}
    objects = render({**other, "workers": {"count": 3}})
    group = objects.get("PodGroup")
    assert group["apiVersion"] == "scheduling.x-k8s.io/v1alpha1"
    assert group["spec"] == {"minMember": 2, "scheduleTimeoutSeconds": 60}
    worker = objects.get("StatefulSet")["spec"]["template"]
    assert worker["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "job"


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"scheduling": {"gang": {"type": "coscheduling", "queue": "q"}}}, "a queue of Volcano"),
        ({"scheduling": {"gang": {"type": "volcano", "timeout": 1}}}, "one of coscheduling"),
        (
            {**DIRECT, "scheduling": {"gang": {"type": "volcano"}, "kueue": {"queue": "q"}}},
            "exclude each other",
        ),
        (
            {"scheduling": {"colocate": {"topologyKey": "x"}}, "workers": {"affinity": {"podAffinity": {}, "nodeAffinity": {}}}},
            None,
        ),
        (
            {"scheduling": {"colocate": {"topologyKey": "x"}}, "workers": {"affinity": {"podAffinity": {"a": []}}}},
            "exclude each other",
        ),
    ],
)  # fmt: skip
def test_what_excludes_each_other(render_text, values, match):
    if match is None:
        render_text(values)
        return
    with pytest.raises(RenderError, match=match):
        render_text(values)


def test_the_file_with_every_setting_renders_and_is_small(render_text):
    text = render_text(MAXIMAL)
    assert len(text) < 300_000
    assert render_text(MAXIMAL) == text
