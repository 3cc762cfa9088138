"""Every ssh session on a worker (sshd's ForceCommand): runs the command in the container's environment and stays its guardian.

`@watch` is the launcher's own: it begins an attempt, tells how its commands end, and passes on that they are to end.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time

import processes
import sessions
from common import current_user

# Time for ranks to end by themselves, perhaps with a last checkpoint, when they are told to or the connection is lost. A rank that waits
# for another that is gone does not, and is killed then. The pod's grace period is a limit too.
GRACE_SECONDS = 30


def run(command: str) -> int:
    """Run the command with the user's shell, or a login shell where it is empty; return its exit code as a shell would.

    When the connection or the pod ends, so does every process below us, also one that has left its process group.
    """
    name = f"{time.time_ns()}-{os.getpid()}"
    facts = {"pid": os.getpid(), "startedAt": time.time()}
    shell = current_user().pw_shell
    environment = {
        **sessions.load_environment(),
        **{key: value for key, value in os.environ.items() if key in ("SSH_TTY", "TERM")},
    }

    def end(*_: object) -> None:
        # Once: the connection's end often follows the order to end.
        for number in (signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        processes.end_below(os.getpid(), GRACE_SECONDS)

    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, end)
    processes.become_guardian()
    sessions.record(name, **facts)
    child = subprocess.Popen([shell, "-c", command] if command else [shell, "-l"], env=environment)
    code = child.wait()
    # What the command left behind would hold the devices.
    processes.end_below(os.getpid(), 5)
    sessions.record(name, **facts, endedAt=time.time(), exitCode=code)
    return 128 - code if code < 0 else code


def tell(**event: object) -> None:
    """Send an event to the launcher."""
    print(json.dumps(event), flush=True)


def watch() -> int:
    """Tell, as lines of JSON, that we are here and each command that ends; obey the lines `stop` and `report`."""
    sessions.kill_all()
    sessions.forget()
    oom_kills_before = sessions.oom_kills()
    tell(event="ready")
    told = set()
    while True:
        if select.select([sys.stdin], [], [], 0.2)[0]:
            order = sys.stdin.readline().strip()
            if not order:
                return 0
            if order == "stop":
                sessions.stop_all()
            else:
                # The launcher asks when its side has ended; what the lost connections ended here takes a moment.
                sessions.settle(15)
                kills = sessions.oom_kills() - oom_kills_before
                tell(event="report", sessions=sessions.records(), oomKills=kills)
        for one in sessions.records():
            if "exitCode" in one and one["startedAt"] not in told:
                told.add(one["startedAt"])
                tell(event="ended", exitCode=one["exitCode"])


def main() -> int:
    """Serve one session."""
    command = os.environ.get("SSH_ORIGINAL_COMMAND", "")
    return watch() if command == "@watch" else run(command)


if __name__ == "__main__":
    sys.exit(main())
