"""Whether all that is promised held in a trial: pure functions of what was seen of it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

RELEASE_SECONDS = 30


@dataclass(frozen=True)
class Mark:
    """A line that a rank wrote into the shared folder."""

    word: str
    attempt: int
    host: str
    # By the clock of the rank's machine.
    at: float

    @property
    def index(self) -> int:
        """The worker's number."""
        return int(self.host.rpartition("-")[2])


@dataclass
class Seen:
    """What was seen of a trial. Times in seconds; None for what was not seen."""

    mode: str
    workers: int
    must_survive: bool = False
    # Complete or Failed.
    condition: str | None = None
    waited: float = 0.0
    marks: list[Mark] = field(default_factory=list)
    # The launcher's own word, its termination message.
    report: dict[str, Any] = field(default_factory=dict)
    status: dict[str, Any] = field(default_factory=dict)
    logs_code: int | None = None
    # From the end, or the end of the strike if that was later, until no worker's pod was there.
    released: float | None = None
    left: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    # Nobody could reach the API to release them, which is a known limit.
    was_cut_off: bool = False
    load: float = 0.0


def read_marks(text: str) -> list[Mark]:
    """The marks in a file, in their order; half a line of a rank that was killed is none."""
    words = (line.split() for line in text.splitlines())
    return [Mark(one[0], int(one[1]), one[2], float(one[3])) for one in words if len(one) == 4]


def is_done(seen: Seen) -> bool:
    """Whether every rank of the last attempt has come to its end. In mode direct each rank has its own last attempt."""
    last: dict[int, int] = {}
    for mark in seen.marks:
        last[mark.index] = max(mark.attempt, last.get(mark.index, 0))
    if seen.mode == "launcher" and last:
        last = dict.fromkeys(range(seen.workers), max(last.values()))
    ended = {(mark.index, mark.attempt) for mark in seen.marks if mark.word == "end"}
    return len(last) == seen.workers and all(one in ended for one in last.items())


def overlaps(seen: Seen) -> list[str]:
    """The ranks that still worked when a later attempt had begun."""
    newest: dict[int, int] = {}
    found = set()
    for mark in seen.marks:
        key = 0 if seen.mode == "launcher" else mark.index
        if mark.word == "begin":
            newest[key] = max(newest.get(key, 0), mark.attempt)
        if mark.attempt < newest.get(key, 0) and mark.word != "told":
            found.add(mark.host)
    return sorted(found)


def patience(seen: Seen) -> float:
    """What a promise of RELEASE_SECONDS is on a machine that others use too, up to three times as long."""
    return RELEASE_SECONDS * min(max(1.0, seen.load / (os.cpu_count() or 1)), 3.0)


def faults(seen: Seen) -> list[str]:
    """What did not hold; empty if all did."""
    if seen.condition is None:
        return [f"hang: not ended {seen.waited:.0f} s after the strike"]
    found = []
    good = seen.condition == "Complete"
    if good and not is_done(seen):
        found.append("false success: Complete, but not every rank of the last attempt came to its end")
    if not good and seen.must_survive:
        found.append(f"no recovery: Failed, {seen.report.get('reason')}: {seen.report.get('message')}")
    if still := overlaps(seen):
        found.append(f"two attempts at once: {', '.join(still)} went on when the next one had begun")
    if (seen.left or (seen.released or 0) > patience(seen)) and not limits(seen):
        what = f"{', '.join(seen.left)} left" if seen.left else f"gone after {seen.released:.0f} s only"
        found.append(f"workers not released: {what}")
    if seen.strays:
        found.append(f"stray processes: {'; '.join(seen.strays)}")
    return found + untruths(seen)


def untruths(seen: Seen) -> list[str]:
    """Where the launcher's word, `dsjob status` and `dsjob logs -f` say something else than the Job's condition."""
    found = []
    phase, code = ("Succeeded", 0) if seen.condition == "Complete" else ("Failed", 1)
    if seen.status.get("phase") != phase:
        found.append(f"status says {seen.status.get('phase')}, the Job {seen.condition}")
    if seen.report and seen.report.get("phase") != phase:
        found.append(f"the termination message says {seen.report.get('phase')}, the Job {seen.condition}")
    if seen.logs_code != code:
        found.append(f"`dsjob logs -f` ends with {seen.logs_code}, the Job is {seen.condition}")
    if seen.report and seen.report.get("restarts", 0) != seen.status.get("restarts"):
        found.append(
            f"status tells of {seen.status.get('restarts')} restarts, the launcher of {seen.report.get('restarts')}"
        )
    if phase == "Failed" and not seen.status.get("reasons"):
        found.append("status gives no reason for the failure")
    return found


def limits(seen: Seen) -> list[str]:
    """What did not hold and is a known limit, if status says it and what helps."""
    told = any(reason.get("cause") == "NotReleased" for reason in seen.status.get("reasons", []))
    if seen.was_cut_off and seen.left and told:
        return [f"the launcher's pod was cut off, so nobody released {', '.join(seen.left)}; status says so"]
    return []


def outcome(seen: Seen) -> str:
    """The run's end, in a few words."""
    if seen.condition is None:
        return "not ended"
    restarts = seen.report.get("restarts", 0)
    if seen.condition == "Complete":
        return "succeeded after a restart" if restarts else "succeeded"
    return "failed"
