"""`make bench`: measure what docs/benchmarks.md claims, and write it. Medians of RUNS in one run; ratios of runs side by side."""

from __future__ import annotations

import os
import platform
import statistics
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path

from benchmarks import jobs, startup

RUNS = int(os.environ.get("RUNS", "5"))
REPORT = Path(__file__).parents[1] / "docs" / "benchmarks.md"

HEAD = """\
# Benchmarks

Written by `make bench` on {day}: {cpus} cores, Python {python}, one-node cluster of cluster/, image already on the node. Each figure is the
median of {runs} runs, with the range; what is compared was run in turn. A busy machine makes every figure larger, so trust the ratios.

| what | measured | goal |
|---|---|---|
"""

NOTES = """
- *ssh to all workers*: from the start of `helm install` to the launcher's line that all 3 workers are logged in to. Real sshd, real cluster
  DNS with its cache.
- *workers released*: from the launcher's last line to the moment when the last worker pod no longer exists.
- *first step*: from the start of `dsjob up -d` to the first line with a loss, against typing the same `deepspeed` command in the
  launcher pod of a job that stands already. The difference is what the job itself costs to start.
- *steps/s*: of those same runs, without the first 10 steps.
"""


def row(what: str, values: list[float], goal: str, unit: str = " s") -> str:
    """Return a line of the table."""
    return (
        f"| {what} | {statistics.median(values):.2f}{unit} [{min(values):.2f}–{max(values):.2f}] | {goal} |"
    )


def ratio(what: str, ours: list[float], other: list[float], goal: str) -> str:
    """Return a line of the table for ours / other, pair by pair."""
    return row(what, [a / b for a, b in zip(ours, other, strict=True)], goal, unit="")


def repeat(what: str, measure: Callable[[], tuple[float, ...]]) -> list[list[float]]:
    """Measure RUNS times; return a list for each figure."""
    rows = []
    for number in range(1, RUNS + 1):
        rows.append(measure())
        print(f"{what} {number}/{RUNS}: {', '.join(f'{value:.2f}' for value in rows[-1])}", flush=True)
    return [list(column) for column in zip(*rows, strict=True)]


def main() -> int:
    """Measure everything and write the report."""
    lines = []
    help_ours, help_empty, validate = repeat("dsjob --help, empty typer app, validate [s]", startup.measure)
    lines.append(ratio("`dsjob --help` / an empty typer app", help_ours, help_empty, "≤ 1.3"))
    lines.append(row("`dsjob validate` of the seed's job", validate, "≤ 0.8 s"))
    with jobs.namespace("dsjob-bench") as space:
        connected, released = repeat("install to ssh, end to released [s]", lambda: jobs.start_and_end(space))
        lines.append(row("`helm install` → ssh to all 3 workers works", connected, "≤ 2.6 s"))
        lines.append(row("launcher ends → all workers released", released, "≤ 1.0 s"))
        up, typed, up_speed, typed_speed = repeat(
            "first step by up, by hand [s]; steps/s by up, by hand", lambda: jobs.training(space)
        )
        lines.append(row("`dsjob up` → first training step", up, ""))
        lines.append(row("the same `deepspeed` command typed in a standing job → first step", typed, ""))
        lines.append(
            row("what the job adds: the difference", [a - b for a, b in zip(up, typed, strict=True)], "")
        )
        lines.append(ratio("steps/s by `dsjob up` / typed by hand", up_speed, typed_speed, "≥ 0.99"))
    head = HEAD.format(day=date.today(), cpus=os.cpu_count(), python=platform.python_version(), runs=RUNS)
    REPORT.write_text(head + "\n".join(lines) + "\n" + NOTES)
    print(REPORT.read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
