"""What every command shares: paths, versions, messages, running programs, and what the machine must have."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

CLUSTER_DIR = Path(__file__).resolve().parent.parent
HOME = Path.home()
# Resolved: one folder is one node, however it is called.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or HOME / ".cache").resolve() / "deepspeed-job"
STATE = Path(os.environ.get("XDG_STATE_HOME") or HOME / ".local/state").resolve() / "deepspeed-job/cluster"
BIN = CACHE / "bin"
LOGS = STATE / "logs"
KUBECONFIG = STATE / "kubeconfig"

# Set after all downloads: what the node says to itself never goes through the machine's proxy.
NO_PROXY = {"NO_PROXY": "*", "no_proxy": "*"}

ELSEWHERE = (
    "Use kind or k3d instead, or a cluster you have: "
    "`make demo CONTEXT=name` runs on the kubeconfig context that you name."
)


class Problem(Exception):
    """Something the user must know: what is wrong and what to do. Shown as one line, without a traceback."""


def say(message: str) -> None:
    """Print one line of progress at once."""
    print(message, flush=True)


def main(command: Callable[[list[str]], int]) -> None:
    """Run a command with the process' arguments; a Problem becomes a line on stderr and exit code 1."""
    os.umask(0o022)
    try:
        sys.exit(command(sys.argv[1:]))
    except Problem as problem:
        print(f"{Path(sys.argv[0]).name}: {problem}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(1)
    except OSError as error:  # a full disk, a file of another user
        said = f"{error.filename}: {error.strerror}" if error.filename else error
        print(f"{Path(sys.argv[0]).name}: {said}", file=sys.stderr)
        sys.exit(1)


def versions() -> dict[str, str]:
    """The keys of versions.env."""
    text = (CLUSTER_DIR.parent / "versions.env").read_text()
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {key.strip(): value.strip() for key, value in pairs}


def run(
    argv: Sequence[object], *, check: bool = True, stdin: str = "", env: Mapping[str, str] = os.environ
) -> str:
    """Run a program quietly and return its stdout; a failure is a Problem with the last lines it wrote."""
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words,
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            env=env,
        )
    except FileNotFoundError:
        raise Problem(f"there is no `{words[0]}` on this machine") from None
    if check and done.returncode != 0:
        said = "\n".join((done.stderr or done.stdout).strip().splitlines()[-5:])
        raise Problem(f"`{' '.join(words[:4])} …` failed ({done.returncode}): {said}")
    return done.stdout


def become(argv: Sequence[object]) -> NoReturn:
    """Replace this process by a program, which ends when its reader goes away, as programs outside Python do."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    words = [str(word) for word in argv]
    os.execvp(words[0], words)  # noqa: S606


def succeeds(argv: Sequence[object]) -> bool:
    """Whether a program is there and exits with 0; it is quiet either way."""
    words, quiet = [str(word) for word in argv], subprocess.DEVNULL
    if not shutil.which(words[0]):
        return False
    return subprocess.call(words, stdin=quiet, stdout=quiet, stderr=quiet) == 0


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """One command at a time on what the lock file stands for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another cluster command to finish")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def need_linux_root() -> None:
    """Refuse anything but Linux as root."""
    if sys.platform != "linux":
        raise Problem(f"the node runs on Linux only. {ELSEWHERE}")
    if os.geteuid() != 0:
        raise Problem(f"the node needs root (namespaces, mounts, cgroups): try `sudo`. {ELSEWHERE}")
    # A root login by su or cron may lack these, and nearly all we call lives there.
    os.environ["PATH"] = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/local/sbin:/usr/sbin:/sbin"


def need_packages(programs: dict[str, str]) -> None:
    """Install the Debian packages ({program or path: package}) whose program is missing."""
    missing = sorted({package for program, package in programs.items() if not shutil.which(program)})
    if not missing:
        return
    if not shutil.which("apt-get"):
        raise Problem(f"missing: {', '.join(missing)}; without apt-get, install them by hand. {ELSEWHERE}")
    say(f"installing Debian packages: {' '.join(missing)}")
    os.environ["DEBIAN_FRONTEND"] = "noninteractive"
    # The lists may be missing or old: then what they name is no longer there.
    run(["apt-get", "update"])
    run(["apt-get", "install", "--yes", "--no-install-recommends", *missing])
