"""What a worker knows of the commands that it was sent over ssh: their environment, their processes, how they ended.

Each session has a file NAME.json in /job/worker/sessions with its pid and, once it has ended, its exit code. The launcher reads them after
a run, so that it need not trust the exit code of what came between.
"""

import ctypes
import json
import os
import signal
import time
from pathlib import Path

from common import JOB, write_private

ENVIRONMENT = JOB / "worker" / "environment"
RECORDS = JOB / "worker" / "sessions"
# cgroup v2, then v1
OOM_FILES = [Path("/sys/fs/cgroup/memory.events"), Path("/sys/fs/cgroup/memory/memory.oom_control")]
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def save_environment(environment: dict) -> None:
    """Keep the container's environment, in memory and for this user only. sshd overwrites /proc/1/environ."""
    write_private(ENVIRONMENT, b"\0".join(f"{key}={value}".encode(errors="surrogateescape") for key, value in environment.items()))


def load_environment() -> dict:
    """Return the container's environment."""
    pairs = (pair.decode(errors="surrogateescape").partition("=") for pair in ENVIRONMENT.read_bytes().split(b"\0") if pair)
    return {key: value for key, _, value in pairs}


def record(name: str, **facts: object) -> None:
    """Write what is known of a session."""
    write_private(RECORDS / f"{name}.json", json.dumps(facts).encode())


def records() -> list:
    """Return what is known of all sessions since the last `forget`, oldest first."""
    return sorted((json.loads(path.read_text()) for path in RECORDS.glob("[!.]*.json")), key=lambda one: one["startedAt"])


def forget() -> None:
    """Forget the sessions of an earlier attempt."""
    for path in RECORDS.glob("[!.]*.json"):
        path.unlink()


def oom_kills() -> int:
    """Return how many processes of this container the kernel killed for want of memory, as far as the cgroup tells."""
    for path in OOM_FILES:
        try:
            counts = dict(line.split() for line in path.read_text().splitlines())
        except (OSError, ValueError):
            continue
        return int(counts.get("oom_kill", 0))
    return 0


def become_guardian() -> None:
    """Get a HUP when the ssh connection's process dies, and become the parent of every orphan below us."""
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGHUP)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGHUP)


def descendants(pid: int) -> list:
    """Return the pids of all living processes below `pid`, children before grandchildren."""
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
    found, todo = [], [pid]
    while todo:
        todo.extend(children.get(todo[0], []))
        found.extend(children.get(todo.pop(0), []))
    return found


def signal_below(pid: int, number: int) -> bool:
    """Send a signal to every process below `pid`; tell whether there was one."""
    below = descendants(pid)
    for one in below:
        try:
            os.kill(one, number)
        except ProcessLookupError:
            continue
    return bool(below)


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


def settle(seconds: float) -> None:
    """Wait until every session has ended, at most so long."""
    until = time.monotonic() + seconds
    while any(is_alive(one["pid"]) for one in records()) and time.monotonic() < until:
        time.sleep(0.05)


def end_all() -> None:
    """Tell every session to end its command, and wait until all have. The kubelet's KILL is the limit."""
    for one in records():
        if is_alive(one["pid"]):
            os.kill(one["pid"], signal.SIGTERM)
    settle(float("inf"))
