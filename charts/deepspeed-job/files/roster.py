"""What the launcher hears from the sidecar: the key, each worker's report, the scale, or why it cannot go on; and what it tells it."""

import collections
import contextlib
import json
import socket
import threading
import time

from common import SOCKET, Refusal, say, short

# A worker's reason is said again, so that the last lines of a log tell it.
SAY_AGAIN_SECONDS = 30


class Roster:
    """Where the workers are. The connection to the sidecar that it holds is also our hold on them: they are released when it ends.

    on_replaced(host) is called when a worker reports from another address: then the pod that had its name is gone. on_changed() is called
    when a worker reports, or the scale changes.
    """

    def __init__(self, hosts: list, count: int, on_replaced, on_changed=lambda: None):
        self.addresses = {}
        # How often each has reported: a container that was started again does so from the same address.
        self.reports = collections.Counter()
        self._hosts = hosts
        self._count = count
        self._on_replaced = on_replaced
        self._on_changed = on_changed
        self._has_key = False
        self._error = ""
        self._obstacle = ""
        self._said = ("", 0.0)
        self._changed = threading.Condition()
        self._link = None
        self._state = {}
        self._ended = self._released = False
        threading.Thread(target=self._listen, args=[str(SOCKET)], daemon=True).start()

    def wanted(self) -> list:
        """Return the names of the workers that the scale asks for."""
        return self._hosts[: self._count]

    def present(self) -> list:
        """Return the names of those among them that have reported, in rank order."""
        return [host for host in self.wanted() if host in self.addresses]

    def _listen(self, path: str) -> None:
        # The sidecar may be restarted; what it told before still holds, and it hears again what we told.
        while not self._released:
            try:
                with socket.socket(socket.AF_UNIX) as link:
                    link.connect(path)
                    self._link = link
                    self._send()
                    if self._ended:
                        link.shutdown(socket.SHUT_WR)
                    for line in link.makefile("r"):
                        self._take(**json.loads(line))
            except OSError:
                pass
            time.sleep(0.02)

    def _take(self, event: str, host: str = "", address: str = "", message: str = "", count: int = 0) -> None:
        replaced = changed = False
        with self._changed:
            if event == "released":
                self._released = True
            elif event == "key":
                self._has_key = True
            elif event == "error":
                self._error = message
            elif event == "obstacle":
                self._obstacle = message
                self._say_count()
            elif event == "scale":
                changed, self._count = count != self._count, count
            elif event == "worker":
                replaced = self.addresses.get(host, address) != address
                changed = True
                self.reports[host] += 1
                self.addresses[host] = address
                self._say_count()
            self._changed.notify_all()
        if replaced:
            self._on_replaced(host)
        if changed:
            self._on_changed()

    def _say_count(self) -> None:
        # A line a second is enough, also with a thousand workers.
        count, wanted = len(self.present()), len(self.wanted())
        obstacle = f"; {self._obstacle}" if self._obstacle and count < wanted else ""
        text, now = f"waiting for workers: {count}/{wanted} run{obstacle}", time.monotonic()
        before, at = self._said
        wait = SAY_AGAIN_SECONDS if text == before else 0 if count == wanted or obstacle else 1
        if now >= at + wait:
            self._said = text, now
            say(text)

    def _wait(self, condition, deadline: float) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._error or condition(), max(0, deadline - time.monotonic()))
            if self._error:
                raise Refusal(self._error)
            return bool(condition())

    def await_key(self, deadline: float) -> None:
        """Wait for the key in /job/ssh. Raises Refusal with the reason why there is none."""
        if not self._wait(lambda: self._has_key, deadline):
            raise Refusal(
                "the sidecar `workers` makes no key: its log says why (kubectl logs POD -c workers)"
            )

    def await_address(self, host: str, deadline: float) -> str:
        """Wait until the worker has reported and return its address. Raises Refusal, or TimeoutError with who has not."""
        if not self._wait(lambda: host in self.addresses, deadline):
            raise self.missing()
        return self.addresses[host]

    def await_all(self, deadline: float) -> bool:
        """Wait until every wanted worker has reported; tell whether they have. Raises Refusal."""
        return self._wait(lambda: len(self.present()) == len(self.wanted()), deadline)

    def await_change(self, deadline: float) -> None:
        """Wait until a worker reports or the scale changes. Raises Refusal."""
        before = self.wanted(), dict(self.reports)
        self._wait(lambda: (self.wanted(), self.reports) != before, deadline)

    def missing(self) -> TimeoutError:
        """Return what tells of the workers that have not reported."""
        missing = [short(one) for one in self.wanted() if one not in self.addresses]
        named = ", ".join(missing[:5]) + (" …" if len(missing) > 5 else "")
        hint = self._obstacle or f"`kubectl describe pod {missing[0] if missing else 'POD'}` says why"
        return TimeoutError(
            f"{len(missing)} of {len(self.wanted())} workers do not run in time (run.startTimeout): {named}; {hint}"
        )

    def forget(self, host: str) -> None:
        """The worker's pod is about to end: another one will report."""
        with self._changed:
            self.addresses.pop(host, None)

    def release(self) -> None:
        """End our side of the connection to the sidecar, which then releases the workers."""
        self._ended = True
        with contextlib.suppress(OSError, AttributeError):
            self._link.shutdown(socket.SHUT_WR)

    def await_released(self, seconds: float) -> None:
        """Wait until the sidecar has released the workers, or cannot. One that is killed is started again only while we run."""
        with self._changed:
            self._changed.wait_for(lambda: self._released, seconds)

    def tell(self, **state: object) -> None:
        """Tell the sidecar how the run stands: phase, restarts, causes, members, and why it ended; what is left out stays as it was."""
        self._state.update(state)
        self._send()

    def _send(self) -> None:
        # Without a connection it is told when there is one.
        with contextlib.suppress(OSError, AttributeError):
            self._link.sendall(json.dumps(self._state).encode() + b"\n")
