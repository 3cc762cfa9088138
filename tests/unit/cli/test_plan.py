"""Plan, manifest and preflight: what would change, and what must be there."""

from __future__ import annotations

from copy import deepcopy

import pytest
from fakes import MANIFEST, FakeCluster
from objects import NOW, failed, healthy, job, objects, workers_set

from dsjob import manifest, plan, preflight
from dsjob.errors import DsjobError, ExitCode
from dsjob.helm import Release
from dsjob.manifest import Reference
from dsjob.plan import Action
from dsjob.state import describe

THE_SAME = manifest.parse(MANIFEST)
OTHER_RUN = manifest.parse(MANIFEST.replace("1a2b3c4d", "ffffffff"))
OTHER_SCRIPTS = manifest.parse(MANIFEST.replace("a: b", "a: c"))


def state(found):
    return describe("hello", "team", found, NOW)


CASES = {
    "no release": (THE_SAME, None, None, Action.INSTALL, False),
    "the same, and it runs": (THE_SAME, THE_SAME, state(healthy()), Action.NOTHING, False),
    "the same, and it failed": (THE_SAME, THE_SAME, state(failed()), Action.NOTHING, False),
    "other scripts": (OTHER_SCRIPTS, THE_SAME, state(healthy()), Action.IN_PLACE, False),
    "another run while one is under way": (OTHER_RUN, THE_SAME, state(healthy()), Action.NEW_RUN, True),
    "another run after one": (OTHER_RUN, THE_SAME, state(failed()), Action.NEW_RUN, False),
    "its Job was deleted": (THE_SAME, THE_SAME, state(objects(workers_set(0))), Action.NEW_RUN, False),
    "another run before its pod": (OTHER_RUN, THE_SAME, state(objects(job())), Action.NEW_RUN, True),
}


@pytest.mark.parametrize("name", CASES)
def test_plan(name: str) -> None:
    rendered, released, now, action, ends_run = CASES[name]
    planned = plan.make(rendered, released, now)
    assert (planned.action, planned.ends_run) == (action, ends_run)


def test_changes_are_named() -> None:
    planned = plan.make(OTHER_RUN + OTHER_SCRIPTS[1:], THE_SAME, state(healthy()))
    assert planned.changes == [
        "+ Job hello-launcher-ffffffff",
        "~ ConfigMap hello-scripts",
        "- Job hello-launcher-1a2b3c4d",
    ]


def test_what_pods_refer_to() -> None:
    assert manifest.references(THE_SAME) == [
        Reference("persistentvolumeclaims", "training-data"),
        Reference("secrets", "hf", "token"),
    ]
    own = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hf"}}
    assert [one.name for one in manifest.references([*THE_SAME, own])] == ["training-data"]
    pulls = deepcopy(THE_SAME)
    pulls[0]["spec"]["template"]["spec"]["imagePullSecrets"] = [{"name": "reg"}]
    assert Reference("secrets", "reg", optional=True) in manifest.references(pulls)


def test_kinds_and_their_plurals() -> None:
    kinds = [
        ("v1", "Service"),
        ("networking.k8s.io/v1", "NetworkPolicy"),
        ("networking.k8s.io/v1", "Ingress"),
    ]
    things = [{"apiVersion": version, "kind": kind, "metadata": {"name": "x"}} for version, kind in kinds]
    assert [plural for _, plural in manifest.resources(things)] == [
        "services",
        "networkpolicies",
        "ingresses",
    ]


PREFLIGHT = {
    "all is there": ({}, []),
    "no claim, and what there is": (
        {"claims": ["a", "b"]},
        ["there is no claim `training-data` in namespace `team`; it has `a`, `b`"],
    ),
    "no claims at all": (
        {"claims": []},
        ["there is no claim `training-data` in namespace `team`; it has no claims"],
    ),
    "no Secret": ({"secrets": {}}, ["there is no Secret `hf` in namespace `team`"]),
    "a Secret without the key": (
        {"secrets": {"hf": ["x"]}},
        ["the Secret `hf` has no key `token`; it has `x`"],
    ),
    "no namespace": ({"namespace": "nope"}, ["there is no namespace `nope`: kubectl create namespace nope"]),
    "an old cluster": ({"server_version": "v1.28.9"}, ["the cluster has Kubernetes v1.28.9"]),
    "no rights": (
        {"forbidden": {"create jobs", "create configmaps", "list secrets"}},
        ["you may not create jobs.batch, configmaps; list secrets: ask for the role `edit`"],
    ),
    "a Secret that may not be read": ({"forbidden": {"get secrets"}, "secrets": {}}, []),
    "a namespace that may not be read": ({"forbidden": {"namespace"}}, []),
    "several things": ({"claims": [], "secrets": {}}, ["claim `training-data`", "Secret `hf`"]),
}


@pytest.mark.parametrize("name", PREFLIGHT)
def test_preflight(name: str) -> None:
    settings, texts = PREFLIGHT[name]
    api = FakeCluster(**settings)
    if not texts:
        assert preflight.check(api, THE_SAME) == []
        return
    with pytest.raises(DsjobError) as caught:
        preflight.check(api, THE_SAME)
    assert caught.value.code is ExitCode.PREFLIGHT
    assert all(text in caught.value.message for text in texts)


def test_a_priority_class_that_is_not_there() -> None:
    rendered = deepcopy(THE_SAME)
    rendered[0]["spec"]["template"]["spec"]["priorityClassName"] = "high"
    with pytest.raises(DsjobError, match="no priority class `high`"):
        preflight.check(FakeCluster(), rendered)


def test_a_pull_secret_that_is_not_there_is_a_warning() -> None:
    rendered = deepcopy(THE_SAME)
    rendered[0]["spec"]["template"]["spec"]["imagePullSecrets"] = [{"name": "reg"}]
    assert preflight.check(FakeCluster(), rendered) == ["there is no Secret `reg` in namespace `team`"]


def test_what_is_not_ours_is_not_touched() -> None:
    ours, live = Release("hello", "deepspeed-job-0.1.0", "deployed", 1), healthy()
    preflight.ownership("hello", "team", ours, live)
    preflight.ownership("hello", "team", None, objects())
    with pytest.raises(DsjobError, match=r"release of mysql-1\.2\.3"):
        preflight.ownership("hello", "team", Release("hello", "mysql-1.2.3", "deployed", 1), objects())
    with pytest.raises(DsjobError, match=r"release of deepspeed-job-extra-1"):
        preflight.ownership(
            "hello", "team", Release("hello", "deepspeed-job-extra-1.0.0", "deployed", 1), objects()
        )
    with pytest.raises(DsjobError, match="not by Helm"):
        preflight.ownership("hello", "team", None, live)


@pytest.mark.parametrize(
    ("more", "maker"),
    [
        (
            {"annotations": {"argocd.argoproj.io/tracking-id": "train:batch/Job:team/hello"}},
            "the Argo CD application train",
        ),
        ({"labels": {"argocd.argoproj.io/instance": "train"}}, "the Argo CD application train"),
        ({"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}, "kubectl apply"),
        (
            {"managedFields": [{"manager": "kube-controller-manager"}, {"manager": "terraform"}]},
            "`terraform`",
        ),
        ({}, "another tool"),
    ],
)
def test_who_made_it(more: dict, maker: str) -> None:
    assert preflight.made_by({"metadata": {"name": "x", **more}}) == maker
