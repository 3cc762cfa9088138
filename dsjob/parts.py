"""The parts of a job, each with its state and with the reasons for what is not right. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dsjob import output
from dsjob import reasons as why
from dsjob.kube import (
    COMPONENT,
    Object,
    completion_index,
    containers,
    is_ready,
    is_scheduled,
    label,
    meta,
    template,
    termination,
    true_conditions,
)
from dsjob.model import JobState, Objects, Part, Phase
from dsjob.reasons import Reason


def launcher_part(
    state: JobState, job: Object | None, launcher: Object | None, events: Sequence[Object]
) -> Part:
    part = Part("launcher", state.launcher or state.job, state.phase.value)
    if launcher is None:
        part.reasons = why.creation_reasons(job, events) if job else []
        if state.phase is Phase.FAILED and job:
            part.reasons.append(lost_pod_reason(state, job))
        part.state = "no pod"
    elif state.phase in (Phase.SUSPENDED, Phase.QUEUED):
        part.state = "ending"
    else:
        part.reasons = why.pod_reasons(launcher, events)
        part.state = _pod_state(launcher)
        end_of(state, part, launcher)
    if state.phase is Phase.SUCCEEDED:
        part.reasons = []
    part.notes = [f"restarted: {cause}" for cause in state.causes]
    part.good = not part.reasons and state.phase is not Phase.FAILED
    return part


def lost_pod_reason(state: JobState, job: Object) -> Reason:
    """Why a run failed whose pod is gone: what its Job tells."""
    condition = next(iter(true_conditions(job, "Failed", "FailureTarget").values()), {})
    text = condition.get("message", "the run failed") + "; its pod is gone"
    return Reason(condition.get("reason", "Failed"), text, "", f"job/{state.job}")


def end_of(state: JobState, part: Part, pod: Object) -> None:
    """What the command's pod itself tells of the end: it knows the host, the rank's code and its last lines."""
    ended, told = termination(pod)
    if not ended:
        return
    code = told.get("exitCode")
    state.exit_code = code if isinstance(code, int) else int(ended.get("exitCode") or 0)
    state.host = str(told.get("host") or "")
    state.last_lines = [str(line) for line in told.get("lastLines") or []]
    state.restarts = int(told.get("restarts") or 0)
    state.causes = [str(cause) for cause in told.get("causes") or []]
    if told.get("message") and ended.get("reason") != "OOMKilled":
        own = Reason(
            str(told.get("reason", "Failed")),
            str(told["message"]),
            _end_remedy(state, pod, told),
            f"pod/{meta(pod)['name']}",
        )
        part.reasons = [
            own,
            *[reason for reason in part.reasons if reason.cause not in ("Error", "StartError")],
        ]
    part.state = "succeeded" if not state.exit_code else f"failed with {why.exit_meaning(state.exit_code)}"


def _end_remedy(state: JobState, pod: Object, told: Object) -> str:
    """What helps against an end that the launcher tells of."""
    again = "`dsjob up` with another `run.id` runs it again"
    worker = f" --worker {completion_index(pod)}" if state.mode == "direct" else ""
    logs = f"`dsjob logs {state.name} -n {state.namespace}{worker}` shows the whole log"
    known = {
        "OOMKilled": f"raise `workers.resources.limits.memory`, or {why.USE_LESS}",
        "StartTimeout": "see what the workers wait for: the limit is `run.startTimeout`",
        "DeadlineExceeded": f"raise `run.deadline`, or leave it out; {again}",
        "Stalled": "the ranks hang, or a step takes longer than `run.stallTimeout`: "
        f"{logs} (NCCL_DEBUG=INFO in `env` says what they wait for)",
        "Stopped": f"someone or something stopped it; {again}",
        "WorkerLost": f"its pod or its node is gone; {again}; `run.maxRestarts` does so by itself",
    }
    return known.get(str(told.get("reason")), logs)


def workers_part(
    state: JobState,
    job: Object | None,
    stateful: Object | None,
    workers: Sequence[Object],
    events: Sequence[Object],
) -> Part:
    part = Part(
        "workers", meta(stateful)["name"] if stateful else "", f"{state.workers_ready}/{state.workers} ready"
    )
    replicas = (stateful or {}).get("spec", {}).get("replicas") or 0
    if workers and replicas and true_conditions(job, "Complete", "Failed"):  # its launcher has kept them
        part.state = f"kept {len(workers)}"
        part.reasons = [_kept_reason(state, len(workers), part.name)]
        return part
    if state.phase.ended or state.phase in (Phase.UNKNOWN, Phase.SUSPENDED, Phase.QUEUED):
        none = "released" if state.phase.ended or state.phase is Phase.UNKNOWN else "no pods"
        part.state = f"releasing {len(workers)}" if workers else none
        return part
    for pod in workers:
        if not is_ready(pod):
            part.reasons += why.pod_reasons(pod, events)
    if stateful and len(workers) < replicas:
        part.reasons += why.creation_reasons(stateful, events)
    part.reasons = grouped(part.reasons)
    part.good = not part.reasons
    return part


def _kept_reason(state: JobState, count: int, name: str) -> Reason:
    """Workers that `workers.release` keeps for a look at them, or that a lost launcher could not release."""
    held = (
        f"{count * state.accelerators} {state.accelerator}"
        if state.accelerators
        else "their node's resources"
    )
    return Reason(
        "NotReleased",
        f"the run has ended, but {output.count(count, 'worker')} still hold{'s' * (count == 1)} {held}",
        f"`dsjob down {state.name} -n {state.namespace}` frees them, once you have seen what you want to see",
        f"statefulset/{name}",
    )


def grouped(reasons: Sequence[Reason]) -> list[Reason]:
    """The same cause on several pods is said once, with the number of pods."""
    groups: dict[tuple[str, str], list[Reason]] = {}
    for reason in reasons:
        groups.setdefault((reason.cause, re.sub(r"-worker-\d+", "-worker-N", reason.message)), []).append(
            reason
        )
    result = []
    for same in groups.values():
        first, more = same[0], len(same) - 1
        where = first.where + (f" and {more} more" if more else "")
        result.append(Reason(first.cause, first.message, first.remedy, where))
    return result


def mounted_claims(owners: Sequence[Object | None]) -> list[str]:
    """The names of the claims that pods of these owners mount, each once."""
    volumes = [volume for owner in owners for volume in template(owner).get("volumes") or []]
    claims = [one["persistentVolumeClaim"]["claimName"] for one in volumes if "persistentVolumeClaim" in one]
    return list(dict.fromkeys(claims))


def volume_parts(job: Object | None, stateful: Object | None, own: Objects, denied: bool) -> list[Part]:
    if denied:
        return []
    claims = {meta(claim)["name"]: claim for claim in own.claims}
    parts = []
    for name in mounted_claims((job, stateful, *own.deployments)):
        claim = claims.get(name)
        reasons = why.claim_reasons(name, claim, own.events)
        phase = claim.get("status", {}).get("phase", "Pending").lower() if claim else "missing"
        parts.append(Part("volume", name, phase, not reasons, reasons))
    return parts


def board_part(deployment: Object, own: Objects) -> Part:
    name = meta(deployment)["name"]
    if deployment.get("status", {}).get("availableReplicas"):
        return Part("tensorboard", name, "ready")
    pods = [pod for pod in own.pods if label(pod, COMPONENT) == "tensorboard"]
    reasons = [reason for pod in pods for reason in why.pod_reasons(pod, own.events)]
    return Part("tensorboard", name, "not ready", not reasons, grouped(reasons))


def _pod_state(pod: Object) -> str:
    for container in containers(pod):
        waiting = str(container.get("state", {}).get("waiting", {}).get("reason", ""))
        if waiting and waiting not in ("ContainerCreating", "PodInitializing"):
            return waiting
    phase = str(pod.get("status", {}).get("phase", "Pending"))
    return "starting" if phase == "Pending" and is_scheduled(pod) else phase.lower()
