"""What `make chaos` draws, and how it judges: never a false success passed over, never a fault where there is none."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "chaos"))

import judge
import plan
import table

GOOD = "begin 7 job-worker-0\nbegin 7 job-worker-1\ntick 7 job-worker-0\nend 7 job-worker-0\nend 7 job-worker-1\n"
SUCCEEDED = {"phase": "Succeeded", "restarts": 0, "reasons": []}
FAILED = {"phase": "Failed", "restarts": 0, "reasons": [{"cause": "RankFailed"}]}


def read(marks):
    """The marks of lines without a time."""
    return judge.read_marks("".join(f"{line} 1.5\n" for line in marks.splitlines()))


def seen(marks=GOOD, **more):
    """What was seen of a run that ended well, with what differs."""
    facts = {
        "condition": "Complete", "report": {"phase": "Succeeded", "restarts": 0}, "status": SUCCEEDED, "logs_code": 0, "released": 1.0,
    }  # fmt: skip
    return judge.Seen("launcher", 2, marks=read(marks), **{**facts, **more})


def failed(**more):
    facts = {
        "condition": "Failed",
        "report": {"phase": "Failed", "restarts": 0},
        "status": FAILED,
        "logs_code": 1,
    }
    return seen("begin 7 job-worker-0\n", **{**facts, **more})


def test_a_run_that_ended_well_and_one_that_failed_rightly_have_no_fault():
    assert judge.faults(seen()) == []
    assert judge.faults(failed()) == []


@pytest.mark.parametrize(
    "marks",
    [
        "",
        GOOD.replace("end 7 job-worker-1\n", ""),
        GOOD.replace("begin 7 job-worker-1\n", "").replace("end 7 job-worker-1\n", ""),
        GOOD + "begin 8 job-worker-0\n",
        GOOD + "begin 8 job-worker-0\nend 8 job-worker-0\n",
    ],
)
def test_a_success_needs_the_end_of_every_rank_of_the_last_attempt(marks):
    assert any(fault.startswith("false success") for fault in judge.faults(seen(marks)))


def test_the_last_attempt_is_what_counts():
    first = "begin 6 job-worker-0\nbegin 6 job-worker-1\n"
    assert judge.is_done(seen(first + GOOD))


def test_in_mode_direct_each_rank_has_attempts_of_its_own():
    marks = "begin 3 job-worker-x-0\nbegin 4 job-worker-x-1\nend 3 job-worker-x-0\nbegin 9 job-worker-x-1\nend 9 job-worker-x-1\n"
    direct = judge.Seen("direct", 2, marks=read(marks))
    assert judge.is_done(direct)
    assert judge.overlaps(direct) == []


def test_a_rank_that_goes_on_beside_the_next_attempt_is_a_fault():
    still = "begin 6 job-worker-0\nbegin 7 job-worker-1\ntick 6 job-worker-0\n"
    assert judge.overlaps(seen(still)) == ["job-worker-0"]
    assert judge.overlaps(seen("begin 6 job-worker-0\nbegin 7 job-worker-1\n")) == []


@pytest.mark.parametrize(
    ("run", "word"),
    [
        (seen(condition=None, waited=150), "hang"),
        (failed(must_survive=True), "no recovery"),
        (seen(left=["job-worker-0"], released=None), "workers not released"),
        (seen(released=31.0), "workers not released"),
        (seen(strays=["12 'sleep'"]), "stray"),
        (seen(status=FAILED), "status says"),
        (failed(report={"phase": "Succeeded"}), "termination message"),
        (failed(logs_code=0), "logs -f"),
        (seen(report={"phase": "Succeeded", "restarts": 1}), "restarts"),
        (failed(status={**FAILED, "reasons": []}), "no reason"),
    ],
)
def test_each_promise_that_does_not_hold_is_a_fault(run, word):
    assert any(word in fault for fault in judge.faults(run))


def test_workers_that_nobody_could_release_are_a_limit_only_if_status_says_so():
    told = {**FAILED, "reasons": [{"cause": "NotReleased"}]}
    cut = {"was_cut_off": True, "left": ["job-worker-0"], "released": None}
    assert judge.faults(failed(status=told, **cut)) == []
    assert judge.limits(failed(status=told, **cut))
    assert judge.faults(failed(**cut))
    assert judge.faults(failed(status=told, **{**cut, "was_cut_off": False}))


def test_half_a_line_is_no_mark():
    found = judge.read_marks("begin 7 job-worker-0 1.5\nbegin 7 job-work")
    assert found == [judge.Mark("begin", 7, "job-worker-0", 1.5)]


def test_a_busy_machine_has_more_time_but_not_without_end():
    assert judge.patience(seen()) == 30
    assert judge.patience(seen(load=1000.0)) == 90


def test_a_seed_repeats_its_trials_whatever_is_left_out():
    every = {one.name: one for one in plan.draw("s", 60, plan.KINDS)}
    assert {one.kind for one in every.values()} == set(plan.KINDS)
    some = plan.draw("s", 20, plan.kinds_of(["-restarted"], with_node=True))
    assert len(some) == 20
    assert all(every.get(one.name, one) == one and not one.kind.for_all for one in some)
    assert plan.make("s", 7) == every["s.7"]


def test_without_a_node_of_ours_nothing_is_done_from_it():
    assert not any(kind.on_node for kind in plan.kinds_of([], with_node=False))
    assert plan.kinds_of(["no such kind"], with_node=True) == []


def test_the_table_is_written_between_its_markers(tmp_path, monkeypatch):
    report = tmp_path / "reliability.md"
    report.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    monkeypatch.setattr(table, "REPORT", report)
    rows = [table.Row(plan.make("s", n), seen(), [], [], True) for n in range(1, 4)]
    table.write(table.make(rows))
    text = report.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "| **all** | 3 | 0 | 3 | 0 | 0 | 1 s | 0 | 0 |" in text
    assert "old" not in text
