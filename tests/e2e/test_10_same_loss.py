"""A run that was disturbed ends where an undisturbed one does. Real DeepSpeed, two ranks."""

import random
import re

import pytest
import yaml
from lab import CPU_TWIN, Job, Namespace, wait_for

STEPS, EVERY = 200, 10
STEP = re.compile(r"step +(\d+)/\d+ +loss +([0-9.]+)")


def values(name, workers=2, **run):
    """The seed's CPU twin, with two workers, each step in the log, and a folder of its own for the checkpoints."""
    found = yaml.safe_load(CPU_TWIN.read_text())
    command = (
        f"deepspeed /workspace/hello-deepspeed/train.py --checkpoint_dir /data/{name} --model tiny "
        f"--steps {STEPS} --checkpoint_every {EVERY} --log_every 1"
    )
    found.update(run={"command": command, **run}, workers={**found["workers"], "count": workers})
    found["tensorboard"]["enabled"] = False
    return found


def losses(job):
    """(step, loss as printed) of each step in the log, in its order."""
    return [(int(step), loss) for step, loss in STEP.findall(job.log_so_far())]


def last_step(job):
    found = losses(job)
    return found[-1][0] if found else 0


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What an undisturbed run prints."""
    namespace = Namespace("e2e-undisturbed")
    namespace.claim()
    job = Job(namespace)
    job.install(tmp_path_factory.mktemp("undisturbed"), **values("calm"))
    assert job.wait_ended(240) == "Complete", job.describe()
    found = losses(job)
    namespace.delete()
    assert [step for step, _ in found] == list(range(1, STEPS + 1))
    return dict(found)


@pytest.mark.parametrize("victim", ["rank", "pod"])
def test_a_worker_killed_at_a_random_step_costs_at_most_one_interval(
    namespace, tmp_path, victim, undisturbed
):
    namespace.claim()
    disturbed = Job(namespace, "disturbed")
    disturbed.install(tmp_path, **values("disturbed", maxRestarts=1))
    when = random.randrange(EVERY, STEPS - 2 * EVERY)
    wait_for(lambda: last_step(disturbed) >= when, 120, disturbed.describe)
    pod = f"disturbed-worker-{random.randrange(2)}"
    if victim == "rank":
        namespace.kubectl("exec", pod, "--", "pkill", "-KILL", "-f", "train.py --checkpoint_dir", code=None)
    else:
        namespace.kubectl("delete", "pod", pod, "--grace-period=0", "--force")
    assert disturbed.wait_ended(180) == "Complete", disturbed.describe()
    assert disturbed.report()["restarts"] == 1
    found = losses(disturbed)
    assert dict(found) == undisturbed, f"killed after step {when}"
    assert len(found) - STEPS <= EVERY


def test_an_elastic_run_trains_on_with_another_number_of_ranks(namespace, tmp_path):
    """The weights come from the checkpoint that the other number of ranks has written on SIGTERM: no step is lost."""
    namespace.claim()
    job = Job(namespace)
    config = {"train_batch_size": 48, "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 2}
    job_values = values("elastic", workers=3)
    job_values["deepspeed"]["config"].update(config)
    job_values["elastic"] = {"min": 1, "max": 3, "patience": 20}
    job.install(tmp_path, **job_values)
    wait_for(lambda: last_step(job) >= 15, 120, job.describe)
    namespace.dsjob("scale", "job", "2")
    assert job.wait_ended(240) == "Complete", job.describe()
    log = job.log()
    assert "rank 1 of 2 on job-worker-1" in log
    steps = [step for step, _ in losses(job)]
    assert sorted(set(steps)) == list(range(1, STEPS + 1))
    assert len(steps) - STEPS <= EVERY
