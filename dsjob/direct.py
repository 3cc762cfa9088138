"""Mode direct: a run without a launcher, whose Job's pods are the workers. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from dsjob import reasons as why
from dsjob.kube import (
    COMPONENT,
    Object,
    completion_index,
    is_ready,
    is_scheduled,
    label,
    meta,
    seconds,
    termination,
    true_conditions,
)
from dsjob.model import JobState, Part, Phase
from dsjob.parts import end_of, grouped, lost_pod_reason


def is_direct(job: Object | None) -> bool:
    """Whether the pods of this Job are the workers."""
    return label(job, COMPONENT) == "worker"


def newest(pods: Sequence[Object]) -> list[Object]:
    """The pods in the order of the workers, of each worker the newest: one from a drained node is replaced."""
    found: dict[int, Object] = {}
    for pod in sorted(pods, key=lambda one: str(meta(one).get("creationTimestamp", ""))):
        found[completion_index(pod)] = pod
    return [found[index] for index in sorted(found)]


def leader(workers: Sequence[Object]) -> Object | None:
    """The pod whose log stands for the run's: worker 0, or, once its Job has removed that one, the one that failed."""
    first = next((pod for pod in workers if completion_index(pod) == 0), None)
    return first or culprit(workers)


def culprit(workers: Sequence[Object]) -> Object | None:
    """The pod that failed first; those that were only told to end come last."""
    failed = [(pod, *termination(pod)) for pod in workers if not true_conditions(pod, "DisruptionTarget")]
    failed = [one for one in failed if one[1].get("exitCode")]

    def order(one: tuple[Object, Object, Object]) -> tuple[bool, float]:
        _, ended, told = one
        when = seconds(str(told.get("endedAt") or ended.get("finishedAt") or "")) or 0.0
        return told.get("reason") == "Stopped", when

    return min(failed, key=order)[0] if failed else None


def is_done(pod: Object) -> bool:
    """Whether a worker has ended well."""
    return termination(pod)[0].get("exitCode") == 0


def exit_code(state: JobState, workers: Sequence[Object]) -> int | None:
    """How the run ended, as far as the pods tell; None while it goes on."""
    failed = culprit(workers)
    if failed:
        return int(termination(failed)[0]["exitCode"])
    return 0 if len(workers) >= state.workers > 0 and all(map(is_done, workers)) else None


def progress(state: JobState, workers: Sequence[Object]) -> Phase:
    """The phase of a run that has not ended."""
    if len(workers) < state.workers or not all(map(is_scheduled, workers)):
        return Phase.PENDING
    return Phase.RUNNING if state.workers_ready >= state.workers else Phase.STARTING


def ready(workers: Sequence[Object]) -> int:
    """How many workers run or have done their part."""
    return sum(is_ready(pod) or is_done(pod) for pod in workers)


def workers_part(state: JobState, job: Object, workers: Sequence[Object], events: Sequence[Object]) -> Part:
    """The line of the workers, with what the one that failed first has left."""
    part = Part("workers", state.job, f"{state.workers_ready}/{state.workers} ready")
    if state.phase is Phase.SUCCEEDED:
        part.state = "ended"
    elif state.phase in (Phase.SUSPENDED, Phase.QUEUED):
        part.state = f"releasing {len(workers)}" if workers else "no pods"
    elif state.phase is Phase.FAILED:
        failed = culprit(workers)
        if failed is None:
            # One that could not fetch its code never ran the command.
            found = [reason for pod in workers for reason in why.pod_reasons(pod, events)]
            part.reasons = grouped(found) or [lost_pod_reason(state, job)]
            part.state = "failed"
        else:
            part.reasons = why.pod_reasons(failed, events)
            end_of(state, part, failed)
            state.host = state.host or str(failed.get("spec", {}).get("hostname") or meta(failed)["name"])
    else:
        part.reasons = [
            reason for pod in workers if not is_ready(pod) for reason in why.pod_reasons(pod, events)
        ]
        if len(workers) < state.workers:
            part.reasons += why.creation_reasons(job, events)
        part.reasons = grouped(part.reasons)
    part.good = not part.reasons and state.phase is not Phase.FAILED
    return part
