"""What a worker knows of the commands that it was sent over ssh: their environment, their processes, how they ended.

Each session has a file NAME.json in /job/worker/sessions with its pid and, once it has ended, its exit code. The launcher reads them after
a run, so that it need not trust the exit code of what came between.
"""

import contextlib
import json
import os
import signal
import time
from pathlib import Path

from common import CONFIG, JOB, write_private
from processes import children, end_below, is_alive

ENVIRONMENT = JOB / "worker" / "environment"
ATTEMPT = JOB / "worker" / "attempt"
RECORDS = JOB / "worker" / "sessions"
# The pids of the worker and of its sshd.
PARENT = JOB / "worker" / "parent"
# There once the pod was told to end.
LEAVING = JOB / "worker" / "leaving"
# cgroup v2, then v1
OOM_FILES = [Path("/sys/fs/cgroup/memory.events"), Path("/sys/fs/cgroup/memory/memory.oom_control")]


def save_environment(environment: dict) -> None:
    """Keep the container's environment, in memory and for this user only. sshd overwrites /proc/1/environ."""
    write_private(
        ENVIRONMENT,
        b"\0".join(f"{key}={value}".encode(errors="surrogateescape") for key, value in environment.items()),
    )


def load_environment() -> dict:
    """Return the container's environment."""
    pairs = (
        pair.decode(errors="surrogateescape").partition("=")
        for pair in ENVIRONMENT.read_bytes().split(b"\0")
        if pair
    )
    return {key: value for key, _, value in pairs}


def begin_attempt(environment: dict, config: dict) -> None:
    """Keep what this attempt alone has: environment variables, and the DeepSpeed configuration where it depends on the number of ranks."""
    write_private(ATTEMPT, json.dumps(environment).encode())
    if config:
        write_private(CONFIG, json.dumps(config, indent=2).encode())


def load_attempt() -> dict:
    """Return the environment variables of this attempt."""
    return json.loads(ATTEMPT.read_text()) if ATTEMPT.exists() else {}


def record(name: str, **facts: object) -> None:
    """Write what is known of a session."""
    write_private(RECORDS / f"{name}.json", json.dumps(facts).encode())


def records() -> list:
    """Return what is known of all sessions since the last `forget`, oldest first."""
    return sorted(
        (json.loads(path.read_text()) for path in RECORDS.glob("[!.]*.json")),
        key=lambda one: one["startedAt"],
    )


def note_killed() -> None:
    """Record the end of each session that was itself killed, and so could not."""
    gone = {one["pid"] for one in records() if not is_alive(one["pid"])}
    # Read again, since a session writes its code before it ends.
    for path in RECORDS.glob("[!.]*.json"):
        facts = json.loads(path.read_text())
        if facts["pid"] in gone and "exitCode" not in facts:
            record(path.stem, **facts, endedAt=time.time(), exitCode=-signal.SIGKILL)


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


def settle(seconds: float) -> None:
    """Wait until every session has ended, at most so long."""
    until = time.monotonic() + seconds
    while any(is_alive(one["pid"]) for one in records()) and time.monotonic() < until:
        time.sleep(0.05)


def stop_all() -> None:
    """Tell every session to end its command; each gives it time."""
    for one in records():
        if is_alive(one["pid"]):
            os.kill(one["pid"], signal.SIGTERM)


def end_all() -> None:
    """Tell every session to end its command, and wait until all have. The kubelet's KILL is the limit."""
    stop_all()
    settle(float("inf"))


def kill_all() -> None:
    """Kill what an earlier attempt left: it would hold the devices and the master's port."""
    for one in records():
        if is_alive(one["pid"]):
            _kill(one["pid"])
    kill_orphans()


def kill_orphans() -> None:
    """Kill what sessions left that were themselves killed: the worker has become its parent, whose only own child is sshd.

    Which process that is, the worker itself has written: a number taken for granted, 1 say, would be another's outside of the container.
    """
    if not PARENT.exists():
        return
    parent, sshd = json.loads(PARENT.read_text())
    own = children(parent)
    if sshd in own:
        guardians = {one["pid"] for one in records()}
        for pid in own:
            if pid != sshd and pid not in guardians:
                _kill(pid)


def _kill(pid: int) -> None:
    end_below(pid, grace=0)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
