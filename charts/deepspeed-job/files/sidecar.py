"""Sidecar `workers` of the launcher pod: makes the ssh key, holds the Lease, and owns the number of workers.

It sets the scale to N when a run starts and to 0 when the launcher's container has ended, however that happened: the launcher keeps a
connection to our socket, and the kernel closes it. Only this container has a token. Workers report here when they run, see rollcall.py.
"""

import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from datetime import datetime, timezone
from pathlib import Path

import rollcall
from common import SOCKET, SSH, Refusal, current_user, find_programs, load_run, say, write_private
from kubeapi import Api, ApiError

LEASE_SECONDS = 15
PHASE = "deepspeed-job/phase"


def now() -> str:
    """Return the time as Kubernetes' MicroTime."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def lease_is_free(spec: dict, me: str, at: float) -> bool:
    """Tell whether the Lease's spec lets `me` drive the workers at Unix time `at`: nobody holds it, or its holder stopped renewing it."""
    holder = spec.get("holderIdentity")
    if not holder or holder == me:
        return True
    renewed = datetime.fromisoformat(spec["renewTime"].replace("Z", "+00:00")).timestamp()
    return at > renewed + spec.get("leaseDurationSeconds", LEASE_SECONDS)


def has_other_workers(stateful_set: dict) -> bool:
    """Tell whether there may be workers of an older revision, or of another launcher: those run already, before they can know us."""
    status = stateful_set.get("status", {})
    current = status.get("observedGeneration", 0) >= stateful_set["metadata"]["generation"]
    old = status.get("updatedReplicas", 0) < status.get("replicas", 0)
    return status.get("replicas", 0) > 0 and (not current or old or status.get("readyReplicas", 0) > 0)


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
        self.lease_path = f"/apis/coordination.k8s.io/v1/namespaces/{{ns}}/leases/{name}"
        self.secret_path = f"/api/v1/namespaces/{{ns}}/secrets/{name}-ssh"
        self.key_path = f"/api/v1/namespaces/{{ns}}/secrets/{os.environ['KEY_SECRET']}"
        self.set_path = f"/apis/apps/v1/namespaces/{{ns}}/statefulsets/{name}-worker"
        self.watch_path = (
            f"/apis/apps/v1/namespaces/{{ns}}/statefulsets?fieldSelector=metadata.name%3D{name}-worker"
        )
        self.phase = "Starting"
        self.changed = threading.Event()
        self.ending = threading.Event()
        self.release_lock = threading.Lock()
        self.events_lock = threading.Lock()
        self.events = []
        self.link = None

    def acquire_lease(self) -> bool:
        """Wait until no other launcher drives the workers, then hold the Lease; tell whether we held it before, in an earlier life."""
        told = False
        while True:
            lease = self.api.call("GET", self.lease_path)
            spec = lease.setdefault("spec", {})
            if lease_is_free(spec, self.me, time.time()):
                held = spec.get("holderIdentity") == self.me
                spec.update(
                    holderIdentity=self.me,
                    leaseDurationSeconds=LEASE_SECONDS,
                    acquireTime=now(),
                    renewTime=now(),
                )
                try:
                    self.api.call("PUT", self.lease_path, lease)
                    return held
                except ApiError as error:
                    if error.status != 409:
                        raise
            elif not told:
                say(f"waiting for {spec['holderIdentity']}, which still drives the workers")
                told = True
            time.sleep(0.5)

    def keep_lease(self) -> None:
        """Renew the Lease until the end. Its renewal is a heartbeat, and an annotation of it tells the phase, for `dsjob status`."""
        while not self.ending.is_set():
            try:
                lease = self.api.call("GET", self.lease_path)
                lease["spec"]["renewTime"] = now()
                lease["metadata"].setdefault("annotations", {})[PHASE] = self.phase
                self.api.call("PUT", self.lease_path, lease)
            except (ApiError, OSError) as error:
                if not self.ending.is_set():
                    say(f"the Lease is not renewed: {error}")
            self.changed.wait(LEASE_SECONDS / 3)
            self.changed.clear()

    def provide_key(self) -> bytes:
        """Put the key into /job/ssh and return it: the Secret's, or a new one that is stored there first.

        The Secret also gets our pod's address, to which workers report. They mount both, so none runs before.
        """
        secret = self.api.call("GET", self.key_path)
        key = base64.b64decode((secret.get("data") or {}).get("ssh-privatekey", ""))
        data = {"launcher": base64.b64encode(os.environ["POD_IP"].encode()).decode()}
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
            except OSError as error:
                say(f"the watch of the workers broke and is taken up again: {error}")
                time.sleep(0.5)

    def replace_others(self) -> None:
        """Remove workers that are not this launcher's."""
        if has_other_workers(self.api.call("GET", self.set_path)):
            say("replacing the workers of an earlier run")
            self.scale(0)
            self.watch_until(lambda found: not found.get("status", {}).get("replicas"))

    def release(self) -> None:
        """Free the workers, then the Lease. During an uninstall the objects or our rights may be gone: then so are the workers."""
        with self.release_lock:
            if self.ending.is_set():
                return
            self.ending.set()
            try:
                self.scale(0)
                lease = self.api.call("GET", self.lease_path)
                if lease.get("spec", {}).get("holderIdentity") == self.me:
                    lease["spec"]["holderIdentity"] = ""
                    self.api.call("PUT", self.lease_path, lease)
                say("workers released")
            except (ApiError, OSError) as error:
                say(f"workers not released by this launcher: {error}")

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

    def prepare(self) -> None:
        """Do all that must be done before the launcher may connect to the workers."""
        try:
            current_user()
            held = self.acquire_lease()
            threading.Thread(target=self.keep_lease, daemon=True).start()
            if not held:
                self.replace_others()
            key = self.provide_key()
            self.tell(event="key")
            rollcall.listen(
                self.run["port"],
                key,
                lambda host, address: self.tell(event="worker", host=host, address=address),
            )
            with self.release_lock:
                if not self.ending.is_set():
                    self.scale(self.run["workers"])
        except (ApiError, OSError, Refusal, subprocess.CalledProcessError) as error:
            self.tell(event="error", message=str(error))

    def serve(self) -> None:
        """Prepare the workers, and release them when the launcher's connection ends, or when it never comes."""
        SOCKET.unlink(missing_ok=True)
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(SOCKET))
        server.listen()
        server.settimeout(self.run["startTimeout"])
        threading.Thread(target=self.prepare, daemon=True).start()
        try:
            link = server.accept()[0]
            link.settimeout(None)
            with self.events_lock:
                self.link = link
                self._send(b"".join(self.events))
            # It writes once, when its command has started.
            while link.recv(64):
                self.phase = "Running"
                self.changed.set()
        except socket.timeout:
            say("the launcher's container has not started in time")
        except OSError:
            pass
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
