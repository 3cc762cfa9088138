"""What must be true of the cluster before a job is sent there. Only reads; finds everything at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from dsjob import chart, manifest
from dsjob.cluster import Cluster, Forbidden
from dsjob.errors import DsjobError, ExitCode
from dsjob.helm import Release
from dsjob.kube import Object
from dsjob.manifest import Reference
from dsjob.model import Objects

_KIND = {"persistentvolumeclaims": "claim", "secrets": "Secret", "configmaps": "ConfigMap"}
_OLDEST = (1, 29)  # native sidecars


def check(cluster: Cluster, rendered: Sequence[Object]) -> list[str]:
    """Return warnings; raise one error with all that would keep the job from starting."""
    problems = list(_version(cluster.version()))  # also tells whether the cluster can be reached at all
    warnings: list[str] = []
    if _namespace_is_missing(cluster):
        problems.append(
            f"there is no namespace `{cluster.namespace}`: kubectl create namespace {cluster.namespace}"
        )
    else:
        problems += _rights(cluster, rendered)
        for reference in manifest.references(rendered):
            for text in _reference(cluster, reference):
                (warnings if reference.optional else problems).append(text)
        problems += _priority(cluster, manifest.priority_class(rendered))
    if problems:
        raise DsjobError(
            "\n  ".join(
                [f"namespace `{cluster.namespace}` is not ready for this job; nothing was changed", *problems]
            ),
            ExitCode.PREFLIGHT,
        )
    return warnings


def ownership(name: str, namespace: str, release: Release | None, live: Objects) -> None:
    """Refuse a name that something else has: what is not ours is never touched."""
    if release:
        if not re.match(rf"{chart.NAME}-v?\d", release.chart):
            raise DsjobError(
                f"`{name}` in namespace `{namespace}` is a release of {release.chart}; nothing was changed",
                ExitCode.PREFLIGHT,
                hint="choose another job name: dsjob up FILE NAME",
            )
        return
    other = next((thing for thing in (*live.jobs, *live.statefulsets, *live.deployments)), None)
    if other:
        raise DsjobError(
            f"the job `{name}` was made by {made_by(other)}, not by Helm; nothing was changed",
            ExitCode.PREFLIGHT,
            hint="change it there, or choose another job name: dsjob up FILE NAME",
        )


def made_by(thing: Object) -> str:
    """Who made an object that no Helm release has."""
    meta = thing["metadata"]
    notes, labels = meta.get("annotations") or {}, meta.get("labels") or {}
    if "argocd.argoproj.io/tracking-id" in notes:
        return f"the Argo CD application {notes['argocd.argoproj.io/tracking-id'].partition(':')[0]}"
    if "argocd.argoproj.io/instance" in labels:
        return f"the Argo CD application {labels['argocd.argoproj.io/instance']}"
    if "kubectl.kubernetes.io/last-applied-configuration" in notes:
        return "kubectl apply"
    managers = [entry.get("manager", "") for entry in meta.get("managedFields") or []]
    return next((f"`{one}`" for one in managers if one and "kube-controller" not in one), "another tool")


def _version(version: str) -> Iterator[str]:
    found = re.match(r"v?(\d+)\.(\d+)", version)
    if found and (int(found[1]), int(found[2])) < _OLDEST:
        yield f"the cluster has Kubernetes {version}, but 1.29 or later is needed (native sidecar containers)"


def _namespace_is_missing(cluster: Cluster) -> bool:
    try:
        return cluster.find_namespace() is None
    except Forbidden:  # rights in one namespace do not include reading the namespace itself
        return False


def _rights(cluster: Cluster, rendered: Sequence[Object]) -> Iterator[str]:
    """Helm keeps its releases in Secrets, creates each kind, and patches and deletes it later."""
    asked = [("create", group, plural) for group, plural in manifest.resources(rendered)]
    asked += [(verb, "", "secrets") for verb in ("list", "update", "delete")] + [("delete", "batch", "jobs")]
    with ThreadPoolExecutor(8) as pool:
        allowed = list(pool.map(lambda one: cluster.may(*one), asked))
    refused: dict[str, list[str]] = {}
    for (verb, group, plural), may in zip(asked, allowed, strict=True):
        if not may:
            refused.setdefault(verb, []).append(f"{plural}.{group}" if group else plural)
    if refused:
        said = "; ".join(f"{verb} {', '.join(dict.fromkeys(what))}" for verb, what in refused.items())
        role = "admin" if "rbac" in said else "edit"
        yield f"you may not {said}: ask for the role `{role}` in this namespace"


def _reference(cluster: Cluster, wanted: Reference) -> Iterator[str]:
    kind = _KIND[wanted.plural]
    try:
        found = cluster.find(wanted.plural, wanted.name)
    except Forbidden:
        return
    if found is None:
        text = f"there is no {kind} `{wanted.name}` in namespace `{cluster.namespace}`"
        if wanted.plural == "persistentvolumeclaims":
            others = ", ".join(f"`{name}`" for name in cluster.names(wanted.plural))
            text += f"; it has {others}" if others else "; it has no claims"
        yield text
    elif (
        wanted.key
        and not wanted.optional
        and wanted.key not in {**found.get("data", {}), **found.get("binaryData", {})}
    ):
        have = ", ".join(f"`{name}`" for name in found.get("data", {})) or "none"
        yield f"the {kind} `{wanted.name}` has no key `{wanted.key}`; it has {have}"


def _priority(cluster: Cluster, name: str) -> Iterator[str]:
    try:
        if name and cluster.find_priority_class(name) is None:
            yield f"there is no priority class `{name}`"
    except Forbidden:
        return
