"""First process of a worker: runs sshd for the launcher, and passes the end of the pod on to the ranks."""

import early  # noqa: F401, I001

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import rollcall
import sessions
from common import (
    FILES,
    JOB,
    POD_NAME,
    PYTHON,
    SSH,
    TERMINATION_LOG,
    Refusal,
    current_user,
    find_programs,
    load_run,
    say,
    write_private,
)

KEY = FILES / "ssh-privatekey"
LAUNCHER_ADDRESS = FILES / "launcher"

# Our own file: nothing of the image's sshd settings, nor the owner and mode of a mounted home, has a say.
SSHD_CONFIG = """\
Port {port}
HostKey {ssh}/id
AuthorizedKeysFile {ssh}/authorized_keys
# The folder of the key is a volume, which fsGroup makes writable for a group.
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
AllowTcpForwarding no
X11Forwarding no
PrintMotd no
UseDNS no
PidFile none
MaxStartups 1000
# A dead link ends the ranks on this side too.
ClientAliveInterval 5
ClientAliveCountMax 6
LogLevel ERROR
ForceCommand exec {python} {files}/session.py
"""


def prepare(run: dict) -> list:
    """Write key and settings, keep the container's environment for the sessions; return the command of sshd."""
    programs = find_programs(["sshd", "ssh-keygen", "pkill"], "worker")
    user = current_user()
    sessions.save_environment(dict(os.environ))
    # A copy: no mode of a mounted Secret suits every uid and fsGroup.
    write_private(SSH / "id", KEY.read_bytes())
    public = subprocess.run(
        [programs["ssh-keygen"], "-y", "-P", "", "-f", str(SSH / "id")], capture_output=True
    )
    if public.returncode:
        raise Refusal(
            f"the key in the Secret is not usable: {public.stderr.decode(errors='replace').strip()}"
        )
    write_private(SSH / "authorized_keys", public.stdout)
    settings = SSHD_CONFIG.format(port=run["port"], ssh=SSH, python=" ".join(PYTHON), files=FILES)
    write_private(SSH / "sshd_config", settings.encode())
    if user.pw_uid == 0:
        Path("/run/sshd").mkdir(mode=0o755, parents=True, exist_ok=True)
    return [programs["sshd"], "-D", "-e", "-f", str(SSH / "sshd_config")]


def serve(sshd: list) -> int:
    """Run sshd and reap orphans until sshd ends or the pod is told to; return the exit code."""
    daemon = subprocess.Popen(sshd)
    write_private(sessions.PARENT, json.dumps([os.getpid(), daemon.pid]).encode())

    def end(*_: object) -> None:
        # The ranks first: they have the grace period for a last checkpoint. All else ends with the first process, at once.
        sessions.LEAVING.touch()
        sessions.end_all()
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    while True:
        pid, status = os.wait()
        if pid == daemon.pid:
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1


def main() -> int:
    """Serve the launcher; return the exit code of the container."""
    JOB.joinpath("worker").mkdir(exist_ok=True)
    run = load_run()
    host = f"{POD_NAME.read_text()}.{run['name']}"
    launcher = [KEY.read_bytes(), LAUNCHER_ADDRESS.read_text(), run["port"]]
    try:
        sshd = prepare(run)
    except Refusal as refusal:
        say(f"Failed: {refusal}")
        TERMINATION_LOG.write_text(str(refusal))
        # It does not mend itself, so the launcher need not wait any longer.
        rollcall.report(host, *launcher, refusal=str(refusal))
        return 1
    # A container that was started again in its pod has no part in what the pod was told before.
    sessions.LEAVING.unlink(missing_ok=True)
    threading.Thread(target=rollcall.report, args=[host, *launcher], daemon=True).start()
    return serve(sshd)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # Without the interpreter's own end, which takes as long again as all that is left to do.
    os._exit(code)
