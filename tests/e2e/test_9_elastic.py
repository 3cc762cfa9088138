"""An elastic run: it goes on with those that are there, grows again, and follows the scale, whoever sets it."""

import re

from lab import wait_for

# Each attempt tells who takes part; what `deepspeed` would read is asked for on every worker.
COMMAND = (
    "hosts=$(cut -d' ' -f1 /job/hostfile | paste -sd,); "
    "steps=$(python3 -c \"import json; print(json.load(open('$DEEPSPEED_CONFIG'))['gradient_accumulation_steps'])\"); "
    'echo "attempt $hosts workers=$workers master=$MASTER_ADDR steps=$steps"; '
    'pdsh -S -w $hosts \'echo "rank $workers $MASTER_ADDR $(grep -c . $DEEPSPEED_CONFIG)"; '
    'exec python3 -uc "import time; time.sleep(600)"\''
)
CONFIG = {"train_batch_size": 24, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4}


def install(job, tmp_path, count=3, least=1, most=4, patience=20, **values):
    elastic = {"min": least, "max": most, "patience": patience, **values.pop("elastic", {})}
    job.install(
        tmp_path,
        workers={"count": count},
        elastic=elastic,
        deepspeed={"config": CONFIG},
        run={"command": COMMAND, "startTimeout": 120, **values.pop("run", {})},
        **values,
    )


def attempts(job):
    """(workers, accumulation steps) of each attempt."""
    lines = re.findall(r"attempt (\S+) workers=(\d+) master=(\S+) steps=(\d+)", job.log_so_far())
    for hosts, workers, master, _ in lines:
        assert hosts.split(",")[0] == master
        assert len(hosts.split(",")) == int(workers)
    return [(int(workers), int(steps)) for _, workers, _, steps in lines]


def wait_attempts(job, *wanted, seconds=120):
    wait_for(
        lambda: attempts(job) == list(wanted),
        seconds,
        lambda: f"{attempts(job)}\n{job.describe()}",
    )


def test_the_launcher_follows_the_scale(job, tmp_path):
    install(job, tmp_path)
    wait_attempts(job, (3, 4))
    job.wait_log("worker-2: rank 3 job-worker-0.job")
    job.namespace.dsjob("scale", "job", "2")
    wait_attempts(job, (3, 4), (2, 6))
    job.wait_log("worker-1: rank 2 job-worker-0.job")
    job.namespace.kubectl("scale", "statefulset", "job-worker", "--replicas=4")
    wait_attempts(job, (3, 4), (2, 6), (4, 3))
    wait_for(lambda: job.told().get("members") == "4", 20, lambda: job.told())
    status = job.namespace.dsjob("status", "job")
    assert "the number of workers changes from 2 to 4" in status
    job.namespace.dsjob("down", "job")


def test_a_scale_that_breaks_the_batch_is_refused_with_the_numbers(job, tmp_path):
    install(job, tmp_path, count=2, most=5)
    wait_attempts(job, (2, 6))
    text = job.namespace.dsjob("scale", "job", "5", code=2)
    assert "24" in text
    assert "5" in text
    # By another way in: the launcher takes as many as fit.
    job.namespace.kubectl("scale", "statefulset", "job-worker", "--replicas=5")
    wait_attempts(job, (2, 6), (4, 3))
    job.namespace.dsjob("down", "job")


def test_it_goes_on_without_a_worker_that_cannot_come_back_and_grows_again_when_it_can(job, tmp_path):
    """The node takes no more pods for a while."""
    install(job, tmp_path, run={"maxRestarts": 0})
    wait_attempts(job, (3, 4))
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none"},
        "spec": {"hard": {"pods": "3"}},
    }
    job.namespace.apply(quota)
    job.namespace.kubectl("delete", "pod", "job-worker-1", "--wait=false")
    wait_attempts(job, (3, 4), (2, 6))
    hosts = re.findall(r"attempt (\S+) ", job.log())
    assert hosts[-1] == "job-worker-0.job,job-worker-2.job"
    job.namespace.kubectl("delete", "resourcequota", "none")
    wait_attempts(job, (3, 4), (2, 6), (3, 4), seconds=180)
    assert job.condition() is None
    job.namespace.dsjob("down", "job")


def test_fewer_than_min_end_the_run_with_the_reason(job, tmp_path):
    install(job, tmp_path, count=2, least=2, run={"startTimeout": 25})
    wait_attempts(job, (2, 6))
    job.namespace.kubectl("scale", "statefulset", "job-worker", "--replicas=1")
    assert job.wait_ended(90) == "Failed"
    assert "elastic.min" in job.report()["message"]
    job.wait_released()


def test_an_autoscaler_rests_when_the_run_is_over(job, tmp_path):
    metrics = [
        {
            "type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "1m"}},
        }
    ]
    behavior = {"scaleUp": {"stabilizationWindowSeconds": 0}}
    install(
        job, tmp_path, count=1, most=2,
        elastic={"autoscaling": {"metrics": metrics, "behavior": behavior}},
        run={"command": COMMAND.replace("time.sleep(600)", "x = [i * i for i in range(10 ** 9)]")},
    )  # fmt: skip
    wait_attempts(job, (1, 12), (2, 6), seconds=240)
    job.wait_log("worker-1: rank 2")
    job.namespace.kubectl("exec", "job-worker-0", "--", "pkill", "-KILL", "-f", "python3 -uc")
    assert job.wait_ended(90) == "Failed"
    job.wait_released()
    wait_for(
        lambda: any(
            one["reason"] == "ScalingDisabled"
            for one in job.namespace.get("hpa", "job-worker")["status"].get("conditions", [])
        ),
        60,
        "the autoscaler does not rest",
    )
    assert job.pods("worker") == []
