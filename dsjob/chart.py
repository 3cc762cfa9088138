"""Where the chart is. A wheel carries its own; a checkout uses the one in the tree."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from dsjob.errors import DsjobError, ExitCode

NAME = "deepspeed-job"

_PACKAGE = Path(__file__).resolve().parent
_PLACES = (_PACKAGE / "chart" / NAME, _PACKAGE.parent / "charts" / NAME)


@cache
def path() -> Path:
    """Folder of the chart."""
    for place in _PLACES:
        if (place / "Chart.yaml").is_file():
            return place
    raise DsjobError(
        f"this installation of dsjob has no chart in {_PLACES[0]}",
        ExitCode.INVALID,
        hint="install dsjob again",
    )


def version() -> str:
    """Version of the chart, from Chart.yaml."""
    for line in (path() / "Chart.yaml").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key == "version":
            return value.strip().strip("\"'")
    return "unknown"


@cache
def schema() -> dict[str, Any]:
    """The chart's values.schema.json."""
    found: dict[str, Any] = json.loads((path() / "values.schema.json").read_text(encoding="utf-8"))
    return found
