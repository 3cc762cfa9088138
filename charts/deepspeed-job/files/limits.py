"""The limits that end a run by themselves: `run.deadline`, and `run.stallTimeout` without a sign of life."""

import threading
import time
from pathlib import Path

from verdict import failure

# As `timeout` of coreutils.
EXIT_CODE = 124


def size_of_event_files(folder: str) -> int:
    """Return the bytes of all event files below the folder."""
    total = 0
    for path in Path(folder).rglob("*tfevents*"):
        try:
            total += path.stat().st_size
        except OSError:
            continue
    return total


class Limits:
    """Watches from its making on. on_limit(verdict) is called, at most once for the deadline, and once for each stall.

    `last_output()` is the time.monotonic() of the command's last output, or None while none runs.
    """

    def __init__(self, run: dict, last_output, on_limit):
        self.run = run
        self.born = time.monotonic()
        self._last_output = last_output
        self._on_limit = on_limit
        self._event_bytes = 0
        self._grown = 0.0
        if run["deadline"]:
            timer = threading.Timer(run["deadline"], self._pass_deadline)
            timer.daemon = True
            timer.start()
        if run["stallTimeout"]:
            threading.Thread(target=self._watch, daemon=True).start()

    def cap(self, deadline: float) -> float:
        """Return the time.monotonic() `deadline`, but none after the run's own."""
        return min(deadline, self.born + self.run["deadline"]) if self.run["deadline"] else deadline

    def deadline_passed(self) -> bool:
        """Tell whether the run's time is over."""
        return bool(self.run["deadline"]) and time.monotonic() >= self.born + self.run["deadline"]

    def deadline_verdict(self) -> dict:
        """Return what is told of a run whose time is over."""
        text = f"not done within {self.run['deadline']} s (run.deadline)"
        return failure("DeadlineExceeded", text, EXIT_CODE)

    def _pass_deadline(self) -> None:
        self._on_limit(self.deadline_verdict())

    def _watch(self) -> None:
        limit = self.run["stallTimeout"]
        while True:
            time.sleep(limit / 10)
            at = self._last_output()
            if at is None or time.monotonic() < max(at, self._grown) + limit / 2:
                continue
            size = size_of_event_files(self.run["logdir"]) if self.run["logdir"] else 0
            if size != self._event_bytes:
                self._event_bytes, self._grown = size, time.monotonic()
            elif time.monotonic() >= max(at, self._grown) + limit:
                text = f"no line of output and no growth of an event file for {limit} s (run.stallTimeout)"
                self._on_limit(failure("Stalled", text, EXIT_CODE))
