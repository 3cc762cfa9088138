"""`dsjob up`: from values files to a run that is followed. Running it again is safe."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dsjob import chart, cluster, follow, helm, manifest, output, plan, preflight, validate
from dsjob.errors import DsjobError, ExitCode
from dsjob.kube import Object
from dsjob.model import JobState
from dsjob.places import Problem
from dsjob.state import describe
from dsjob.target import Target

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,43}[a-z0-9])?")


class Invalid(Exception):
    """The values are wrong; the caller prints the problems."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__()
        self.problems = problems


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    files: Sequence[Path]
    name: str
    target: Target
    yes: bool = False
    detach: bool = False


def up(request: Request, ask: Callable[[str], bool]) -> ExitCode:
    """Validate, check the cluster, say the plan, apply it, and follow the run. `ask` gets a consent."""
    name = request.name or name_of(request.files)
    api = cluster.connect(request.target)
    output.note(f"context {api.context}, namespace {api.namespace}, job {name}")
    checked = validate.check(request.files, name, api.namespace)
    if checked.problems:
        raise Invalid(checked.problems)
    output.step("validate", "the values are valid")

    tool = helm.connect(request.target, api.namespace)
    rendered = manifest.parse(checked.manifest)
    for warning in preflight.check(api, rendered):
        output.note(f"warning: {warning}", "yellow")
    planned, state = _plan(name, api, tool, rendered)
    _say(planned, state)
    if planned.action is plan.Action.NOTHING and state and state.phase.ended:
        output.note("this run is over; another `run.id` repeats it")
        return follow.finish(state)
    if planned.ends_run and state:
        _consent(request, state, ask)
    return _run(request, name, api, tool, planned)


def _plan(
    name: str, api: cluster.Cluster, tool: helm.Helm, rendered: Sequence[Object]
) -> tuple[plan.Plan, JobState | None]:
    """Compare with what is there. A name that is not ours ends here; a release that is stuck is repaired."""
    release, live = tool.release(name), api.objects(name)
    preflight.ownership(name, api.namespace, release, live)
    state = describe(name, api.namespace, live, time.time())
    if release and release.is_stuck(time.time()):
        api.remove_release_record(name, release.revision)
        output.note(f"the release was left in {release.status} by a helm call that was cut off: repaired")
        release = tool.release(name)
    released = tool.manifest(name) if release and release.status == "deployed" else None
    return plan.make(rendered, None if released is None else manifest.parse(released), state), state


def _run(request: Request, name: str, api: cluster.Cluster, tool: helm.Helm, planned: plan.Plan) -> ExitCode:
    where = Target(api.namespace, request.target.context, request.target.kubeconfig).options()
    try:
        if planned.action is not plan.Action.NOTHING:
            revision = tool.upgrade(name, chart.path(), request.files)
            output.step("apply", f"release {name}, revision {revision}")
        if not request.detach:
            return follow.follow(api, name)
    except KeyboardInterrupt:
        output.note(f"\ndetached: {name} goes on in the cluster")
        _way_back(name, where)
        return ExitCode.INTERRUPTED
    _way_back(name, where)
    return ExitCode.OK


def name_of(files: Sequence[Path]) -> str:
    """The job's name where none is given: the first file's name without its ending, as a DNS label."""
    stem = re.sub(r"[^a-z0-9]+", "-", files[0].stem.lower()).strip("-")[:45].rstrip("-") if files else ""
    if not _NAME.fullmatch(stem):
        raise DsjobError(
            f"no job name can be made of {files[0] if files else 'nothing'}",
            ExitCode.INVALID,
            hint="give one: dsjob up FILE NAME",
        )
    return stem


def check_name(name: str) -> None:
    """Refuse a name that no job can have."""
    if name and not _NAME.fullmatch(name):
        raise DsjobError(
            f"`{name}` cannot be the name of a job",
            ExitCode.INVALID,
            hint="use at most 45 of a-z, 0-9 and -; begin with a letter and end with a letter or digit",
        )


def _can_be_asked() -> bool:
    return sys.stdin.isatty()


def _way_back(name: str, where: str) -> None:
    output.note(f"  return: dsjob logs {name}{where} -f")
    output.note(f"  state:  dsjob status {name}{where}")
    output.note(f"  stop:   dsjob down {name}{where}")


def _say(planned: plan.Plan, state: JobState | None) -> None:
    text = planned.action.value
    if planned.action is plan.Action.NOTHING and state:
        text += f"; the run is {state.phase.value}"
    output.step("plan", text)
    if planned.action in (plan.Action.IN_PLACE, plan.Action.NEW_RUN):
        for line in planned.changes:
            output.note(f"          {line}")


def _consent(request: Request, state: JobState, ask: Callable[[str], bool]) -> None:
    """A run that is under way ends only with the user's word."""
    output.note(f"{state.name} is {state.phase.value} ({state.message}); the new run ends it", "yellow")
    if request.yes:
        return
    if not _can_be_asked():
        raise DsjobError(
            "ending a run needs your consent, and nobody can be asked here; nothing was changed",
            ExitCode.CONSENT,
            hint="--yes gives it",
        )
    if not ask("End it and start the new run?"):
        raise DsjobError("nothing was changed", ExitCode.CONSENT)
