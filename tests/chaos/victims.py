"""How each kind of trial strikes. A strike returns what it did, or an empty text where its victim is not there yet."""

from __future__ import annotations

import json
from typing import Any

import node
from workload import WORD

Pod = dict[str, Any]

# In a pattern for pgrep -f the first letter is in brackets, so that it does not find the shell that asks.
PATTERNS = {
    "command killed": ("launcher", "[b]ash -c pdsh"),
    "pdsh killed": ("launcher", "[p]dsh -S -w"),
    "ssh killed": ("launcher", "[s]sh -F|[s]sh .*-oConnectTimeout|[s]sh .*worker-"),
    "sshd killed": ("worker", "[s]shd: |[s]shd -D"),
    "session killed": ("worker", "[/]opt/deepspeed-job/session.py"),
    "rank killed": ("worker", f"[p]ython3 -uc(.|\n)*{WORD}"),
}


def strike(trial: Any) -> str:
    """Strike once; `trial` is a trial.Trial."""
    what = trial.plan.kind.name
    if what == "kubelet restarted" or what == "API server restarted":
        part = "kubelet" if what.startswith("kubelet") else "kube-apiserver"
        node.restart(part, trial.plan.outage)
        return f"{part} was away for {trial.plan.outage:.1f} s"
    role = "worker" if what.startswith(("worker", "sshd", "session", "rank")) else "launcher"
    pod = choose(trial, role)
    if pod is None:
        return ""
    name = pod["metadata"]["name"]
    if what in PATTERNS:
        return kill_one(trial, pod, *PATTERNS[what])
    if what.endswith("pod deleted"):
        return trial.ask("delete", "pod", name, "--wait=false")
    if what.endswith("by force"):
        return trial.ask("delete", "pod", name, "--wait=false", "--grace-period=0", "--force")
    if what.endswith("evicted"):
        return evict(trial, name)
    if what.endswith("cut off"):
        return cut_off(trial, pod)
    if what.endswith("told to end"):
        told = trial.ask("exec", name, "-c", "launcher", "--", "sh", "-c", "kill -TERM 1 && echo told")
        return f"{name}: {told}" if told else ""
    container = {"launcher killed": "launcher", "sidecar killed": "workers"}.get(what, "worker")
    return kill_container(pod, container)


def choose(trial: Any, role: str) -> Pod | None:
    """One of the pods of the role that have not ended."""
    pods = [
        pod
        for pod in trial.pods
        if pod["metadata"]["labels"].get("app.kubernetes.io/component") == role
        and pod["status"].get("phase") in ("Pending", "Running")
        and not pod["metadata"].get("deletionTimestamp")
    ]
    pods.sort(key=lambda pod: pod["metadata"]["name"])
    # The victim is the worker that was drawn, also where another one is there before it.
    return pods[trial.plan.pick % trial.plan.workers % len(pods)] if pods else None


def kill_one(trial: Any, pod: Pod, container: str, pattern: str) -> str:
    """Kill one of the processes in a container that the pattern finds."""
    script = f"set -- $(pgrep -f '{pattern}'); [ $# -gt 0 ] || exit 1; shift $(({trial.plan.pick} % $#)); "
    script += 'tr "\\0" " " < /proc/$1/cmdline | cut -c-80 | head -n 1; kill -KILL $1'
    name = pod["metadata"]["name"]
    said = trial.ask("exec", name, "-c", container, "--", "sh", "-c", script)
    return f"{name}: {said}" if said else ""


def kill_container(pod: Pod, container: str) -> str:
    """Kill the first process of a container, from the node."""
    status = pod["status"]
    every = [*status.get("containerStatuses", []), *status.get("initContainerStatuses", [])]
    found = next((one.get("containerID", "") for one in every if one["name"] == container), "")
    pid = node.first_process(found)
    if pid is None:
        return ""
    node.kill(pid)
    return f"{pod['metadata']['name']}: pid 1 of {container}"


def evict(trial: Any, name: str) -> str:
    """Evict a pod, as a drain does."""
    space = trial.space.name
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": space},
    }
    path = f"/api/v1/namespaces/{space}/pods/{name}/eviction"
    done = trial.space.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction), code=None)
    return f"{name} evicted" if done.returncode == 0 else ""


def cut_off(trial: Any, pod: Pod) -> str:
    """Cut a pod's network; the trial restores it."""
    interface = node.interface_of(pod["metadata"]["uid"])
    if interface is None:
        return ""
    trial.cut = interface
    node.set_link(interface, "down")
    return f"{pod['metadata']['name']} cut off for {trial.plan.outage:.0f} s"
