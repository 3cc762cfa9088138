"""Following a run: phases while it starts, then its log (the launcher's, or in mode direct worker 0's), to the end.

The cluster is asked once a second; the log arrives on a thread of its own. Only this thread prints.
"""

from __future__ import annotations

import queue
import re
import shutil
import sys
import threading
import time

from dsjob import output, render
from dsjob.cluster import Cluster, Unreachable
from dsjob.errors import DsjobError, ExitCode
from dsjob.model import JobState, Phase
from dsjob.progress import Step, steps
from dsjob.state import describe

_EVERY = 1.0  # seconds between two looks at the cluster
_PATIENCE = 60.0  # seconds that the cluster may be away
_SLOW = 10.0  # seconds after which a phase is worth a line, where there is no live one
_FRACTION = re.compile(r"\.\d+")  # of a second, in a time stamp
_RUN = "[deepspeed-job] run:"  # our line after which the user's command has the word


def follow(cluster: Cluster, name: str, *, phases: bool = True, tail: int | None = None) -> ExitCode:
    """Show a run until it ends, and return how it ended. Ctrl-C is left to the caller."""
    shown = Phases() if phases else None
    watch = Watch(cluster, name)
    log: Log | None = None
    training = False
    while True:
        state = watch.state()
        if state.launcher_started and (log is None or _has_moved(log, state)):
            log = Log(cluster, state.launcher, state.container, tail)
        if shown and not state.phase.ended:
            shown.show(steps(state, training))
        line = log.next(watch.pause()) if log else None
        if line is not None:
            if shown and not training and line.startswith(_RUN):
                training = True
                shown.show(steps(state, training))
            if shown:
                shown.clear()
            output.say(line)
        elif state.phase.ended and (log is None or log.ended()):
            break
        elif log is None:
            time.sleep(watch.pause())
    if shown:
        shown.clear()
    # In mode direct the log is that of worker 0, which may know nothing of the failure of another one.
    told = [reason.where for reason in state.reasons]
    whole = log is not None and (state.mode == "launcher" or f"pod/{log.pod}" in told)
    return finish(state, log_shown=whole)


def _has_moved(log: Log, state: JobState) -> bool:
    """Whether the run's log is another one now. What a failed worker wrote for hours is not shown after that of worker 0."""
    return log.pod != state.launcher and (state.mode == "launcher" or not state.phase.ended)


class Watch:
    """The state of a job, asked for at most once a second, through a cluster that is away for a while."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster, self._name = cluster, name
        self._last: JobState | None = None
        self._next = self._answered = 0.0
        self._away = False

    def pause(self) -> float:
        """Seconds until the next question."""
        return max(self._next - time.monotonic(), 0.02)

    def state(self) -> JobState:
        """The latest state."""
        if self._last and time.monotonic() < self._next:
            return self._last
        try:
            objects = self._cluster.objects(self._name)
        except Unreachable as error:
            if not self._last or time.monotonic() - self._answered > _PATIENCE:
                raise
            if not self._away:
                output.note(f"waiting for the cluster: {error.message}", "dim")
            self._away = True
        else:
            self._away = False
            self._answered = time.monotonic()
            self._last = describe(self._name, self._cluster.namespace, objects, time.time())
        self._next = time.monotonic() + _EVERY
        if self._last is None or self._last.phase is Phase.UNKNOWN:
            raise DsjobError(f"the job `{self._name}` is gone", ExitCode.NOT_FOUND)
        return self._last


def finish(state: JobState, *, log_shown: bool = False) -> ExitCode:
    """Say how a run ended, and give its exit code."""
    took = f" after {output.span(state.duration)}" if state.duration is not None else ""
    took += f", with {output.count(state.restarts, 'restart')}" if state.restarts else ""
    if state.phase.value == "Succeeded":
        output.note(f"{state.name} succeeded{took}", "green")
        return ExitCode.OK
    output.note(f"{state.name} failed{took}: {state.message}", "red")
    for line in render.failure(state, last_lines=not log_shown):
        output.note(line)
    return ExitCode.JOB_FAILED


class Phases:
    """One line for each phase that is over; on a terminal a live line for the current one."""

    def __init__(self) -> None:
        self.live = sys.stderr.isatty()
        self.began = self.step_began = time.monotonic()
        self.done: set[str] = set()
        self.said = ""
        self.drawn = False

    def show(self, found: list[Step]) -> None:
        """Print what is new."""
        for step in found:
            if step.name in self.done:
                continue
            now = time.monotonic()
            if step.done or step.name == "train":
                since = self.began if step.name == "train" else self.step_began
                self.clear()
                output.step(step.name, f"{step.text}  {output.span(now - since)}")
                self.done.add(step.name)
                self.step_began = now
                continue
            text = step.text + (f"; {step.held_up}" if step.held_up else "")
            if self.live:
                width = shutil.get_terminal_size().columns - 1  # a line that wraps could not be removed
                line = f"{step.name:<9} {text}  {output.span(round(now - self.step_began))}"
                sys.stderr.write("\r\033[K" + line[:width])
                sys.stderr.flush()
                self.drawn = True
            elif text != self.said and (step.held_up or now - self.step_began > _SLOW):
                output.step(step.name, text, "yellow")
                self.said = text
            break

    def clear(self) -> None:
        """Remove the live line before something else is printed."""
        if self.drawn:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
            self.drawn = False


class Log:
    """The run's log on a thread of its own, through connections that break."""

    def __init__(self, cluster: Cluster, pod: str, container: str, tail: int | None) -> None:
        self.pod = pod
        self._cluster, self._container, self._tail = cluster, container, tail
        self._lines: queue.Queue[str] = queue.Queue(maxsize=10_000)
        self._job_ended = threading.Event()
        self._thread = threading.Thread(target=self._pump, daemon=True, name="log")
        self._thread.start()
        self._end_seen = 0.0

    def next(self, patience: float) -> str | None:
        """The next line, or None if none comes in time."""
        try:
            return self._lines.get(timeout=patience)
        except queue.Empty:
            return None

    def ended(self) -> bool:
        """Whether all is read, once the job has ended. A log that cannot be read to its end is given up."""
        self._job_ended.set()
        self._end_seen = self._end_seen or time.monotonic()
        return self._lines.empty() and (not self._thread.is_alive() or time.monotonic() - self._end_seen > 10)

    def _pump(self) -> None:
        last = ""
        while True:
            over = self._job_ended.is_set()  # before the read: one more read after the end gets the rest
            try:
                lines = self._cluster.log(
                    self.pod,
                    self._container,
                    follow=True,
                    timestamps=True,
                    since=_second(last),
                    tail=self._tail if not last else None,
                )
                seen = _order(last) if last else ("", "")
                for line in lines:
                    stamp, _, text = line.partition(" ")
                    if _order(stamp) > seen:
                        last = stamp
                        self._lines.put(text)
            except DsjobError:
                pass
            if over:
                return
            self._job_ended.wait(0.5)


def _second(stamp: str) -> str:
    """A time stamp of the log as the API takes it."""
    return _FRACTION.sub("", stamp)


def _order(stamp: str) -> tuple[str, str]:
    """A key that orders the time stamps of one node, whose last zeros may be cut."""
    fraction = _FRACTION.search(stamp)
    return stamp[:19], (fraction[0] if fraction else ".").ljust(10, "0")
