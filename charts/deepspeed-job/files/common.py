"""What the programs in the pods share: places, names, the job's own user."""

import json
import os
import pwd
import shutil
import sys
from pathlib import Path

# Read-only, from the ConfigMaps; and in memory, made by each pod for itself.
FILES = Path("/opt/deepspeed-job")
JOB = Path("/job")
SSH = JOB / "ssh"
SOCKET = JOB / "sidecar.sock"
# The pod's own name: with the node's network, the host name is the node's.
POD_NAME = FILES / "pod-name"
HOSTFILE = JOB / "hostfile"
# A file for each worker that the command called by ssh.
CALLED = JOB / "called"
# The DeepSpeed configuration where it depends on the number of ranks; else it is beside run.json.
CONFIG = JOB / "deepspeed.json"
TERMINATION_LOG = Path("/dev/termination-log")
PYTHON = [sys.executable, "-ESsu"]


class Refusal(Exception):
    """The pod cannot do its part; the text says why and what to do."""


def say(text: str) -> None:
    """Print a line of ours, told from the training's own output by its prefix."""
    print(f"[deepspeed-job] {text}", flush=True)


def load_run() -> dict:
    """Return run.json, which templates/shared/run-configmap.yaml makes of the values; times are in seconds, 0 for no limit."""
    return json.loads((FILES / "run.json").read_text())


def host_names(run: dict) -> list:
    """Return the DNS names of all workers that there may be, in rank order, short enough for the pods' search path."""
    most = run["elastic"]["max"] if run.get("elastic") else run["workers"]
    return [host_name(run, i) for i in range(most)]


def host_name(run: dict, index: int) -> str:
    """Return the DNS name of one worker."""
    return f"{run['stem']}-{index}.{run['name']}"


def short(host: str) -> str:
    """Return a host's name without its domain: that of its pod."""
    return host.partition(".")[0]


def find_programs(names: list, role: str) -> dict:
    """Return the path of each program; sbin folders are searched too.

    Raises Refusal naming those that the image lacks.
    """
    path = (
        os.environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
    )
    found = {name: shutil.which(name, path=path) for name in names}
    missing = [name for name, where in found.items() if where is None]
    if missing:
        raise Refusal(
            f"the image of the {role} lacks {', '.join(missing)}: install openssh-server, openssh-client, pdsh and procps, "
            "or choose `mode: direct`, which needs none"
        )
    return found


def current_user() -> pwd.struct_passwd:
    """Return the passwd entry of this process, which ssh, sshd and ssh-keygen insist on; one is added where /etc/passwd is writable.

    Raises Refusal where there is none, or where its shell lets nobody in.
    """
    uid = os.getuid()
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        try:
            with Path("/etc/passwd").open("a") as passwd:
                passwd.write(f"job:x:{uid}:{os.getgid()}:job:/tmp:/bin/sh\n")
        except OSError:
            raise Refusal(
                f"uid {uid} has no entry in /etc/passwd of the image, and ssh refuses such a user: "
                "set podSecurityContext.runAsUser to a uid that the image knows, or add one to the image"
            ) from None
        return pwd.getpwuid(uid)
    if not os.access(entry.pw_shell, os.X_OK) or Path(entry.pw_shell).name in ("nologin", "false"):
        raise Refusal(
            f"the shell of user {entry.pw_name} is {entry.pw_shell!r}, so sshd lets it not in: give it /bin/sh in the image"
        )
    return entry


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only this user can read, whole or not at all."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        out.write(data)
    part.rename(path)


def finish(phase: str, exitCode: int, reason: str, message: str, **more: object) -> None:
    """Leave a small JSON for `dsjob status` and say the same in the log. Kubernetes keeps 4096 bytes of it."""
    report = {"phase": phase, "exitCode": exitCode, "reason": reason, "message": message, **more}
    text = json.dumps(report)
    for key in ("lastLines", "causes"):
        kept = list(report.get(key, []))
        while len(text) > 4000 and kept:
            kept.pop(0)
            report[key] = kept
            text = json.dumps(report)
    if len(text) > 4000:
        text = json.dumps({**report, "message": message[:300]})
    try:
        TERMINATION_LOG.write_bytes(text.encode()[:4096])
    except OSError as error:
        say(f"no termination message: {error}")
    say(f"{phase}: {message}")
