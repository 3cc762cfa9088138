"""The Kubernetes API, and the only module that calls it. Answers are plain dicts, as on the wire."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from dsjob import kubeconfig
from dsjob.channels import Channels
from dsjob.errors import DsjobError, ExitCode
from dsjob.kube import INSTANCE, NAME, Object
from dsjob.model import Objects, unsettled
from dsjob.target import Target

_TIMEOUT = (5, 30)  # seconds to connect and to read

# Attribute of Objects: API path below the namespace, and whether our labels select it.
_KINDS = {
    "jobs": ("/apis/batch/v1", "jobs", True),
    "statefulsets": ("/apis/apps/v1", "statefulsets", True),
    "deployments": ("/apis/apps/v1", "deployments", True),
    "pods": ("/api/v1", "pods", True),
    "claims": ("/api/v1", "persistentvolumeclaims", False),
    "leases": ("/apis/coordination.k8s.io/v1", "leases", True),
}


class Cluster:
    """One cluster, seen from one context and one namespace of the kubeconfig."""

    def __init__(self, target: Target) -> None:
        import urllib3
        from kubernetes import client

        logging.getLogger("urllib3").setLevel(logging.CRITICAL)  # it logs each retry
        chosen, settings = kubeconfig.load(target)
        settings.retries = urllib3.Retry(connect=1, read=1, redirect=0, status=0)
        settings.connection_pool_maxsize = 8
        self._settings = settings
        self._api = client.ApiClient(settings)
        self.context: str = chosen["name"]
        self.namespace: str = target.namespace or chosen["context"].get("namespace") or "default"
        self.server: str = settings.host

    def objects(self, name: str = "", *, everywhere: bool = False) -> Objects:
        """All that tells the state of one job, or of all: six calls at once, and events where they matter."""
        selector = f"{NAME}=deepspeed-job" + (f",{INSTANCE}={name}" if name else "")
        found = Objects()
        where = "" if everywhere else f"/namespaces/{self.namespace}"

        def read(kind: str) -> None:
            group, plural, labelled = _KINDS[kind]
            query = {"labelSelector": selector} if labelled else {}
            try:
                answer = self.get(f"{group}{where}/{plural}", **query)
            except Forbidden:
                found.denied.append(kind)
                return
            items = answer.get("items", [])
            for item in items:  # a list's items do not say what they are
                item.setdefault("kind", answer.get("kind", "").removesuffix("List"))
            setattr(found, kind, items)

        with ThreadPoolExecutor(len(_KINDS)) as pool:
            list(pool.map(read, _KINDS))
        if unsettled(found):
            try:
                found.events = self.get(f"/api/v1{where}/events", fieldSelector="type=Warning").get(
                    "items", []
                )
            except Forbidden:
                found.denied.append("events")
        if {"jobs", "pods"} & set(found.denied):
            raise Forbidden(
                "you have no right to list jobs and pods in "
                + (where.rpartition("/")[2] or "all namespaces"),
                ExitCode.CLUSTER,
                hint="ask for the role `view` there",
            )
        return found

    def version(self) -> str:
        """Version of the API server, such as v1.34.4."""
        return str(self.get("/version").get("gitVersion", "unknown"))

    def find(self, plural: str, name: str) -> Object | None:
        """A core object of the namespace, or None if there is none."""
        return self._find(f"/api/v1/namespaces/{self.namespace}/{plural}/{name}")

    def find_namespace(self) -> Object | None:
        """The namespace itself, or None if there is none."""
        return self._find(f"/api/v1/namespaces/{self.namespace}")

    def find_priority_class(self, name: str) -> Object | None:
        """A priority class, or None if there is none."""
        return self._find(f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}")

    def _find(self, path: str) -> Object | None:
        try:
            return self.get(path)
        except NotFound:
            return None

    def names(self, plural: str) -> list[str]:
        """Names of the namespace's core objects of one kind."""
        answer = self.get(f"/api/v1/namespaces/{self.namespace}/{plural}")
        return [item["metadata"]["name"] for item in answer.get("items", [])]

    def may(self, verb: str, group: str, resource: str) -> bool:
        """Whether the user may do this in the namespace."""
        attributes = {"namespace": self.namespace, "verb": verb, "group": group, "resource": resource}
        answer = self._call(
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            body={"spec": {"resourceAttributes": attributes}},
        )
        return bool(json.loads(answer.data).get("status", {}).get("allowed"))

    def remove_release_record(self, name: str, revision: int) -> None:
        """Forget one revision of a Helm release. Its objects stay, and the next helm call takes them over."""
        path = f"/api/v1/namespaces/{self.namespace}/secrets/sh.helm.release.v1.{name}.v{revision}"
        self._call("DELETE", path)

    def log(
        self,
        pod: str,
        container: str,
        *,
        follow: bool = False,
        tail: int | None = None,
        since: str = "",
        timestamps: bool = False,
    ) -> Iterator[str]:
        """Lines of a container's log, without line ends. The connection may end before the log does."""
        query: dict[str, Any] = {"container": container}
        query |= {"follow": "true"} if follow else {}
        query |= {"tailLines": tail} if tail is not None else {}
        query |= {"sinceTime": since} if since else {}
        query |= {"timestamps": "true"} if timestamps else {}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/log"
        answer = self._call("GET", path, query, timeout=(5, 60) if follow else _TIMEOUT)
        with _translated(self.server):
            rest = b""
            for chunk in answer.stream(amt=65536, decode_content=False):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield line.decode(errors="replace")
            if rest:
                yield rest.decode(errors="replace")

    def tunnel(self, pod: str, port: int) -> Any:
        """A socket to a port of a pod."""
        from kubernetes.stream.ws_client import PortForward

        websocket = self._websocket(pod, "portforward", [("ports", str(port))], "v4.channel.k8s.io")
        return PortForward(websocket, [port]).socket(port)

    def start(self, pod: str, container: str, command: Sequence[str], *, stdin: bool, tty: bool) -> Channels:
        """Start a command in a container that runs, and return its channels."""
        query = [("container", container), *(("command", word) for word in command), ("stdout", "true")]
        wanted = {"stdin": stdin, "tty": tty, "stderr": not tty}  # a terminal has one output
        query += [(key, "true") for key, value in wanted.items() if value]
        return Channels(self._websocket(pod, "exec", query, Channels.PROTOCOLS))

    def _websocket(self, pod: str, action: str, query: list[tuple[str, str]], protocols: str) -> Any:
        """A websocket to a pod. The client's own calls for this lose the reason of a refusal."""
        from kubernetes.stream.ws_client import create_websocket, get_websocket_url
        from websocket import WebSocketBadStatusException, WebSocketException

        url = f"{self.server}/api/v1/namespaces/{self.namespace}/pods/{pod}/{action}"
        headers = {"sec-websocket-protocol": protocols}
        self._api.update_params_for_auth(headers, query, ["BearerToken"])
        try:
            return create_websocket(self._settings, get_websocket_url(url, query), headers)
        except WebSocketBadStatusException as error:
            raise _answer(error.status_code, error.resp_body, error.status_message) from error
        except (OSError, WebSocketException) as error:
            raise _unreachable(self.server, str(error)) from error

    def scale(self, stateful: str, count: int) -> None:
        """Set the number of a StatefulSet's pods."""
        path = f"/apis/apps/v1/namespaces/{self.namespace}/statefulsets/{stateful}/scale"
        self._call("PATCH", path, body={"spec": {"replicas": count}})

    def suspend(self, job: str, suspended: bool) -> None:
        """Suspend a Job, or let it go on."""
        path = f"/apis/batch/v1/namespaces/{self.namespace}/jobs/{job}"
        self._call("PATCH", path, body={"spec": {"suspend": suspended}})

    def find_autoscaler(self, name: str) -> Object | None:
        """A HorizontalPodAutoscaler, or None if there is none."""
        return self._find(f"/apis/autoscaling/v2/namespaces/{self.namespace}/horizontalpodautoscalers/{name}")

    def get(self, path: str, **query: Any) -> Object:
        """GET a path of the API."""
        found: Object = json.loads(self._call("GET", path, query).data)
        return found

    def _call(
        self,
        method: str,
        path: str,
        query: dict[str, Any] | None = None,
        body: Any = None,
        timeout: tuple[int, int] = _TIMEOUT,
    ) -> Any:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Accept": "application/json", "Content-Type": kind}
        with _translated(self.server):
            return self._api.call_api(
                path,
                method,
                query_params=list((query or {}).items()),
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _return_http_data_only=True,
                _request_timeout=timeout,
            )


class NotFound(DsjobError):
    """The cluster has no such object."""


class Forbidden(DsjobError):
    """The cluster knows the user, who may not do this."""


class Refused(DsjobError):
    """The cluster finds the request wrong, such as the log of a container that has not started."""


class Unreachable(DsjobError):
    """No answer, or a connection that broke."""


def connect(target: Target) -> Cluster:
    """The cluster of a target. Tests put a fake in its place."""
    return Cluster(target)


@contextmanager
def _translated(server: str) -> Iterator[None]:
    """Errors of the client and of the connection as errors for the user."""
    import urllib3
    from kubernetes.client import ApiException

    try:
        yield
    except ApiException as error:
        raise _answer(error.status, error.body, error.reason) from error
    except urllib3.exceptions.HTTPError as error:
        raise _unreachable(server, str(getattr(error, "reason", None) or error)) from error


def _unreachable(server: str, text: str) -> Unreachable:
    cause = "it does not answer in time" if "timed out" in text.lower() else text.rpartition(": ")[2]
    return Unreachable(
        f"the cluster at {server} cannot be reached: {cause}",
        ExitCode.CLUSTER,
        hint="see that the context and your network are right",
        detail=text,
    )


def _answer(status: int | None, body: str | bytes | None, reason: str | None) -> DsjobError:
    """What the API server means by a refusal."""
    try:
        said = json.loads(body or "{}").get("message", "")
    except ValueError:
        said = ""
    text = said or str(reason or "")
    if status == 401:
        return DsjobError(
            "the cluster refuses your credentials", ExitCode.CLUSTER, hint="log in again", detail=text
        )
    if status == 403:
        return Forbidden(
            f"not allowed: {text}", ExitCode.CLUSTER, hint="ask for a role that allows it", detail=text
        )
    if status == 404:
        return NotFound(text or "not found", ExitCode.NOT_FOUND)
    if status == 400:
        return Refused(text, ExitCode.CLUSTER, detail=text)
    if not status:
        return Unreachable(f"the cluster cannot be reached: {text}", ExitCode.CLUSTER, detail=text)
    return DsjobError(f"the cluster answers {status}: {text}", ExitCode.CLUSTER, detail=str(body))
