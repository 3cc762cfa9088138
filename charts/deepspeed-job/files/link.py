"""An ssh connection of the launcher's own to one worker, and what stands between them when there is none."""

import contextlib
import json
import queue
import subprocess
import threading
import time

from common import SSH, find_programs

# How long a worker has for its side of the login.
LOGIN_SECONDS = 30
ORDER_SECONDS = 10


class Unreachable(Exception):
    """A worker cannot be used; `host` and `step` (resolve, connect, authenticate, execute, stay) say where it stops."""

    def __init__(self, host: str, step: str, text: str):
        super().__init__(f"{host}: cannot {step}: {text}")
        self.host = host
        self.step = step
        self.text = text


def step_of(stderr: str) -> str:
    """Return the step at which ssh failed, from what it wrote."""
    text = stderr.lower()
    if "could not resolve" in text:
        return "resolve"
    if "permission denied" in text:
        return "authenticate"
    # Another host key: the address was that of an earlier pod, and now is another's.
    if not text or any(
        word in text
        for word in (
            "connection",
            "connect to",
            "timed out",
            "timeout",
            "no route",
            "broken pipe",
            "host key",
        )
    ):
        return "connect"
    return "execute"


def read_events(lines):
    """Yield the events among a worker's lines; a shell's start-up file may print others."""
    for line in lines:
        with contextlib.suppress(ValueError):
            event = json.loads(line)
            if isinstance(event, dict) and "event" in event:
                yield event


class Link:
    """It stands as long as the attempt: it tells what ends on the worker, and its own end tells that the worker is lost, whatever the
    user's launcher notices.

    on_failed(host) is called when a command there ended with another code than 0, on_lost(host) when the worker is lost or is about to be.
    """

    def __init__(self, host: str, roster, on_failed, on_lost):
        self.host = host
        self.lost = None
        self._replaced = False
        self._roster = roster
        self._on_failed = on_failed
        self._on_lost = on_lost
        self._answers = None
        self._process = None
        self._writing = threading.Lock()

    def open(self, deadline: float) -> None:
        """Log in, again until it works or time.monotonic() has reached `deadline`.

        Raises Unreachable, or what roster.await_address raises.
        """
        while True:
            address = self._roster.await_address(self.host, deadline)
            try:
                return self._open(address)
            except Unreachable as error:
                # A wrong key or a missing program does not mend itself. A worker that is gone may come back elsewhere.
                if time.monotonic() > deadline or error.step in ("authenticate", "execute"):
                    raise
                time.sleep(0.05)

    def _open(self, address: str) -> None:
        self.close()
        self._replaced = False
        options = ["-F", str(SSH / "config"), "-o", "ConnectTimeout=2", "-o", f"HostName={address}"]
        argv = [find_programs(["ssh"], "launcher")["ssh"], *options, self.host, "@watch"]
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._process = process
        watchdog = threading.Timer(LOGIN_SECONDS, process.kill)
        watchdog.start()
        events = read_events(process.stdout)
        ready = next(events, {}).get("event") == "ready"
        watchdog.cancel()
        if not ready:
            raise self._why(process)
        self.lost, self._answers = None, queue.Queue()
        threading.Thread(target=self._read, args=[process, events, self._answers], daemon=True).start()

    def _why(self, process: subprocess.Popen) -> Unreachable:
        if self._replaced:
            return Unreachable(self.host, "connect", "its pod was replaced by a new one")
        text = process.stderr.read().decode(errors="replace").strip()
        code = process.wait()
        return Unreachable(
            self.host, step_of(text) if code == 255 else "execute", text or f"ssh ended with {code}"
        )

    def _read(self, process: subprocess.Popen, events, answers: queue.Queue) -> None:
        leaving = None
        for event in events:
            if event["event"] in ("report", "begun"):
                # What a pod that ends has to tell of its ranks is that they were told to.
                answers.put(leaving or event)
            elif event["event"] == "leaving":
                leaving = Unreachable(
                    self.host,
                    "stay",
                    "its pod was told to end (drain, preemption, eviction, scale-down or delete)",
                )
                self._lose(leaving)
            elif event["exitCode"] != 0:
                self._on_failed(self.host)
        if process is self._process:
            why = leaving or self._why(process)
            answers.put(why)
            self._lose(why)

    def _lose(self, why: Unreachable) -> None:
        if not self.lost:
            self.lost = why
            self._on_lost(self.host)

    def order(self, word: str, **more: object) -> None:
        """Send an order that session.obey knows. Raises OSError where the connection is lost."""
        process = self._process
        if process is None:
            raise OSError("no connection")
        with self._writing:
            process.stdin.write(json.dumps({"order": word, **more}).encode() + b"\n")
            process.stdin.flush()

    def ask(self, word: str, timeout: float, **more: object) -> object:
        """Send an order and return its answer, an event, or the Unreachable that came instead."""
        try:
            self.order(word, **more)
            return self._answers.get(timeout=timeout)
        except (OSError, queue.Empty):
            return self.lost or Unreachable(self.host, "execute", f"no answer in {timeout:.0f} s")

    def pid(self) -> int:
        """Return the process id of the connection, 0 without one."""
        process = self._process
        return process.pid if process else 0

    def replaced(self) -> None:
        """The worker is another pod now. Its end of this connection may have vanished without a word."""
        self._replaced = True
        process = self._process
        if process:
            process.kill()

    def close(self) -> None:
        """End the connection, if there is one."""
        process, self._process = self._process, None
        if process:
            process.kill()
            process.wait()
