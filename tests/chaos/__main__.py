"""`make chaos N=15`: kill something at a random moment of a small job, and see that all that is promised holds.

Written on standard output: a line for each trial, then a table. Exit code 1 if anything did not hold.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import judge
import node
import table
from plan import KINDS, Plan, draw, kinds_of, make
from trial import LABEL, OURS, Trial, run, wait_for

STATE = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "deepspeed-job" / "chaos"
AT_ONCE = 3
# From so many trials on, the table is written into the documentation.
WRITTEN_FROM = 200


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=15, help="how many trials")
    parser.add_argument("--seed", default="", help="repeats all trials, or with .NUMBER that one")
    parser.add_argument("--kinds", default="", help="words of kinds, by comma; with - before it, all others")
    parser.add_argument("--at-once", type=int, default=AT_ONCE)
    parser.add_argument("--list", action="store_true", help="say what would be done")
    return parser.parse_args()


def plans(given: argparse.Namespace, on_node: bool) -> list[Plan]:
    """The trials, those that hit every job last."""
    seed, _, number = (given.seed or str(random.randrange(10**6))).partition(".")
    kinds = kinds_of([word.strip() for word in given.kinds.split(",") if word.strip()], on_node)
    if not kinds:
        sys.exit(f"no such kind; there are: {', '.join(kind.title for kind in KINDS)}")
    found = [make(seed, int(number))] if number else draw(seed, given.count, kinds)
    return sorted(found, key=lambda plan: plan.kind.for_all)


def attempt(plan: Plan, folder: Path, on_node: bool) -> table.Row:
    """Make a trial, and say how it was."""
    trial = Trial(plan, folder, on_node)
    seen, faults = trial.run()
    row = table.Row(plan, seen, faults, judge.limits(seen), bool(trial.struck))
    took = time.monotonic() - trial.born
    word = "FAULT" if faults else "limit" if row.limits else "right"
    print(f"{word}  {plan.name:<10} {judge.outcome(seen):<26} {took:4.0f} s  {plan.describe()}", flush=True)
    for text in [*faults, *row.limits]:
        print(f"       {text}; see {trial.folder}", flush=True)
    return row


def main() -> int:
    """Make the trials; return the exit code."""
    given = arguments()
    on_node = node.is_ours(os.environ["E2E_KUBECONFIG"])
    chosen = plans(given, on_node)
    if given.list:
        print("\n".join(f"{plan.name:<10} {plan.describe()}" for plan in chosen))
        return 0
    if not on_node:
        print(
            "not the one-node cluster: what needs its node is left out (kills from outside, cuts, restarts, strays)"
        )
    print(f"{len(chosen)} trials, SEED={given.seed or chosen[0].name.partition('.')[0]}, evidence in {STATE}")
    # Those that hit every job wait until the others are done.
    rows: list[table.Row] = []
    for for_all in (False, True):
        own = [plan for plan in chosen if plan.kind.for_all is for_all]
        with ThreadPoolExecutor(given.at_once) as pool:
            rows += pool.map(lambda plan: attempt(plan, STATE, on_node), own)
    text = table.make(rows)
    print(f"\n{text}")
    if len(rows) >= WRITTEN_FROM:
        table.write(text)
    wait_for(lambda: not left(), 180, lambda: f"left behind: {left()}")
    return 1 if any(row.faults for row in rows) else 0


def left() -> list[str]:
    """Our namespaces that still exist."""
    return list(run("kubectl", "get", "namespace", "-l", f"{LABEL}={OURS}", "-o", "name").split())


if __name__ == "__main__":
    sys.exit(main())
