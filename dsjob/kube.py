"""Reading plain API objects: the small questions that everything else asks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

Object = dict[str, Any]

NAME, INSTANCE = "app.kubernetes.io/name", "app.kubernetes.io/instance"
COMPONENT, RUN = "app.kubernetes.io/component", "deepspeed-job/run"
QUEUE = "kueue.x-k8s.io/queue-name"


def meta(thing: Object | None) -> Object:
    """The metadata of an object."""
    found: Object = (thing or {}).get("metadata", {})
    return found


def label(thing: Object | None, key: str) -> str:
    """One label of an object, or nothing."""
    return str((meta(thing).get("labels") or {}).get(key, ""))


def template(owner: Object | None) -> Object:
    """The pod spec that a Job, StatefulSet or Deployment makes pods from."""
    found: Object = (owner or {}).get("spec", {}).get("template", {}).get("spec", {})
    return found


def true_conditions(thing: Object | None, *types: str) -> dict[str, Object]:
    """The conditions of an object that hold, by type."""
    conditions = (thing or {}).get("status", {}).get("conditions") or []
    found = {one["type"]: one for one in conditions if one.get("status") == "True"}
    return {kind: one for kind, one in found.items() if not types or kind in types}


def is_ready(pod: Object) -> bool:
    """Whether a pod serves, and is not on its way out."""
    return "Ready" in true_conditions(pod) and not meta(pod).get("deletionTimestamp")


def is_scheduled(pod: Object) -> bool:
    """Whether a pod has a node."""
    return bool(pod.get("spec", {}).get("nodeName")) or "PodScheduled" in true_conditions(pod)


def container_state(pod: Object, name: str) -> Object:
    """The state of one container: running, waiting or terminated."""
    found = next((one for one in containers(pod) if one.get("name") == name), {})
    state: Object = found.get("state", {})
    return state


def termination(pod: Object) -> tuple[Object, Object]:
    """How the command's container ended: its state, and the JSON that it left (both may be empty)."""
    for container in containers(pod):
        ended = container.get("state", {}).get("terminated")
        if container.get("name") in ("launcher", "worker") and ended:
            try:
                told = json.loads(ended.get("message") or "{}")
            except ValueError:
                told = {}
            return ended, told if isinstance(told, dict) else {}
    return {}, {}


def completion_index(pod: Object) -> int:
    """Which one a pod of an Indexed Job is. Its name ends with letters that nobody knows beforehand."""
    key = "batch.kubernetes.io/job-completion-index"
    return int((meta(pod).get("annotations") or {}).get(key) or label(pod, key) or 0)


def containers(pod: Object) -> list[Object]:
    """Statuses of all containers of a pod, init containers first."""
    status = pod.get("status", {})
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def concerns(event: Object, thing: Object) -> bool:
    """Whether an event is about this object (a name may have been used before: the uid decides)."""
    about = event.get("involvedObject", {})
    uid, own = about.get("uid"), thing["metadata"].get("uid")
    if uid and own:
        return bool(uid == own)
    return bool(about.get("name") == thing["metadata"]["name"])


def newest_first(events: Sequence[Object]) -> list[Object]:
    """Events by their last time."""
    return sorted(events, key=event_time, reverse=True)


def event_time(event: Object) -> str:
    """When an event last happened; the field depends on who wrote it."""
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((time for time in times if time), event["metadata"].get("creationTimestamp") or "")


def seconds(time: str | None) -> float | None:
    """RFC 3339 as seconds since 1970."""
    return datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp() if time else None
