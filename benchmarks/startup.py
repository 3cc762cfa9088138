"""How long dsjob takes before it does anything, against an empty typer app."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

SEED = Path(__file__).parents[1] / "values" / "hello-deepspeed.yaml"
EMPTY = "import typer\napp = typer.Typer()\n@app.command()\ndef main() -> None: ...\n@app.command()\ndef two() -> None: ...\napp()"


def seconds(*argv: str) -> float:
    """Return the wall time of a command that must succeed."""
    begin = time.monotonic()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begin


def measure() -> tuple[float, ...]:
    """Return seconds of `dsjob --help`, of an empty app's --help, and of `dsjob validate`."""
    ours = seconds("dsjob", "--help")
    empty = seconds(sys.executable, "-c", EMPTY, "--help")
    return ours, empty, seconds("dsjob", "validate", str(SEED))
