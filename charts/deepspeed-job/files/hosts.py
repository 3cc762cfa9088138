"""How the launcher talks to the workers: ssh settings, all hosts at once, and what stands between it and a host."""

import concurrent.futures
import contextlib
import json
import queue
import subprocess
import threading
import time

import dns
from common import HOSTFILE, SSH, current_user, find_programs, host_names, say, write_private
from roster import Roster

# Connections in flight at once.
PARALLEL = 64
# How long the master's name is waited for once it should exist. Whoever looks it up then says what is missing.
NAME_SECONDS = 10
# How long a worker has for its side of the login.
LOGIN_SECONDS = 30

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
# The address that the worker reported. The cluster's DNS may learn it later, or remember an earlier pod's for half a minute.
SSH_HOST = """\
Host {host} {short}
  HostName {address}
"""


class Unreachable(Exception):
    """A worker cannot be used; `host` and `step` (resolve, connect, authenticate, execute) say where it stops."""

    def __init__(self, host: str, step: str, text: str):
        super().__init__(f"{host}: cannot {step}: {text}")
        self.host = host
        self.step = step


def write_settings(run: dict, hosts: list) -> None:
    """Write hostfile, known_hosts and the ssh settings without addresses into /job."""
    keygen = find_programs(["ssh", "ssh-keygen"], "launcher")["ssh-keygen"]
    argv = [keygen, "-y", "-P", "", "-f", str(SSH / "id")]
    public = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    write_private(SSH / "known_hosts", f"* {public}".encode())
    HOSTFILE.write_text("".join(f"{host} slots={run['slots']}\n" for host in hosts))
    write_addresses(run, {})


def write_addresses(run: dict, addresses: dict) -> None:
    """Write the ssh settings, with the workers' addresses."""
    settings = SSH_CONFIG.format(name=run["name"], port=run["port"], user=current_user().pw_name, ssh=SSH)
    places = [
        SSH_HOST.format(host=host, short=host.partition(".")[0], address=address)
        for host, address in addresses.items()
    ]
    write_private(SSH / "config", (settings + "".join(places)).encode())


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


def read_events(lines):
    """Yield the events among a worker's lines; a shell's start-up file may print others."""
    for line in lines:
        with contextlib.suppress(ValueError):
            event = json.loads(line)
            if isinstance(event, dict) and "event" in event:
                yield event


class Link:
    """An ssh connection of ours to one worker, which stands as long as the attempt: it tells what ends there, and its own end tells that
    the worker is lost, whatever the user's launcher notices."""

    def __init__(self, host: str, roster: Roster, on_trouble):
        self.host = host
        self.lost = None
        self._replaced = False
        self._roster = roster
        self._on_trouble = on_trouble
        self._report = None
        self._process = None

    def open(self, deadline: float) -> None:
        """Log in, again until it works or time.monotonic() has reached `deadline`.

        Raises Unreachable, or what roster.await_address raises.
        """
        while True:
            address = self._roster.await_address(self.host, deadline)
            try:
                return self._open(address)
            except Unreachable as error:
                # A wrong key or a missing program does not mend itself. A worker that is gone may come back elsewhere.
                if time.monotonic() > deadline or error.step in ("authenticate", "execute"):
                    raise
                time.sleep(0.05)

    def _open(self, address: str) -> None:
        self.close()
        self._replaced = False
        options = ["-F", str(SSH / "config"), "-o", "ConnectTimeout=2", "-o", f"HostName={address}"]
        argv = [find_programs(["ssh"], "launcher")["ssh"], *options, self.host, "@watch"]
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._process = process
        watchdog = threading.Timer(LOGIN_SECONDS, process.kill)
        watchdog.start()
        events = read_events(process.stdout)
        ready = next(events, {}).get("event") == "ready"
        watchdog.cancel()
        if not ready:
            raise self._why()
        self.lost, self._report = None, queue.Queue()
        threading.Thread(target=self._read, args=[process, events, self._report], daemon=True).start()

    def _why(self) -> Unreachable:
        if self._replaced:
            return Unreachable(self.host, "connect", "its pod was replaced by a new one")
        text = self._process.stderr.read().decode(errors="replace").strip()
        code = self._process.wait()
        return Unreachable(
            self.host, step_of(text) if code == 255 else "execute", text or f"ssh ended with {code}"
        )

    def _read(self, process: subprocess.Popen, events, report: queue.Queue) -> None:
        for event in events:
            if event["event"] == "report":
                report.put(event)
            elif event["exitCode"] != 0:
                self._on_trouble()
        if process is self._process:
            self.lost = self._why()
            report.put(self.lost)
            self._on_trouble()

    def order(self, word: str) -> None:
        """Send an order that session.watch knows. Raises OSError where the connection is lost."""
        self._process.stdin.write(word.encode() + b"\n")
        self._process.stdin.flush()

    def report(self, timeout: float) -> object:
        """Return what the host knows of its sessions (sessions.report), or the Unreachable that came instead."""
        try:
            self.order("report")
            return self._report.get(timeout=timeout)
        except (OSError, queue.Empty):
            return self.lost or Unreachable(self.host, "execute", f"no report in {timeout:.0f} s")

    def pid(self) -> int:
        """Return the process id of the connection, 0 without one."""
        return self._process.pid if self._process else 0

    def replaced(self) -> None:
        """The worker is another pod now. Its end of this connection may have vanished without a word."""
        self._replaced = True
        if self._process:
            self._process.kill()

    def close(self) -> None:
        """End the connection, if there is one."""
        process, self._process = self._process, None
        if process:
            process.kill()
            process.wait()


class Workers:
    """The links to all workers. `on_trouble` is called when a command on one of them failed, or one is lost."""

    def __init__(self, run: dict, on_trouble):
        self.run = run
        self.hosts = host_names(run)
        self.roster = Roster(self.hosts, lambda host: self.links[self.hosts.index(host)].replaced())
        self.links = [Link(host, self.roster, on_trouble) for host in self.hosts]

    def greet(self, deadline: float) -> None:
        """Log in to every worker as soon as it has reported, and begin an attempt there.

        Raises what Link.open raises for the first that cannot be used by `deadline`.
        """
        self.roster.await_key(deadline)
        write_settings(self.run, self.hosts)
        pool = concurrent.futures.ThreadPoolExecutor(PARALLEL)
        try:
            # The master's name is the one that every rank looks up.
            named = pool.submit(dns.await_name, self.hosts[0], time.monotonic() + NAME_SECONDS)
            for greeting in concurrent.futures.as_completed(
                [pool.submit(link.open, deadline) for link in self.links]
            ):
                greeting.result()
            write_addresses(self.run, self.roster.addresses)
            say(f"all {len(self.links)} workers connected")
            named.result()
        finally:
            pool.shutdown(wait=False)

    def pids(self) -> frozenset:
        """Return the process ids of the links."""
        return frozenset(link.pid() for link in self.links)

    def stop(self) -> None:
        """Tell every worker that its ranks are to end."""
        for link in self.links:
            with contextlib.suppress(OSError):
                link.order("stop")

    def reports(self) -> dict:
        """Return the report of each host, and end the links."""
        with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
            answers = dict(pool.map(lambda link: (link.host, link.report(30)), self.links))
        for link in self.links:
            link.close()
        return answers
