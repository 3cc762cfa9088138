"""The phases of a start: schedule, pull, connect, train. Pure; `follow` prints them."""

from __future__ import annotations

from dataclasses import dataclass

from dsjob.model import JobState, Phase
from dsjob.output import count


@dataclass(frozen=True)
class Step:
    """One phase: whether it is over, how far it is, and what holds it up."""

    name: str
    done: bool
    text: str
    held_up: str = ""


def steps(state: JobState, training: bool) -> list[Step]:
    """The phases of a job in their order. `training` is told by the launcher's log."""
    training = training or state.interactive
    pods, reasons = state.pods, state.reasons
    first = reasons[0] if reasons else None
    held_up = (
        f"{first.cause}: {first.message}" + (f" ({first.where})" if first.where else "") if first else ""
    )
    if state.phase in (Phase.QUEUED, Phase.SUSPENDED):
        held_up = state.message
    on_node, running, ready = pods.scheduled, pods.started, state.workers_ready
    # In mode direct the log is that of one worker, which does not wait for the others.
    over = state.phase.ended or (training and (state.mode == "launcher" or ready >= state.workers))
    if over:  # the workers may be gone again
        on_node = running = pods.wanted
        ready = state.members or state.workers
    connecting = "ready, the launcher logs in" if state.mode == "launcher" else "ready, looking for the first"
    doing = "connected" if over else connecting if ready >= state.workers else "ready"
    runs = "the command runs"
    if state.interactive:
        runs = f"ready for `dsjob exec {state.name} -n {state.namespace} -- COMMAND`"
    scheduled = on_node >= pods.wanted
    started = scheduled and running >= pods.wanted
    return [
        Step("schedule", scheduled, f"{on_node}/{pods.wanted} pods have a node", held_up),
        Step("pull", started, f"{running}/{pods.wanted} pods have their image and run", held_up),
        Step("connect", over, f"{ready}/{count(state.workers, 'worker')} {doing}", held_up),
        Step("train", state.phase.ended, f"{runs}, after"),
    ]
