"""How the launcher talks to the workers: ssh settings, all hosts at once, and what stands between it and a host."""

import concurrent.futures
import json
import queue
import subprocess
import threading
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
    public = subprocess.run(
        [keygen, "-y", "-P", "", "-f", str(SSH / "id")], capture_output=True, text=True, check=True
    ).stdout
    write_private(SSH / "known_hosts", f"* {public}".encode())
    user = current_user().pw_name
    write_private(
        SSH / "config", SSH_CONFIG.format(name=run["name"], port=run["port"], user=user, ssh=SSH).encode()
    )
    HOSTFILE.write_text("".join(f"{host} slots={run['slots']}\n" for host in hosts))


def step_of(stderr: str) -> str:
    """Return the step at which ssh failed, from what it wrote."""
    text = stderr.lower()
    if "could not resolve" in text:
        return "resolve"
    if "permission denied" in text:
        return "authenticate"
    # Another host key: the address was that of an earlier pod, and now is another's.
    if not text or any(
        word in text
        for word in ("connection", "connect to", "timed out", "no route", "broken pipe", "host key")
    ):
        return "connect"
    return "execute"


class Link:
    """An ssh connection of ours to one worker, which stands as long as the attempt: it tells what ends there, and its own end tells that
    the worker is lost, whatever the user's launcher notices."""

    def __init__(self, host: str, on_trouble):
        self.host = host
        self.lost = None
        self._on_trouble = on_trouble
        self._report = None
        self._process = None

    def open(self, deadline: float) -> None:
        """Log in, again until it works or time.monotonic() has reached `deadline`. Raises Unreachable."""
        while True:
            try:
                return self._open()
            except Unreachable as error:
                # A wrong key or a missing program does not mend itself. A host that is not there may: after a pod was replaced, the
                # cluster's DNS has its old address for up to 30 s.
                if time.monotonic() > deadline or error.step in ("authenticate", "execute"):
                    raise
                time.sleep(0.05)

    def _open(self) -> None:
        self.close()
        argv = [
            find_programs(["ssh"], "launcher")["ssh"],
            "-F",
            str(SSH / "config"),
            "-o",
            "ConnectTimeout=2",
            self.host,
            "@watch",
        ]
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        if json.loads(self._process.stdout.readline() or "{}").get("event") != "ready":
            raise self._why()
        self.lost, self._report = None, queue.Queue()
        threading.Thread(target=self._read, args=[self._process, self._report], daemon=True).start()

    def _why(self) -> Unreachable:
        text = self._process.stderr.read().decode(errors="replace").strip()
        code = self._process.wait()
        return Unreachable(
            self.host, step_of(text) if code == 255 else "execute", text or f"ssh ended with {code}"
        )

    def _read(self, process: subprocess.Popen, report: queue.Queue) -> None:
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "report":
                report.put(event)
            elif event["exitCode"] != 0:
                self._on_trouble()
        if process is self._process:
            self.lost = self._why()
            report.put(self.lost)
            self._on_trouble()

    def report(self, timeout: float) -> object:
        """Return what the host knows of its sessions (sessions.report), or the Unreachable that came instead."""
        try:
            self._process.stdin.write(b"report\n")
            self._process.stdin.flush()
            return self._report.get(timeout=timeout)
        except (OSError, queue.Empty):
            return self.lost or Unreachable(self.host, "execute", f"no report in {timeout:.0f} s")

    def pid(self) -> int:
        """Return the process id of the connection, 0 without one."""
        return self._process.pid if self._process else 0

    def close(self) -> None:
        """End the connection, if there is one."""
        process, self._process = self._process, None
        if process:
            process.kill()
            process.wait()


class Workers:
    """The links to all workers. `on_trouble` is called when a command on one of them failed, or one is lost."""

    def __init__(self, hosts: list, on_trouble):
        self.links = [Link(host, on_trouble) for host in hosts]

    def greet(self, deadline: float) -> None:
        """Log in to every host and begin an attempt there. Raises Unreachable for the first host that cannot be used by `deadline`."""
        dns.await_names([link.host for link in self.links], deadline)
        with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
            greetings = [pool.submit(link.open, deadline) for link in self.links]
            try:
                for count, greeting in enumerate(concurrent.futures.as_completed(greetings), start=1):
                    greeting.result()
                    if count % PARALLEL == 0:
                        say(f"connecting to workers: {count}/{len(self.links)}")
            except Unreachable:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def pids(self) -> frozenset:
        """Return the process ids of the links."""
        return frozenset(link.pid() for link in self.links)

    def reports(self) -> dict:
        """Return the report of each host, and end the links."""
        with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
            answers = dict(pool.map(lambda link: (link.host, link.report(30)), self.links))
        for link in self.links:
            link.close()
        return answers
