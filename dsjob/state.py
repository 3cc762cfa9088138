"""The state of a job, made from API objects and events by one pure function.

status, list, up, logs and -o json all show what `describe` returns, so they never disagree.
"""

from __future__ import annotations

from collections.abc import Sequence

from dsjob import direct, lease
from dsjob import reasons as why
from dsjob.code import code_part
from dsjob.kube import (
    COMPONENT,
    INSTANCE,
    QUEUE,
    RUN,
    Object,
    container_state,
    containers,
    is_ready,
    is_scheduled,
    label,
    meta,
    seconds,
    template,
    termination,
    true_conditions,
)
from dsjob.lease import Told
from dsjob.model import JobState, Objects, Phase, Pods
from dsjob.parts import board_part, launcher_part, volume_parts, workers_part


def names(objects: Objects) -> list[tuple[str, str]]:
    """(namespace, name) of every job that these objects belong to."""
    every = [*objects.jobs, *objects.statefulsets, *objects.deployments]
    return sorted(
        {(meta(one).get("namespace", ""), label(one, INSTANCE)) for one in every if label(one, INSTANCE)}
    )


def describe(name: str, namespace: str, objects: Objects, now: float) -> JobState | None:
    """The state of one job, or None if the cluster has nothing of it."""
    own = _only(name, namespace, objects)
    if not (own.jobs or own.statefulsets or own.pods):
        return None
    job = max(own.jobs, key=lambda one: meta(one).get("creationTimestamp", ""), default=None)
    run = label(job, RUN) if job else ""
    stateful = own.statefulsets[0] if own.statefulsets else None
    workers = [
        pod for pod in own.pods if label(pod, COMPONENT) == "worker" and (not run or label(pod, RUN) == run)
    ]
    state = JobState(name, namespace, Phase.UNKNOWN, "", run, denied=objects.denied)
    launcher = _launcher(job, own.pods)
    if direct.is_direct(job):
        state.mode = "direct"
        workers = direct.newest(workers)
        launcher = direct.leader(workers)
    state.job = meta(job)["name"] if job else ""
    state.launcher = meta(launcher)["name"] if launcher else ""
    state.launcher_started = bool(
        launcher and container_state(launcher, state.container).keys() & {"running", "terminated"}
    )
    told = lease.read(own.leases, state.launcher)
    if told:
        state.restarts, state.causes, state.members = told.restarts, told.causes, told.members
    state.workers = _wanted(job, stateful, workers, state.members)
    is_direct = state.mode == "direct"
    state.workers_ready = direct.ready(workers) if is_direct else sum(is_ready(pod) for pod in workers)
    state.accelerator, state.accelerators = _accelerators(job, job if is_direct else stateful)
    state.pods = _progress(workers if is_direct else [launcher, *workers], state)
    state.phase = _phase(job, launcher, workers, state, _has_begun(told, state))
    state.interactive = bool(
        told and told.phase == "Interactive" and state.phase in (Phase.RUNNING, Phase.DEGRADED)
    )
    _times(state, job, direct.culprit(workers) if is_direct else launcher, now)
    if job and is_direct:
        state.parts = [direct.workers_part(state, job, workers, own.events)]
    else:
        state.parts = [
            launcher_part(state, job, launcher, own.events),
            workers_part(state, job, stateful, workers, own.events),
        ]
    state.parts += code_part(state, job, [pod for pod in (launcher, *workers) if pod])
    state.parts += volume_parts(job, stateful, own, "claims" in objects.denied)
    state.parts += [board_part(one, own) for one in own.deployments]
    if state.phase is Phase.STARTING and any(part.reasons for part in state.hosts):
        state.phase = Phase.PENDING  # it does not start: something is missing
    state.message = _message(state, told)
    return state


def _phase(
    job: Object | None, launcher: Object | None, workers: Sequence[Object], state: JobState, began: bool
) -> Phase:
    if job is None:
        return Phase.STOPPING if state.launcher or workers else Phase.UNKNOWN
    if meta(job).get("deletionTimestamp"):
        return Phase.STOPPING
    conditions = true_conditions(job)
    code = direct.exit_code(state, workers) if state.mode == "direct" else _exit_code(launcher)
    if conditions.keys() & {"Complete", "SuccessCriteriaMet"}:
        return Phase.SUCCEEDED
    if conditions.keys() & {"Failed", "FailureTarget"}:
        return Phase.FAILED
    if job.get("spec", {}).get("suspend"):  # before the codes of pods that were told to end by this
        return Phase.QUEUED if label(job, QUEUE) else Phase.SUSPENDED
    if code is not None:
        return Phase.FAILED if code else Phase.SUCCEEDED
    if state.mode == "direct":
        return direct.progress(state, workers)
    if launcher is None or launcher.get("status", {}).get("phase") == "Pending":
        scheduled = launcher is not None and is_scheduled(launcher)
        return Phase.STARTING if scheduled and not why.pod_reasons(launcher or {}, []) else Phase.PENDING
    if began:
        needed = state.workers if state.members is None else min(state.members, state.workers)
        return Phase.RUNNING if state.workers_ready >= needed else Phase.DEGRADED
    return Phase.PENDING if any(not is_scheduled(pod) for pod in workers) else Phase.STARTING


def _exit_code(launcher: Object | None) -> int | None:
    """How the launcher ended; None while it goes on, or when it was taken from its node."""
    if launcher is None or true_conditions(launcher, "DisruptionTarget"):
        return None
    ended = termination(launcher)[0]
    return int(ended.get("exitCode") or 0) if ended else None


def _has_begun(told: Told | None, state: JobState) -> bool:
    """Whether the command runs. The Lease tells; a job without one is judged by its containers."""
    if told:
        return told.began
    return state.launcher_started and state.workers_ready >= state.workers


def _message(state: JobState, told: Told | None) -> str:
    """One sentence about the phase, with the first cause if there is one."""
    ready = f"{state.workers_ready}/{state.workers} workers ready"
    if state.members is not None and state.members < state.workers:
        ready += f", {state.members} of {state.workers} take part"
    if state.phase is Phase.FAILED:
        first = state.parts[0].reasons
        return first[0].message if first else "the run failed"
    if state.phase is Phase.SUCCEEDED:
        return "the command ended with exit code 0"
    if state.phase is Phase.UNKNOWN:
        return "its Job is gone: deleted, or removed by a time to live"
    if state.phase is Phase.STOPPING:
        return "it is being removed"
    if state.phase in (Phase.QUEUED, Phase.SUSPENDED):
        held = "its pods are ending" if state.pods.scheduled else "it holds nothing"
        go_on = f"suspended, {held}; `dsjob resume {state.name} -n {state.namespace}` lets it go on"
        return "waits for its queue" if state.phase is Phase.QUEUED else go_on
    facts = [ready]
    if told and told.phase == "Restarting":
        facts.append(f"restarts after: {state.causes[-1].partition(' ')[2]}" if state.causes else "restarts")
    if state.interactive:
        facts.append(f"interactive: `dsjob exec {state.name} -n {state.namespace} -- COMMAND`")
    if state.phase is not Phase.RUNNING:
        facts += [reason.message for part in state.hosts for reason in part.reasons][:1]
    return "; ".join(facts)


def _times(state: JobState, job: Object | None, last: Object | None, now: float) -> None:
    """When the run began and ended; `last` is the pod whose end was the run's."""
    if job is None:
        return
    state.created = seconds(meta(job).get("creationTimestamp"))
    state.age = now - state.created if state.created is not None else None
    state.started = seconds(job.get("status", {}).get("startTime"))
    ended = termination(last)[0] if last else {}
    condition = next(iter(true_conditions(job, "Complete", "Failed").values()), {})
    finished = (
        ended.get("finishedAt")
        or job.get("status", {}).get("completionTime")
        or condition.get("lastTransitionTime")
    )
    state.ended = seconds(finished) if state.phase.ended else None
    if state.started is not None and state.phase not in (Phase.QUEUED, Phase.SUSPENDED):
        state.duration = max((state.ended if state.ended is not None else now) - state.started, 0)


def _progress(found: Sequence[Object | None], state: JobState) -> Pods:
    pods = [pod for pod in found if pod]
    started = sum(
        any(one.get("state", {}).keys() & {"running", "terminated"} for one in containers(pod))
        for pod in pods
    )
    wanted = state.workers + (state.mode == "launcher")
    return Pods(wanted, sum(map(is_scheduled, pods)), started)


def _only(name: str, namespace: str, objects: Objects) -> Objects:
    """The objects of one job; claims and events have no label of it and stay by namespace."""

    def mine(things: Sequence[Object], labelled: bool = True) -> list[Object]:
        here = [one for one in things if meta(one).get("namespace", namespace) == namespace]
        return [one for one in here if not labelled or label(one, INSTANCE) == name]

    return Objects(
        jobs=mine(objects.jobs),
        statefulsets=mine(objects.statefulsets),
        deployments=mine(objects.deployments),
        pods=mine(objects.pods),
        claims=mine(objects.claims, False),
        leases=mine(objects.leases),
        events=mine(objects.events, False),
        denied=objects.denied,
    )


def _launcher(job: Object | None, pods: Sequence[Object]) -> Object | None:
    """The newest pod of the Job."""
    own = [
        pod
        for pod in pods
        if label(pod, COMPONENT) == "launcher" and (not job or label(pod, RUN) == label(job, RUN))
    ]
    return max(own, key=lambda pod: meta(pod).get("creationTimestamp", ""), default=None)


def _wanted(
    job: Object | None, stateful: Object | None, workers: Sequence[Object], members: int | None
) -> int:
    """How many workers the run should have: the scale, which is an elastic run's to change.

    It is 0 before and after the run, so an annotation tells then.
    """
    scale = int((stateful or {}).get("spec", {}).get("replicas") or 0)
    if members is not None and scale:
        return scale
    told = (meta(job).get("annotations") or {}).get("deepspeed-job/workers", "")
    if told.isdigit():
        return int(told)
    for owner in (job, stateful):
        spec = template(owner)
        for container in spec.get("containers", []):
            for variable in container.get("env", []):
                if variable.get("name") == "workers" and str(variable.get("value", "")).isdigit():
                    return int(variable["value"])
    return scale or len(workers)


def _accelerators(job: Object | None, owner: Object | None) -> tuple[str, int]:
    """The device of each worker and its count; without the annotation, the first extended resource."""
    told = (meta(job).get("annotations") or {}).get("deepspeed-job/accelerator", "")
    for container in template(owner).get("containers", []):
        limits = container.get("resources", {}).get("limits") or {}
        for resource in (told, *limits):
            if "/" in resource and str(limits.get(resource, "")).isdigit():
                return resource, int(limits[resource])
    return "", 0
