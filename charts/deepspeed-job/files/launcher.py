"""Main container of the launcher pod: waits for the workers, runs the user's command, and says truthfully how it ended."""

import contextlib
import json
import os
import shlex
import signal
import socket
import sys
import threading
import time
from datetime import datetime, timezone

import hosts
from command import Command, make_command
from common import FILES, SOCKET, Refusal, finish, host_names, load_run, say
from verdict import judge

# Kept back from the pod's grace period, to gather what happened and to say it.
LAST_WORDS_SECONDS = 5
GRACE_SECONDS = 30


def timestamp(unix: float) -> str:
    """Return a Unix time as RFC 3339."""
    return datetime.fromtimestamp(unix, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Launcher:
    """One life of the launcher's container."""

    def __init__(self) -> None:
        self.run = load_run()
        self.hosts = host_names(self.run)
        self.workers = hosts.Workers(self.hosts, self.on_trouble)
        self.command = None
        self.stopping = False
        self.restarts = 0
        self.born = time.time()
        self.link = None

    def environment(self) -> dict:
        """Return the command's environment: ours, with the shims `ssh` and `deepspeed` first on PATH."""
        path = f"{FILES}:{os.environ.get('PATH', os.defpath)}"
        return {**os.environ, "PATH": path, "PDSH_RCMD_TYPE": "ssh"}

    def connect(self, deadline: float) -> None:
        """Connect to the sidecar; while the connection stands, the workers are ours."""
        while True:
            self.link = socket.socket(socket.AF_UNIX)
            try:
                self.link.connect(str(SOCKET))
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise Refusal(
                        "the sidecar `workers` does not run: see its log (kubectl logs POD -c workers)"
                    ) from None
                time.sleep(0.02)

    def await_workers(self, deadline: float) -> None:
        """Wait until all workers run, saying how many do. Raises Refusal, or TimeoutError with what is missing."""
        count, ready = self.run["workers"], 0
        while True:
            self.connect(deadline)
            events = self.link.makefile("r")
            try:
                while True:
                    self.link.settimeout(max(0.1, deadline - time.monotonic()))
                    line = events.readline()
                    if not line:
                        break
                    event = json.loads(line)
                    if event["event"] == "error":
                        raise Refusal(event["message"])
                    if event["event"] == "ready":
                        ready = event["ready"]
                        say(f"waiting for workers: {ready}/{count} ready")
                    if event["event"] == "key":
                        hosts.write_settings(self.run, self.hosts)
                    if event["event"] == "go":
                        self.link.settimeout(None)
                        return
            except socket.timeout:
                raise TimeoutError(
                    f"only {ready} of {count} workers were ready after {self.run['startTimeout']} s (run.startTimeout): "
                    f"`kubectl describe pods` of those that are Pending says why"
                ) from None
            say("the sidecar `workers` was restarted")

    def attempt(self, deadline: float) -> dict:
        """Log in to every worker, run the command once and return its verdict."""
        began = time.monotonic()
        self.workers.greet(deadline)
        say(
            f"{len(self.hosts)} worker{'s' * (len(self.hosts) > 1)} connected in {time.monotonic() - began:.1f} s"
        )
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
        with contextlib.suppress(OSError):
            self.link.sendall(b"running")
        if self.stopping:
            self.command.stop(0)
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
                if not self.link:
                    self.await_workers(deadline)
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

    def stop(self, *_: object) -> None:
        """Told to end: pass it on, and leave the rest of the grace period for the last words."""
        if self.stopping:
            return
        self.stopping = True
        if self.command:
            threading.Thread(
                target=self.command.stop, args=[GRACE_SECONDS - LAST_WORDS_SECONDS], daemon=True
            ).start()
        else:
            finish("Failed", 143, "Stopped", "stopped before the command was started")
            os._exit(143)


def main() -> int:
    """Run the job; return the exit code of the container."""
    launcher = Launcher()
    signal.signal(signal.SIGTERM, launcher.stop)
    result = launcher.work()
    times = {
        "restarts": launcher.restarts,
        "startedAt": timestamp(launcher.born),
        "endedAt": timestamp(time.time()),
    }
    finish(**result, **times)
    return result["exitCode"]


if __name__ == "__main__":
    sys.exit(main())
