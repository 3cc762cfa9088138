"""The channels of a command that was started in a container: Kubernetes' streaming protocol over a websocket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from dsjob.errors import DsjobError, ExitCode

STDIN, STDOUT, STDERR, STATUS, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255


class Broken(DsjobError):
    """The connection has ended."""


class Channels:
    """The connection to one command, for one thread: select on it, and receive while there is something `pending`."""

    PROTOCOLS = (
        "v5.channel.k8s.io,v4.channel.k8s.io"  # v5, of Kubernetes 1.30, can tell that the input has ended
    )

    def __init__(self, websocket: Any) -> None:
        self._websocket = websocket
        protocol = (websocket.getheaders() or {}).get("sec-websocket-protocol")
        self.can_end_input = bool(protocol == "v5.channel.k8s.io")

    def fileno(self) -> int:
        """For select."""
        return int(self._websocket.fileno())

    def pending(self) -> bool:
        """Whether TLS has decrypted more than was read, of which select knows nothing."""
        pending = getattr(self._websocket.sock, "pending", None)
        return bool(pending and pending())

    def receive(self) -> tuple[int, bytes]:
        """Wait for the next frame, and return its channel and data."""
        from websocket import ABNF

        with _broken():
            operation, frame = self._websocket.recv_data_frame(True)
        if operation == ABNF.OPCODE_CLOSE:
            raise _end("closed")
        if operation in (ABNF.OPCODE_BINARY, ABNF.OPCODE_TEXT) and frame.data:
            return frame.data[0], bytes(frame.data[1:])
        return CLOSE, b""  # a ping, or the answer to ours

    def send(self, channel: int, data: bytes) -> None:
        """Send data on a channel. If the connection is lost, `receive` tells so, after what has still arrived."""
        from websocket import ABNF

        with suppress(Broken), _broken():
            self._websocket.send(bytes([channel]) + data, ABNF.OPCODE_BINARY)

    def end_input(self) -> None:
        """Tell the command that its input has ended."""
        if self.can_end_input:
            self.send(CLOSE, bytes([STDIN]))

    def keep_alive(self) -> None:
        """Give a sign of life, so that nothing on the way takes a quiet connection for a dead one."""
        with suppress(Broken), _broken():
            self._websocket.ping()

    def close(self) -> None:
        """Let go of the command."""
        self._websocket.shutdown()


def exit_code(status: bytes) -> int:
    """The exit code that is in the status of a command that has ended."""
    told = json.loads(status)
    if told.get("status") == "Success":
        return 0
    for cause in told.get("details", {}).get("causes") or []:
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    raise DsjobError(f"the command could not be run: {told.get('message', '')}", ExitCode.CLUSTER)


@contextmanager
def _broken() -> Iterator[None]:
    from websocket import WebSocketException

    try:
        yield
    except (OSError, WebSocketException) as error:
        raise _end(repr(error)) from error


def _end(why: str) -> Broken:
    text = "the connection to the command is lost; the command may go on in the cluster"
    return Broken(text, ExitCode.CLUSTER, detail=why)
