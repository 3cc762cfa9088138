"""What `dsjob status` tells of a job's code: where it comes from, its commit, and why it cannot be had."""

from __future__ import annotations

import json
from typing import Any

import pytest
from objects import (
    NOW,
    Object,
    condition,
    ended,
    event,
    job,
    launcher,
    lease,
    objects,
    running,
    waiting,
    worker,
    workers_set,
)

from dsjob import render
from dsjob.model import JobState, Objects
from dsjob.state import describe

SHA = "0123456789abcdef0123456789abcdef01234567"
GIT = {"CODE_GIT": "https://git.example.com/$$x.git", "CODE_REF": "main"}
MISSING = "there is no https://git.example.com/x.git, or its server hides it"


def job_with_code(*conditions: Object, **settings: str) -> Object:
    found = job(*conditions)
    env = [{"name": name, "value": value} for name, value in settings.items()]
    found["spec"]["template"]["spec"]["initContainers"] = [{"name": "workers"}, {"name": "code", "env": env}]
    return found


def fetches(pod: Object, *statuses: Object) -> Object:
    """The pod with these statuses of its init containers."""
    pod["status"]["initContainerStatuses"] = list(statuses)
    pod["spec"]["initContainers"] = [{"name": "code", "resources": {"limits": {"memory": "1Gi"}}}]
    return pod


def state_of(found: Objects) -> JobState:
    state = describe("hello", "team", found, NOW)
    assert state is not None
    return state


def part(state: JobState) -> tuple[str, str, bool]:
    found = next(one for one in state.parts if one.role == "code")
    return found.name, found.state, found.good


def starting(*statuses: Object) -> Object:
    return fetches(launcher("Pending", waiting("launcher", "PodInitializing")), *statuses)


@pytest.mark.parametrize(
    ("settings", "statuses", "told", "commit"),
    [
        (GIT, [], "no commit yet (main)", ""),
        (GIT, [running("code")], "no commit yet (main)", ""),
        (GIT, [ended("code", 0, told=SHA)], f"commit {SHA} (main)", SHA),
        (GIT | {"CODE_REF": SHA}, [ended("code", 0, told=SHA)], f"commit {SHA}", SHA),
        (GIT, [ended("code", 1, told=MISSING)], "no commit yet (main)", ""),
        ({"CODE_RSYNC": "h::m"}, [running("code")], "not there yet", ""),
        ({"CODE_RSYNC": "h::m"}, [ended("code", 0)], "copied", ""),
    ],
)
def test_the_commit_is_told_as_soon_as_it_is_known(
    settings: dict[str, str], statuses: list[Any], told: str, commit: str
) -> None:
    state = state_of(objects(job_with_code(**settings), workers_set(0), starting(*statuses)))
    name = settings.get("CODE_RSYNC") or "https://git.example.com/$x.git"
    assert part(state) == (name, told, True)
    assert state.to_json()["commit"] == commit
    assert told in render.tree(state)


def test_a_worker_knows_it_where_there_is_no_launcher() -> None:
    done = fetches(worker(0), ended("code", 0, told=SHA))
    state = state_of(objects(job_with_code(**GIT), workers_set(), done))
    assert state.commit == SHA


def test_a_job_without_code_has_no_line_of_it() -> None:
    state = state_of(objects(job(), workers_set(0), launcher("Running", running("launcher")), lease()))
    assert [one for one in state.parts if one.role == "code"] == []
    assert state.commit == ""


def test_a_run_whose_code_cannot_be_had_failed_for_that() -> None:
    pod = fetches(launcher("Failed", waiting("launcher", "PodInitializing")), ended("code", 1, told=MISSING))
    failed = condition("Failed", reason="BackoffLimitExceeded")
    state = state_of(objects(job_with_code(failed, **GIT), workers_set(0), pod))
    assert (state.phase.value, state.message) == ("Failed", MISSING)
    assert [one.cause for one in state.reasons] == ["CodeNotFetched"]


@pytest.mark.parametrize(
    "status",
    [
        ended("code", 1, told=MISSING),
        waiting("code", "CrashLoopBackOff", last=ended("code", 1, told=MISSING)["state"]["terminated"]),
    ],
)
def test_a_worker_without_its_code_says_why(status: Object) -> None:
    pod = fetches(worker(1, "Pending", waiting("worker", "PodInitializing")), status)
    up = launcher("Running", running("launcher"))
    state = state_of(objects(job_with_code(**GIT), workers_set(), up, worker(0), pod, lease("Starting")))
    assert [(one.cause, one.where) for one in state.reasons] == [("CodeNotFetched", "pod/hello-worker-1")]
    assert state.reasons[0].message.endswith(MISSING)
    assert MISSING in state.message


def test_want_of_memory_while_fetching_names_the_key() -> None:
    pod = starting(ended("code", 137, reason="OOMKilled"))
    state = state_of(objects(job_with_code(**GIT), workers_set(0), pod))
    assert state.reasons[0].remedy == "raise `code.resources.limits.memory`"
    assert "1Gi" in state.reasons[0].message


@pytest.mark.parametrize("key", ["ssh-privatekey", "launcher", "commit"])
def test_a_worker_that_waits_for_what_the_launcher_writes_is_not_at_fault(key: str) -> None:
    pod = worker(0, "Pending", waiting("worker", "PodInitializing"))
    text = f'MountVolume.SetUp failed for volume "x" : references non-existent secret key: {key}'
    found = objects(job_with_code(**GIT), workers_set(), pod, events=[event(pod, "FailedMount", text)])
    assert state_of(found).reasons == []
    assert json.dumps(state_of(found).to_json())
