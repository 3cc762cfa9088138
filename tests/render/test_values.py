"""Each setting reaches the objects that it must reach, byte for byte; what cannot work is refused, with the key's name."""

import json
import re
from itertools import product

import pytest
from rendering import NASTY, RenderError, as_in_the_container, env_of, merged, run_config, run_config_map


def test_strings_are_exact_in_command_args_and_env(render):
    objects = render(
        {
            "run": {"command": None, "script": "train.py", "args": NASTY, "launcherArgs": NASTY},
            "env": {f"V{i}": text for i, text in enumerate(NASTY)},
        }
    )
    run = run_config(objects)["run"]
    assert run == {"script": "train.py", "args": NASTY, "launcherArgs": NASTY, "workingDir": ""}
    for component in ("launcher", "worker"):
        env = env_of(objects, component)
        assert [as_in_the_container(env[f"V{i}"]["value"]) for i in range(len(NASTY))] == NASTY


@pytest.mark.parametrize("text", [text for text in NASTY if text])
def test_a_command_is_exact(render, text):
    assert run_config(render({"run": {"command": text}}))["run"]["command"] == text


def test_large_integers_stay_integers(render_text):
    values = (
        "image: {repository: r}\nrun: {command: c, startTimeout: 100000}\n"
        "podSecurityContext: {runAsUser: 1000660000, fsGroup: 1000660000}\n"
    )
    text = render_text(values)
    assert "e+" not in text
    assert '"runAsUser":1000660000' in text


def test_settings_of_the_pods(render):
    objects = render(
        {
            "image": {"digest": "sha256:" + "0" * 64, "pullPolicy": "Always"},
            "imagePullSecrets": [{"name": "registry"}],
            "run": {"workingDir": "/work dir"},
            "workers": {
                "count": 2,
                "resources": {"limits": {"cpu": 8, "memory": "64Gi"}},
                "nodeSelector": {"pool": "true"},
            },
            "launcher": {"tolerations": [{"key": "a", "operator": "Exists"}]},
            "accelerator": {"resource": "amd.com/gpu", "count": 8},
            "scheduling": {"priorityClassName": "high"},
            "shm": {"size": "16Gi"},
            "ssh": {"port": 2022},
            "podSecurityContext": {"fsGroup": 7},
            "securityContext": {"readOnlyRootFilesystem": True},
        }
    )
    for component in ("launcher", "worker"):
        pod, container = objects.pod(component), objects.container(component)
        assert container["image"] == "example/image@sha256:" + "0" * 64
        assert container["imagePullPolicy"] == "Always"
        assert container["workingDir"] == "/work dir"
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert pod["imagePullSecrets"] == [{"name": "registry"}]
        assert pod["priorityClassName"] == "high"
        assert pod["securityContext"]["fsGroup"] == 7
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}} in pod["volumes"]
    worker = objects.container("worker")
    assert worker["resources"]["limits"] == {"cpu": 8, "memory": "64Gi", "amd.com/gpu": 8}
    assert worker["ports"][0]["containerPort"] == 2022
    assert objects.pod("worker")["nodeSelector"] == {"pool": "true"}
    assert objects.pod("launcher")["tolerations"] == [{"key": "a", "operator": "Exists"}]
    assert "amd.com/gpu" not in json.dumps(objects.pod("launcher"))
    run = run_config(objects)
    assert (run["workers"], run["slots"], run["port"]) == (2, 8, 2022)
    env = env_of(objects, "worker")
    assert (env["workers"]["value"], env["gpus"]["value"], env["MASTER_ADDR"]["value"]) == (
        "2",
        "8",
        "job-worker-0.job",
    )


@pytest.mark.parametrize(
    ("accelerator", "workers", "slots"), [(0, {}, 1), (4, {}, 4), (0, {"slots": 3}, 3), (4, {"slots": 2}, 2)]
)
def test_slots_follow_the_devices(render, accelerator, workers, slots):
    assert run_config(render({"accelerator": {"count": accelerator}, "workers": workers}))["slots"] == slots


def test_the_users_env_wins_over_the_charts_and_stands_once(render):
    objects = render({"env": {"MASTER_ADDR": "10.0.0.1", "NVIDIA_VISIBLE_DEVICES": "all"}})
    names = [one["name"] for one in objects.container("launcher")["env"]]
    assert len(names) == len(set(names))
    assert env_of(objects, "launcher")["MASTER_ADDR"]["value"] == "10.0.0.1"
    assert env_of(objects, "launcher")["NVIDIA_VISIBLE_DEVICES"]["value"] == "all"


def test_env_references(render):
    ref = {"secretKeyRef": {"name": "hf", "key": "token", "optional": True}}
    assert env_of(render({"env": {"T": ref}}), "worker")["T"]["valueFrom"] == ref


def test_a_claim_mounted_twice_is_one_volume(render):
    objects = render(
        {
            "data": [
                {"claim": "c", "mountPath": "/a"},
                {"claim": "c", "mountPath": "/b", "subPath": "s", "readOnly": True},
            ]
        }
    )
    pod = objects.pod("worker")
    assert [one for one in pod["volumes"] if one["name"].startswith("data")] == [
        {"name": "data-0", "persistentVolumeClaim": {"claimName": "c"}}
    ]
    assert {"name": "data-0", "mountPath": "/b", "subPath": "s", "readOnly": True} in pod["containers"][0][
        "volumeMounts"
    ]


# What defines a run, and what does not.
RUN_DEFINING = [
    {"image": {"tag": "v2"}}, {"run": {"id": "2"}}, {"run": {"command": "other"}}, {"env": {"A": "1"}}, {"workers": {"count": 2}},
    {"workers": {"resources": {"limits": {"cpu": 1}}}}, {"accelerator": {"count": 1}}, {"data": [{"claim": "c", "mountPath": "/d"}]},
    {"deepspeed": {"config": {"a": 1}}}, {"ssh": {"port": 2223}}, {"shm": {"size": "1Gi"}}, {"run": {"maxRestarts": 1}},
    {"launcher": {"nodeSelector": {"a": "b"}}}, {"podSecurityContext": {"runAsUser": 7}}, {"scheduling": {"priorityClassName": "p"}},
    {"persistence": {"x": {"size": "1Gi", "mountPath": "/x"}}}, {"imagePullSecrets": [{"name": "s"}]}, {"run": {"deadline": 60}},
    {"run": {"stallTimeout": 60}}, {"run": {"interactive": True}}, {"run": {"countLostWorkers": False}},
    {"workers": {"release": "Never"}}, {"elastic": {"min": 1, "max": 1}},
]  # fmt: skip


@pytest.mark.parametrize("change", RUN_DEFINING, ids=json.dumps)
def test_what_defines_a_run_names_its_job(render, change):
    assert render(change).get("Job")["metadata"]["name"] != render().get("Job")["metadata"]["name"]


@pytest.mark.parametrize("more", [{}, {"run": {"stallTimeout": 60}}], ids=json.dumps)
def test_what_does_not_define_a_run_leaves_it_as_it_is(render, more):
    base = {"persistence": {"x": {"size": "1Gi", "mountPath": "/x"}}, **more}
    runs = [
        render(merged(base, change))
        for change in (
            {},
            {"tensorboard": {"resources": {"limits": {"cpu": 1}}}},
            {"persistence": {"x": {"size": "2Gi", "storageClass": "fast"}}},
            {"global": {"anything": 1}},
        )
    ]
    for one in runs:
        assert one.get("Job") == runs[0].get("Job")
        assert run_config_map(one) == run_config_map(runs[0])


def test_tensorboard_may_be_added_while_a_job_runs(render):
    """Neither its Job nor what its pods mount can be changed: the API server refuses it, and so the whole upgrade."""
    base = {"persistence": {"x": {"size": "1Gi", "mountPath": "/x"}}}
    before = render(base)
    after = render({**base, "tensorboard": {"enabled": True, "logdir": "/x"}})
    assert after.get("Job") == before.get("Job")
    assert run_config_map(before)["immutable"] is True
    assert run_config_map(after) == run_config_map(before)


def test_what_a_stalled_run_is_watched_by_defines_it(render):
    """Its folder of event files stands in what the pods mount, so another folder needs another name for it."""
    base = {"persistence": {"x": {"size": "1Gi", "mountPath": "/x"}}, "run": {"stallTimeout": 60}}
    maps = [
        run_config_map(render({**base, "tensorboard": {"enabled": True, "logdir": f"/x/{folder}"}}))
        for folder in "ab"
    ]
    assert [json.loads(one["data"]["run.json"])["logdir"] for one in maps] == ["/x/a", "/x/b"]
    assert maps[0]["metadata"]["name"] != maps[1]["metadata"]["name"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"run": {"command": None}}, "`run.command` is missing"),
        ({"run": {"script": "x"}}, "exclude each other"),
        ({"run": {"args": ["x"]}}, "`run.args`"),
        ({"accelerator": {"count": 1}, "workers": {"slots": 2}}, "`workers.slots` is 2"),
        ({"tensorboard": {"enabled": True}}, "`tensorboard.logdir` is missing"),
        ({"tensorboard": {"enabled": True, "logdir": "/x"}}, '`tensorboard.logdir` "/x" is in no mount'),
        (
            {
                "data": [{"claim": "c", "mountPath": "/data"}],
                "tensorboard": {"enabled": True, "logdir": "/data2/x"},
            },
            'put it under one of ["/data"]',
        ),
        ({"data": [{"claim": "c", "mountPath": "/d"}, {"claim": "e", "mountPath": "/d/"}]}, "twice"),
        ({"data": [{"claim": "c", "mountPath": "/job"}]}, "`mountPath`"),
        ({"podSecurityContext": {"runAsUser": 0}}, "`podSecurityContext.runAsUser` is 0"),
        ({"image": {"repository": None}}, "repository"),
        ({"workers": {"cout": 3}}, "cout"),
        ({"workers": {"count": 0}}, "workers"),
        ({"image": {"tag": 1.1}}, "tag"),
        ({"env": {"A": 1}}, "env"),
        ({"env": {"true": "x"}}, "env"),
    ],
    ids=lambda one: json.dumps(one) if isinstance(one, dict) else "",
)
def test_what_cannot_work_is_refused_by_name(render, values, message):
    with pytest.raises(RenderError, match=re.escape(message)):
        render(values)


@pytest.mark.parametrize("capabilities", [{"drop": []}, {"add": ["SYS_CHROOT", "SETUID", "SETGID"]}, None])
def test_root_is_taken_with_the_capabilities_that_sshd_needs(render, capabilities):
    objects = render(
        {"podSecurityContext": {"runAsUser": 0}, "securityContext": {"capabilities": capabilities}}
    )
    assert objects.pod("worker")["securityContext"]["runAsUser"] == 0


@pytest.mark.parametrize(
    "scalar", ["1e3", "072", "1.10", "20161216", "yes", "on", "0x1F", "1_000", "0o17", ".5", "true"]
)
def test_a_tag_that_yaml_reads_as_something_else_is_refused(render_text, scalar):
    with pytest.raises(RenderError, match="/image/tag"):
        render_text(f"image: {{repository: r, tag: {scalar}}}\nrun: {{command: c}}\n")


@pytest.mark.parametrize("name", ["a.b", "1a", "a" * 46, "a" * 53])
def test_names_that_would_not_fit_are_refused_with_the_rule(render, name):
    with pytest.raises(RenderError, match="at most 45"):
        render(name=name)


@pytest.mark.parametrize("length", [1, 45])
def test_every_name_fits_its_limit(render, length):
    objects = render(
        {
            "tensorboard": {"enabled": True, "logdir": "/x"},
            "persistence": {"x": {"size": "1Gi", "mountPath": "/x"}},
        },
        name="a" * length,
    )
    assert len(objects.get("StatefulSet")["metadata"]["name"]) <= 52
    for kind, limit in product(("Job", "Service"), [63]):
        for one in objects:
            assert one["kind"] != kind or len(one["metadata"]["name"]) <= limit
    assert len(objects.pod("launcher")["hostname"]) <= 63
