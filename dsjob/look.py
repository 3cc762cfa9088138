"""The verbs that only read: status, list, logs, version."""

from __future__ import annotations

import json
import time

from dsjob import __version__, chart, cluster, direct, follow, helm, output
from dsjob.errors import DsjobError, ExitCode
from dsjob.kube import RUN, Object, completion_index, label, meta
from dsjob.model import JobState, Objects
from dsjob.state import describe, names
from dsjob.target import Target


def job(target: Target, name: str) -> JobState:
    """The state of one job."""
    return find(cluster.connect(target), name)[0]


def jobs(target: Target, everywhere: bool = False) -> list[JobState]:
    """The states of all jobs, newest first."""
    objects, now = cluster.connect(target).objects(everywhere=everywhere), time.time()
    found = [describe(name, namespace, objects, now) for namespace, name in names(objects)]
    return sorted((state for state in found if state), key=lambda state: state.created or 0, reverse=True)


def logs(
    target: Target, name: str, following: bool, tail: int | None, worker: int | None, container: str
) -> ExitCode:
    """Print a log. Following the run's own ends with the job, and with its exit code."""
    api = cluster.connect(target)
    state, objects = find(api, name)
    if following and worker is None and container in ("", state.container):
        try:
            return follow.follow(api, name, phases=not state.launcher_started, tail=tail)
        except KeyboardInterrupt:
            output.note(f"\ndetached: {name} is not touched by this")
            return ExitCode.INTERRUPTED
    pod = state.launcher if worker is None else _worker_pod(state, objects, worker)
    if not pod:
        which = f"pod of worker {worker or 0}" if state.mode == "direct" else "launcher pod"
        raise DsjobError(
            f"{name} has no {which}: {state.message}",
            ExitCode.NOT_FOUND,
            hint=f"dsjob status {name} -n {api.namespace}",
        )
    try:
        for line in api.log(
            pod, container or (state.container if worker is None else "worker"), follow=following, tail=tail
        ):
            output.say(line)
    except cluster.NotFound as error:
        gone = "; workers are released when the run ends, and the launcher's log has what they printed"
        raise DsjobError(
            f"there is no pod {pod}{gone if worker is not None else ''}", ExitCode.NOT_FOUND
        ) from error
    except cluster.Refused as error:
        text = f"{pod} has no log yet: {state.message}"
        if "is not valid for pod" in error.message:
            text = f"{pod} has no container `{container}`"
        hint = f"dsjob status {name} -n {api.namespace}"
        raise DsjobError(text, ExitCode.NOT_FOUND, hint=hint, detail=error.detail) from error
    return ExitCode.OK


def versions(target: Target) -> dict[str, str]:
    """Versions of all that takes part; what is not there says so."""
    found = {"dsjob": __version__, "chart": chart.version()}
    try:
        found["helm"] = helm.connect(target, "").version()
    except DsjobError as error:
        found["helm"] = f"({error.message})"
    try:
        found["kubernetes"] = cluster.connect(target).version()
    except DsjobError as error:
        found["kubernetes"] = f"({error.message})"
    return found


def find(api: cluster.Cluster, name: str) -> tuple[JobState, Objects]:
    """A job's state, and the objects that it is made from."""
    objects = api.objects(name)
    state = describe(name, api.namespace, objects, time.time())
    if state is None:
        raise DsjobError(
            f"there is no job `{name}` in namespace `{api.namespace}`",
            ExitCode.NOT_FOUND,
            hint="`dsjob list -A` shows the jobs of all namespaces",
        )
    return state, objects


def refuse_over(state: JobState) -> None:
    """Refuse a job of which nothing goes on."""
    if state.phase.over:
        raise DsjobError(
            f"{state.name} is over: {state.message}",
            ExitCode.PREFLIGHT,
            hint="`dsjob up` with another `run.id` runs it again" if state.phase.ended else "",
        )


def run_config(api: cluster.Cluster, state: JobState) -> tuple[Object, Object]:
    """What the launcher reads of its run, and the DeepSpeed configuration (empty if the values have none)."""
    name = f"{state.name}-run-{state.run}"
    found = api.find("configmaps", name)
    if found is None:
        raise DsjobError(
            f"the ConfigMap {name} is gone, which says what this run is",
            ExitCode.NOT_FOUND,
            hint="`dsjob up` again makes it anew",
        )
    data = found.get("data", {})
    return json.loads(data["run.json"]), json.loads(data.get("deepspeed.json") or "{}")


def _worker_pod(state: JobState, objects: Objects, worker: int) -> str:
    """The name of a worker's pod. In mode direct it is known only from the pod, and empty if there is none."""
    if state.mode == "launcher":
        return f"{state.name}-worker-{worker}"
    own = direct.newest([pod for pod in objects.pods if label(pod, RUN) == state.run])
    return next((meta(pod)["name"] for pod in own if completion_index(pod) == worker), "")
