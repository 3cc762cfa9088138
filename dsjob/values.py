"""The values of a job: several files merged by Helm's rules, each key with its place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dsjob.helmyaml import Document, read
from dsjob.places import KeyPath, Place


class Values(Document):
    """What several files say together."""

    def key_place(self, path: KeyPath) -> Place | None:
        """Where the key is written, or the nearest one above it."""
        return _nearest(self.keys, path) or self.places.get(())

    def value_place(self, path: KeyPath) -> Place | None:
        """Where the value is written, or the key, or the nearest key above."""
        return self.places.get(path) or self.key_place(path)


def load(files: Sequence[Path]) -> Values:
    """Read values files and merge them as `helm -f A -f B` does: maps by key, anything else as a whole."""
    merged = Values()
    for file in files:
        one = read(file)
        merged.problems += one.problems
        merged.broken |= one.broken
        merged.data = merge(merged.data, one.data)
        for path in one.places:
            if not isinstance(_at(one.data, path), dict):
                _forget_below(merged, path)
        merged.keys |= one.keys
        merged.places |= one.places
    return merged


def merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Helm's merge of two values files: `above` wins, maps are merged."""
    result = dict(below)
    for key, value in above.items():
        known = result.get(key)
        result[key] = merge(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return result


def coalesce(defaults: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """The values that templates and schema see: a null removes a default, maps are filled up."""
    result = {}
    for key, value in values.items():
        default = defaults.get(key)
        if value is None and key in defaults:
            continue
        result[key] = (
            coalesce(default, value) if isinstance(default, dict) and isinstance(value, dict) else value
        )
    return result | {key: value for key, value in defaults.items() if key not in values}


def _nearest(places: dict[KeyPath, Place], path: KeyPath) -> Place | None:
    while path and path not in places:
        path = path[:-1]
    return places.get(path)


def _at(data: Any, path: KeyPath) -> Any:
    for part in path:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def _forget_below(values: Values, path: KeyPath) -> None:
    for table in (values.keys, values.places):
        for other in [other for other in table if other[: len(path)] == path]:
            del table[other]
