"""Checkpoints that are whole or not there. Plain Python: no torch in here; DeepSpeed writes the tensors.

A checkpoint is the folder `step-000120`. Each rank writes its own part of it. When all have, rank 0 adds
`whole.json`, so a folder without that file was never finished and is passed over. `latest` is for DeepSpeed's
tools, such as zero_to_fp32.py.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

MARKER = "whole.json"


@dataclass(frozen=True)
class Checkpoint:
    """What is known of a checkpoint before it is loaded."""

    step: int
    world: int
    model: str

    @property
    def tag(self) -> str:
        """The name of its folder."""
        return f"step-{self.step:06d}"


def prepare(folder: Path) -> None:
    """Make the folder, or end with why it can't be written: better now than after the first hundred steps."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        user = os.getuid()
        raise SystemExit(f"{folder}: {error.strerror} (as user {user}); name a writable folder") from None


def whole(folder: Path) -> list[Checkpoint]:
    """The whole checkpoints in FOLDER, the newest first."""
    found = []
    for path in folder.glob(f"step-*/{MARKER}"):
        try:
            checkpoint = Checkpoint(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            continue
        if checkpoint.tag == path.parent.name:
            found.append(checkpoint)
    return sorted(found, key=lambda c: c.step, reverse=True)


def newest(folder: Path, model: str) -> Checkpoint | None:
    """The newest whole checkpoint of a model of that size, if there is one."""
    return next((c for c in whole(folder) if c.model == model), None)


def unmark(folder: Path, tag: str) -> None:
    """Declare a checkpoint not whole, before it is overwritten or removed."""
    (folder / tag / MARKER).unlink(missing_ok=True)


def mark_whole(folder: Path, checkpoint: Checkpoint, keep: int = 2) -> None:
    """Declare a checkpoint whole, after all ranks have written it, and keep the newest KEEP of its model."""
    write(folder / checkpoint.tag / MARKER, json.dumps(asdict(checkpoint)) + "\n")
    write(folder / "latest", checkpoint.tag)
    for old in [c for c in whole(folder) if c.model == checkpoint.model][keep:]:
        unmark(folder, old.tag)
        shutil.rmtree(folder / old.tag, ignore_errors=True)


def write(path: Path, text: str) -> None:
    """Write a small file so that it is there with all of its text or not at all."""
    part = path.with_name(path.name + ".part")
    with part.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
