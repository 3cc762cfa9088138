"""Main container of the launcher pod: waits for the workers, runs the user's command, and says truthfully how it ended."""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from datetime import datetime, timezone

import hosts
from command import Command, make_command
from common import FILES, Refusal, finish, load_run, say
from verdict import judge

# Kept back from the pod's grace period, to gather what happened and to say it.
LAST_WORDS_SECONDS = 5
GRACE_SECONDS = 30
# Until the ranks have been told.
ORDER_SECONDS = 1


def timestamp(unix: float) -> str:
    """Return a Unix time as RFC 3339."""
    return datetime.fromtimestamp(unix, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Launcher:
    """One life of the launcher's container."""

    def __init__(self) -> None:
        self.run = load_run()
        self.workers = hosts.Workers(self.run, self.on_trouble)
        self.command = None
        self.stopping = False
        self.restarts = 0
        self.born = time.time()

    def environment(self) -> dict:
        """Return the command's environment: ours, with the shims `ssh` and `deepspeed` first on PATH."""
        path = f"{FILES}:{os.environ.get('PATH', os.defpath)}"
        return {**os.environ, "PATH": path, "PDSH_RCMD_TYPE": "ssh"}

    def attempt(self, deadline: float) -> dict:
        """Log in to every worker, run the command once and return its verdict."""
        self.workers.greet(deadline)
        argv = make_command(self.run["run"])
        say(f"run: {self.run['run'].get('command') or shlex.join(argv)}")
        try:
            self.command = Command(argv, self.environment())
        except OSError as error:
            return {
                "phase": "Failed",
                "exitCode": 127,
                "reason": "CommandFailed",
                "message": f"{argv[0]}: {error.strerror}",
            }
        self.workers.roster.tell_running()
        if self.stopping:
            self.command.end(0)
        code = self.command.wait(spare=self.workers.pids())
        stopped = self.command.stopped.is_set()
        return judge(code, list(self.command.last_lines), {} if stopped else self.workers.reports(), stopped)

    def on_trouble(self) -> None:
        """A command on a worker failed, or the worker is lost."""
        if self.command:
            self.command.on_trouble()

    def work(self) -> dict:
        """Run the command until it succeeds or its restarts are used up; return the last verdict."""
        while True:
            deadline = time.monotonic() + self.run["startTimeout"]
            try:
                result = self.attempt(deadline)
            except (Refusal, hosts.Unreachable, TimeoutError) as error:
                reason = {Refusal: "CannotStart", TimeoutError: "StartTimeout"}.get(
                    type(error), "WorkerUnreachable"
                )
                host = getattr(error, "host", "").partition(".")[0]
                result = {
                    "phase": "Failed",
                    "exitCode": 1,
                    "reason": reason,
                    "message": str(error),
                    "host": host,
                }
            if result["phase"] == "Succeeded" or self.stopping or self.restarts >= self.run["maxRestarts"]:
                return result
            self.restarts += 1
            say(f"{result['message']}; restart {self.restarts} of {self.run['maxRestarts']}")

    def end_command(self) -> None:
        """Give the ranks the grace period: they are told first, since the command's own end cuts their connections."""
        self.command.stopped.set()
        self.workers.stop()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.command.process.wait(ORDER_SECONDS)
        self.command.end(GRACE_SECONDS - ORDER_SECONDS - LAST_WORDS_SECONDS)

    def stop(self, *_: object) -> None:
        """Told to end: pass it on, and leave the rest of the grace period for the last words."""
        if self.stopping:
            return
        self.stopping = True
        if self.command:
            threading.Thread(target=self.end_command, daemon=True).start()
        else:
            finish("Failed", 143, "Stopped", "stopped before the command was started")
            os._exit(143)


def main() -> int:
    """Run the job; return the exit code of the container."""
    launcher = Launcher()
    signal.signal(signal.SIGTERM, launcher.stop)
    result = launcher.work()
    # The devices first, the words after.
    launcher.workers.roster.release()
    times = {
        "restarts": launcher.restarts,
        "startedAt": timestamp(launcher.born),
        "endedAt": timestamp(time.time()),
    }
    finish(**result, **times)
    return result["exitCode"]


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Without the interpreter's own end, which would wait for threads that still wait for a worker.
    os._exit(code)
