"""How dsjob speaks: results on standard output, everything else on standard error.

Colours come only on a terminal, and never with NO_COLOR. Nothing here knows what a job is.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from dsjob.errors import DsjobError
from dsjob.places import Problem

_STYLES = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "bold": "1", "dim": "2"}


def styled(text: str, style: str, stream: TextIO) -> str:
    """The text in a style, if the stream is a terminal that may show it."""
    if not style or not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\033[{';'.join(_STYLES[part] for part in style.split())}m{text}\033[0m"


def say(text: str = "") -> None:
    """A result."""
    print(text, flush=True)


def note(text: str = "", style: str = "") -> None:
    """Something by the way: progress, a hint, a question's context."""
    print(styled(text, style, sys.stderr), file=sys.stderr, flush=True)


def step(name: str, text: str, style: str = "green") -> None:
    """One phase of a verb, and what came of it."""
    note(f"{styled(f'{name:<9}', style, sys.stderr)} {text}")


def say_json(data: dict[str, Any]) -> None:
    """A result for programs."""
    print(json.dumps({"schemaVersion": 1, **data}, indent=2, ensure_ascii=False))


def failure(error: DsjobError, verbose: bool = False) -> None:
    """An error, what to do about it, and with -v the raw text of the tool below."""
    note(f"{styled('error:', 'red bold', sys.stderr)} {error.message}")
    if error.hint:
        note(f"  {error.hint}")
    if error.detail and verbose:
        note()
        note(error.detail.rstrip(), "dim")


def problems(found: Sequence[Problem]) -> None:
    """Errors of values files, the way a compiler shows them."""
    for problem in found:
        where = f"{problem.place}: " if problem.place else ""
        note(
            f"{styled(where, 'bold', sys.stderr)}{styled('error:', 'red bold', sys.stderr)} {problem.message}"
        )
        for line in problem.hint.splitlines():
            note(f"  {line}")


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows in columns; the first one is the head."""
    if not rows:
        return ""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def span(seconds: float | None) -> str:
    """A length of time in short: 4.2s, 3m10s, 2h5m, 3d4h."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{max(seconds, 0):.1f}s".replace(".0s", "s")
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    for unit, name, below in ((86400, "d", ("h", 3600)), (3600, "h", ("m", 60)), (60, "m", ("s", 1))):
        if whole >= unit:
            rest = whole % unit // below[1]
            return f"{whole // unit}{name}" + (f"{rest}{below[0]}" if rest else "")
    return f"{whole}s"


def count(number: int, noun: str) -> str:
    """`1 worker`, `3 workers`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")
