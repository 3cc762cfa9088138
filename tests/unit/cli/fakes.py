"""Fakes for the two seams to the outside, the cluster and helm, and dsjob run over them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import Mock

from typer.testing import CliRunner, Result

from dsjob.cli import app
from dsjob.cluster import Forbidden, NotFound, Refused
from dsjob.errors import ExitCode
from dsjob.helm import Release
from dsjob.model import Objects

MANIFEST = """
apiVersion: batch/v1
kind: Job
metadata: {name: hello-launcher-1a2b3c4d}
spec:
  template:
    spec:
      containers:
        - name: launcher
          env: [{name: T, valueFrom: {secretKeyRef: {name: hf, key: token}}}]
      volumes: [{name: data-0, persistentVolumeClaim: {claimName: training-data}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: hello-scripts}
data: {a: b}
"""

GOOD = "image: {repository: registry.example/team/train, tag: v1}\nrun: {command: echo hi}\n"


@dataclass
class FakeCluster:
    """A cluster in memory. `states` are what it returns one after the other; the last one stays."""

    states: list[Any] = field(default_factory=lambda: [Objects()])
    logs: dict[str, list[str]] = field(default_factory=dict)
    secrets: dict[str, list[str]] = field(default_factory=lambda: {"hf": ["token"]})
    claims: list[str] = field(default_factory=lambda: ["training-data"])
    forbidden: set[str] = field(default_factory=set)
    server_version: str = "v1.34.4"
    namespace: str = "team"
    context: str = "lab"
    removed: list[tuple[str, int]] = field(default_factory=list)
    repaired: Any = None
    configmaps: dict[str, dict[str, str]] = field(default_factory=dict)
    autoscalers: list[str] = field(default_factory=list)
    changes: list[tuple[Any, ...]] = field(default_factory=list)

    def remove_release_record(self, name: str, revision: int) -> None:
        self.removed.append((name, revision))
        self.repaired()

    def objects(self, name: str = "", *, everywhere: bool = False) -> Objects:
        found = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if isinstance(found, BaseException):
            raise found
        return found

    def version(self) -> str:
        return self.server_version

    def may(self, verb: str, group: str, resource: str) -> bool:
        return f"{verb} {resource}" not in self.forbidden

    def find_namespace(self) -> dict[str, Any] | None:
        if "namespace" in self.forbidden:
            raise Forbidden("no", ExitCode.CLUSTER)
        return {"metadata": {}} if self.namespace == "team" else None

    def find_priority_class(self, name: str) -> dict[str, Any] | None:
        return None

    def scale(self, stateful: str, count: int) -> None:
        self.changes.append(("scale", stateful, count))

    def suspend(self, job: str, suspended: bool) -> None:
        self.changes.append(("suspend", job, suspended))

    def start(self, pod: str, container: str, command: Any, *, stdin: bool, tty: bool) -> Any:
        self.changes.append(("start", pod, container, command, stdin, tty))
        return Mock()

    def find_autoscaler(self, name: str) -> dict[str, Any] | None:
        if "autoscalers" in self.forbidden:
            raise Forbidden("no", ExitCode.CLUSTER)
        return {} if name in self.autoscalers else None

    def find(self, plural: str, name: str) -> dict[str, Any] | None:
        if f"get {plural}" in self.forbidden:
            raise Forbidden("no", ExitCode.CLUSTER)
        if plural == "secrets":
            return {"data": dict.fromkeys(self.secrets[name], "")} if name in self.secrets else None
        if plural == "configmaps":
            return {"data": self.configmaps[name]} if name in self.configmaps else None
        return {"metadata": {}} if name in self.claims else None

    def names(self, plural: str) -> list[str]:
        return self.claims

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
        if container == "nope":
            raise Refused("container nope is not valid for pod x", ExitCode.CLUSTER)
        if pod not in self.logs:
            raise NotFound("no pod", ExitCode.NOT_FOUND)
        lines = self.logs[pod]
        for number, line in enumerate(lines[-tail:] if tail else lines):
            yield f"2026-12-01T12:00:{number:02}.5Z {line}" if timestamps else line


@dataclass
class FakeHelm:
    """A helm that knows the releases that a test gives it, and keeps what it was asked for."""

    releases: dict[str, Release] = field(default_factory=dict)
    rendered: str | BaseException = MANIFEST
    released: str = MANIFEST
    fails: BaseException | None = None
    calls: list[str] = field(default_factory=list)

    def version(self) -> str:
        return "v3.22.0"

    def template(self, name: str, chart: Path, files: Any, *, skip_schema: bool = False) -> str:
        if isinstance(self.rendered, BaseException):
            raise self.rendered
        return self.rendered

    def upgrade(self, name: str, chart: Path, files: Any) -> int:
        self.calls.append(f"upgrade {name}")
        if self.fails:
            raise self.fails
        return 1

    def uninstall(self, name: str) -> None:
        self.calls.append(f"uninstall {name}")
        if self.fails:
            raise self.fails

    def release(self, name: str) -> Release | None:
        return self.releases.get(name)

    def manifest(self, name: str) -> str:
        return self.released


@dataclass
class Dsjob:
    """dsjob with its fakes."""

    cluster: FakeCluster
    helm: FakeHelm

    def __call__(self, *arguments: str, code: int = 0, **more: Any) -> Result:
        """Run it, and compare its exit code."""
        result = CliRunner().invoke(app, [str(one) for one in arguments], **more)
        assert result.exit_code == code, result.output
        return result
