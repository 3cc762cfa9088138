"""An `ssh` on PATH that lets a test play the worker: it joins the caller's input and output with a connection to the test."""

import json
import os
import socket
import sys
from pathlib import Path

# Its input goes to the test as it is. From the test come lines of JSON: what to write, to where, and at last how to end.
PROGRAM = """\
#!{python} -ISu
import json, os, socket, sys, threading
link = socket.socket(socket.AF_UNIX)
link.connect({path!r})
link.sendall(json.dumps(sys.argv[1:]).encode() + b"\\n")
def pump():
    while True:
        data = os.read(0, 65536)
        if not data:
            break
        link.sendall(data)
    link.shutdown(socket.SHUT_WR)
threading.Thread(target=pump, daemon=True).start()
for line in link.makefile("r"):
    order = json.loads(line)
    os.write(order.get("to", 1), order.get("text", "").encode())
    if "exit" in order:
        os._exit(order["exit"])
os._exit(255)
"""


class FakeSsh:
    """Install it into a folder; `accept` gives the next call of it."""

    def __init__(self, folder: Path, monkeypatch):
        path = str(folder / "worker.sock")
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(path)
        self._server.listen()
        self._server.settimeout(10)
        program = folder / "bin" / "ssh"
        program.parent.mkdir()
        program.write_text(PROGRAM.format(python=sys.executable, path=path))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    def accept(self) -> "Call":
        """The next call of `ssh`."""
        return Call(self._server.accept()[0])

    def close(self) -> None:
        """No more calls."""
        self._server.close()


class Call:
    """One call of `ssh`."""

    def __init__(self, link: socket.socket):
        link.settimeout(10)
        self._link = link
        self._lines = link.makefile("r")
        self.argv = self.read()

    def read(self) -> object:
        """The next line that the caller wrote, None at its end."""
        line = self._lines.readline()
        return json.loads(line) if line else None

    def _order(self, **order: object) -> None:
        self._link.sendall(json.dumps(order).encode() + b"\n")

    def say(self, text: str) -> None:
        """Write to the caller."""
        self._order(text=text)

    def tell(self, event: str, **more: object) -> None:
        """Send an event as session.py does."""
        self.say(json.dumps({"event": event, **more}) + "\n")

    def end(self, code: int = 0, error: str = "") -> None:
        """End with this exit code, and these words on stderr."""
        self._order(to=2, text=error, exit=code)
