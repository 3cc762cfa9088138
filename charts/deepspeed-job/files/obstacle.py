"""What keeps a worker from running, as its pod tells: a pure function of the pod, for the launcher's line while it waits."""

KEPT = 300


def obstacle_of(pod: dict) -> str:
    """Return why the pod does not run: not scheduled, an image that cannot be pulled, a container that fails to start; empty if it runs."""
    status = pod.get("status", {})
    for condition in status.get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"not scheduled: {condition.get('message', '')}"[:KEPT]
    # What became of the whole pod, an eviction say, tells more than how its container ended by it.
    if status.get("reason"):
        return f"{status['reason']}: {status.get('message', '')}"[:KEPT]
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        waiting = container.get("state", {}).get("waiting")
        ended = container.get("state", {}).get("terminated") or container.get("lastState", {}).get(
            "terminated"
        )
        if ended and ended.get("exitCode") != 0:
            told = ended.get("message") or f"{ended.get('reason', '')}, exit code {ended.get('exitCode')}"
            return f"its container {container['name']} ended: {told.strip()}"[:KEPT]
        if container["name"] == "code" and "running" in container.get("state", {}):
            return "it fetches the code"
        if waiting:
            reason, message = waiting.get("reason", ""), waiting.get("message", "")
            if reason in ("ContainerCreating", "PodInitializing"):
                return "its image is pulled, or its volumes are mounted"
            return f"{reason}: {message}"[:KEPT] if message else reason
    return "" if status.get("phase") == "Running" else "its pod waits for a node"
