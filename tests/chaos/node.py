"""What can be seen and done only from the node: it is the machine's own, so its processes and interfaces are in plain sight."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path

CLUSTER = Path(__file__).parents[2] / "cluster"
# A part is killed and healed by one trial at a time.
_healing = threading.Lock()


def run(*argv: str) -> str:
    """Run a program and return what it says."""
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=180).stdout


def is_ours(kubeconfig: str) -> bool:
    """Whether this kubeconfig is that of the one-node cluster on this machine."""
    mine = run(str(CLUSTER / "kubeconfig")).strip()
    return Path(kubeconfig).resolve() == Path(mine).resolve()


def read(path: Path) -> str:
    """A file of /proc; empty if the process is gone."""
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""


def processes() -> Iterator[Path]:
    """The folder of each process that is not dead."""
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and read(path / "stat").rpartition(") ")[2][:1] not in ("", "Z", "X"):
            yield path


def first_process(container: str) -> int | None:
    """The pid of a container's first process; `container` is its id as its pod's status has it."""
    short = container.rpartition("/")[2]
    for path in processes():
        if short and short in read(path / "cgroup"):
            found = re.search(r"^NSpid:.*\t1$", read(path / "status"), re.MULTILINE)
            if found:
                return int(path.name)
    return None


def strays(marker: str, uids: Collection[str], held: Collection[str]) -> list[str]:
    """The processes with this line in their environment, or in a cgroup of these pods, but none of the pods that are held."""
    found = []
    for path in processes():
        cgroup = read(path / "cgroup")
        own = marker in read(path / "environ").split("\0")
        if (own or any(uid in cgroup for uid in uids)) and not any(uid in cgroup for uid in held):
            words = read(path / "cmdline").split("\0")
            found.append(f"{path.name} {' '.join(words)[:60]!r}")
    return found


def kill(pid: int) -> None:
    """End a process without a word."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def interface_of(uid: str) -> str | None:
    """The node's end of the veth pair of a pod."""
    pid = next((path.name for path in processes() if uid in read(path / "cgroup")), None)
    if pid is None:
        return None
    with contextlib.suppress(subprocess.CalledProcessError):
        inside = run("nsenter", "-t", pid, "-n", "ip", "-o", "link", "show", "eth0")
        peer = re.search(r"eth0@if(\d+):", inside)
        outside = run(str(CLUSTER / "enter"), "ip", "-o", "link")
        found = peer and re.search(rf"^{peer[1]}: (veth\w+)@", outside, re.MULTILINE)
        return found[1] if found else None
    return None


def set_link(interface: str, state: str) -> None:
    """Put an interface `up` or `down`; it may have gone with its pod."""
    with contextlib.suppress(subprocess.CalledProcessError):
        run(str(CLUSTER / "enter"), "ip", "link", "set", interface, state)


def restart(part: str, seconds: float) -> None:
    """Kill a part of the node, and start it again after so many seconds."""
    with _healing:
        rows = subprocess.run([str(CLUSTER / "status")], capture_output=True, text=True).stdout.splitlines()
        pid = next(row.split()[1] for row in rows if row.startswith(part))
        if pid.isdigit():
            kill(int(pid))
        try:
            time.sleep(seconds)
        finally:
            run(str(CLUSTER / "start"))
