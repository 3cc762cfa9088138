"""The Lease: whoever holds it drives the workers, so that two launchers never do. Its renewal is a heartbeat, and its annotations tell
`dsjob status` how the run stands."""

import http.client
import json
import threading
import time
from datetime import datetime, timezone

from common import say
from kubeapi import Api, ApiError

LEASE_SECONDS = 15
ANNOTATION = "deepspeed-job/"


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


class Lease:
    """One launcher's Lease."""

    def __init__(self, api: Api, name: str, me: str):
        self._api = api
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{{ns}}/leases/{name}"
        self._me = me
        self._told = {"phase": "Starting"}
        self._changed = threading.Event()
        self._ended = threading.Event()

    def acquire(self) -> bool:
        """Wait until no other launcher drives the workers, then hold the Lease; tell whether we held it before, in an earlier life."""
        said = False
        while True:
            lease = self._api.call("GET", self._path)
            spec = lease.setdefault("spec", {})
            if lease_is_free(spec, self._me, time.time()):
                held = spec.get("holderIdentity") == self._me
                spec.update(
                    holderIdentity=self._me,
                    leaseDurationSeconds=LEASE_SECONDS,
                    acquireTime=now(),
                    renewTime=now(),
                )
                try:
                    self._put(lease)
                except ApiError as error:
                    if error.status != 409:
                        raise
                else:
                    threading.Thread(target=self._keep, daemon=True).start()
                    return held
            elif not said:
                say(f"waiting for {spec['holderIdentity']}, which still drives the workers")
                said = True
            time.sleep(0.5)

    def tell(self, **facts: object) -> None:
        """Put facts into annotations: texts and numbers as text, others as JSON."""
        self._told.update(facts)
        self._changed.set()

    def _put(self, lease: dict) -> None:
        texts = {
            ANNOTATION + key: json.dumps(value) if isinstance(value, (list, dict)) else str(value)
            for key, value in self._told.items()
        }
        others = {
            key: value
            for key, value in (lease["metadata"].get("annotations") or {}).items()
            if not key.startswith(ANNOTATION)
        }
        lease["metadata"]["annotations"] = {**others, **texts}
        self._api.call("PUT", self._path, lease)

    def _keep(self) -> None:
        while not self._ended.is_set():
            self._changed.wait(LEASE_SECONDS / 3)
            self._changed.clear()
            try:
                lease = self._api.call("GET", self._path)
                if self._ended.is_set() or lease["spec"].get("holderIdentity") != self._me:
                    continue
                lease["spec"]["renewTime"] = now()
                self._put(lease)
            except (ApiError, OSError, http.client.HTTPException) as error:
                if not self._ended.is_set():
                    say(f"the Lease is not renewed: {error}")

    def release(self) -> None:
        """Let go of it. Raises ApiError or OSError."""
        self._ended.set()
        while True:
            lease = self._api.call("GET", self._path)
            if lease.get("spec", {}).get("holderIdentity") != self._me:
                return
            lease["spec"]["holderIdentity"] = ""
            try:
                self._put(lease)
                return
            except ApiError as error:
                # The last renewal came between.
                if error.status != 409:
                    raise
