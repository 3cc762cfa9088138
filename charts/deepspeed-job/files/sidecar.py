"""Sidecar `workers` of the launcher pod: makes the ssh key, holds the Lease, and owns the number of workers.

It sets the scale to N when a run starts and to 0 when the launcher's container has ended, however that happened: the launcher keeps a
connection to our socket, and the kernel closes it. Only this container has a token. Workers report here when they run, see rollcall.py.
"""

import early  # noqa: F401, I001

import base64
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import fetched
import rollcall
from common import (
    SOCKET,
    SSH,
    Refusal,
    current_user,
    find_programs,
    host_names,
    load_run,
    say,
    short,
    write_private,
)
from kubeapi import Api, ApiError
from lease import Lease
from obstacle import obstacle_of

# How often the first missing worker is asked for its reason.
OBSTACLE_SECONDS = 5


def has_other_workers(stateful_set: dict) -> bool:
    """Tell whether there may be workers of an older revision, or of another launcher: those run already, before they can know us."""
    status = stateful_set.get("status", {})
    current = status.get("observedGeneration", 0) >= stateful_set["metadata"]["generation"]
    old = status.get("updatedReplicas", 0) < status.get("replicas", 0)
    return status.get("replicas", 0) > 0 and (not current or old or status.get("readyReplicas", 0) > 0)


def keeps_workers(policy: str, reason: str) -> bool:
    """Tell whether the workers stay after a run that ended for this reason, by `workers.release`. One that was told to end frees them."""
    return reason != "Stopped" and (policy == "Never" or (policy == "OnSuccess" and reason != "Completed"))


def make_key() -> bytes:
    """Return a new private key."""
    with tempfile.TemporaryDirectory(dir=SSH.parent) as folder:
        path = Path(folder, "key")
        program = find_programs(["ssh-keygen"], "launcher")["ssh-keygen"]
        subprocess.run([program, "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)], check=True)
        return path.read_bytes()


class Sidecar:
    """One launcher's hold on the workers."""

    def __init__(self) -> None:
        self.run = load_run()
        self.api = Api()
        self.me = os.environ["POD_NAME"]
        name = self.run["name"]
        self.lease = Lease(self.api, name, self.me)
        self.secret_path = f"/api/v1/namespaces/{{ns}}/secrets/{name}-ssh"
        self.key_path = f"/api/v1/namespaces/{{ns}}/secrets/{os.environ['KEY_SECRET']}"
        self.set_path = f"/apis/apps/v1/namespaces/{{ns}}/statefulsets/{name}-worker"
        self.watch_path = (
            f"/apis/apps/v1/namespaces/{{ns}}/statefulsets?fieldSelector=metadata.name%3D{name}-worker"
        )
        # Why the launcher ended; unknown if it was killed.
        self.reason = ""
        self.reported = set()
        self.ending = threading.Event()
        self.release_lock = threading.Lock()
        self.events_lock = threading.Lock()
        self.events = []
        self.link = None
        self.commit = ""

    def provide_key(self) -> bytes:
        """Put the key into /job/ssh and return it: the Secret's, or a new one that is stored there first.

        The Secret also gets our pod's address, to which workers report, and the commit of their code. They mount all, so none runs before.
        """
        secret = self.api.call("GET", self.key_path)
        key = base64.b64decode((secret.get("data") or {}).get("ssh-privatekey", ""))
        data = {"launcher": base64.b64encode(os.environ["POD_IP"].encode()).decode()}
        if self.commit:
            data["commit"] = fetched.for_workers(self.commit)
        if key:
            self.api.call("PATCH", self.secret_path, {"data": data})
        else:
            key = make_key()
            data["ssh-privatekey"] = base64.b64encode(key).decode()
            # The resourceVersion makes it fail if another launcher was faster.
            patch = {"metadata": {"resourceVersion": secret["metadata"]["resourceVersion"]}, "data": data}
            self.api.call("PATCH", self.key_path, patch)
        write_private(SSH / "id", key)
        return key

    def scale(self, count: int) -> None:
        """Set the number of workers."""
        self.api.call("PATCH", self.set_path + "/scale", {"spec": {"replicas": count}})

    def watch_until(self, done) -> None:
        """Wait until `done(StatefulSet)` is true."""
        while not self.ending.is_set():
            try:
                for stateful_set in self.api.watch(self.watch_path, seconds=300):
                    if done(stateful_set) or self.ending.is_set():
                        return
            except (OSError, http.client.HTTPException, ValueError) as error:
                say(f"the watch of the workers broke and is taken up again: {error}")
                time.sleep(0.5)

    def replace_others(self) -> None:
        """Remove workers that are not this launcher's."""
        found = self.api.call("GET", self.set_path)
        if has_other_workers(found) or (found.get("status", {}).get("replicas") and self.has_other_commit()):
            say("replacing the workers of an earlier run")
            self.scale(0)
            self.watch_until(lambda found: not found.get("status", {}).get("replicas"))

    def has_other_commit(self) -> bool:
        """Tell whether a worker that is about to run may have the commit of another Job with our values."""
        if not fetched.JOB_UID:
            return False
        data = self.api.call("GET", self.secret_path).get("data") or {}
        return fetched.is_of_other_job(data.get("commit", ""))

    def release(self) -> None:
        """Free the workers, then the Lease. During an uninstall the objects or our rights may be gone: then so are the workers."""
        with self.release_lock:
            if self.ending.is_set():
                return
            self.ending.set()
            keeps = keeps_workers(self.run["release"], self.reason)
            try:
                if not keeps:
                    self.scale(0)
                self.lease.release()
                say("workers kept (workers.release)" if keeps else "workers released")
            except (ApiError, OSError) as error:
                say(f"workers not released by this launcher: {error}")
            self.tell(event="released")

    def tell(self, **event: object) -> None:
        """Send an event to the launcher, now or when it connects."""
        line = json.dumps(event).encode() + b"\n"
        with self.events_lock:
            self.events.append(line)
            if self.link:
                self._send(line)

    def _send(self, data: bytes) -> None:
        # A launcher that has gone is noticed by its end of file.
        with contextlib.suppress(OSError):
            self.link.sendall(data)

    def hear(self, host: str, address: str, refusal: str) -> None:
        """Take a worker's report."""
        self.reported.add(host)
        if refusal:
            self.tell(event="error", message=f"{short(host)}: {refusal}")
        else:
            self.tell(event="worker", host=host, address=address)

    def watch_scale(self) -> None:
        """Tell the launcher of an elastic run each new scale, whoever set it."""
        seen = -1

        def note(found: dict) -> bool:
            nonlocal seen
            count = found["spec"].get("replicas", 1)
            if count != seen and not self.ending.is_set():
                self.tell(event="scale", count=count)
            seen = count
            return False

        self.watch_until(note)

    def name_obstacles(self) -> None:
        """Tell the launcher, while a worker is missing, what its pod says of it."""
        told, every = "", host_names(self.run)[: self.run["workers"]]
        while not self.ending.wait(OBSTACLE_SECONDS):
            hosts = [host for host in every if host not in self.reported]
            if not hosts:
                return
            name = short(hosts[0])
            try:
                why = obstacle_of(self.api.call("GET", f"/api/v1/namespaces/{{ns}}/pods/{name}"))
            except ApiError as error:
                why = (
                    "it has no pod: `kubectl describe statefulset` says why"
                    if error.status == 404
                    else str(error)
                )
            except OSError:
                continue
            if why and why != told:
                told = why
                self.tell(event="obstacle", message=f"waiting for {name}: {why}")

    def prepare(self) -> None:
        """Do all that must be done before the launcher may connect to the workers."""
        try:
            current_user()
            find_programs(["ssh", "ssh-keygen"], "launcher")
            held = self.lease.acquire()
            if not held:
                self.replace_others()
            # Before the workers, which need the same, and which would hold their devices for nothing if it cannot be had.
            self.commit = fetched.await_commit(self.ending)
            if self.commit:
                self.lease.tell(commit=self.commit)
            key = self.provide_key()
            self.tell(event="key")
            rollcall.listen(self.run["port"], key, self.hear)
            with self.release_lock:
                # A sidecar that was started again leaves the scale as it is: an elastic run's may have been changed.
                if not self.ending.is_set() and not (held and self.run.get("elastic")):
                    self.scale(self.run["workers"])
            if self.run.get("elastic"):
                threading.Thread(target=self.watch_scale, daemon=True).start()
            self.name_obstacles()
        except (ApiError, OSError, Refusal, subprocess.CalledProcessError) as error:
            self.tell(event="error", message=str(error))

    def listen(self, link: socket.socket) -> None:
        """Take what the launcher tells of the run until its end closes the connection."""
        for line in link.makefile("r"):
            facts = json.loads(line)
            self.reason = facts.pop("reason", "")
            self.lease.tell(**facts)

    def serve(self) -> None:
        """Prepare the workers, and release them when the launcher's connection ends, or when it never comes."""
        SOCKET.unlink(missing_ok=True)
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(SOCKET))
        server.listen()
        threading.Thread(target=self.prepare, daemon=True).start()
        fetched.await_commit(self.ending)
        server.settimeout(self.run["startTimeout"])
        try:
            link = server.accept()[0]
            link.settimeout(None)
            with self.events_lock:
                self.link = link
                self._send(b"".join(self.events))
            self.listen(link)
        except socket.timeout:
            say("the launcher's container has not started in time")
        except (OSError, ValueError):
            pass  # a launcher that is killed may leave half a line
        self.release()


def main() -> None:
    """Serve until the kubelet ends us, which it does after the launcher's container."""
    sidecar = Sidecar()

    def end(*_: object) -> None:
        # Not in the handler itself: the main thread may hold the lock.
        threading.Thread(target=lambda: (sidecar.release(), os._exit(0))).start()

    signal.signal(signal.SIGTERM, end)
    sidecar.serve()
    # Ended containers of this kind are started again, so wait for the kubelet.
    signal.pause()


if __name__ == "__main__":
    sys.exit(main())
