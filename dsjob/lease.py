"""What the launcher says of its run, in annotations of the Lease that it holds. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from dsjob.kube import Object, meta

_OURS = "deepspeed-job/"


@dataclass(frozen=True)
class Told:
    """The launcher's word. An empty phase: this launcher has said nothing yet."""

    phase: str = ""
    restarts: int = 0
    causes: list[str] = field(default_factory=list)
    members: int | None = None

    @property
    def began(self) -> bool:
        """Whether the command runs, or others may run theirs."""
        return self.phase in ("Running", "Interactive")


def read(leases: Sequence[Object], launcher: str) -> Told | None:
    """What the launcher of now says; None where no launcher ever said anything. Another one's word is no news."""
    for lease in leases:
        notes = meta(lease).get("annotations") or {}
        if _OURS + "phase" not in notes:
            continue
        if not launcher or lease.get("spec", {}).get("holderIdentity") != launcher:
            return Told()
        return Told(
            notes[_OURS + "phase"],
            _number(notes.get(_OURS + "restarts")) or 0,
            _texts(notes.get(_OURS + "causes")),
            _number(notes.get(_OURS + "members")),
        )
    return None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _texts(text: str | None) -> list[str]:
    try:
        found = json.loads(text or "[]")
    except ValueError:
        return []
    return [str(one) for one in found] if isinstance(found, list) else []
