"""The limits that end a run by themselves. Times are short, and nothing waits for longer than it must."""

import queue
import time

import pytest
from limits import Limits, size_of_event_files
from waiting import wait_for

RUN = {"deadline": 0, "stallTimeout": 0, "logdir": ""}


def limits(last_output=lambda: None, **run):
    """Limits, and the verdicts that they give."""
    verdicts = queue.Queue()
    return Limits({**RUN, **run}, last_output, verdicts.put), verdicts


def test_a_run_whose_time_is_over_is_told_to_end():
    one, verdicts = limits(deadline=0.2)
    assert not one.deadline_passed()
    verdict = verdicts.get(timeout=10)
    assert one.deadline_passed()
    assert (verdict["phase"], verdict["exitCode"], verdict["reason"]) == ("Failed", 124, "DeadlineExceeded")
    assert verdict == one.deadline_verdict()
    assert "0.2 s (run.deadline)" in verdict["message"]


def test_whoever_waits_waits_no_longer_than_the_run_may_take():
    one, _ = limits(deadline=60)
    now = time.monotonic()
    assert one.cap(now + 600) <= now + 60
    assert one.cap(now + 1) == now + 1


def test_without_a_deadline_there_is_none():
    one, _ = limits()
    assert one.cap(1e12) == 1e12
    assert not one.deadline_passed()


def test_a_command_that_says_nothing_is_stalled():
    began = time.monotonic()
    _, verdicts = limits(lambda: began, stallTimeout=0.3)
    verdict = verdicts.get(timeout=10)
    assert time.monotonic() >= began + 0.3
    assert (verdict["phase"], verdict["exitCode"], verdict["reason"]) == ("Failed", 124, "Stalled")
    assert "0.3 s (run.stallTimeout)" in verdict["message"]


def test_output_keeps_a_command_alive():
    quiet = time.monotonic() + 0.7
    _, verdicts = limits(lambda: min(time.monotonic(), quiet), stallTimeout=0.3)
    assert verdicts.get(timeout=10)["reason"] == "Stalled"
    assert time.monotonic() >= quiet + 0.3


def test_a_growing_event_file_keeps_a_silent_command_alive(tmp_path):
    began = time.monotonic()
    events = tmp_path / "run-1" / "events.out.tfevents.1"
    events.parent.mkdir()

    def last_output():
        if time.monotonic() < began + 0.7:
            with events.open("a") as file:
                file.write("step\n")
        return began

    _, verdicts = limits(last_output, stallTimeout=0.3, logdir=str(tmp_path))
    assert verdicts.get(timeout=10)["reason"] == "Stalled"
    assert time.monotonic() >= began + 0.9, "the file had grown until then"


def test_the_time_counts_from_the_last_growth(tmp_path):
    began, written = time.monotonic(), []

    def last_output():
        if not written and time.monotonic() >= began + 0.2:  # when it looks at the files for the first time
            (tmp_path / "events.out.tfevents.1").write_text("step\n")
            written.append(time.monotonic())
        return began

    _, verdicts = limits(last_output, stallTimeout=0.4, logdir=str(tmp_path))
    assert verdicts.get(timeout=10)["reason"] == "Stalled"
    assert time.monotonic() >= written[0] + 0.4


def test_event_files_of_an_earlier_run_keep_nothing_alive(tmp_path):
    (tmp_path / "events.out.tfevents.1").write_text("step\n")
    began = time.monotonic()
    _, verdicts = limits(lambda: began, stallTimeout=0.3, logdir=str(tmp_path))
    assert verdicts.get(timeout=10)["reason"] == "Stalled"


def test_nothing_is_stalled_while_no_command_runs():
    asked = []
    _, verdicts = limits(lambda: asked.append(True), stallTimeout=0.1)
    wait_for(lambda: len(asked) > 30)
    assert verdicts.empty()


def test_only_event_files_are_counted_wherever_they_lie(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "events.out.tfevents.1").write_bytes(b"123")
    (tmp_path / "a" / "b" / "events.out.tfevents.2").write_bytes(b"4567")
    (tmp_path / "model.bin").write_bytes(b"x" * 1000)
    (tmp_path / "gone.tfevents").symlink_to(tmp_path / "nowhere")
    assert size_of_event_files(str(tmp_path)) == 7


@pytest.mark.parametrize("folder", ["nowhere", "file"])
def test_a_folder_that_is_not_there_yet_has_no_events(tmp_path, folder):
    (tmp_path / "file").write_text("x")
    assert size_of_event_files(str(tmp_path / folder)) == 0
