"""What a rendered chart asks of the cluster: pure functions over its objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dsjob.kube import Object, template


def parse(text: str) -> list[Object]:
    """The objects of a manifest that helm rendered."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [document for document in yaml.load_all(text, loader) if document]


def key(thing: Object) -> tuple[str, str]:
    """What tells an object from others in its namespace."""
    return thing["kind"], thing["metadata"]["name"]


def job_name(objects: Sequence[Object]) -> str:
    """Name of the Job: it carries the hash of the run."""
    return next((thing["metadata"]["name"] for thing in objects if thing["kind"] == "Job"), "")


@dataclass(frozen=True)
class Reference:
    """An object that pods name, and that must be there before they can start."""

    plural: str
    name: str
    key: str = ""
    optional: bool = False


def references(objects: Sequence[Object]) -> list[Reference]:
    """Claims, Secrets and ConfigMaps that the pods name and the chart does not make."""
    own = {(_plural(thing["kind"]), thing["metadata"]["name"]) for thing in objects}
    found = dict.fromkeys(one for thing in objects for one in _of_pod(template(thing)))
    return [one for one in found if (one.plural, one.name) not in own]


def priority_class(objects: Sequence[Object]) -> str:
    """The priority class of the pods, if they have one."""
    return next((name for thing in objects if (name := template(thing).get("priorityClassName"))), "")


def resources(objects: Sequence[Object]) -> list[tuple[str, str]]:
    """(API group, resource) of every kind in the manifest, for the question who may create it."""
    return list(
        dict.fromkeys((thing["apiVersion"].rpartition("/")[0], _plural(thing["kind"])) for thing in objects)
    )


def _plural(kind: str) -> str:
    name = kind.lower()
    return f"{name}es" if name.endswith("s") else f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"


def _of_pod(spec: Object) -> Iterator[Reference]:
    for volume in spec.get("volumes") or []:
        for source in (volume, *(volume.get("projected", {}).get("sources") or [])):
            yield from _of_volume(source)
    for secret in spec.get("imagePullSecrets") or []:
        yield Reference("secrets", secret["name"], optional=True)
    for container in (*(spec.get("initContainers") or []), *(spec.get("containers") or [])):
        for variable in container.get("env") or []:
            yield from _of_keys(variable.get("valueFrom") or {})


def _of_volume(source: Object) -> Iterator[Reference]:
    if "persistentVolumeClaim" in source:
        yield Reference("persistentvolumeclaims", source["persistentVolumeClaim"]["claimName"])
    for kind, name in (("secret", "secretName"), ("configMap", "name")):
        if kind in source and source[kind].get(name) not in (None, "kube-root-ca.crt"):
            yield Reference(
                kind.lower() + "s", source[kind][name], optional=bool(source[kind].get("optional"))
            )


def _of_keys(source: Object) -> Iterator[Reference]:
    for kind in ("secret", "configMap"):
        one = source.get(f"{kind}KeyRef")
        if one:
            yield Reference(kind.lower() + "s", one["name"], one["key"], bool(one.get("optional")))
