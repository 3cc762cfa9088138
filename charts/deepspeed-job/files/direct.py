"""Main container of a worker in mode direct: waits for the name of worker 0, runs the command here, and says truthfully how it ended.

It stays the first process, since that one gets no signal which it does not handle: a TERM that comes while Python imports torch, or to
a bash that waits for its command, would be lost, and with it the time for a last checkpoint.
"""

import early  # noqa: F401, I001

import os
import shlex
import signal
import sys
import threading
import time
from datetime import datetime, timezone

import fetched
from command import Command, make_command
from common import FILES, HOSTFILE, JOB, Refusal, finish, host_name, host_names, load_run, say, short
from dns import await_name
from limits import Limits
from processes import end_below
from verdict import explain_code, failure, tail_of

# Of the pod's grace period; the rest is for the ranks.
LAST_WORDS_SECONDS = 5
BIN = JOB / "bin"


def environment(own: dict) -> dict:
    """Return the command's environment: the container's, its node rank, and our `deepspeed` first on PATH."""
    path = f"{BIN}:{own.get('PATH', os.defpath)}"
    return {**own, "PATH": path, "NODE_RANK": own["JOB_COMPLETION_INDEX"]}


def judge(host: str, code: int, lines: list, interruption: dict) -> dict:
    """Return what is told of the end: the command's exit code and last lines, or what ended it before its own end.

    One that was told to end must not end with 0, which the Job would count as done.
    """
    if interruption:
        return {**interruption, "host": host, "lastLines": tail_of(lines, "")}
    if code == 0:
        words = {"reason": "Completed", "message": "every rank of this worker ended with 0"}
        return {"phase": "Succeeded", "exitCode": 0, **words}
    reason = "CommandFailed" if code == 127 else "RankFailed"
    text = f"{host} failed with {explain_code(code)}"
    return failure(reason, text, code, host=host, lastLines=tail_of(lines, ""))


class Worker:
    """One life of the worker's container."""

    def __init__(self) -> None:
        self.run = load_run()
        self.host = short(host_name(self.run, int(os.environ["JOB_COMPLETION_INDEX"])))
        self.command = self.ending = None
        self.interruption = {}
        self.starting = False
        # Only the first worker's: rank 0 is the one that has something to say.
        first = os.environ["JOB_COMPLETION_INDEX"] == "0"
        limited = self.run if first else {**self.run, "stallTimeout": 0}
        self.limits = Limits(limited, self.last_output, self.interrupt)

    def last_output(self):
        """Return the time of the command's last output, None without a command."""
        return self.command.last_output if self.command else None

    def work(self) -> dict:
        """Run the command to its end; return what is told of it."""
        hosts = host_names(self.run)
        first, limit = hosts[0], self.run["startTimeout"]
        deadline = self.limits.cap(time.monotonic() + limit)
        await_name(first, deadline)
        if self.limits.deadline_passed():
            return judge(self.host, 0, [], self.limits.deadline_verdict())
        if time.monotonic() >= deadline:
            raise TimeoutError(
                f"{self.host} did not find {first} within {limit} s: worker 0 has not started, or the cluster's DNS fails"
            )
        BIN.mkdir()
        (BIN / "deepspeed").symlink_to(FILES / "pernode.py")
        # An image's own `deepspeed` that is called by its path would find no hostfile, and train on this worker alone, without a word.
        HOSTFILE.write_text("".join(f"{host} slots={self.run['slots']}\n" for host in hosts))
        argv = make_command(self.run["run"])
        say(f"run: {self.run['run'].get('command') or shlex.join(argv)}")
        self.starting = True
        self.command = Command(argv, environment(dict(os.environ)))
        if self.interruption:
            self.end_command()
        self.command.process.wait()
        if self.ending:
            self.ending.join()  # a bash ends at once, and its ranks have the grace period all the same
        code = self.command.wait()
        return judge(self.host, code, list(self.command.last_lines), self.interruption)

    def failed(self, error: Exception) -> dict:
        """Return what is told of a command that was not started."""
        reason, code, text = "CannotStart", 1, str(error)
        if isinstance(error, TimeoutError):
            reason = "StartTimeout"
        elif isinstance(error, OSError):
            reason, code, text = "CommandFailed", 127, f"{error.filename}: {error.strerror}"
        return failure(reason, text, code, host=self.host)

    def stop(self, *_: object) -> None:
        """Told to end: the ranks get the grace period."""
        self.interrupt(failure("Stopped", f"{self.host} was stopped before it ended", 143))
        if not self.starting:
            finish(host=self.host, **self.interruption)
            os._exit(143)

    def interrupt(self, verdict: dict) -> None:
        """End the command, with this verdict."""
        if not self.interruption:
            self.interruption = verdict
            if self.command:
                self.end_command()

    def end_command(self) -> None:
        """Pass the order on to each process, without waiting here."""
        if not self.ending:
            grace = self.run["gracePeriod"] - LAST_WORDS_SECONDS
            self.ending = threading.Thread(target=end_below, args=[os.getpid(), grace], daemon=True)
            self.ending.start()


def main() -> int:
    """Run this worker's part; return the exit code of the container."""
    fetched.say_commit()
    worker = Worker()
    signal.signal(signal.SIGTERM, worker.stop)
    try:
        result = worker.work()
    except (Refusal, OSError) as error:
        result = worker.failed(error)
    # To the millisecond: the first of several failures is the cause.
    finish(**result, endedAt=datetime.now(timezone.utc).isoformat(timespec="milliseconds"))
    return result["exitCode"]


if __name__ == "__main__":
    sys.exit(main())
