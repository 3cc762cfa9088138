"""Everything that is wrong with values files: as YAML, by the schema, and by the chart's own refusals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dsjob import chart, helm, schema, values
from dsjob.errors import DsjobError, ExitCode
from dsjob.helmyaml import read
from dsjob.places import KeyPath, Problem
from dsjob.target import Target
from dsjob.values import Values

_KEY = re.compile(r"`([A-Za-z_][\w.\[\]-]*)`")
_HELM_SCHEMA_LINE = re.compile(r"at '(?P<path>[^']*)': (?P<text>.*)")


@dataclass
class Checked:
    """Values files with what was found in them, and what the chart renders from them (if it does)."""

    values: Values
    problems: list[Problem]
    manifest: str = ""


def check(files: Sequence[Path], name: str = "dsjob", namespace: str = "") -> Checked:
    """Find every error of a job's values. `name` is the release name that the chart is rendered with."""
    if not files:
        raise DsjobError("no values file is given", ExitCode.INVALID, hint="dsjob validate my-job.yaml")
    given = values.load(files)
    problems, manifest = list(given.problems), ""
    if not given.broken:
        defaults = read(chart.path() / "values.yaml").data
        problems += schema.check(chart.schema(), values.coalesce(defaults, given.data), given)
        try:
            tool = helm.connect(Target(), namespace)
            manifest = tool.template(name, chart.path(), files, skip_schema=bool(problems))
        except helm.ValuesRefused as refused:
            problems += _from_chart(refused.messages, given, problems)
        except DsjobError:
            if not problems:  # templates may stumble over values that the schema refuses
                raise
    return Checked(given, sorted(problems, key=_order), manifest)


def _from_chart(messages: list[str], given: Values, known: list[Problem]) -> list[Problem]:
    """Refusals of templates and of Helm's own schema check, with their places."""
    found: list[Problem] = []
    for message in messages:
        line = _HELM_SCHEMA_LINE.search(message)
        key = _KEY.search(message)
        if line:
            path: KeyPath = tuple(
                int(part) if part.isdigit() else part for part in line["path"].split("/") if part
            )
            text = f"`{'.'.join(map(str, path))}`: {line['text']}" if path else line["text"]
        else:
            path, text = _path(key[1]) if key else (), message
        if not any(_related(path, problem.path) for problem in known):
            what, _, todo = text.partition(": ")
            hint = todo if todo and not line else ""
            found.append(Problem(what if hint else text, given.value_place(path), hint, path))
    return found


def _path(key: str) -> KeyPath:
    parts = re.findall(r"[^.\[\]]+", key)
    return tuple(int(part) if part.isdigit() else part for part in parts)


def _related(one: KeyPath, other: KeyPath) -> bool:
    """Whether two paths have the same top key: then one refusal may only follow from the other."""
    return bool(one) and one[:1] == other[:1]


def _order(problem: Problem) -> tuple[str, int, int]:
    place = problem.place
    return (place.file, place.line, place.column) if place else ("", 0, 0)
