"""Every ssh session on a worker (sshd's ForceCommand): runs the command in the container's environment and stays its guardian.

What starts with @ is the launcher's own: `@hello` begins an attempt, `@report` tells how its commands ended.
"""

import json
import os
import signal
import subprocess
import sys
import time

import sessions
from common import current_user, find_programs

# Time for ranks to end by themselves when their session is told to end; the pod's grace period is its upper limit.
GRACE_SECONDS = 600


def run(command: str) -> int:
    """Run the command with the user's shell, or a login shell where it is empty; return its exit code as a shell would.

    When the connection or the pod ends, so does every process below us, also one that has left its process group.
    """
    name = f"{time.time_ns()}-{os.getpid()}"
    facts = {"pid": os.getpid(), "startedAt": time.time()}
    sessions.record(name, **facts)
    sessions.become_guardian()
    shell = current_user().pw_shell
    environment = {**sessions.load_environment(), **{key: value for key, value in os.environ.items() if key in ("SSH_TTY", "TERM")}}
    child = subprocess.Popen([shell, "-c", command] if command else [shell, "-l"], env=environment)

    def end(number: int, _: object) -> None:
        # Lost the connection: nobody reads a last word, so the ranks get little time.
        sessions.end_below(os.getpid(), 5 if number == signal.SIGHUP else GRACE_SECONDS)

    signal.signal(signal.SIGHUP, end)
    signal.signal(signal.SIGTERM, end)
    code = child.wait()
    # What the command left behind would hold the devices.
    sessions.end_below(os.getpid(), 5)
    sessions.record(name, **facts, endedAt=time.time(), exitCode=code)
    return 128 - code if code < 0 else code


def main() -> int:
    """Serve one session."""
    command = os.environ.get("SSH_ORIGINAL_COMMAND", "")
    if command == "@hello":
        sessions.forget()
        find_programs(["python3"], "worker")
        return 0
    if command == "@report":
        # The launcher asks when its side has ended; what the lost connections ended here takes a moment.
        sessions.settle(15)
        print(json.dumps({"sessions": sessions.records(), "oomKills": sessions.oom_kills()}))
        return 0
    return run(command)


if __name__ == "__main__":
    sys.exit(main())
