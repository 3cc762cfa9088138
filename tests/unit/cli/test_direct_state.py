"""Mode direct: the state of a job without a launcher, its logs, and following it."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import Dsjob
from objects import NOW, condition, direct_job, ended, event, objects, unscheduled, waiting
from objects import direct_host as host
from objects import direct_worker as worker

from dsjob import follow, render
from dsjob.errors import ExitCode
from dsjob.model import JobState, Objects, unsettled
from dsjob.progress import steps
from dsjob.state import describe, names

Object = dict[str, Any]


def failed(index: int, code: int = 3, reason: str = "RankFailed", second: float = 0, **more: Any) -> Object:
    """A pod that has told how it ended, so many seconds after noon."""
    told = {
        "exitCode": code,
        "reason": reason,
        "message": f"{host(index)} failed with exit code {code}",
        "host": host(index),
        "lastLines": [f"ValueError of {index}"],
        "endedAt": f"2026-12-01T12:00:{second:06.3f}+00:00",
    }
    return worker(index, "Failed", ended("worker", code, told=told), **more)


def done(index: int) -> Object:
    return worker(index, "Succeeded", ended("worker", 0))


def state_of(*things: Object, events: Any = ()) -> JobState:
    state = describe("hello", "team", objects(*things, events=events), NOW)
    assert state is not None
    return state


def test_a_worker_without_its_code_is_why_the_run_failed() -> None:
    told = "there is no commit 1 in https://git.example.com/x.git"
    pods = [worker(0, "Failed", waiting("worker", "PodInitializing")), worker(1)]
    pods[0]["status"]["initContainerStatuses"] = [ended("code", 1, told=told)]
    state = state_of(direct_job(condition("Failed", reason="BackoffLimitExceeded")), *pods)
    assert (state.phase.value, state.message) == ("Failed", told)
    assert [one.cause for one in state.reasons] == ["CodeNotFetched"]


FAILED = condition("Failed", reason="PodFailurePolicy", message="Container worker failed with exit code 3")
_job = direct_job()
_drained = (condition("PodScheduled"), condition("DisruptionTarget", reason="EvictionByEvictionAPI"))
_killed = worker(1, "Failed", ended("worker", 137, "OOMKilled"), limits={"memory": "8Gi"})

# name: objects, phase, text of the message, causes, text of the first remedy
CASES: dict[str, tuple[list[Object], str, str, list[str], str]] = {
    "trains": ([_job, worker(0), worker(1)], "Running", "2/2 workers ready", [], ""),
    "no pod yet": ([_job], "Pending", "0/2 workers ready", [], ""),
    "one has no node": (
        [
            _job,
            worker(0),
            worker(1, "Pending", node="", conditions=unscheduled("1 Insufficient nvidia.com/gpu")),
        ],
        "Pending",
        "1/2 workers ready; 1 Insufficient nvidia.com/gpu",
        ["Unschedulable"],
        "`accelerator.count`",
    ),
    "starts": (
        [_job, worker(0), worker(1, "Pending", waiting("worker", "ContainerCreating"))],
        "Starting",
        "1/2 workers ready",
        [],
        "",
    ),
    "no such image": (
        [_job, worker(0), worker(1, "Pending", waiting("worker", "ErrImagePull", "x: not found"))],
        "Pending",
        "x: not found",
        ["ErrImagePull"],
        "`image.repository`",
    ),
    "one is done before the other": ([_job, worker(0), done(1)], "Running", "2/2 workers ready", [], ""),
    "all are done, but the Job does not know yet": (
        [_job, done(0), done(1)],
        "Succeeded",
        "exit code 0",
        [],
        "",
    ),
    "succeeded": ([direct_job(condition("Complete")), done(0), done(1)], "Succeeded", "exit code 0", [], ""),
    "succeeded, and its pods are gone": (
        [direct_job(condition("Complete"))],
        "Succeeded",
        "exit code 0",
        [],
        "",
    ),
    "one has failed, but the Job does not know yet": (
        [_job, worker(0), failed(1)],
        "Failed",
        f"{host(1)} failed with exit code 3",
        ["RankFailed"],
        "dsjob logs hello",
    ),
    "of several failures the first is the cause": (
        [direct_job(FAILED), failed(0, 1, second=2.25), failed(1, 3, second=2.125)],
        "Failed",
        f"{host(1)} failed with exit code 3",
        ["RankFailed"],
        "dsjob logs hello",
    ),
    "one that was told to end is not the cause": (
        [direct_job(FAILED), failed(0, 143, "Stopped", second=1), failed(1, 3, second=2)],
        "Failed",
        f"{host(1)} failed with exit code 3",
        ["RankFailed"],
        "dsjob logs hello",
    ),
    "out of memory": (
        [direct_job(FAILED), worker(0), _killed],
        "Failed",
        "its limit of 8Gi",
        ["OOMKilled"],
        "`workers.resources.limits.memory`",
    ),
    "failed, and its pods are gone": (
        [direct_job(FAILED)],
        "Failed",
        "failed with exit code 3; its pod is gone",
        ["PodFailurePolicy"],
        "",
    ),
    "one was drained and is replaced": (
        [
            _job,
            worker(0),
            failed(1, 143, conditions=_drained, ago=50),
            worker(1, "Pending", waiting("worker", "ContainerCreating"), letters="new", ago=5),
        ],
        "Starting",
        "1/2 workers ready",
        [],
        "",
    ),
    "suspended": ([direct_job(suspend=True)], "Suspended", "it holds nothing", [], ""),
    "being removed": ([worker(0), worker(1)], "Stopping", "it is being removed", [], ""),
}


@pytest.mark.parametrize("name", CASES)
def test_state(name: str) -> None:
    found, phase, message, causes, helps = CASES[name]
    state = state_of(*found)
    assert state.phase.value == phase
    assert message in state.message
    assert [reason.cause for reason in state.reasons] == causes
    assert helps in (state.reasons[0].remedy if state.reasons else "")
    assert "hello" in render.tree(state)


def test_a_quota_that_keeps_pods_away() -> None:
    refused = event(_job, "FailedCreate", 'Error creating: pods "x" is forbidden: exceeded quota: gpus, used')
    state = state_of(_job, worker(0), events=[refused])
    assert (state.phase.value, [reason.cause for reason in state.reasons]) == ("Pending", ["FailedCreate"])
    assert unsettled(objects(_job, worker(0)))
    assert not unsettled(objects(_job, worker(0), worker(1)))


def test_numbers_and_parts() -> None:
    state = state_of(direct_job(gpus=4), worker(0), worker(1))
    assert (state.mode, state.launcher, state.launcher_started) == ("direct", f"{host(0)}-abcde", True)
    assert (state.workers, state.workers_ready, state.accelerators) == (2, 2, 4)
    assert [part.role for part in state.parts] == ["workers"]
    assert state.pods.wanted == 2
    assert names(objects(direct_job())) == [("team", "hello")]


@pytest.mark.parametrize("told", [failed(1), _killed])
def test_the_failed_worker_is_named(told: Object) -> None:
    told["spec"]["hostname"] = host(1)
    state = state_of(direct_job(FAILED), worker(0), told)
    assert state.host == host(1)
    assert state.exit_code in (3, 137)
    assert host(1) in render.tree(state)
    assert f"host {host(1)}" in "\n".join(render.failure(state))


def test_worker_0_may_run_before_the_others_have_a_node() -> None:
    waits = worker(1, "Pending", node="", conditions=unscheduled("no"))
    assert [step.done for step in steps(state_of(_job, worker(0), waits), training=True)] == [False] * 4
    assert [step.done for step in steps(state_of(_job, worker(0), worker(1)), training=True)] == [
        True,
        True,
        True,
        False,
    ]


LOGS = {f"{host(0)}-abcde": ["zero"], f"{host(1)}-abcde": ["one"]}


@pytest.fixture(autouse=True)
def _logs(dsjob: Dsjob, monkeypatch: pytest.MonkeyPatch) -> None:
    dsjob.cluster.logs = LOGS
    monkeypatch.setattr(follow, "_EVERY", 0.01)


def test_logs_of_a_worker(dsjob: Dsjob) -> None:
    dsjob.cluster.states = [objects(direct_job(), worker(0), worker(1))]
    assert dsjob("logs", "hello").stdout == "zero\n"
    assert dsjob("logs", "hello", "--worker", "1").stdout == "one\n"
    dsjob.cluster.states = [objects(direct_job(FAILED), failed(1))]
    assert dsjob("logs", "hello").stdout == "one\n", "worker 0 is gone, the one that failed is not"
    assert "--worker 1`" in dsjob("status", "hello").stdout
    assert "no pod of worker 7" in dsjob("logs", "hello", "--worker", "7", code=3).stderr


@pytest.mark.parametrize(("culprit", "lines"), [(1, True), (0, False)])
def test_following_says_what_another_worker_left(
    culprit: int, lines: bool, dsjob: Dsjob, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unless it is the one whose log was shown."""
    over: Objects = objects(direct_job(FAILED), failed(culprit))
    dsjob.cluster.states = [*[objects(direct_job(), worker(0), worker(1))] * 20, over]
    assert follow.follow(dsjob.cluster, "hello") is ExitCode.JOB_FAILED  # type: ignore[arg-type]
    out, err = capsys.readouterr()
    assert out == "zero\n"
    assert f"host {host(culprit)}" in err
    assert (f"ValueError of {culprit}" in err) is lines
