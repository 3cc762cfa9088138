"""Main container of the launcher pod: waits for the workers, runs the user's command, and says truthfully how it ended."""

import early  # noqa: F401, I001

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from datetime import datetime, timezone

import fetched
from command import Command, make_command
from common import FILES, Refusal, finish, load_run, say, short
from limits import Limits
from link import Unreachable
from restarts import Restarts
from verdict import failure, judge
from workers import Workers

# Kept back from the pod's grace period, to gather what happened and to say it.
LAST_WORDS_SECONDS = 5
# How long a sidecar may take to release the workers. One that was killed is first started again.
RELEASE_SECONDS = 30
# Until a command without ranks is told itself.
ORDER_SECONDS = 1

STOPPED = failure("Stopped", "stopped before it ended", 143)


def timestamp(unix: float) -> str:
    """Return a Unix time as RFC 3339."""
    return datetime.fromtimestamp(unix, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Launcher:
    """One life of the launcher's container."""

    def __init__(self) -> None:
        self.born = time.time()
        self.run = load_run()
        self.restarts = Restarts(self.run)
        # What is under way: a command or, in an interactive run, the wait for the end; and what ends it before its own end.
        self.command = None
        self.interruption = self.ending = None
        self.began = 0.0
        self.lost = threading.Event()
        # It calls us from now on.
        self.workers = Workers(self.run, self.on_failed, self.on_lost, self.on_changed)
        self.limits = Limits(self.run, self.last_output, self.interrupt)

    def last_output(self):
        """Return the time of the command's last output, None without a command."""
        command = self.command
        return command.last_output if command else None

    def environment(self) -> dict:
        """Return the command's environment: ours, with the shims `ssh` and `deepspeed` first on PATH."""
        path = f"{FILES}:{os.environ.get('PATH', os.defpath)}"
        # Above 64 workers, the first of them would log in to the others for OpenMPI, and only we have the ssh settings.
        ours = {"OMPI_MCA_routed_radix": str(max(64, len(self.workers.members)))}
        return {**ours, **os.environ, "PATH": path, "PDSH_RCMD_TYPE": "ssh", **self.workers.environment()}

    def attempt(self) -> dict:
        """Log in to every worker, run the command once and return its verdict."""
        self.workers.greet(self.limits.cap(time.monotonic() + self.run["startTimeout"]))
        self.began = time.monotonic()
        members = len(self.workers.members)
        if self.run["interactive"]:
            self.workers.roster.tell(phase="Interactive", members=members)
            return self.wait_for_commands()
        argv = make_command(self.run["run"])
        say(f"run: {self.run['run'].get('command') or shlex.join(argv)}")
        try:
            self.command = Command(argv, self.environment())
        except OSError as error:
            return failure("CommandFailed", f"{argv[0]}: {error.strerror}", 127)
        self.workers.roster.tell(phase="Running", members=members)
        self.catch_up()
        code = self.command.wait(spare=self.workers.pids())
        command, self.command = self.command, None
        if self.interruption:
            self.ending.join()  # all ranks have ended then
            return {**self.interruption, "lastLines": list(command.last_lines)[-10:]}
        return judge(code, list(command.last_lines), self.workers.reports())

    def catch_up(self) -> None:
        """Act on what happened between the login and the command."""
        for host in self.workers.members:
            if self.workers.links[host].lost:
                self.on_lost(host)
        if self.limits.deadline_passed():
            self.interrupt(self.limits.deadline_verdict())
        self.on_changed()

    def wait_for_commands(self) -> dict:
        """Be there for the commands that others run here, until a worker is lost or we are told to end."""
        say(
            "ready: `dsjob exec NAME -- COMMAND`, or kubectl exec -c launcher … /opt/deepspeed-job/enter COMMAND"
        )
        self.catch_up()
        self.lost.wait()
        if self.interruption:
            self.workers.stop()
        # How the commands ended is no matter of the run.
        answers = self.workers.reports()
        lost = {host: answer for host, answer in answers.items() if isinstance(answer, Exception)}
        return self.interruption or judge(0, [], lost)

    def try_once(self) -> dict:
        """Make an attempt and return its verdict, also where it could not begin."""
        self.interruption = None
        self.lost.clear()
        self.began = time.monotonic()
        try:
            return self.attempt()
        except (Refusal, Unreachable, TimeoutError) as error:
            if self.limits.deadline_passed():
                return self.limits.deadline_verdict()
            # An elastic run goes on without whom it cannot log in to, so this is one that it had.
            unreachable = "WorkerLost" if self.run.get("elastic") else "WorkerUnreachable"
            reason = {Refusal: "CannotStart", TimeoutError: "StartTimeout"}.get(type(error), unreachable)
            return failure(reason, str(error), host=short(getattr(error, "host", "")))
        finally:
            self.workers.part()

    def work(self) -> dict:
        """Run the command until it succeeds or its restarts are used up; return the last verdict."""
        while True:
            result = self.try_once()
            if self.limits.deadline_passed() or not self.restarts.allows(result):
                # No end of its own: we were told to end during the change.
                return {**result, **STOPPED} if result["reason"] == "Resized" else result
            pause = self.restarts.count(result, time.monotonic() - self.began, timestamp(time.time()))
            self.workers.roster.tell(phase="Restarting", **self.restarts.told())
            say(f"{result['message']}; {self.restarts.describe()}" + (f" in {pause} s" if pause else ""))
            now = time.monotonic()
            time.sleep(max(0, self.limits.cap(now + pause) - now))
            if self.limits.deadline_passed():
                return self.limits.deadline_verdict()

    def on_failed(self, host: str) -> None:
        """A command on a worker failed."""
        command = self.command
        if command and host in self.workers.members:
            command.on_trouble()

    def on_lost(self, host: str) -> None:
        """A worker is lost, or about to be. The others' ranks are told at once: together they may have time for a last checkpoint."""
        if host not in self.workers.members:
            return
        if self.workers.links[host].lost.step == "stay":
            self.workers.roster.forget(host)
        self.lost.set()
        command = self.command
        if command:
            command.on_trouble()
            threading.Thread(target=self.workers.stop, daemon=True).start()

    def on_changed(self) -> None:
        """A worker has come, or the scale was changed: an elastic run follows, by a restart."""
        if not self.run.get("elastic") or not self.command:
            return
        members, wanted = self.workers.members, self.workers.roster.wanted()
        count = self.workers.count_that_fits(len(self.workers.usable()))
        if any(host not in wanted for host in members):
            self.resize(len(members), len(wanted))
        elif count > len(members):
            # Not for each that comes: a restart costs what was trained since the last checkpoint.
            wait = self.began + self.run["elastic"]["patience"] - time.monotonic()
            if wait > 0:
                timer = threading.Timer(wait, self.on_changed)
                timer.daemon = True
                timer.start()
            else:
                self.resize(len(members), count)

    def resize(self, before: int, after: int) -> None:
        """End the attempt, to begin another one with as many workers as there are then."""
        self.interrupt(failure("Resized", f"the number of workers changes from {before} to {after}"))

    def interrupt(self, verdict: dict) -> None:
        """End the attempt that is under way, with this verdict."""
        command = self.command
        if self.interruption or not (command or self.run["interactive"]):
            return
        if command:
            self.ending = threading.Thread(target=self.end_command, args=[command], daemon=True)
            self.ending.start()
        self.interruption = verdict
        self.lost.set()

    def end_command(self, command: Command) -> None:
        """Give the ranks the grace period. The command's own end cuts their connections, and a rank that then prints fails, in the middle
        of its last checkpoint perhaps: so it comes when all ranks have ended."""
        grace = self.run["gracePeriod"] - LAST_WORDS_SECONDS
        until = time.monotonic() + grace
        self.workers.stop()
        ending = threading.Thread(target=self.workers.reports, args=[grace], daemon=True)
        ending.start()
        ending.join(grace - ORDER_SECONDS)
        with contextlib.suppress(subprocess.TimeoutExpired):
            command.process.wait(ORDER_SECONDS)
        command.end(max(until - time.monotonic(), 0))

    def stop(self) -> None:
        """Told to end: pass it on, and leave the rest of the grace period for the last words."""
        self.restarts.close()
        if self.command or (self.run["interactive"] and self.workers.members):
            self.interrupt(STOPPED)
        else:
            self.workers.roster.tell(reason="Stopped")
            self.finish(STOPPED)
            os._exit(STOPPED["exitCode"])

    def finish(self, result: dict) -> None:
        """Say how the run ended."""
        times = {"startedAt": timestamp(self.born), "endedAt": timestamp(time.time())}
        finish(**result, **self.restarts.told(), **times)


def main() -> int:
    """Run the job; return the exit code of the container."""
    fetched.say_commit()
    launcher = Launcher()
    # Not in the handler itself: it runs in the main thread, which may hold the lock that it would wait for.
    told, tell = os.pipe()
    signal.signal(signal.SIGTERM, lambda *_: os.write(tell, b"!"))
    threading.Thread(target=lambda: os.read(told, 1) and launcher.stop(), daemon=True).start()
    result = launcher.work()
    # The devices first, the words after.
    roster = launcher.workers.roster
    roster.tell(reason=result["reason"])
    roster.release()
    launcher.finish(result)
    roster.await_released(LAST_WORDS_SECONDS if result["reason"] == "Stopped" else RELEASE_SECONDS)
    return result["exitCode"]


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Without the interpreter's own end, which would wait for threads that still wait for a worker.
    os._exit(code)
