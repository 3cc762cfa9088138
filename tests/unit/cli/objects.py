"""Small builders of API objects, as the cluster returns them, for a job `hello` with two workers."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

from dsjob.model import Objects

Object = dict[str, Any]

NOW = datetime(2026, 12, 1, 12, 0, 0, tzinfo=timezone.utc).timestamp()
RUN = "1a2b3c4d"
INDEX = "batch.kubernetes.io/job-completion-index"


def at(seconds_ago: float) -> str:
    """A time before NOW."""
    return datetime.fromtimestamp(NOW - seconds_ago, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def meta(name: str, component: str = "", run: str = RUN, ago: float = 60, **more: Any) -> Object:
    """Metadata with the labels of the chart."""
    labels = {
        "app.kubernetes.io/name": "deepspeed-job",
        "app.kubernetes.io/instance": more.pop("job", "hello"),
    }
    labels |= {"app.kubernetes.io/component": component} if component else {}
    labels |= {"deepspeed-job/run": run} if run else {}
    found = {
        "name": name,
        "namespace": "team",
        "uid": f"uid-{name}",
        "creationTimestamp": at(ago),
        "labels": labels,
    }
    return found | more


def condition(
    kind: str, status: str = "True", reason: str = "", message: str = "", ago: float = 10
) -> Object:
    """One condition of a status."""
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": at(ago),
    }


def job(
    *conditions: Object, workers: int = 2, run: str = RUN, ago: float = 60, claim: str = "", **spec: Any
) -> Object:
    """The launcher's Job."""
    env = [{"name": "workers", "value": str(workers)}]
    volumes = [{"name": "data-0", "persistentVolumeClaim": {"claimName": claim}}] if claim else []
    template = {"spec": {"containers": [{"name": "launcher", "env": env}], "volumes": volumes}}
    return {
        "kind": "Job",
        "apiVersion": "batch/v1",
        "metadata": meta(f"hello-launcher-{run}", "launcher", run, ago),
        "spec": {"template": template, **spec},
        "status": {"startTime": at(ago), "conditions": list(conditions)},
    }


def workers_set(replicas: int = 2, gpus: int = 0) -> Object:
    """The StatefulSet of the workers."""
    limits = {"cpu": "4"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    template = {"spec": {"containers": [{"name": "worker", "resources": {"limits": limits}}]}}
    return {
        "kind": "StatefulSet",
        "apiVersion": "apps/v1",
        "metadata": meta("hello-worker", "worker", run=""),
        "spec": {"replicas": replicas, "template": template},
    }


def running(name: str, ready: bool = True, restarts: int = 0, last: Object | None = None) -> Object:
    """Status of a container that runs."""
    more = {"lastState": {"terminated": last}} if last else {}
    return {
        "name": name,
        "ready": ready,
        "restartCount": restarts,
        "state": {"running": {"startedAt": at(50)}},
        **more,
    }


def waiting(name: str, reason: str, message: str = "", last: Object | None = None) -> Object:
    """Status of a container that does not run yet."""
    more = {"lastState": {"terminated": last}, "restartCount": 3} if last else {}
    return {"name": name, "state": {"waiting": {"reason": reason, "message": message}}, **more}


def ended(
    name: str, code: int, reason: str = "", told: Object | str | None = None, ago: float = 20
) -> Object:
    """Status of a container that ended."""
    text = json.dumps(told) if isinstance(told, dict) else told or ""
    reason = reason or ("Completed" if code == 0 else "Error")
    state = {"exitCode": code, "reason": reason, "message": text, "finishedAt": at(ago)}
    return {"name": name, "state": {"terminated": state}}


def pod(
    name: str,
    component: str,
    phase: str,
    *containers: Object,
    node: str = "n1",
    conditions: Any = (),
    limits: Object | None = None,
    run: str = RUN,
    ago: float = 55,
    **more: Any,
) -> Object:
    """A pod of the job."""
    main = "launcher" if component == "launcher" else component
    found = list(conditions) or ([condition("PodScheduled")] if node else [])
    if phase == "Running" and all(one.get("ready", True) and "running" in one["state"] for one in containers):
        found.append(condition("Ready"))
    spec = {
        "containers": [
            {"name": main, "image": "registry.example/team/train:v1", "resources": {"limits": limits or {}}}
        ]
    }
    spec |= {"nodeName": node} if node else {}
    status = {
        "phase": phase,
        "conditions": found,
        "containerStatuses": list(containers),
        **more.pop("status", {}),
    }
    return {
        "kind": "Pod",
        "metadata": meta(name, component, run, ago, **more),
        "spec": spec,
        "status": status,
    }


def launcher(phase: str, *containers: Object, **more: Any) -> Object:
    """The launcher pod."""
    name = more.pop("name", f"hello-launcher-{more.get('run', RUN)}-x7k2p")
    return pod(name, "launcher", phase, *containers, **more)


def worker(index: int, phase: str = "Running", *containers: Object, **more: Any) -> Object:
    """A worker pod; by default one that runs."""
    return pod(f"hello-worker-{index}", "worker", phase, *(containers or (running("worker"),)), **more)


def direct_job(*conditions: Object, gpus: int = 0, **spec: Any) -> Object:
    """The Indexed Job of mode direct, of two workers."""
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    template = {"spec": {"containers": [{"name": "worker", "resources": {"limits": limits}}]}}
    return {
        "kind": "Job",
        "apiVersion": "batch/v1",
        "metadata": meta(f"hello-worker-{RUN}", "worker", annotations={"deepspeed-job/workers": "2"}),
        "spec": {"completionMode": "Indexed", "parallelism": 2, "template": template, **spec},
        "status": {"startTime": at(60), "conditions": list(conditions)},
    }


def direct_host(index: int) -> str:
    """The host name of one of its pods."""
    return f"hello-worker-{RUN}-{index}"


def direct_worker(
    index: int, phase: str = "Running", *containers: Object, letters: str = "abcde", **more: Any
) -> Object:
    """A pod of the Job of mode direct; by default one that runs."""
    found = containers or (running("worker"),)
    return pod(
        f"{direct_host(index)}-{letters}", "worker", phase, *found, annotations={INDEX: str(index)}, **more
    )


def unscheduled(message: str) -> Any:
    """Conditions of a pod that no node takes."""
    return (condition("PodScheduled", "False", "Unschedulable", message),)


def event(about: Object | str, reason: str, message: str, ago: float = 5) -> Object:
    """A warning about an object."""
    target = (
        {"name": about}
        if isinstance(about, str)
        else {"name": about["metadata"]["name"], "uid": about["metadata"]["uid"]}
    )
    return {
        "metadata": {"name": "e", "namespace": "team", "creationTimestamp": at(ago)},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "involvedObject": target,
        "lastTimestamp": at(ago),
    }


def claim(name: str, phase: str = "Bound", **more: Any) -> Object:
    """A claim of the namespace; labelled only with `job`."""
    found = meta(name, **more) if more else {"name": name, "namespace": "team", "uid": f"uid-{name}"}
    return {"kind": "PersistentVolumeClaim", "metadata": found, "status": {"phase": phase}}


def board(available: int = 1, claim_name: str = "logs") -> Object:
    """The Deployment of TensorBoard."""
    template = {"spec": {"volumes": [{"persistentVolumeClaim": {"claimName": claim_name}}]}}
    return {
        "kind": "Deployment",
        "metadata": meta("hello-tensorboard", "tensorboard", run=""),
        "spec": {"template": template},
        "status": {"availableReplicas": available},
    }


def lease(phase: str = "Running", holder: str = f"hello-launcher-{RUN}-x7k2p", **told: str) -> Object:
    """The Lease that the launcher holds, with what it tells there."""
    notes = {f"deepspeed-job/{key}": text for key, text in {"phase": phase, **told}.items()}
    return {
        "kind": "Lease",
        "metadata": meta("hello", annotations=notes),
        "spec": {"holderIdentity": holder},
    }


def objects(*things: Object, events: Any = (), denied: Any = ()) -> Objects:
    """Sort objects into what the cluster returned."""
    found = Objects(events=list(events), denied=list(denied))
    lists = {
        "Job": found.jobs,
        "StatefulSet": found.statefulsets,
        "Deployment": found.deployments,
        "Pod": found.pods,
        "PersistentVolumeClaim": found.claims,
        "Lease": found.leases,
    }
    for thing in things:
        lists[thing["kind"]].append(thing)
    return found


def healthy() -> Objects:
    """A job that trains."""
    return objects(
        job(), workers_set(gpus=1), launcher("Running", running("launcher")), worker(0), worker(1), lease()
    )


def succeeded() -> Objects:
    """A job that has ended well."""
    told = {"phase": "Succeeded", "exitCode": 0, "message": "every rank ended with 0"}
    return objects(
        job(condition("Complete")), workers_set(0), launcher("Succeeded", ended("launcher", 0, told=told))
    )


def failed() -> Objects:
    """A job whose rank failed."""
    told = {
        "phase": "Failed",
        "exitCode": 3,
        "reason": "RankFailed",
        "message": "hello-worker-1 failed with exit code 3",
        "host": "hello-worker-1",
        "lastLines": ["Traceback", "ValueError: loss is nan"],
    }
    return objects(
        job(condition("Failed", reason="BackoffLimitExceeded")),
        workers_set(0),
        launcher("Failed", ended("launcher", 3, told=told)),
    )
