"""Starting the node's processes and knowing them again: a pid counts only together with its start time."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from . import cgroups, namespaces
from .base import LOGS

PIDS = namespaces.RUN / "pids"


def spawn(name: str, argv: Sequence[str | Path]) -> None:
    """Start a part inside the node, in a session of its own, with its output in the logs."""
    PIDS.mkdir(parents=True, exist_ok=True)
    LOGS.mkdir(parents=True, exist_ok=True)
    with (LOGS / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            [*namespaces.enter(), *map(str, argv)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
            preexec_fn=_prepare,
        )
    # nsenter becomes the program, so pid and start time stay.
    record = {"pid": process.pid, "started": _start_time(process.pid)}
    (PIDS / f"{name}.new").write_text(json.dumps(record))
    (PIDS / f"{name}.new").replace(PIDS / name)


def pid_of(name: str) -> int | None:
    """The pid of a part that runs, else None."""
    try:
        record = json.loads((PIDS / name).read_text())
    except (OSError, ValueError):
        return None
    started = _start_time(record["pid"])
    return record["pid"] if started and started == record["started"] else None


def end(name: str, patience: float = 5.0) -> None:
    """Ask a part to end; kill it if it takes too long."""
    give_up = time.monotonic() + patience
    _signal(name, signal.SIGTERM)
    while pid_of(name):
        if time.monotonic() > give_up:
            _signal(name, signal.SIGKILL)
        time.sleep(0.02)


def _signal(name: str, number: signal.Signals) -> None:
    pid = pid_of(name)
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _prepare() -> None:
    # Containers inherit the limit on open files; the soft one of a shell is too low for them.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    cgroups.join()


def _start_time(pid: int) -> str:
    """Field 22 of /proc/PID/stat; empty for a process that is gone or dead."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
