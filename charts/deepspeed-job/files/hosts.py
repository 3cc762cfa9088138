"""How the launcher talks to the workers: ssh settings, all hosts at once, and what stands between it and a host."""

import concurrent.futures
import subprocess
import time

import dns
from common import HOSTFILE, SSH, current_user, find_programs, say, write_private

# Connections in flight at once.
PARALLEL = 64

# Every launcher that calls `ssh` gets these, through the shim `ssh`. The workers' host key is the job's own key.
SSH_CONFIG = """\
Host {name}-worker-*
  Port {port}
  User {user}
  IdentityFile {ssh}/id
  IdentitiesOnly yes
  UserKnownHostsFile {ssh}/known_hosts
  GlobalKnownHostsFile none
  StrictHostKeyChecking yes
  UpdateHostKeys no
  BatchMode yes
  LogLevel ERROR
  ConnectTimeout 5
  # A dead link is noticed after 30 s.
  ServerAliveInterval 5
  ServerAliveCountMax 6
"""


class Unreachable(Exception):
    """A worker cannot be used; `host` and `step` (resolve, connect, authenticate, execute) say where it stops."""

    def __init__(self, host: str, step: str, text: str):
        super().__init__(f"{host}: cannot {step}: {text}")
        self.host = host
        self.step = step


def write_settings(run: dict, hosts: list) -> None:
    """Write hostfile, ssh settings and known_hosts into /job."""
    keygen = find_programs(["ssh", "ssh-keygen"], "launcher")["ssh-keygen"]
    public = subprocess.run([keygen, "-y", "-P", "", "-f", str(SSH / "id")], capture_output=True, text=True, check=True).stdout
    write_private(SSH / "known_hosts", f"* {public}".encode())
    user = current_user().pw_name
    write_private(SSH / "config", SSH_CONFIG.format(name=run["name"], port=run["port"], user=user, ssh=SSH).encode())
    HOSTFILE.write_text("".join(f"{host} slots={run['slots']}\n" for host in hosts))


def step_of(stderr: str) -> str:
    """Return the step at which ssh failed, from what it wrote."""
    text = stderr.lower()
    if "could not resolve" in text:
        return "resolve"
    if "permission denied" in text:
        return "authenticate"
    # Another host key: the address was that of an earlier pod, and now is another's.
    if not text or any(word in text for word in ("connection", "connect to", "timed out", "no route", "broken pipe", "host key")):
        return "connect"
    return "execute"


def ask(host: str, command: str, timeout: float) -> str:
    """Run a command of ours (@hello, @report) on a host and return its output. Raises Unreachable."""
    ssh = find_programs(["ssh"], "launcher")["ssh"]
    try:
        argv = [ssh, "-n", "-F", SSH / "config", "-o", "ConnectTimeout=2", host, command]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise Unreachable(host, "execute", f"no answer in {timeout:.0f} s") from None
    if done.returncode:
        text = done.stderr.strip() or done.stdout.strip()
        raise Unreachable(host, step_of(text) if done.returncode == 255 else "execute", text or f"exit code {done.returncode}")
    return done.stdout


def ask_until(host: str, command: str, deadline: float) -> str:
    """Like `ask`, again until it works or time.monotonic() has reached `deadline`."""
    while True:
        try:
            return ask(host, command, timeout=20)
        except Unreachable as error:
            # A wrong key or a missing program does not mend itself. A host that is not there may: after a pod was replaced, the
            # cluster's DNS has its old address for up to 30 s.
            if time.monotonic() > deadline or error.step in ("authenticate", "execute"):
                raise
            time.sleep(0.05)


def greet(hosts: list, deadline: float) -> None:
    """Log in to every host and begin an attempt there. Raises Unreachable for the first host that cannot be used by `deadline`."""
    dns.await_names(hosts, deadline)
    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
        greetings = {pool.submit(ask_until, host, "@hello", deadline): host for host in hosts}
        try:
            for count, greeting in enumerate(concurrent.futures.as_completed(greetings), start=1):
                greeting.result()
                if len(hosts) > PARALLEL and count % PARALLEL == 0:
                    say(f"connecting to workers: {count}/{len(hosts)}")
        except Unreachable:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def reports(hosts: list) -> dict:
    """Return what each host says about its sessions, as text, or the Unreachable that came instead."""

    def report(host: str) -> object:
        try:
            return ask(host, "@report", timeout=30)
        except Unreachable as error:
            return error

    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
        return dict(zip(hosts, pool.map(report, hosts)))
