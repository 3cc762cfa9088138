"""`dsjob suspend` and `dsjob resume`: said twice they do no harm, and the state in between is told truly."""

from __future__ import annotations

import pytest
from fakes import Dsjob
from objects import (
    NOW,
    condition,
    direct_job,
    direct_worker,
    ended,
    failed,
    healthy,
    job,
    launcher,
    lease,
    objects,
    running,
    succeeded,
    worker,
    workers_set,
)

from dsjob.model import JobState, Objects
from dsjob.progress import steps
from dsjob.state import describe

JOB = "hello-launcher-1a2b3c4d"
SUSPENDED = objects(job(suspend=True), workers_set(0))
ENDING = objects(
    job(suspend=True),
    workers_set(),
    launcher("Running", ended("launcher", 143, told={"reason": "Stopped", "message": "stopped"})),
    lease(),
    worker(0, "Running", running("worker", False)),
)
DIRECT = objects(direct_job(suspend=True), direct_worker(0), direct_worker(1, "Failed", ended("worker", 143)))


def state_of(found: Objects) -> JobState:
    state = describe("hello", "team", found, NOW)
    assert state is not None
    return state


def queued() -> Objects:
    found = healthy()
    found.jobs[0]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "gpus"
    return found


def test_suspend(dsjob: Dsjob) -> None:
    dsjob.cluster.states = [healthy()]
    healthy_job = dsjob.cluster.states[0].jobs[0]
    healthy_job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 90
    result = dsjob("suspend", "hello")
    assert dsjob.cluster.changes == [("suspend", JOB, True)]
    assert result.stdout == "hello: suspended\n"
    assert "SIGTERM" in result.stderr
    assert "(90s) for a last checkpoint" in result.stderr
    assert "dsjob resume hello -n team" in result.stderr


def test_suspend_of_what_has_not_started_speaks_of_no_ranks(dsjob: Dsjob) -> None:
    dsjob.cluster.states = [objects(job(), workers_set(0))]
    assert "SIGTERM" not in dsjob("suspend", "hello").stderr
    assert dsjob.cluster.changes == [("suspend", JOB, True)]


def test_suspend_in_mode_direct(dsjob: Dsjob) -> None:
    dsjob.cluster.states = [objects(direct_job(), direct_worker(0), direct_worker(1))]
    dsjob("suspend", "hello")
    assert dsjob.cluster.changes == [("suspend", "hello-worker-1a2b3c4d", True)]


def test_resume(dsjob: Dsjob) -> None:
    dsjob.cluster.states = [SUSPENDED]
    result = dsjob("resume", "hello")
    assert dsjob.cluster.changes == [("suspend", JOB, False)]
    assert result.stdout == "hello: resumed\n"
    assert "from its last checkpoint" in result.stderr
    assert "dsjob logs hello -n team -f" in result.stderr


def test_said_twice(dsjob: Dsjob) -> None:
    dsjob.cluster.states = [SUSPENDED]
    assert dsjob("suspend", "hello").stdout == "hello: is suspended already\n"
    dsjob.cluster.states = [healthy()]
    assert dsjob("resume", "hello").stdout == "hello: is not suspended; it is Running (2/2 workers ready)\n"
    assert dsjob.cluster.changes == []


@pytest.mark.parametrize("verb", ["suspend", "resume"])
@pytest.mark.parametrize(
    ("found", "code", "text"),
    [
        (succeeded(), 4, "hello is over: the command ended with exit code 0"),
        (failed(), 4, "hello is over: hello-worker-1 failed"),
        (objects(worker(0)), 4, "it is being removed"),
        (objects(workers_set(0)), 4, "its Job is gone"),
        (queued(), 4, "the queue `gpus` of Kueue"),
        (objects(), 3, "there is no job `hello`"),
    ],
)
def test_refusals(verb: str, found: Objects, code: int, text: str, dsjob: Dsjob) -> None:
    dsjob.cluster.states = [found]
    assert text in dsjob(verb, "hello", code=code).stderr
    assert dsjob.cluster.changes == []


@pytest.mark.parametrize(
    ("found", "message", "parts"),
    [
        (SUSPENDED, "suspended, it holds nothing; `dsjob resume hello -n team`", ["no pod", "no pods"]),
        (ENDING, "suspended, its pods are ending;", ["ending", "releasing 1"]),
        (DIRECT, "suspended, its pods are ending;", ["releasing 2"]),
        (objects(direct_job(suspend=True)), "suspended, it holds nothing;", ["no pods"]),
    ],
)
def test_a_pod_that_was_told_to_end_is_no_failure(found: Objects, message: str, parts: list[str]) -> None:
    state = state_of(found)
    assert (state.phase.value, state.exit_code, state.reasons) == ("Suspended", None, [])
    assert message in state.message
    assert [part.state for part in state.parts] == parts
    assert all(part.good for part in state.parts)
    assert state.duration is None  # Kubernetes keeps the time of its last start


def test_an_end_while_it_is_suspended_is_the_end(dsjob: Dsjob) -> None:
    over = objects(job(condition("Failed", reason="PodFailurePolicy"), suspend=True), workers_set(0))
    assert state_of(over).phase.value == "Failed"


def test_who_follows_a_suspended_job_is_told_how_it_goes_on() -> None:
    assert "`dsjob resume hello -n team`" in steps(state_of(SUSPENDED), training=False)[0].held_up
