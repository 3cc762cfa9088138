"""Whether an attempt that failed is followed by another one, how soon, and what is told of it."""

# These would fail again in the same way, or were meant.
FINAL = ("Completed", "CannotStart", "StartTimeout", "DeadlineExceeded", "Stopped")
LONGEST_PAUSE_SECONDS = 60
# An attempt that lasted so long was a good one: the next pause is short again.
GOOD_SECONDS = 600
KEPT_CAUSES = 5


class Restarts:
    """The restarts of one launcher, and their causes."""

    def __init__(self, run: dict):
        self._most = run["maxRestarts"]
        self._lost_are_free = bool(run.get("elastic")) or not run["countLostWorkers"] or run["interactive"]
        self._closed = False
        self._counted = self._all = self._in_a_row = 0
        self._causes = []

    def close(self) -> None:
        """No more restarts: we were told to end."""
        self._closed = True

    def is_free(self, result: dict) -> bool:
        """Tell whether a restart after this verdict does not count to run.maxRestarts."""
        return result["reason"] == "Resized" or (self._lost_are_free and result["reason"] == "WorkerLost")

    def allows(self, result: dict) -> bool:
        """Tell whether another attempt follows this verdict."""
        if self._closed or result["reason"] in FINAL:
            return False
        return self.is_free(result) or self._counted < self._most

    def count(self, result: dict, lasted: float, at: str) -> int:
        """Note a restart after this verdict of an attempt of so many seconds; return the seconds to wait before it.

        They double from 1 to 60 while attempts fail one soon after another, as a container's do (kubelet, CrashLoopBackOff).
        """
        self._all += 1
        self._causes = [*self._causes, f"{at} {result['message']}"][-KEPT_CAUSES:]
        if self.is_free(result):
            return 0
        self._counted += 1
        self._in_a_row = 1 if lasted >= GOOD_SECONDS else self._in_a_row + 1
        return min(2 ** (self._in_a_row - 1), LONGEST_PAUSE_SECONDS)

    def describe(self) -> str:
        """Return which restart it is, for the log."""
        return f"restart {self._all}" + (f" ({self._counted} of {self._most} counted)" if self._most else "")

    def told(self) -> dict:
        """Return what `dsjob status` shows."""
        return {"restarts": self._all, "causes": list(self._causes)}
