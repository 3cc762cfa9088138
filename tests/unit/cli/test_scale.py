"""`dsjob scale`: what is refused, with which numbers and which exit code, and what is changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fakes import Dsjob
from objects import (
    direct_job,
    direct_worker,
    failed,
    healthy,
    job,
    launcher,
    lease,
    objects,
    running,
    succeeded,
    worker,
    workers_set,
)

from dsjob import chart, elastic
from dsjob.errors import DsjobError
from dsjob.model import Objects

ELASTIC = {"min": 1, "max": 6, "patience": 60}
# 24 sequences a step, 2 of them at once: 12 micro batches, which 1, 2, 3, 4 and 6 workers can share.
BATCH = {
    "train_batch_size": 24,
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 6,
}


def run_config(config: dict[str, Any] | None = None, **more: Any) -> dict[str, dict[str, str]]:
    run = {"name": "hello", "workers": 2, "slots": 1, "elastic": ELASTIC, **more}
    data = {"run.json": json.dumps(run)}
    data |= {"deepspeed.json": json.dumps(config)} if config is not None else {}
    return {"hello-run-1a2b3c4d": data}


def elastic_job(*leases: dict[str, Any], scale: int = 2, **spec: Any) -> Objects:
    """A job of two workers, of which the scale may be another one by now."""
    return objects(
        job(**spec),
        workers_set(scale),
        launcher("Running", running("launcher")),
        *(leases or [lease(members="2")]),
        *[worker(index) for index in range(scale)],
    )


@pytest.fixture(autouse=True)
def _job(dsjob: Dsjob) -> None:
    dsjob.cluster.states, dsjob.cluster.configmaps = [elastic_job()], run_config(BATCH)


def test_scale(dsjob: Dsjob) -> None:
    result = dsjob("scale", "hello", "3")
    assert dsjob.cluster.changes == [("scale", "hello-worker", 3)]
    assert result.stdout == "hello: 2 → 3 workers\n"
    assert "restart of the command, which goes on from its last checkpoint" in result.stderr
    assert "run for 60s (`elastic.patience`)" in result.stderr
    assert "autoscaler" not in result.stderr
    assert "patience" not in dsjob("scale", "hello", "1").stderr


def test_the_scale_of_now_counts_and_not_that_of_the_start(dsjob: Dsjob) -> None:
    dsjob.cluster.states = [elastic_job(scale=4)]
    assert dsjob("scale", "hello", "4").stdout == "hello: has 4 workers already\n"
    assert dsjob.cluster.changes == []
    assert dsjob("scale", "hello", "1").stdout == "hello: 4 → 1 worker\n"


def test_an_autoscaler_has_the_last_word(dsjob: Dsjob) -> None:
    dsjob.cluster.autoscalers = ["hello-worker"]
    assert "the autoscaler hello-worker may change" in dsjob("scale", "hello", "3").stderr
    dsjob.cluster.forbidden = {"autoscalers"}
    assert "autoscaler" not in dsjob("scale", "hello", "3").stderr


def test_a_job_that_waits_for_its_workers_may_be_scaled(dsjob: Dsjob) -> None:
    dsjob.cluster.states = [elastic_job(lease("Starting"))]
    dsjob("scale", "hello", "1")
    assert dsjob.cluster.changes == [("scale", "hello-worker", 1)]


REFUSALS: dict[str, tuple[Objects, dict[str, Any], int, int, str]] = {
    "not elastic": (healthy(), run_config(elastic=None), 3, 2, "is not elastic: its number of workers is 2\n  set `elastic:"),
    "mode direct": (objects(direct_job(), direct_worker(0), direct_worker(1)), {}, 3, 2, "has mode direct"),
    "too many": (elastic_job(), run_config(BATCH), 7, 2, "7 is outside of `elastic.min` and `elastic.max`: hello runs with 1 to 6"),
    "too few": (elastic_job(), run_config(BATCH, elastic={"min": 2, "max": 4}), 1, 2, "runs with 2 to 4 workers"),
    "succeeded": (succeeded(), run_config(BATCH), 3, 4, "hello is over: the command ended with exit code 0"),
    "failed": (failed(), run_config(BATCH), 3, 4, "`dsjob up` with another `run.id`"),
    "no launcher yet": (
        objects(job(), workers_set(0)),
        run_config(BATCH),
        3,
        4,
        "hello has not begun: 0/2 workers ready\n  it starts with `workers.count`, which is 2",
    ),
    "another launcher has the workers": (elastic_job(lease(holder="other")), run_config(BATCH), 3, 4, "has not begun"),
    "suspended": (elastic_job(suspend=True), run_config(BATCH), 3, 4, "`dsjob resume hello -n team`"),
    "there is none": (objects(), {}, 3, 3, "there is no job `hello`"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name: str, dsjob: Dsjob) -> None:
    found, configmaps, count, code, text = REFUSALS[name]
    dsjob.cluster.states, dsjob.cluster.configmaps = [found], configmaps
    assert text in dsjob("scale", "hello", str(count), code=code).stderr
    assert dsjob.cluster.changes == []


def test_a_count_that_breaks_the_batch_equation(dsjob: Dsjob) -> None:
    said = dsjob("scale", "hello", "5", code=2).stderr
    assert "5 workers × 1 = 5 ranks: train_batch_size 24" in said
    assert "what fits: 4 or 6 workers" in said
    assert dsjob.cluster.changes == []


@pytest.mark.parametrize(
    ("slots", "limits", "count", "text"),
    [
        (4, (1, 6), 2, "2 workers × 4 = 8 ranks"),
        (4, (1, 6), 4, "what fits: 3 workers"),
        (4, (1, 6), 2, "what fits: 1 or 3 workers"),
        (8, (1, 4), 2, "no number of workers from 1 to 4 fits"),
    ],
)
def test_ranks_are_workers_times_slots(slots: int, limits: tuple[int, int], count: int, text: str) -> None:
    run = {"name": "hello", "slots": slots, "elastic": {"min": limits[0], "max": limits[1]}}
    with pytest.raises(DsjobError) as raised:
        elastic.check_count(count, run, BATCH)
    assert text in f"{raised.value.message} {raised.value.hint}"


def test_without_a_batch_any_number_fits(dsjob: Dsjob) -> None:
    for config in (None, {}, {"train_batch_size": "auto"}):
        dsjob.cluster.configmaps = run_config(config)
        dsjob("scale", "hello", "5")


def test_the_equation_is_the_charts_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "batch.py").write_text("def fit(config, world): return {'world': world}\n")
    monkeypatch.setattr(chart, "path", lambda: tmp_path)
    assert elastic._batch().fit({}, 3) == {"world": 3}


@pytest.mark.parametrize("count", ["0", "many"])
def test_usage(count: str, dsjob: Dsjob) -> None:
    dsjob("scale", "hello", count, code=2)
