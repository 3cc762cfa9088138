"""`dsjob suspend` and `dsjob resume`: free all that a run holds, and start it again later."""

from __future__ import annotations

from dsjob import cluster, look, output
from dsjob.errors import DsjobError, ExitCode
from dsjob.kube import QUEUE, label, meta, template
from dsjob.model import JobState, Objects, Phase
from dsjob.target import Target


def suspend(target: Target, name: str) -> ExitCode:
    """Suspend a run: its pods end, and its Job stays."""
    api = cluster.connect(target)
    state, objects = _find(api, name)
    way_back = f"  go on:  dsjob resume {name} -n {api.namespace}"
    if state.phase is Phase.SUSPENDED:
        output.say(f"{name}: is suspended already")
        output.note(way_back)
        return ExitCode.OK
    api.suspend(state.job, True)
    output.say(f"{name}: suspended")
    if state.pods.started:
        job = next(one for one in objects.jobs if meta(one)["name"] == state.job)
        grace = template(job).get("terminationGracePeriodSeconds", 30)
        output.note(
            f"  the ranks get SIGTERM, and the grace period of their pods ({grace}s) for a last checkpoint;"
        )
        output.note("  then the devices are free")
    output.note(way_back)
    return ExitCode.OK


def resume(target: Target, name: str) -> ExitCode:
    """Let a suspended run go on, by new pods."""
    api = cluster.connect(target)
    state, _ = _find(api, name)
    if state.phase is not Phase.SUSPENDED:
        output.say(f"{name}: is not suspended; it is {state.phase.value} ({state.message})")
        return ExitCode.OK
    api.suspend(state.job, False)
    output.say(f"{name}: resumed")
    output.note("  new pods start the command again, which goes on from its last checkpoint, if it has one")
    output.note(f"  follow: dsjob logs {name} -n {api.namespace} -f")
    return ExitCode.OK


def _find(api: cluster.Cluster, name: str) -> tuple[JobState, Objects]:
    """A job that may be suspended or resumed by us."""
    state, objects = look.find(api, name)
    look.refuse_over(state)
    job = next(one for one in objects.jobs if meta(one)["name"] == state.job)
    if queue := label(job, QUEUE):
        raise DsjobError(
            f"{name} is in the queue `{queue}` of Kueue, which suspends and resumes it; nothing was changed",
            ExitCode.PREFLIGHT,
            hint="set `spec.active` of its Workload: kubectl get workloads" + f" -n {api.namespace}",
        )
    return state, objects
