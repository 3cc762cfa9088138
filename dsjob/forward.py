"""`dsjob tensorboard`: a port of this machine that leads to TensorBoard, whichever pod it is in."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from dsjob import output
from dsjob.cluster import Cluster, NotFound, Unreachable
from dsjob.errors import DsjobError, ExitCode
from dsjob.kube import COMPONENT, is_ready, label
from dsjob.state import describe

PORT = 6006


def tensorboard(cluster: Cluster, name: str, port: int | None) -> None:
    """Serve until Ctrl-C."""
    _board(cluster, name, patience=300)
    with listen(port) as listener:
        output.say(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        output.note(f"TensorBoard of {name}; Ctrl-C ends this view, TensorBoard itself stays")
        serve(listener, lambda: _tunnel(cluster, name))


def _tunnel(cluster: Cluster, name: str) -> Any:
    """A connection to the pod of now. One that is on its way out may still look ready: then try again."""
    for _ in range(5):
        try:
            return cluster.tunnel(_board(cluster, name, patience=30), PORT)
        except (NotFound, Unreachable) as error:
            broken = error
            time.sleep(0.5)
    raise broken


def listen(port: int | None) -> socket.socket:
    """A listening socket on the loopback: the port asked for, else TensorBoard's own, else any free one."""
    for wanted in [port] if port is not None else [PORT, 0]:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", wanted))
            listener.listen(64)
        except OSError as error:
            listener.close()
            if port is not None:
                raise DsjobError(
                    f"port {port} cannot be used: {error.strerror}",
                    ExitCode.INVALID,
                    hint="leave --port out to get a free one",
                ) from error
        else:
            return listener
    raise DsjobError("no free port on this machine", ExitCode.INVALID)


def serve(listener: socket.socket, tunnel: Callable[[], Any]) -> None:
    """Connect each client by a tunnel of its own, several at a time, until the listener is closed."""
    with _quiet_tunnels():
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                if listener.fileno() == -1:
                    return
                raise
            threading.Thread(target=_bridge, args=(client, tunnel), daemon=True).start()


@contextlib.contextmanager
def _quiet_tunnels() -> Iterator[None]:
    """The client library's threads die with a traceback when their connection breaks: no news here."""
    before = threading.excepthook

    def quiet(args: threading.ExceptHookArgs) -> None:
        if not (args.thread and args.thread.name.startswith("Kubernetes port forward")):
            before(args)

    threading.excepthook = quiet
    try:
        yield
    finally:
        threading.excepthook = before


def _bridge(client: socket.socket, tunnel: Callable[[], Any]) -> None:
    with contextlib.closing(client):
        try:
            pod = tunnel()
        except DsjobError as error:
            output.note(f"no connection: {error.message}", "yellow")
            return
        with contextlib.closing(pod), contextlib.suppress(OSError):
            while True:
                readable, _, _ = select.select([client, pod], [], [])
                for source, sink in ((client, pod), (pod, client)):
                    if source in readable:
                        data = source.recv(65536)
                        if not data:
                            return
                        sink.sendall(data)


def _board(cluster: Cluster, name: str, patience: float) -> str:
    """The ready TensorBoard pod; waits for it, and says once what it waits for."""
    until, said = time.monotonic() + patience, ""
    while True:
        objects = cluster.objects(name)
        if not objects.deployments:
            missing = describe(name, cluster.namespace, objects, time.time()) is None
            text = (
                f"there is no job `{name}` in namespace `{cluster.namespace}`"
                if missing
                else f"{name} has no TensorBoard"
            )
            hint = (
                "`dsjob list -A` shows the jobs"
                if missing
                else "set `tensorboard.enabled: true`, and `dsjob up` again"
            )
            raise DsjobError(text, ExitCode.NOT_FOUND, hint=hint)
        boards = [pod for pod in objects.pods if label(pod, COMPONENT) == "tensorboard"]
        ready = [pod["metadata"]["name"] for pod in boards if is_ready(pod)]
        if ready:
            return str(ready[-1])
        state = describe(name, cluster.namespace, objects, time.time())
        reasons = (
            [reason for part in state.parts if part.role == "tensorboard" for reason in part.reasons]
            if state
            else []
        )
        text = reasons[0].message if reasons else "its pod is not ready yet"
        if time.monotonic() > until:
            raise DsjobError(
                f"the TensorBoard of {name} does not get ready: {text}",
                ExitCode.TIMEOUT,
                hint=reasons[0].remedy if reasons else "",
            )
        if text != said:
            output.note(f"waiting for TensorBoard: {text}")
            said = text
        time.sleep(0.5)
