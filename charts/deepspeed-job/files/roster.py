"""What the launcher hears from the sidecar: the key, each worker's report, or why it cannot go on."""

import contextlib
import json
import socket
import threading
import time

from common import SOCKET, Refusal, say


class Roster:
    """Where the workers are. The connection to the sidecar that it holds is also our hold on them: they are released when it ends.

    on_replaced(host) is called when a worker reports from another address: then the pod that had its name is gone.
    """

    def __init__(self, hosts: list, on_replaced):
        self.addresses = {}
        self._hosts = hosts
        self._on_replaced = on_replaced
        self._has_key = False
        self._error = ""
        self._said_at = 0.0
        self._changed = threading.Condition()
        self._link = None
        self._ended = False
        threading.Thread(target=self._listen, args=[str(SOCKET)], daemon=True).start()

    def _listen(self, path: str) -> None:
        # The sidecar may be restarted; what it told before still holds.
        while not self._ended:
            try:
                with socket.socket(socket.AF_UNIX) as self._link:
                    self._link.connect(path)
                    for line in self._link.makefile("r"):
                        self._take(json.loads(line))
            except OSError:
                pass
            time.sleep(0.02)

    def _take(self, event: dict) -> None:
        with self._changed:
            if event["event"] == "key":
                self._has_key = True
            elif event["event"] == "error":
                self._error = event["message"]
            elif event["event"] == "worker":
                before = self.addresses.get(event["host"], event["address"])
                self.addresses[event["host"]] = event["address"]
                if before != event["address"]:
                    self._on_replaced(event["host"])
                self._say_count()
            self._changed.notify_all()

    def _say_count(self) -> None:
        # A line a second is enough, also with a thousand workers.
        count, at = len(self.addresses), time.monotonic()
        if at > self._said_at + 1 or count == len(self._hosts):
            self._said_at = at
            say(f"waiting for workers: {count}/{len(self._hosts)} run")

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
            missing = [one.partition(".")[0] for one in self._hosts if one not in self.addresses]
            named = ", ".join(missing[:5]) + (" …" if len(missing) > 5 else "")
            raise TimeoutError(
                f"{len(missing)} of {len(self._hosts)} workers do not run in time (run.startTimeout): {named}; "
                f"`kubectl describe pod {missing[0]}` says why"
            )
        return self.addresses[host]

    def release(self) -> None:
        """End the connection to the sidecar, which then releases the workers."""
        self._ended = True
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)

    def tell_running(self) -> None:
        """Tell the sidecar that the command has started."""
        try:
            self._link.sendall(b"running")
        except OSError:
            say("the sidecar `workers` does not hear us")
