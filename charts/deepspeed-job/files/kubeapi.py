"""The few calls to the Kubernetes API that the sidecar makes, with the pod's own token."""

import http.client
import json
import os
import ssl
import threading
import time
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PATIENCE_SECONDS = 60
# The API server is busy or starting, or forgot where a watch was.
AGAIN = (410, 429, 500, 502, 503, 504)


class ApiError(Exception):
    """The API server said no; `status` is the HTTP status."""

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = status


class Api:
    """Calls in the pod's own namespace, from any thread. One connection is kept, and opened anew when it broke."""

    def __init__(self) -> None:
        self.namespace = (ACCOUNT / "namespace").read_text()
        self._tls = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
        self._kept = None
        self._one_at_a_time = threading.Lock()
        self._born = time.monotonic()

    def _connect(self, timeout: float) -> http.client.HTTPSConnection:
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
        return http.client.HTTPSConnection(host, port, timeout=timeout, context=self._tls)

    def _send(
        self, link: http.client.HTTPSConnection, method: str, path: str, body: object = None
    ) -> http.client.HTTPResponse:
        # Read at each call: the kubelet renews the token.
        headers = {"Authorization": "Bearer " + (ACCOUNT / "token").read_text(), "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = (
                "application/merge-patch+json" if method == "PATCH" else "application/json"
            )
        link.request(method, path, None if body is None else json.dumps(body), headers)
        return link.getresponse()

    def call(self, method: str, path: str, body: object = None) -> dict:
        """Send a request and return the object in the answer. A lost connection or a 5xx is tried again for a minute.

        `path` holds {ns} where the namespace belongs. Raises ApiError for what the API server refuses; a 403 only after our first 5
        seconds, since a new RoleBinding takes a moment to be known to each API server.
        """
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                with self._one_at_a_time:
                    self._kept = self._kept or self._connect(timeout=10)
                    answer = self._send(self._kept, method, path.format(ns=self.namespace), body)
                    text = answer.read()
                if answer.status < 300:
                    return json.loads(text)
                error = ApiError(answer.status, text.decode(errors="replace"))
                again = answer.status in AGAIN or (answer.status == 403 and time.monotonic() < self._born + 5)
                if not again or time.monotonic() > until:
                    raise error
            except (OSError, http.client.HTTPException):
                self._kept = None
                if time.monotonic() > until:
                    raise
            time.sleep(0.2)

    def watch(self, path: str, seconds: int):
        """Yield the objects of a watch as they change, the present one first, for at most so many seconds."""
        link = self._connect(timeout=seconds + 5)
        try:
            answer = self._send(
                link, "GET", f"{path.format(ns=self.namespace)}&watch=1&timeoutSeconds={seconds}"
            )
            if answer.status >= 300:
                text = answer.read().decode(errors="replace")
                raise OSError(text) if answer.status in AGAIN else ApiError(answer.status, text)
            for line in answer:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                yield event["object"]
        finally:
            link.close()
