"""The node's cgroup: every process of the node, its containers too, is below it, so none outlives it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from .base import ELSEWHERE, Problem
from .identity import NAME

ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = {"cpu", "cpuset", "io", "memory", "pids", "hugetlb"}


def is_v2() -> bool:
    """Whether the machine has the unified hierarchy only."""
    return (ROOT / "cgroup.controllers").exists()


def hierarchies() -> list[Path]:
    """The root folder of each cgroup hierarchy."""
    if is_v2():
        return [ROOT]
    mounted = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    return [Path(words[1]) for words in mounted if words[2] in ("cgroup", "cgroup2")]


def create() -> None:
    """Make the node's cgroup in every hierarchy."""
    if not hierarchies():
        raise Problem(f"no cgroups are mounted below {ROOT}. {ELSEWHERE}")
    for root in hierarchies():
        node = root / NAME
        try:
            node.mkdir(exist_ok=True)
            if is_v2():
                for folder in (root, node):
                    _enable_controllers(folder)
        except OSError as error:
            raise Problem(f"cannot make a cgroup below {root} ({error.strerror}). {ELSEWHERE}") from None
        (node / "parts").mkdir(exist_ok=True)
        if (node / "cpuset.cpus").exists() and not is_v2():
            # Version 1 makes cpusets empty, and no process can join an empty one.
            for folder in (node, node / "parts"):
                for setting in ("cpuset.cpus", "cpuset.mems"):
                    (folder / setting).write_text((root / setting).read_text())


def _enable_controllers(folder: Path) -> None:
    """Version 2: let the cgroups below have what kubelet and runc need."""
    available = set((folder / "cgroup.controllers").read_text().split())
    control = folder / "cgroup.subtree_control"
    missing = available & CONTROLLERS - set(control.read_text().split())
    if missing:
        control.write_text(" ".join(f"+{name}" for name in sorted(missing)))


def join() -> None:
    """Put the calling process into the node's cgroup, beside the pods."""
    for root in hierarchies():
        (root / NAME / "parts/cgroup.procs").write_text("0")


def pids() -> set[int]:
    """The processes of the node."""
    found: set[int] = set()
    for root in hierarchies():
        for folder in folders(root / NAME):
            with contextlib.suppress(OSError):  # gone meanwhile
                found.update(map(int, (folder / "cgroup.procs").read_text().split()))
    return found - {0, os.getpid()}


def folders(top: Path) -> list[Path]:
    """A cgroup and all below it, each before its own; unlike glob this bears that some go meanwhile."""
    return [Path(folder) for folder, _, _ in os.walk(top)]


def kill(spare: int | None = None, patience: float = 20.0) -> None:
    """Kill every process of the node but `spare`, until there is none."""
    give_up = time.monotonic() + patience
    while left := {pid for pid in pids() - {spare} if _state(pid) not in ("Z", "")}:
        if time.monotonic() > give_up:
            raise Problem(f"processes {sorted(left)} of the node do not end, not even when killed")
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def remove() -> None:
    """Remove the node's cgroups; the processes in them must be gone."""
    for root in hierarchies():
        for folder in reversed(folders(root / NAME)):
            _remove_folder(folder)


def _remove_folder(folder: Path) -> None:
    # A cgroup is busy for a moment after its last process ended.
    give_up = time.monotonic() + 10
    while folder.exists():
        try:
            folder.rmdir()
        except OSError as error:
            if time.monotonic() > give_up:
                raise Problem(f"cannot remove the cgroup {folder}: {error.strerror}") from None
            time.sleep(0.05)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return ""
