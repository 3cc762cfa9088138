#!/usr/bin/env python3
"""Started by `deepspeed` on every rank in place of the user's script: becomes the script, with the arguments that the values have.

They come from run.json, not from our own command line, on which pdsh and a shell would have read them.
"""

import json
import os
import sys
from pathlib import Path


def argv_of(run: dict, python: str) -> list:
    """Return the argument vector of the script for run.json's `run` and the interpreter."""
    launcher_args, args = run.get("launcherArgs", []), run.get("args", [])
    if "--no_python" in launcher_args:
        return [run["script"], *args]
    return [python, "-u", *(["-m"] if "--module" in launcher_args else []), run["script"], *args]


if __name__ == "__main__":
    values = json.loads(Path("/opt/deepspeed-job/run.json").read_text())["run"]
    argv = argv_of(values, sys.executable)
    os.execvp(argv[0], argv)
