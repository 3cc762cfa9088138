"""What dsjob knows of a job, and the API objects that it is made from."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from dsjob.kube import COMPONENT, Object, label, true_conditions
from dsjob.reasons import Reason


class Phase(str, Enum):
    """Where a job is in its life."""

    QUEUED = "Queued"
    PENDING = "Pending"
    STARTING = "Starting"
    RUNNING = "Running"
    DEGRADED = "Degraded"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPING = "Stopping"
    UNKNOWN = "Unknown"

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return self in (Phase.SUCCEEDED, Phase.FAILED)

    @property
    def over(self) -> bool:
        """Whether there is nothing left that could be ended."""
        return self.ended or self in (Phase.STOPPING, Phase.UNKNOWN)


@dataclass
class Objects:
    """What the cluster has, as plain API objects. `denied` names kinds that may not be read."""

    jobs: list[Object] = field(default_factory=list)
    statefulsets: list[Object] = field(default_factory=list)
    deployments: list[Object] = field(default_factory=list)
    pods: list[Object] = field(default_factory=list)
    claims: list[Object] = field(default_factory=list)
    leases: list[Object] = field(default_factory=list)
    events: list[Object] = field(default_factory=list)
    denied: list[str] = field(default_factory=list)


def unsettled(objects: Objects) -> bool:
    """Whether something is waited for, so that events may tell why."""
    wanted = sum(owner.get("spec", {}).get("replicas") or 0 for owner in objects.statefulsets)
    unended = [job for job in objects.jobs if not true_conditions(job, "Complete", "Failed")]
    wanted += sum(job.get("spec", {}).get("parallelism") or 1 for job in unended)
    hosts = sum(label(pod, COMPONENT) in ("launcher", "worker") for pod in objects.pods)
    return hosts < wanted or any(pod.get("status", {}).get("phase") == "Pending" for pod in objects.pods)


@dataclass
class Part:
    """A line of the tree: launcher, workers, code, volumes, tensorboard. Notes are what is good to know, but no fault."""

    role: str
    name: str
    state: str
    good: bool = True
    reasons: list[Reason] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass
class Pods:
    """How far the pods of the current run are; a launcher counts as one of `wanted`."""

    wanted: int = 0
    scheduled: int = 0
    started: int = 0


@dataclass
class JobState:
    """All that dsjob knows of a job. In mode direct, `launcher` is the pod whose log stands for the run's.

    `members` are the workers that take part in the present attempt, `causes` those of the last restarts, `commit` is that of code from Git.
    """

    name: str
    namespace: str
    phase: Phase
    message: str
    run: str = ""
    job: str = ""
    mode: str = "launcher"
    launcher: str = ""
    launcher_started: bool = False
    workers: int = 0
    workers_ready: int = 0
    members: int | None = None
    interactive: bool = False
    restarts: int = 0
    causes: list[str] = field(default_factory=list)
    commit: str = ""
    accelerator: str = ""
    accelerators: int = 0
    exit_code: int | None = None
    host: str = ""
    last_lines: list[str] = field(default_factory=list)
    created: float | None = None
    started: float | None = None
    ended: float | None = None
    duration: float | None = None
    age: float | None = None
    pods: Pods = field(default_factory=Pods)
    parts: list[Part] = field(default_factory=list)
    denied: list[str] = field(default_factory=list)

    @property
    def container(self) -> str:
        """The container that runs the command."""
        return "worker" if self.mode == "direct" else "launcher"

    @property
    def hosts(self) -> list[Part]:
        """The parts that the run needs: launcher and workers."""
        return [part for part in self.parts if part.role in ("launcher", "workers")]

    @property
    def reasons(self) -> list[Reason]:
        """All reasons, those of launcher and workers first."""
        return [reason for part in self.parts for reason in part.reasons]

    def to_json(self) -> dict[str, Any]:
        """The state for programs, with keys in camelCase and times in seconds since 1970."""
        data = asdict(self) | {
            "phase": self.phase.value,
            "reasons": [asdict(reason) for reason in self.reasons],
        }
        found: dict[str, Any] = _camel(data)
        return found


def _camel(data: Any) -> Any:
    if isinstance(data, dict):
        return {re.sub(r"_(\w)", lambda m: m[1].upper(), key): _camel(value) for key, value in data.items()}
    return [_camel(one) for one in data] if isinstance(data, list) else data
