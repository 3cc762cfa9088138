"""What the init container `code` of our own pod has fetched, see fetch-code. It runs beside the sidecar, and before the launcher."""

import base64
import os
import threading

from common import JOB, say

COMMIT = JOB / "commit"
# The Job for which a commit is chosen. It is set where the values have `code`.
JOB_UID = os.environ.get("JOB_UID", "")


def await_commit(stop: threading.Event) -> str:
    """Wait until the code is there, or for `stop`; return its commit. It is empty for code that is not from Git, and without `code`."""
    if not JOB_UID:
        return ""
    while not COMMIT.exists():
        if stop.wait(0.1):
            return ""
    return COMMIT.read_text()


def for_workers(commit: str) -> str:
    """Return what the workers' Secret has of it, which a pod that replaces the launcher's reads too."""
    return base64.b64encode(f"{commit} {JOB_UID}\n".encode()).decode()


def is_of_other_job(data: str) -> bool:
    """Tell whether the Secret has the commit of another Job."""
    return base64.b64decode(data).split()[1:] not in ([], [JOB_UID.encode()])


def say_commit() -> None:
    """Tell the log which code is run."""
    if COMMIT.exists() and COMMIT.stat().st_size:
        say(f"code: commit {COMMIT.read_text()}")
