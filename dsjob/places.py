"""Places in values files, and what can be wrong there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Place:
    """A position in a values file (from 1), and the text that stands there if it is one scalar."""

    file: str
    line: int
    column: int
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with the values: where, what, and what to write instead."""

    message: str
    place: Place | None = None
    hint: str = ""
    path: KeyPath = ()

    def to_json(self) -> dict[str, Any]:
        """The problem for programs."""
        place = (
            {"file": self.place.file, "line": self.place.line, "column": self.place.column}
            if self.place
            else {}
        )
        return {"message": self.message, "hint": self.hint, "key": dotted(self.path), **place}


def dotted(path: Iterable[str | int]) -> str:
    """`("data", 0, "claim")` as `data[0].claim`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def kind_of(value: Any) -> str:
    """The kind of a value in plain words, with the value if it is short."""
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'the text "{value}"' if len(value) <= 40 else "text"
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
    return f"the number {int(value) if whole else value}"
