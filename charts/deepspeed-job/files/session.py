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
from common import current_user, load_run

ENDS = (signal.SIGHUP, signal.SIGTERM)


def listen_to_ends() -> None:
    """Take the signals that end a process as any process does; between fork and exec, where one that came meanwhile ends us."""
    for number in ENDS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)


def run(command: str) -> int:
    """Run the command with the user's shell, or a login shell where it is empty; return its exit code as a shell would.

    When the connection or the pod ends, so does every process below us, also one that has left its process group.
    """
    name = f"{time.time_ns()}-{os.getpid()}"
    facts = {"pid": os.getpid(), "startedAt": time.time()}
    shell, grace = current_user().pw_shell, load_run()["gracePeriod"]
    environment = {
        **sessions.load_environment(),
        **sessions.load_attempt(),
        **{key: value for key, value in os.environ.items() if key in ("SSH_TTY", "TERM")},
    }

    told = []

    def end(*_: object) -> None:
        told.append(True)
        # Once: the connection's end often follows the order to end.
        for number in ENDS:
            signal.signal(number, signal.SIG_IGN)
        # A rank that waits for another that is gone does not end by itself, and is killed then.
        processes.end_below(os.getpid(), grace)

    for number in ENDS:
        signal.signal(number, end)
    processes.become_guardian()
    sessions.record(name, **facts)
    # Whoever is told to end before the command runs must not start it; and it must not start deaf for what is told meanwhile.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
    if told:
        code = -signal.SIGTERM
    else:
        argv = [shell, "-c", command] if command else [shell, "-l"]
        child = subprocess.Popen(argv, env=environment, preexec_fn=listen_to_ends)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
        code = child.wait()
    # What the command left behind would hold the devices.
    processes.end_below(os.getpid(), 5)
    sessions.record(name, **facts, endedAt=time.time(), exitCode=code)
    return 128 - code if code < 0 else code


def tell(event: str, **more: object) -> None:
    """Send an event to the launcher."""
    print(json.dumps({"event": event, **more}), flush=True)


def obey(order: dict, oom_kills_before: int) -> None:
    """Do what the launcher asks for: `begin` an attempt with its settings, `stop` all commands, `report` what became of them."""
    word = order["order"]
    if word == "begin":
        sessions.begin_attempt(order["environment"], order["config"])
        tell("begun")
    elif word == "stop":
        sessions.stop_all()
    else:
        # The launcher asks when its side has ended; what the lost connections ended here takes a moment.
        sessions.settle(order["settle"])
        sessions.note_killed()
        sessions.kill_orphans()
        tell("report", sessions=sessions.records(), oomKills=sessions.oom_kills() - oom_kills_before)


def watch() -> int:
    """Tell, as lines of JSON, that we are here, each command that ends, and that the pod was told to end; obey orders."""
    sessions.kill_all()
    sessions.forget()
    oom_kills_before = sessions.oom_kills()
    tell("ready")
    told = set()
    while True:
        if select.select([sys.stdin], [], [], 0.2)[0]:
            line = sys.stdin.readline()
            if not line:
                return 0
            obey(json.loads(line), oom_kills_before)
        if sessions.LEAVING.exists() and "leaving" not in told:
            told.add("leaving")
            tell("leaving")
        sessions.note_killed()
        for one in sessions.records():
            if "exitCode" in one and one["startedAt"] not in told:
                told.add(one["startedAt"])
                tell("ended", exitCode=one["exitCode"])


def main() -> int:
    """Serve one session."""
    command = os.environ.get("SSH_ORIGINAL_COMMAND", "")
    return watch() if command == "@watch" else run(command)


if __name__ == "__main__":
    sys.exit(main())
