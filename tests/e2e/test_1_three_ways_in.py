"""A first run of the seed's job in its CPU twin, by each of the three ways in: real DeepSpeed, three ranks in three pods."""

import re

import pytest
from lab import CHART, CPU_TWIN, SEED_NAME, Job

STEP = re.compile(r"step +(\d+)/(\d+) +loss +([0-9.]+)")
RANK = re.compile(r"rank (\d+)/3 on (\S+)")


def by_helm(namespace):
    namespace.helm("install", SEED_NAME, CHART, "-f", CPU_TWIN)


def by_dsjob(namespace):
    namespace.dsjob("up", CPU_TWIN, SEED_NAME, timeout=400)


def by_kubectl(namespace):
    manifests = namespace.helm("template", SEED_NAME, CHART, "-f", CPU_TWIN)
    namespace.kubectl("apply", "-f", "-", stdin=manifests)


@pytest.mark.parametrize("way_in", [by_helm, by_dsjob, by_kubectl])
def test_the_cpu_twin_trains_on_three_workers(namespace, way_in):
    namespace.claim()
    job = Job(namespace, SEED_NAME)
    way_in(namespace)
    assert job.wait_ended(400) == "Complete", job.describe()
    job.wait_released()

    log = job.log()
    ranks = dict(RANK.findall(log))
    assert sorted(ranks) == ["0", "1", "2"]
    assert set(ranks.values()) == {f"{SEED_NAME}-worker-{i}" for i in range(3)}

    losses = [float(loss) for _, _, loss in STEP.findall(log)]
    assert losses[-1] < losses[0] / 2, losses
    done, total, _ = STEP.findall(log)[-1]
    assert done == total

    report = job.report()
    assert (report["phase"], report["exitCode"], report["restarts"]) == ("Succeeded", 0, 0)
    # TensorBoard mounts the same claim.
    files = namespace.kubectl("exec", f"deploy/{SEED_NAME}-tensorboard", "--", "find", "/data/deepspeed_data", "-type", "f")
    assert "events.out.tfevents" in files
    assert len(re.findall(r"zero_pp_rank_\d+.*optim_states.pt", files)) >= 3, "every rank writes its own shard of the optimizer"
