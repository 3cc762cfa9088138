"""`dsjob scale`: another number of workers for an elastic run that goes on."""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from types import SimpleNamespace

from dsjob import chart, cluster, lease, look, output
from dsjob.errors import DsjobError, ExitCode
from dsjob.kube import Object, meta
from dsjob.model import JobState, Objects, Phase
from dsjob.target import Target


def scale(target: Target, name: str, count: int) -> ExitCode:
    """Set the number of workers, if the run can go on with so many; its launcher follows."""
    api = cluster.connect(target)
    state, objects = look.find(api, name)
    look.refuse_over(state)
    run, config = ({}, {}) if state.mode == "direct" else look.run_config(api, state)
    _refuse_fixed(state, run)
    check_count(count, run, config)
    _refuse_not_begun(state, objects)
    workers = meta(objects.statefulsets[0])["name"]
    now = objects.statefulsets[0]["spec"].get("replicas")
    if count == now:
        output.say(f"{name}: has {output.count(count, 'worker')} already")
        return ExitCode.OK
    api.scale(workers, count)
    output.say(f"{name}: {now} → {output.count(count, 'worker')}")
    output.note("  the launcher follows by a restart of the command, which goes on from its last checkpoint")
    if now is None or count > now:
        patience = run["elastic"].get("patience", 0)
        output.note(f"  more workers take part once the command has run for {patience}s (`elastic.patience`)")
    if _has_autoscaler(api, workers):
        output.note(f"  the autoscaler {workers} may change the number again", "yellow")
    output.note(f"  state:  dsjob status {name} -n {api.namespace}")
    return ExitCode.OK


def check_count(count: int, run: Object, config: Object) -> None:
    """Refuse a number of workers that is outside of the run's limits, or that cannot share its batch."""
    least, most = run["elastic"]["min"], run["elastic"]["max"]
    if not least <= count <= most:
        raise DsjobError(
            f"{count} is outside of `elastic.min` and `elastic.max`: {run['name']} runs with {least} to {most} workers",
            ExitCode.INVALID,
        )
    batch, slots = _batch(), run["slots"]
    try:
        batch.fit(config, count * slots)
    except batch.BatchError as error:
        good = [one for one in range(least, most + 1) if batch.fits(config, one * slots)]
        raise DsjobError(
            f"{output.count(count, 'worker')} × {slots} = {output.count(count * slots, 'rank')}: {error}",
            ExitCode.INVALID,
            hint=_nearest(count, good)
            or f"no number of workers from {least} to {most} fits: correct `deepspeed.config`",
        ) from error


def _nearest(count: int, good: Sequence[int]) -> str:
    """The next smaller and the next greater number of workers that fit."""
    near = [
        max((one for one in good if one < count), default=0),
        min((one for one in good if one > count), default=0),
    ]
    found = [str(one) for one in near if one]
    return f"what fits: {' or '.join(found)} workers" if found else ""


def _refuse_fixed(state: JobState, run: Object) -> None:
    if run.get("elastic"):
        return
    what = "is not elastic" if state.mode == "launcher" else "has mode direct"
    raise DsjobError(
        f"{state.name} {what}: its number of workers is {state.workers}",
        ExitCode.INVALID,
        hint="set `elastic: {min: …, max: …}` (it needs `mode: launcher`), and `dsjob up` again",
    )


def _refuse_not_begun(state: JobState, objects: Objects) -> None:
    """Before its launcher has the workers, it would set the number itself."""
    told = lease.read(objects.leases, state.launcher)
    if state.phase in (Phase.SUSPENDED, Phase.QUEUED) or not (told and told.phase and objects.statefulsets):
        raise DsjobError(
            f"{state.name} has not begun: {state.message}",
            ExitCode.PREFLIGHT,
            hint=f"it starts with `workers.count`, which is {state.workers}; scale it once it runs",
        )


def _has_autoscaler(api: cluster.Cluster, workers: str) -> bool:
    try:
        return api.find_autoscaler(workers) is not None
    except cluster.Forbidden:
        return False


def _batch() -> SimpleNamespace:
    """The chart's own files/batch.py, so that dsjob and the launcher share one batch equation.

    By runpy, since an import would leave compiled files in the chart.
    """
    return SimpleNamespace(**runpy.run_path(str(chart.path() / "files" / "batch.py")))
