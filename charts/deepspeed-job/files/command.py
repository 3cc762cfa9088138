"""The user's command: how it is made from the values, run, listened to, and ended."""

import collections
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import processes
from common import FILES, find_programs

# Time for the other ranks to end by themselves after one has failed. pdsh would wait for them for hours.
TROUBLE_GRACE_SECONDS = 10
# How long what a command leaves behind may go on, if that ended well.
LEFTOVER_SECONDS = 5
LAST_LINES = 200


def make_command(run: dict) -> list:
    """Return the argument vector of run.json's `run`.

    A text is run by bash as written. A script is started by way of rank.py, which takes its arguments from run.json: pdsh would join
    them with blanks and let a shell read them. So rank.py is what minds --module and --no_python. Without --no_local_rank, DeepSpeed
    would add an argument of its own; the variable LOCAL_RANK says the same.
    """
    if "script" in run:
        launcher_args = [
            one
            for one in run.get("launcherArgs", [])
            if one not in ("--module", "--no_python", "--no_local_rank")
        ]
        return ["deepspeed", "--no_local_rank", *launcher_args, str(FILES / "rank.py")]
    if isinstance(run["command"], str):
        return [find_programs(["bash"], "launcher")["bash"], "-c", run["command"]]
    return run["command"]


class Command:
    """The running command. Its output goes to ours, line by line unchanged, and its last lines are kept."""

    def __init__(self, argv: list, environment: dict):
        self.last_lines = collections.deque(maxlen=LAST_LINES)
        self.trouble = threading.Event()
        self.started = time.time()
        self.last_output = time.monotonic()
        # A session of its own, so that a signal can reach all of it.
        self.process = subprocess.Popen(
            argv,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        pipes = [(self.process.stdout, sys.stdout.buffer), (self.process.stderr, sys.stderr.buffer)]
        self._pumps = [threading.Thread(target=self._pump, args=pipe, daemon=True) for pipe in pipes]
        for pump in self._pumps:
            pump.start()

    def _pump(self, source, target) -> None:
        # read1, not readline: a progress bar has no line end for a long time.
        rest = b""
        while chunk := source.read1(65536):
            target.write(chunk)
            target.flush()
            self.last_output = time.monotonic()
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._listen(line)
            rest = rest[-65536:]
        if rest:
            self._listen(rest)

    def _listen(self, line: bytes) -> None:
        self.last_lines.append(line.rpartition(b"\r")[2].decode(errors="replace")[:500])

    def on_trouble(self) -> None:
        """A worker failed or is lost: the others get a moment to end by themselves."""
        if not self.trouble.is_set():
            self.trouble.set()
            threading.Thread(target=self._end_after_grace, daemon=True).start()

    def _end_after_grace(self) -> None:
        try:
            self.process.wait(TROUBLE_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.end(grace=10)

    def end(self, grace: float) -> None:
        """End the command: TERM to all of it, which `deepspeed` passes on to the ranks, then KILL."""
        self._signal(signal.SIGTERM)
        try:
            self.process.wait(grace)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def wait(self, spare: frozenset = frozenset()) -> int:
        """Wait for the end and return the exit code as a shell would. What it left behind is killed, but not the pids in `spare`."""
        code = self.process.wait()
        if code == 0:
            # mpirun does not wait for its ssh connections, and one that is cut is a failed rank.
            processes.await_below(os.getpid(), LEFTOVER_SECONDS, spare)
        # The launcher is the first process of its container, so an orphan is below it too.
        processes.signal_below(os.getpid(), signal.SIGKILL, spare)
        for pump in self._pumps:
            pump.join(5)
        return 128 - code if code < 0 else code
