"""Processes by their place in the tree: whoever leaves its group or its session is still below its ancestor."""

import ctypes
import os
import signal
import time
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def become_guardian() -> None:
    """Get a HUP when the ssh connection's process dies, and become the parent of every orphan below us."""
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGHUP)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGHUP)


def _by_parent() -> dict:
    """Return the pids of the living processes, by the pid of their parent."""
    children = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The name in parentheses may hold anything; state and parent follow the last one.
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z":
            children.setdefault(int(parent), []).append(int(entry.name))
    return children


def children(pid: int) -> list:
    """Return the pids of all living processes whose parent is `pid`."""
    return _by_parent().get(pid, [])


def descendants(pid: int) -> list:
    """Return the pids of all living processes below `pid`, children before grandchildren."""
    below = _by_parent()
    found, todo = [], [pid]
    while todo:
        todo.extend(below.get(todo[0], []))
        found.extend(below.get(todo.pop(0), []))
    return found


def signal_below(pid: int, number: int, spare: frozenset = frozenset()) -> bool:
    """Send a signal to every process below `pid`, but not to those in `spare`; tell whether there was one."""
    below = [one for one in descendants(pid) if one not in spare]
    for one in below:
        try:
            os.kill(one, number)
        except ProcessLookupError:
            continue
    return bool(below)


def await_below(pid: int, seconds: float, spare: frozenset = frozenset()) -> None:
    """Wait until every process below `pid` has ended but those in `spare`, at most so long."""
    until = time.monotonic() + seconds
    while set(descendants(pid)) - spare and time.monotonic() < until:
        time.sleep(0.05)


def end_below(pid: int, grace: float) -> None:
    """End every process below `pid`: TERM, and KILL for those that are left after `grace` seconds."""
    until = time.monotonic() + grace
    signal_below(pid, signal.SIGTERM)
    while descendants(pid) and time.monotonic() < until:
        time.sleep(0.05)
    while signal_below(pid, signal.SIGKILL):
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
