"""What a launcher tells of its run: restarts and their causes, who takes part, and what is left after the end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes import Dsjob, FakeCluster
from objects import (
    NOW,
    condition,
    ended,
    healthy,
    job,
    launcher,
    lease,
    objects,
    running,
    unscheduled,
    worker,
    workers_set,
)

from dsjob import follow, render
from dsjob.errors import ExitCode
from dsjob.lease import Told, read
from dsjob.model import JobState, Objects
from dsjob.progress import steps
from dsjob.state import describe

LAUNCHER = "hello-launcher-1a2b3c4d-x7k2p"
CAUSES = [
    "2026-12-01T11:00:00Z hello-worker-0 is gone",
    "2026-12-01T11:59:00Z hello-worker-1 failed with exit code 3",
]
TOLD = {"restarts": "2", "causes": json.dumps(CAUSES), "members": "2"}


def state_of(found: Objects) -> JobState:
    state = describe("hello", "team", found, NOW)
    assert state is not None
    return state


def goes_on(phase: str, *workers: Any, scale: int = 2, **told: str) -> Objects:
    """A job whose launcher tells this."""
    return objects(
        job(),
        workers_set(scale, gpus=1),
        launcher("Running", running("launcher")),
        lease(phase, **told),
        *(workers or [worker(0), worker(1)]),
    )


def is_over(code: int, release_done: bool = True, **told: Any) -> Objects:
    """A job whose launcher has ended."""
    return objects(
        job(condition("Failed" if code else "Complete")),
        workers_set(0 if release_done else 2, gpus=1),
        launcher("Failed" if code else "Succeeded", ended("launcher", code, told={"exitCode": code, **told})),
        lease(holder="", **TOLD),
        *([] if release_done else [worker(0), worker(1)]),
    )


def test_the_lease_is_the_word_of_the_launcher_of_now_only() -> None:
    assert read([], LAUNCHER) is None
    assert read([lease(**TOLD)], LAUNCHER) == Told("Running", 2, CAUSES, 2)
    assert read([lease("Interactive")], LAUNCHER) == Told("Interactive")
    for holder in ("", "hello-launcher-1a2b3c4d-older"):
        assert read([lease(holder=holder, **TOLD)], LAUNCHER) == Told()
    assert read([lease(holder="")], "") == Told()


@pytest.mark.parametrize("causes", ["", "no list {", '"text"', "3"])
def test_what_cannot_be_read_is_nothing(causes: str) -> None:
    found = lease(restarts="many", causes=causes, members="-")
    assert read([found], LAUNCHER) == Told("Running")


def test_restarts_while_it_runs() -> None:
    state = state_of(goes_on("Running", **TOLD))
    assert (state.phase.value, state.message) == ("Running", "2/2 workers ready")
    assert (state.restarts, state.causes, state.members) == (2, CAUSES, 2)
    text = render.tree(state)
    assert "2 restarts" in text
    assert "restarted: 2026-12-01T11:59:00Z hello-worker-1 failed with exit code 3" in text
    assert "✗" not in text
    told = state.to_json()
    assert (told["restarts"], told["causes"], told["members"]) == (2, CAUSES, 2)
    assert render.jobs([state]).splitlines()[1].split()[4] == "2"


def test_a_restart_that_is_under_way() -> None:
    state = state_of(goes_on("Restarting", worker(0), **TOLD))
    assert state.phase.value == "Starting"
    assert state.message == "1/2 workers ready; restarts after: hello-worker-1 failed with exit code 3"
    assert state_of(goes_on("Restarting")).message == "2/2 workers ready; restarts"


def test_a_restart_that_waits_for_a_node_says_both() -> None:
    waits = worker(1, "Pending", node="", conditions=unscheduled("1 Insufficient nvidia.com/gpu"))
    state = state_of(goes_on("Restarting", worker(0), waits, **TOLD))
    assert state.phase.value == "Pending"
    assert "restarts after: hello-worker-1 failed with exit code 3; 1 Insufficient" in state.message


def test_restarts_after_the_end_are_in_the_termination_message() -> None:
    told = {"reason": "RankFailed", "message": "hello-worker-1 failed again", "restarts": 3, "causes": CAUSES}
    state = state_of(is_over(3, **told))
    assert (state.restarts, state.causes, state.members) == (3, CAUSES, None)
    assert f"  restarted: {CAUSES[1]}" in render.failure(state)
    assert "3 restarts" in render.tree(state)
    assert state_of(is_over(0)).restarts == 0


def test_who_has_followed_is_told_of_restarts(capsys: pytest.CaptureFixture[str]) -> None:
    good = FakeCluster(states=[is_over(0, restarts=1, causes=CAUSES[:1])])
    assert follow.follow(good, "hello") is ExitCode.OK
    assert "hello succeeded after 40s, with 1 restart" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("reason", "message", "helps"),
    [
        ("DeadlineExceeded", "not done within 60 s", "raise `run.deadline`"),
        ("Stalled", "no line of output for 60 s", "longer than `run.stallTimeout`"),
    ],
)
def test_limits_of_the_run_have_remedies(reason: str, message: str, helps: str) -> None:
    state = state_of(is_over(124, reason=reason, message=message))
    assert (state.phase.value, state.message) == ("Failed", message)
    assert state.reasons[0].cause == reason
    assert helps in state.reasons[0].remedy


# --- elastic


@pytest.mark.parametrize(
    ("scale", "ready", "members", "phase", "message"),
    [
        (2, 2, "2", "Running", "2/2 workers ready"),
        (3, 2, "2", "Running", "2/3 workers ready, 2 of 3 take part"),
        (3, 3, "2", "Running", "3/3 workers ready, 2 of 3 take part"),
        (3, 1, "2", "Degraded", "1/3 workers ready, 2 of 3 take part"),
        (1, 1, "2", "Running", "1/1 workers ready"),  # the launcher is about to follow
    ],
)
def test_the_scale_is_what_is_wanted_and_members_are_what_runs(
    scale: int, ready: int, members: str, phase: str, message: str
) -> None:
    found = goes_on("Running", *[worker(index) for index in range(ready)], scale=scale, members=members)
    state = state_of(found)
    assert (state.phase.value, state.message, state.workers) == (phase, message, scale)


def test_before_the_first_attempt_the_scale_is_not_the_users() -> None:
    assert state_of(goes_on("Starting", worker(0), scale=1)).workers == 2
    assert state_of(is_over(0)).workers == 2


def test_a_start_with_fewer_workers_is_shown_as_it_is() -> None:
    found = goes_on("Running", worker(0), worker(1), scale=3, members="2")
    assert steps(state_of(found), training=True)[2].text == "2/3 workers connected"


# --- interactive


def test_an_interactive_job_says_how_to_use_it(dsjob: Dsjob) -> None:
    dsjob.cluster.states = [goes_on("Interactive", members="2")]
    text = dsjob("status", "hello").stdout
    assert "hello  Running  2/2 workers ready; interactive: `dsjob exec hello -n team -- COMMAND`" in text
    assert json.loads(dsjob("status", "hello", "-o", "json").stdout)["interactive"] is True
    assert state_of(healthy()).interactive is False


def test_who_follows_an_interactive_job_is_told_when_it_is_ready() -> None:
    found = steps(state_of(goes_on("Interactive", members="2")), training=False)
    assert [step.name for step in found if step.done] == ["schedule", "pull", "connect"]
    assert found[3].text.startswith("ready for `dsjob exec hello -n team -- COMMAND`")


# --- workers.release


@pytest.mark.parametrize("code", [0, 3])
def test_workers_that_are_kept_hold_their_devices(code: int) -> None:
    told = {"reason": "RankFailed", "message": "hello-worker-1 failed"} if code else {}
    state = state_of(is_over(code, release_done=False, **told))
    kept = state.reasons[-1]
    assert kept.cause == "NotReleased"
    assert kept.message == "the run has ended, but 2 workers still hold 2 nvidia.com/gpu"
    assert kept.remedy.startswith("`dsjob down hello -n team` frees them")
    assert state.parts[1].state == "kept 2"
    assert state.message == ("hello-worker-1 failed" if code else "the command ended with exit code 0")


def test_workers_that_are_on_their_way_out_are_not_kept() -> None:
    found = is_over(0)
    found.pods.append(worker(0))
    assert state_of(found).parts[1].state == "releasing 1"
    assert state_of(found).reasons == []
