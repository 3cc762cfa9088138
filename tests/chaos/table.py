"""The table of outcomes, for the terminal and for docs/reliability.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import judge
from plan import KINDS, Plan

REPORT = Path(__file__).parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- generated: chaos -->", "<!-- end -->"


@dataclass(frozen=True)
class Row:
    """One trial and its outcome."""

    plan: Plan
    seen: judge.Seen
    faults: list[str]
    limits: list[str]
    struck: bool


def make(rows: Sequence[Row]) -> str:
    """A line for each kind of trial, and one for all."""
    lines = [
        "| mode: what was hit | trials | too late | succeeded | after a restart | failed | slowest release | limits | faults |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for kind in KINDS:
        own = [row for row in rows if row.plan.kind == kind]
        if own:
            lines.append(line(kind.title, own))
    lines.append(line("**all**", rows))
    return "\n".join(lines)


def line(title: str, rows: Sequence[Row]) -> str:
    """One line of the table."""
    ends = [judge.outcome(row.seen) for row in rows]
    released = [row.seen.released for row in rows if row.seen.released is not None]
    cells = [
        title,
        len(rows),
        sum(not row.struck for row in rows),
        ends.count("succeeded"),
        ends.count("succeeded after a restart"),
        ends.count("failed"),
        f"{max(released):.0f} s" if released else "",
        sum(bool(row.limits) for row in rows),
        sum(bool(row.faults) for row in rows),
    ]
    return f"| {' | '.join(map(str, cells))} |"


def write(text: str) -> None:
    """Put the table between the markers of the report."""
    head, _, rest = REPORT.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    when = f"Written by `make chaos N=200` on {date.today()}."
    REPORT.write_text(f"{head}{BEGIN}\n{when}\n\n{text}\n{END}{tail}")
