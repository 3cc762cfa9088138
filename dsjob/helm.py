"""helm, and the only module that starts it: one small synchronous adapter over pyhelm3's transport.

Files are given to Helm by path, since a file that went through another YAML library may change its meaning.
Not used, for the reasons in docs/decisions: wait and atomic (they block until training ends, then delete the
run), dict values, create_namespace.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from dsjob.errors import DsjobError, ExitCode
from dsjob.target import Target

_STATES = ("--deployed", "--failed", "--pending", "--superseded", "--uninstalling")


@dataclass(frozen=True)
class Release:
    """A release as `helm list` shows it."""

    name: str
    chart: str
    status: str
    revision: int
    updated: float = 0.0  # seconds since 1970

    def is_stuck(self, now: float) -> bool:
        """Whether a helm call was cut off here. Helm's own calls are short, since nothing waits."""
        return self.status.startswith("pending-") and now - self.updated > 120


class Helm:
    """The few things that dsjob asks of helm, in one namespace."""

    def __init__(self, target: Target, namespace: str) -> None:
        from pyhelm3 import Command

        logging.getLogger("pyhelm3").setLevel(logging.CRITICAL)  # it logs each failed command
        self.namespace = namespace
        self.command = Command(
            executable=find(), kubeconfig=target.kubeconfig, kubecontext=target.context or None
        )

    def version(self) -> str:
        """Version of helm, such as v3.22.0."""
        return self._run("version", "--template", "{{ .Version }}").strip()

    def template(self, name: str, chart: Path, files: Sequence[Path], *, skip_schema: bool = False) -> str:
        """Render the chart. Nothing is asked of the cluster."""
        more = ["--skip-schema-validation"] if skip_schema else []
        return self._run("template", name, str(chart), *self._where(), *_values(files), *more)

    def upgrade(self, name: str, chart: Path, files: Sequence[Path]) -> int:
        """Install or upgrade, and return the revision. It does not wait for pods."""
        text = self._run(
            "upgrade", "--install", name, str(chart), *self._where(), *_values(files), "--output", "json"
        )
        found = _json(text)
        return int(found.get("version", 0)) if isinstance(found, dict) else 0

    def uninstall(self, name: str) -> None:
        """Remove a release. Its pods may outlive the call."""
        self._run("uninstall", name, *self._where(), name=name)

    def release(self, name: str) -> Release | None:
        """The release of this name, in whatever state, or None."""
        text = self._run(
            "list", "--filter", f"^{re.escape(name)}$", *_STATES, *self._where(), "--output", "json"
        )
        for item in _json(text) or []:
            if item["name"] == name:
                updated = _seconds(str(item.get("updated", "")))
                return Release(name, item["chart"], item["status"], int(item["revision"]), updated)
        return None

    def manifest(self, name: str) -> str:
        """What the release has rendered."""
        return self._run("get", "manifest", name, *self._where())

    def _where(self) -> list[str]:
        return ["--namespace", self.namespace] if self.namespace else []

    def _run(self, *arguments: str, name: str = "NAME") -> str:
        """Run helm to its end, also if Ctrl-C comes: half a helm call leaves a release that is stuck."""
        from pyhelm3 import errors

        loop = _OwnSessionLoop()
        try:
            task = loop.create_task(self.command.run(list(arguments)))
            try:
                output: bytes = loop.run_until_complete(task)
            except KeyboardInterrupt:
                loop.run_until_complete(asyncio.wait({task}, timeout=10))
                if task.cancel():  # it hangs: pyhelm3 ends it by SIGTERM
                    loop.run_until_complete(asyncio.wait({task}, timeout=5))
                raise
        except errors.Error as error:
            raise explain(error.stderr.decode(errors="replace"), name) from error
        finally:
            loop.close()
        return output.decode(errors="replace")


class _OwnSessionLoop(asyncio.SelectorEventLoop):
    """Starts helm in a session of its own, so that the terminal's Ctrl-C does not reach it."""

    async def subprocess_shell(self, *args: Any, **kwargs: Any) -> Any:
        return await super().subprocess_shell(*args, start_new_session=True, **kwargs)


def connect(target: Target, namespace: str) -> Helm:
    """The adapter for a target. Tests put a fake in its place."""
    return Helm(target, namespace)


def find() -> str:
    """Path of helm: $HELM_BIN, then PATH, then where `make` of a checkout puts it."""
    chosen = os.environ.get("HELM_BIN", "")
    if chosen:
        found = shutil.which(chosen)
        if found:
            return found
        raise DsjobError(
            f"HELM_BIN is {chosen}, which is no program", ExitCode.CLUSTER, hint="correct or unset it"
        )
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    found = shutil.which("helm") or shutil.which("helm", path=str(cache / "deepspeed-job" / "bin"))
    if found:
        return found
    raise DsjobError(
        "helm is not installed",
        ExitCode.CLUSTER,
        hint="get helm 3.16 or later from https://helm.sh/docs/intro/install/, or set HELM_BIN to its path",
    )


@dataclass(frozen=True)
class _Case:
    """Helm tells its errors apart by text alone, so this is a table of texts."""

    pattern: str
    message: str
    code: ExitCode
    hint: str = ""


_CASES = (
    _Case(
        r"release: not found", "Helm knows no such release", ExitCode.NOT_FOUND, "`dsjob list` shows the jobs"
    ),
    _Case(
        r"another operation \(install/upgrade/rollback\) is in progress",
        "the release is locked by a helm call that was cut off, or that still runs",
        ExitCode.CLUSTER,
        "run it again in two minutes: what was cut off is repaired then",
    ),
    _Case(
        r"(?P<kind>\w+) \"(?P<name>[^\"]+)\" in namespace \"(?P<ns>[^\"]*)\" exists and cannot be imported",
        "{kind} `{name}` exists in namespace `{ns}` and is not this release's: nothing was changed",
        ExitCode.PREFLIGHT,
        "choose another job name, or remove that object",
    ),
    _Case(
        r"namespaces \"(?P<ns>[^\"]+)\" not found",
        "there is no namespace `{ns}`",
        ExitCode.PREFLIGHT,
        "kubectl create namespace {ns}",
    ),
    _Case(r"exceeded quota: (?P<what>[^\n]+)", "the namespace's quota refuses it: {what}", ExitCode.CLUSTER),
    _Case(
        r"admission webhook \"(?P<hook>[^\"]+)\" denied the request:? ?(?P<why>[^\n]*)",
        "the admission webhook {hook} refuses it: {why}",
        ExitCode.CLUSTER,
        "ask whoever runs that policy",
    ),
    _Case(
        r"chart requires kubeVersion: (?P<want>\S+).*incompatible with Kubernetes (?P<have>\S+)",
        "the cluster has Kubernetes {have}, but the chart needs {want}",
        ExitCode.PREFLIGHT,
    ),
    _Case(
        r"context \"(?P<ctx>[^\"]+)\" does not exist",
        "the kubeconfig has no context `{ctx}`",
        ExitCode.CLUSTER,
        "`kubectl config get-contexts` lists them",
    ),
    _Case(
        r"Unauthorized|asked for the client to provide credentials",
        "the cluster refuses your credentials",
        ExitCode.CLUSTER,
        "log in again",
    ),
    _Case(
        r"(?P<who>User \"[^\"]+\") cannot (?P<verb>\w+) resource \"(?P<what>[^\"]+)\"",
        "you have no right to {verb} {what} here ({who})",
        ExitCode.CLUSTER,
        "ask for a role that allows it",
    ),
    _Case(
        r"cluster unreachable|connection refused|no such host|i/o timeout|no configuration has been provided",
        "the cluster cannot be reached",
        ExitCode.CLUSTER,
        "`kubectl cluster-info` shows whether the context is right",
    ),
    _Case(
        r"(YAML parse error on|error converting YAML|error calling|nil pointer)(?P<what>[^\n]*)",
        "the chart cannot be rendered from these values:{what}",
        ExitCode.INVALID,
        "this is a mistake in the chart too; please report it with the values",
    ),
    _Case(
        r"field is immutable|updates to \w+ spec for fields",
        "the cluster refuses to change an object in place",
        ExitCode.CLUSTER,
        "`dsjob down {release}`, then `dsjob up` again (claims are kept)",
    ),
)

_REFUSED = re.compile(r"execution error at \((?P<where>[^)]*)\): (?P<text>.*)", re.DOTALL)


class ValuesRefused(DsjobError):
    """The chart's schema or templates refuse the values; `messages` holds one line for each reason."""

    def __init__(self, messages: list[str], detail: str) -> None:
        super().__init__(
            "the chart refuses the values: " + "; ".join(messages), ExitCode.INVALID, detail=detail
        )
        self.messages = messages


def explain(stderr: str, name: str = "NAME") -> DsjobError:
    """Turn what helm wrote about a release into an error for the user."""
    lines = [
        line
        for line in stderr.splitlines()
        if not re.match(r"WARNING|level=WARN|time=\S+ level=WARN|[IW]\d{4} ", line)
    ]
    text = "\n".join(lines).strip().removeprefix("Error: ")
    refused = _REFUSED.search(text)
    if refused:
        said = re.sub(r"\n+Use --debug flag.*", "", refused["text"], flags=re.DOTALL).strip()
        return ValuesRefused([line for line in said.splitlines() if line.strip()], stderr)
    if "values don't meet the specifications of the schema" in text:
        return ValuesRefused(re.findall(r"^- (.+)$", text, re.MULTILINE) or [text], stderr)
    for case in _CASES:
        found = re.search(case.pattern, text, re.IGNORECASE)
        if found:
            words = {"release": name, **found.groupdict()}
            return DsjobError(
                case.message.format(**words), case.code, hint=case.hint.format(**words), detail=stderr
            )
    first = next((line for line in text.splitlines() if line.strip()), "it said nothing")
    return DsjobError(
        f"helm failed: {first}", ExitCode.CLUSTER, hint="-v shows all that helm wrote", detail=stderr
    )


def _values(files: Sequence[Path]) -> list[str]:
    return [word for file in files for word in ("--values", str(file))]


def _json(text: str) -> Any:
    """JSON from helm's output, which a plugin or a warning may precede."""
    starts = [found.start() for found in re.finditer(r"^[\[{]", text, re.MULTILINE)]
    for start in starts:
        try:
            return json.loads(text[start:])
        except ValueError:
            continue
    if starts:
        raise DsjobError("helm's answer is no JSON", ExitCode.CLUSTER, detail=text)
    return None


def _seconds(text: str) -> float:
    """Helm's `2026-12-01 12:00:00.123456789 +0000 UTC` as seconds since 1970; 0 if it is something else."""
    found = re.match(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\S* ([+-]\d{4})", text)
    return datetime.strptime(" ".join(found.groups()), "%Y-%m-%d %H:%M:%S %z").timestamp() if found else 0.0
