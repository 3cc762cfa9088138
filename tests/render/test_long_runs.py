"""What long runs have: limits, another start without another run, an interactive one, and a number of workers that changes."""

import json
import re

import pytest
from rendering import RenderError, env_of, run_config, run_hash

METRICS = [
    {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
    }
]
BEHAVIOR = {"scaleDown": {"stabilizationWindowSeconds": 600}}


def elastic(**more):
    return {"workers": {"count": 2}, "elastic": {"min": 2, "max": 8, **more}}


def test_a_run_has_no_limits_of_its_own(render):
    run = run_config(render())
    del run["run"]
    assert run == {
        "name": "job", "stem": "job-worker", "workers": 1, "slots": 1, "port": 2222, "maxRestarts": 0, "countLostWorkers": True,
        "startTimeout": 600, "gracePeriod": 30, "deadline": 0, "stallTimeout": 0, "logdir": "", "interactive": False,
        "release": "Always", "elastic": {},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("values", "key", "found"),
    [
        ({"run": {"deadline": 31536000}}, "deadline", 31536000),
        ({"run": {"stallTimeout": 604800}}, "stallTimeout", 604800),
        ({"run": {"maxRestarts": 3}}, "maxRestarts", 3),
        ({"run": {"countLostWorkers": False}}, "countLostWorkers", False),
        ({"run": {"interactive": True}}, "interactive", True),
        ({"workers": {"release": "OnSuccess"}}, "release", "OnSuccess"),
        ({"workers": {"release": "Never"}}, "release", "Never"),
        (elastic(), "elastic", {"min": 2, "max": 8, "patience": 60}),
        (elastic(max=10000, patience=86400), "elastic", {"min": 2, "max": 10000, "patience": 86400}),
    ],
)
def test_what_the_programs_read(render, values, key, found):
    assert run_config(render(values))[key] == found


def test_event_files_are_looked_for_where_tensorboard_does(render):
    values = {
        "run": {"stallTimeout": 60},
        "data": [{"claim": "c", "mountPath": "/data"}],
        "tensorboard": {"enabled": True, "logdir": "/data/logs"},
    }
    assert run_config(render(values))["logdir"] == "/data/logs"


# Suspension


def test_a_suspended_job_has_no_pods(render):
    objects = render({"run": {"suspend": True}})
    assert objects.get("Job")["spec"]["suspend"] is True
    assert objects.get("StatefulSet")["spec"]["replicas"] == 0


def test_a_job_that_is_not_suspended_says_nothing_of_it(render):
    """A queue, or `dsjob suspend`, may have set it: an upgrade must not take it back."""
    for values in ({}, {"run": {"suspend": False}}):
        objects = render(values)
        assert "suspend" not in objects.get("Job")["spec"]
        assert "replicas" not in objects.get("StatefulSet")["spec"]


def test_a_job_that_goes_on_is_the_same_run(render):
    held, goes_on = (render({"run": {"suspend": suspend}}) for suspend in (True, False))
    assert run_hash(held) == run_hash(goes_on)
    del held.get("Job")["spec"]["suspend"]
    assert held.get("Job") == goes_on.get("Job"), "a Job's template cannot be changed"
    assert run_config(held) == run_config(goes_on)


# Interactive


@pytest.mark.parametrize("run", [{"command": None}, {}, {"command": None, "script": "train.py"}])
def test_an_interactive_run_needs_no_command(render, run):
    found = run_config(render({"run": {"interactive": True, **run}}))
    assert found["interactive"] is True
    assert found["run"].get("script") == run.get("script")
    assert ("command" in found["run"]) is (run == {})


# The programs are there


def test_every_program_is_mounted_and_what_is_run_by_name_can_be_run(render):
    objects = render()
    scripts = objects.get("ConfigMap", "-scripts")["data"]
    for name in (
        "enter",
        "ssh",
        "deepspeed",
        "launcher.py",
        "batch.py",
        "early.py",
        "obstacle.py",
        "limits.py",
    ):
        assert name in scripts
    for component in ("launcher", "worker"):
        files = next(one for one in objects.pod(component)["volumes"] if one["name"] == "files")
        assert files["projected"]["defaultMode"] == 0o555


# Elastic


def test_an_elastic_run_reads_the_configuration_of_its_attempt(render):
    config = {"train_batch_size": 64}
    for values, folder in ((elastic(), "/job"), ({}, "/opt/deepspeed-job")):
        objects = render({**values, "deepspeed": {"config": config}})
        for component in ("launcher", "worker"):
            assert env_of(objects, component)["DEEPSPEED_CONFIG"]["value"] == f"{folder}/deepspeed.json"


def test_an_elastic_run_without_a_configuration_has_none(render):
    assert "DEEPSPEED_CONFIG" not in env_of(render(elastic()), "worker")


def test_there_is_an_autoscaler_only_if_it_was_asked_for(render):
    assert "HorizontalPodAutoscaler" not in render().kinds()
    assert "HorizontalPodAutoscaler" not in render(elastic()).kinds()


def test_the_autoscaler_changes_the_scale_of_the_workers_within_the_limits(render):
    objects = render(elastic(autoscaling={"metrics": METRICS, "behavior": BEHAVIOR}))
    found = objects.get("HorizontalPodAutoscaler")
    assert found["metadata"]["name"] == "job-worker"
    assert found["metadata"]["labels"]["app.kubernetes.io/component"] == "worker"
    assert found["spec"] == {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "job-worker"},
        "minReplicas": 2,
        "maxReplicas": 8,
        "metrics": METRICS,
        "behavior": BEHAVIOR,
    }
    assert objects.get("StatefulSet")["metadata"]["name"] == "job-worker"


def test_the_autoscaler_needs_no_behaviour(render):
    found = render(elastic(autoscaling={"metrics": METRICS})).get("HorizontalPodAutoscaler")
    assert "behavior" not in found["spec"]


def test_another_autoscaler_is_the_same_run_and_other_limits_are_another(render):
    base = render(elastic())
    same = render(elastic(autoscaling={"metrics": METRICS}))
    assert run_hash(same) == run_hash(base)
    assert same.get("Job") == base.get("Job")
    assert run_config(same) == run_config(base)
    hashes = {run_hash(render(elastic(**more))) for more in ({}, {"min": 1}, {"max": 9}, {"patience": 61})}
    assert len(hashes) == 4


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({**elastic(), "run": {"interactive": True}}, "`elastic` and `run.interactive` exclude each other"),
        ({**elastic(), "workers": {"count": 1}}, "`workers.count` is 1, and `elastic` allows 2 to 8"),
        ({**elastic(), "workers": {"count": 9}}, "`workers.count` is 9, and `elastic` allows 2 to 8"),
        (elastic(min=4, max=3), "`workers.count` is 2, and `elastic` allows 4 to 3"),
        ({"elastic": {"min": 1}}, "max"),
        ({"elastic": {"max": 4}}, "min"),
        (elastic(min=0), "/elastic/min"),
        (elastic(patience=0), "/elastic/patience"),
        (elastic(autoscaling={}), "metrics"),
        (elastic(autoscaling={"metrics": []}), "/elastic/autoscaling/metrics"),
        (elastic(autoscale={}), "autoscale"),
        ({"run": {"deadline": 0}}, "/run/deadline"),
        ({"run": {"deadline": "1h"}}, "/run/deadline"),
        ({"run": {"stallTimeout": 0}}, "/run/stallTimeout"),
        ({"run": {"suspend": "yes"}}, "/run/suspend"),
        ({"run": {"interactive": "yes"}}, "/run/interactive"),
        ({"run": {"countLostWorkers": 1}}, "/run/countLostWorkers"),
        ({"workers": {"release": "Sometimes"}}, "/workers/release"),
        ({"run": {"interactive": True, "script": "x"}}, "exclude each other"),
    ],
    ids=lambda one: json.dumps(one) if isinstance(one, dict) else "",
)
def test_what_cannot_work_is_refused_by_name(render, values, message):
    with pytest.raises(RenderError, match=re.escape(message)):
        render(values)
