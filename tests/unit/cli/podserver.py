"""An API server that has one pod, in which one command runs: as much of exec's protocol as a test needs."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from websocket import ABNF, WebSocket, WebSocketException

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455
OK = json.dumps({"status": "Success"}).encode()


def failed(code: int) -> bytes:
    """The status of a command that ended with a code."""
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return json.dumps(
        {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
    ).encode()


class Command:
    """The command's side of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._websocket = WebSocket()
        self._websocket.sock, self._websocket.connected = connection, True

    def send(self, channel: int, data: bytes) -> None:
        """Send a frame, unmasked as a server must."""
        self.send_raw(ABNF(1, 0, 0, 0, ABNF.OPCODE_BINARY, 0, bytes([channel]) + data).format())

    def send_raw(self, data: bytes) -> None:
        self._websocket.sock.sendall(data)

    def receive(self) -> tuple[int, bytes]:
        """The next frame with data."""
        while True:
            operation, frame = self._websocket.recv_data_frame(True)
            if operation == ABNF.OPCODE_BINARY:
                return frame.data[0], frame.data[1:]


class PodServer:
    """Serves one connection after the other with `command`; with `refuse`, by an HTTP status and a message instead."""

    def __init__(self, protocol: str = "v5.channel.k8s.io", refuse: tuple[int, str] | None = None) -> None:
        self.protocol, self.refuse = protocol, refuse
        self.command: Callable[[Command], None] = lambda command: command.send(3, OK)
        self.asked: dict[str, list[str]] = {}
        self.headers: dict[str, str] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()

    def kubeconfig(self, folder: Path) -> Path:
        """A kubeconfig that leads here."""
        server = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        found: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "users": [{"name": "u", "user": {"token": "secret"}}],
            "clusters": [{"name": "k", "cluster": {"server": server}}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "team"}}],
        }
        path = folder / "kubeconfig"
        path.write_text(json.dumps(found))
        return path

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                # As Go does. Otherwise a small frame waits for an answer, and is lost when the connection is closed before.
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with connection, contextlib.suppress(OSError, WebSocketException):
                    if self._greet(connection):
                        self.command(Command(connection))

    def _greet(self, connection: socket.socket) -> bool:
        request = b""
        while not request.endswith(b"\r\n\r\n"):
            request += connection.recv(4096)
        first, *lines = request.decode().split("\r\n")
        self.asked = parse_qs(urlsplit(first.split()[1]).query)
        self.headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in lines)}
        if self.refuse:
            code, text = self.refuse
            body = json.dumps({"kind": "Status", "message": text})
            answer = f"HTTP/1.1 {code} Refused\r\nContent-Length: {len(body)}\r\n\r\n{body}"
            connection.sendall(answer.encode())
            return False
        accept = base64.b64encode(
            hashlib.sha1(self.headers["sec-websocket-key"].encode() + _GUID).digest()
        ).decode()
        connection.sendall(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {self.protocol}\r\n\r\n".encode()
        )
        return True
