"""Which end of an attempt is followed by another attempt, how soon, and what is told of it."""

import pytest
from restarts import Restarts

RUN = {"maxRestarts": 0, "countLostWorkers": True, "interactive": False}
ELASTIC = {"elastic": {"min": 1, "max": 4, "patience": 60}}


def restarts(**run):
    return Restarts({**RUN, **run})


def result(reason, message="boom"):
    return {"phase": "Failed", "exitCode": 1, "reason": reason, "message": message}


def count_up(one, times, reason="RankFailed", lasted=1.0):
    """Count so many restarts and return their pauses."""
    return [one.count(result(reason), lasted, "2026-12-01T12:00:00Z") for _ in range(times)]


@pytest.mark.parametrize(
    "reason", ["Completed", "CannotStart", "StartTimeout", "DeadlineExceeded", "Stopped"]
)
@pytest.mark.parametrize("run", [{}, ELASTIC, {"interactive": True}])
def test_what_would_fail_again_or_was_meant_is_final(reason, run):
    assert not restarts(maxRestarts=1000, **run).allows(result(reason))


@pytest.mark.parametrize(
    "reason", ["RankFailed", "CommandFailed", "OOMKilled", "WorkerLost", "WorkerUnreachable", "Stalled"]
)
def test_a_failure_is_followed_by_as_many_restarts_as_were_asked_for(reason):
    assert not restarts().allows(result(reason))
    one = restarts(maxRestarts=2)
    for _ in range(2):
        assert one.allows(result(reason))
        count_up(one, 1, reason)
    assert not one.allows(result(reason))


@pytest.mark.parametrize(
    ("run", "free"),
    [({}, False), ({"countLostWorkers": False}, True), (ELASTIC, True), ({"interactive": True}, True)],
)
def test_a_lost_worker_is_free_where_it_was_said_or_belongs_to_the_run(run, free):
    one = restarts(maxRestarts=1, **run)
    assert one.is_free(result("WorkerLost")) is free
    count_up(one, 3, "WorkerLost")
    assert one.allows(result("WorkerLost")) is free
    assert one.allows(result("RankFailed")) is free, "free ones use up none of run.maxRestarts"


@pytest.mark.parametrize("reason", ["RankFailed", "CommandFailed", "OOMKilled", "Stalled"])
def test_no_other_failure_is_free(reason):
    assert not restarts(countLostWorkers=False, **ELASTIC).is_free(result(reason))


def test_a_change_of_the_number_of_workers_is_free_and_at_once():
    one = restarts(**ELASTIC)
    assert count_up(one, 50, "Resized") == [0] * 50
    assert one.allows(result("Resized"))


def test_nothing_follows_once_we_were_told_to_end():
    one = restarts(maxRestarts=5, **ELASTIC)
    one.close()
    for reason in ("RankFailed", "WorkerLost", "Resized"):
        assert not one.allows(result(reason))


def test_pauses_double_to_a_minute():
    assert count_up(restarts(maxRestarts=99), 9) == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_long_attempt_makes_the_next_pause_short_again():
    one = restarts(maxRestarts=99)
    assert count_up(one, 4) == [1, 2, 4, 8]
    assert count_up(one, 1, lasted=600.0) == [1]
    assert count_up(one, 2) == [2, 4]


def test_even_the_thousandth_restart_has_a_pause_of_a_minute():
    assert count_up(restarts(maxRestarts=2000), 1500)[-1] == 60


def test_a_free_restart_between_others_has_no_pause_and_makes_none_longer():
    one = restarts(maxRestarts=99, countLostWorkers=False)
    assert count_up(one, 2) == [1, 2]
    assert count_up(one, 3, "WorkerLost") == [0, 0, 0]
    assert count_up(one, 1) == [4]


def test_the_last_five_causes_are_told_with_their_time_and_the_number_of_all():
    one = restarts(maxRestarts=99)
    for i in range(7):
        one.count(result("RankFailed", f"job-worker-{i} failed"), 1.0, f"2026-12-01T12:00:0{i}Z")
    assert one.told() == {
        "restarts": 7,
        "causes": [f"2026-12-01T12:00:0{i}Z job-worker-{i} failed" for i in range(2, 7)],
    }


def test_nothing_is_told_before_the_first():
    assert restarts().told() == {"restarts": 0, "causes": []}


def test_the_log_says_which_restart_it_is_and_how_many_count():
    one = restarts(maxRestarts=3, countLostWorkers=False)
    count_up(one, 1)
    count_up(one, 1, "WorkerLost")
    assert one.describe() == "restart 2 (1 of 3 counted)"
    one = restarts(**ELASTIC)
    count_up(one, 1, "WorkerLost")
    assert one.describe() == "restart 1"
