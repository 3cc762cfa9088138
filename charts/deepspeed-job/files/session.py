"""Every ssh session on a worker (sshd's ForceCommand): runs the command in the container's environment and stays its guardian.

`@watch` is the launcher's own: it begins an attempt, and tells how its commands end.
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

# Time for ranks to end by themselves when their session is told to end; the pod's grace period is its upper limit.
GRACE_SECONDS = 600


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

    def end(number: int, _: object) -> None:
        # Lost the connection: nobody reads a last word, so the ranks get little time.
        processes.end_below(os.getpid(), 5 if number == signal.SIGHUP else GRACE_SECONDS)

    signal.signal(signal.SIGHUP, end)
    signal.signal(signal.SIGTERM, end)
    processes.become_guardian()
    sessions.record(name, **facts)
    child = subprocess.Popen([shell, "-c", command] if command else [shell, "-l"], env=environment)
    code = child.wait()
    # What the command left behind would hold the devices.
    processes.end_below(os.getpid(), 5)
    sessions.record(name, **facts, endedAt=time.time(), exitCode=code)
    return 128 - code if code < 0 else code


def watch() -> int:
    """Tell, as lines of JSON, that we are here, each command that ends, and on a line of input what is known of all."""
    sessions.forget()
    oom_kills_before = sessions.oom_kills()
    print(json.dumps({"event": "ready"}), flush=True)
    told = set()
    while True:
        if select.select([sys.stdin], [], [], 0.2)[0]:
            if not sys.stdin.readline():
                return 0
            # The launcher asks when its side has ended; what the lost connections ended here takes a moment.
            sessions.settle(15)
            kills = sessions.oom_kills() - oom_kills_before
            print(
                json.dumps({"event": "report", "sessions": sessions.records(), "oomKills": kills}), flush=True
            )
        for one in sessions.records():
            if "exitCode" in one and one["startedAt"] not in told:
                told.add(one["startedAt"])
                print(json.dumps({"event": "ended", "exitCode": one["exitCode"]}), flush=True)


def main() -> int:
    """Serve one session."""
    command = os.environ.get("SSH_ORIGINAL_COMMAND", "")
    return watch() if command == "@watch" else run(command)


if __name__ == "__main__":
    sys.exit(main())
