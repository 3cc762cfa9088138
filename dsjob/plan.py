"""What `up` would change: a pure comparison of what is rendered with what the release has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from dsjob.kube import Object
from dsjob.manifest import job_name, key
from dsjob.model import JobState


class Action(str, Enum):
    """The outcomes of a plan."""

    INSTALL = "install"
    NOTHING = "nothing to do"
    IN_PLACE = "change in place"
    NEW_RUN = "new run"


@dataclass(frozen=True)
class Plan:
    """What would be done, object by object, and whether that ends a run that is under way."""

    action: Action
    job: str
    changes: list[str] = field(default_factory=list)
    ends_run: bool = False


def make(rendered: Sequence[Object], released: Sequence[Object] | None, state: JobState | None) -> Plan:
    """Compare. `released` is what the release rendered last, None if no helm call was completed."""
    job = job_name(rendered)
    changes = _changes(rendered, released or [])
    is_there = state is not None and state.job == job
    ends_run = state is not None and bool(state.job) and not is_there and not state.phase.over
    if released is None:
        return Plan(Action.INSTALL, job, changes, ends_run)
    if job != job_name(released) or not is_there:
        return Plan(Action.NEW_RUN, job, changes, ends_run)
    return Plan(Action.IN_PLACE if changes else Action.NOTHING, job, changes)


def _changes(rendered: Sequence[Object], released: Sequence[Object]) -> list[str]:
    new, old = ({key(thing): thing for thing in objects} for objects in (rendered, released))
    lines = [f"{'+' if one not in old else '~'} {one[0]} {one[1]}" for one in new if new[one] != old.get(one)]
    return lines + [f"- {kind} {name}" for kind, name in old if (kind, name) not in new]
