"""What a trial does: drawn from the seed and the trial's number alone, so that both repeat it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

# What a run that is hit so must survive, if it has what that needs.
ALWAYS, LOST, FAILED, NEVER = "always", "a worker is lost", "a rank fails", "never"


@dataclass(frozen=True)
class Kind:
    """One thing that can go wrong. `survives`: whether the run must end well all the same, and what it needs for it."""

    mode: str
    name: str
    survives: str = NEVER
    # It is done from the node, so only the one-node cluster can have it.
    on_node: bool = False
    # It hits every job of the cluster.
    for_all: bool = False

    @property
    def title(self) -> str:
        """Its name in tables and on the command line."""
        return f"{self.mode}: {self.name}"


KINDS = [
    Kind("launcher", "launcher killed", on_node=True),
    Kind("launcher", "launcher told to end"),
    Kind("launcher", "command killed", FAILED),
    Kind("launcher", "launcher pod deleted"),
    Kind("launcher", "launcher pod deleted by force"),
    Kind("launcher", "launcher pod evicted", ALWAYS),
    Kind("launcher", "launcher pod cut off", on_node=True),
    Kind("launcher", "sidecar killed", ALWAYS, on_node=True),
    Kind("launcher", "pdsh killed", FAILED),
    Kind("launcher", "ssh killed", FAILED),
    Kind("launcher", "worker pod deleted", LOST),
    Kind("launcher", "worker pod deleted by force", LOST),
    Kind("launcher", "worker pod evicted", LOST),
    Kind("launcher", "worker pod cut off", LOST, on_node=True),
    Kind("launcher", "worker killed", LOST, on_node=True),
    Kind("launcher", "sshd killed", FAILED),
    Kind("launcher", "session killed", FAILED),
    Kind("launcher", "rank killed", FAILED),
    Kind("launcher", "kubelet restarted", ALWAYS, on_node=True, for_all=True),
    Kind("launcher", "API server restarted", ALWAYS, on_node=True, for_all=True),
    Kind("direct", "worker killed", on_node=True),
    Kind("direct", "worker pod deleted"),
    Kind("direct", "worker pod deleted by force"),
    Kind("direct", "worker pod evicted", ALWAYS),
    Kind("direct", "worker pod cut off", ALWAYS, on_node=True),
    Kind("direct", "rank killed"),
    Kind("direct", "kubelet restarted", ALWAYS, on_node=True, for_all=True),
    Kind("direct", "API server restarted", ALWAYS, on_node=True, for_all=True),
]


@dataclass(frozen=True)
class Plan:
    """One trial."""

    name: str
    kind: Kind
    workers: int
    # How long each rank works, and how long it takes to end when it is told to.
    seconds: int
    saving: int
    max_restarts: int
    count_lost_workers: bool
    # The strike comes so long after `moment`: the install, the first rank's begin, or the expected end of the ranks.
    moment: str
    delay: float
    # How long a cut or a restart lasts.
    outage: float
    # Which of several victims.
    pick: int

    @property
    def must_survive(self) -> bool:
        """Whether the run must end well."""
        needs = {
            ALWAYS: True,
            LOST: self.max_restarts > 0 or not self.count_lost_workers,
            FAILED: self.max_restarts > 0,
        }
        return needs.get(self.kind.survives, False)

    def describe(self) -> str:
        """One line."""
        more = f", maxRestarts {self.max_restarts}" if self.max_restarts else ""
        more += "" if self.count_lost_workers else ", lost workers not counted"
        when = f"{self.delay:.1f} s after {self.moment}"
        return f"{self.kind.title}, {when}; {self.workers} workers, {self.seconds} s{more}"


def kinds_of(words: Sequence[str], with_node: bool) -> list[Kind]:
    """The kinds that the words choose: all that have one of them in their title, and none that has one with `-` before it."""
    wanted = [word for word in words if not word.startswith("-")]
    unwanted = [word[1:] for word in words if word.startswith("-")]
    return [
        kind
        for kind in KINDS
        if (with_node or not kind.on_node)
        and (not wanted or any(word in kind.title for word in wanted))
        and not any(word in kind.title for word in unwanted)
    ]


def draw(seed: str, count: int, kinds: Sequence[Kind]) -> list[Plan]:
    """So many trials of these kinds. A number means the same trial, whatever kinds are left out."""
    numbered = (make(seed, number) for number in itertools.count(1))
    return list(itertools.islice((plan for plan in numbered if plan.kind in kinds), count))


def make(seed: str, number: int) -> Plan:
    """The trial with this number. Every kind has its turn before one comes again."""
    order = list(KINDS)
    rounds, place = divmod(number - 1, len(order))
    random.Random(f"{seed}/{rounds}").shuffle(order)
    kind = order[place]
    own = random.Random(f"{seed}/{number}")
    seconds = own.randint(5, 15)
    moment = own.choices(["the install", "the begin", "the end"], [25, 55, 20])[0]
    span = {"the install": (0, 5), "the begin": (0, seconds - 0.5), "the end": (-0.7, 2.5)}[moment]
    is_direct = kind.mode == "direct"
    return Plan(
        name=f"{seed}.{number}",
        kind=kind,
        workers=own.randint(2, 3),
        seconds=seconds,
        saving=own.choice([0, 0, 3]),
        delay=own.uniform(*span),
        moment=moment,
        max_restarts=0 if is_direct else own.randint(0, 1),
        count_lost_workers=is_direct or own.random() < 0.6,
        outage=own.uniform(1, 10) if kind.for_all else own.uniform(20, 60),
        pick=own.randrange(1 << 16),
    )
