"""States of jobs as text for people: the tree of `status` and the table of `list`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from dsjob.model import JobState, Part, Phase
from dsjob.output import count, span, styled, table

_COLOURS = {
    Phase.SUCCEEDED: "green",
    Phase.RUNNING: "green",
    Phase.FAILED: "red",
    Phase.DEGRADED: "yellow",
    Phase.PENDING: "yellow",
    Phase.STARTING: "blue",
    Phase.STOPPING: "dim",
}


def tree(state: JobState) -> str:
    """A job, its parts, and under each part what is not right and what helps."""
    name = styled(state.name, "bold", sys.stdout)
    phase = styled(state.phase.value, _COLOURS.get(state.phase, ""), sys.stdout)
    lines = [f"{name}  {phase}  {state.message}"]
    lines.append("  " + ", ".join(_facts(state)))
    width = max((len(part.role) for part in state.parts), default=0)
    names = max((len(part.name) for part in state.parts), default=0)
    for part in state.parts:
        last = part is state.parts[-1]
        mark = styled("✓" if part.good else "✗", "green" if part.good else "red", sys.stdout)
        branch = "└─" if last else "├─"
        lines.append(f"{branch} {mark} {part.role:<{width}}  {part.name:<{names}}  {part.state}".rstrip())
        lines += [f"{'   ' if last else '│  '}    {line}" for line in [*_reasons(part), *part.notes]]
    lines += [f"  | {line}" for line in state.last_lines] if state.phase is Phase.FAILED else []
    if state.denied:
        lines.append(f"  you may not read {', '.join(state.denied)} here, so a cause may be missing")
    return "\n".join(lines)


def failure(state: JobState, *, last_lines: bool = True) -> list[str]:
    """Why a run failed: host, code, the last lines, and what helps."""
    first = state.parts[0].reasons if state.parts else []
    lines = [f"  host {state.host}"] if state.host else []
    if state.exit_code is not None:
        lines.append(f"  exit code {state.exit_code}")
    lines += [f"  | {line}" for line in state.last_lines if last_lines]
    lines += [f"  {reason.message}" for reason in first[1:]]
    lines += [f"  {note}" for note in (state.parts[0].notes if state.parts else [])]
    lines += [f"  → {reason.remedy}" for reason in first if reason.remedy]
    return lines


def jobs(states: Sequence[JobState]) -> str:
    """One line for each job."""
    rows = [["NAME", "NAMESPACE", "STATE", "WORKERS", "RESTARTS", "ACCELERATORS", "AGE", "DURATION"]]
    now_or_end = {Phase.SUCCEEDED, Phase.FAILED}
    for state in states:
        workers = (
            str(state.workers) if state.phase in now_or_end else f"{state.workers_ready}/{state.workers}"
        )
        devices = f"{state.accelerators * state.workers} {state.accelerator}" if state.accelerators else "-"
        rows.append(
            [
                state.name,
                state.namespace,
                state.phase.value,
                workers,
                str(state.restarts),
                devices,
                span(state.age),
                span(state.duration),
            ]
        )
    return table(rows)


def _facts(state: JobState) -> list[str]:
    each = f" × {state.accelerators} {state.accelerator}" if state.accelerators else ""
    facts = [f"namespace {state.namespace}"]
    facts += [f"run {state.run}"] if state.run else []
    facts.append(count(state.workers, "worker") + each)
    if state.duration is not None:
        facts.append(f"{'took' if state.phase.ended else 'for'} {span(state.duration)}")
    facts += [count(state.restarts, "restart")] if state.restarts else []
    return facts


def _reasons(part: Part) -> list[str]:
    lines = []
    for reason in part.reasons:
        lines.append(f"{reason.cause}: {reason.message}" + (f"  ({reason.where})" if reason.where else ""))
        lines += [f"→ {reason.remedy}"] if reason.remedy else []
    return lines
