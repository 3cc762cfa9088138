"""Launchers other than `deepspeed` as it is by itself: each reaches the workers through the job's ssh settings, and trains there.

All start the same program, which adds up its ranks' numbers by torch.distributed.
"""

import json
import re

import pytest
from lab import Job

LAUNCHERS = {"repository": "localhost/deepspeed-test", "tag": "launchers"}
PROGRAM = "/workspace/allreduce.py"
RANK = re.compile(r"RANK (\{.*\})")
# For each line of the hostfile, a launcher for this host alone.
ON_EACH_HOST = """\
rank=0
while read -r host slots; do
  ssh -n "$host" "{}" &
  rank=$((rank + 1))
done < /job/hostfile
wait
"""
TORCHRUN = f"""\
torchrun --nnodes $workers --node-rank $rank --nproc-per-node 1 --master-addr $MASTER_ADDR --master-port $MASTER_PORT \
{PROGRAM} one 'two words'"""
# As the user guide says for several machines; what is about GPUs is left to the program.
ACCELERATE_EACH = f"""\
accelerate launch --multi_gpu --num_machines $workers --num_processes $workers --machine_rank $rank --main_process_ip $MASTER_ADDR \
--main_process_port $MASTER_PORT --mixed_precision no --dynamo_backend no {PROGRAM} one 'two words'"""
ACCELERATE_DEEPSPEED = f"""\
accelerate launch --use_deepspeed --deepspeed_hostfile /job/hostfile --deepspeed_multinode_launcher pdsh --num_machines $workers \
--num_processes $workers --machine_rank 0 --main_process_ip $MASTER_ADDR --main_process_port $MASTER_PORT --mixed_precision no \
--dynamo_backend no {PROGRAM} one 'two words'"""
# A rank that waits for a message spins: two of them on one core would be slow.
MPIRUN = f"mpirun --hostfile /job/hostfile --mca mpi_yield_when_idle 1 {PROGRAM} one 'two words'"
DEEPSPEED_OPENMPI = f"deepspeed --launcher openmpi {PROGRAM} one 'two words'"


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(ON_EACH_HOST.format(TORCHRUN), id="torchrun"),
        pytest.param(ON_EACH_HOST.format(ACCELERATE_EACH), id="accelerate-each"),
        pytest.param(ACCELERATE_DEEPSPEED, id="accelerate-deepspeed"),
        pytest.param(MPIRUN, id="mpirun"),
        pytest.param(DEEPSPEED_OPENMPI, id="deepspeed-openmpi"),
    ],
)
def test_it_trains_on_all_workers(namespace, tmp_path, command):
    job = Job(namespace)
    namespace.kubectl("create", "secret", "generic", "hf", "--from-literal=token=hunter2")
    token = {"TOKEN": {"secretKeyRef": {"name": "hf", "key": "token"}}}
    job.install(
        tmp_path,
        image=LAUNCHERS,
        workers={"count": 2},
        env={"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", **token},
        ssh={"port": 2345},
        # `accelerate` writes a file there.
        run={"command": command, "workingDir": "/tmp"},
    )
    assert job.wait_ended(300) == "Complete", job.describe()
    log = job.log()
    ranks = sorted((json.loads(found) for found in RANK.findall(log)), key=lambda one: one["rank"])
    assert [(one["rank"], one["size"], one["host"], one["sum"]) for one in ranks] == [
        (0, 2, "job-worker-0", 3),
        (1, 2, "job-worker-1", 3),
    ], log
    chart = {"workers": "2", "gpus": "0", "MASTER_ADDR": "job-worker-0.job", "MASTER_PORT": "29500"}
    for one in ranks:
        assert one["args"] == ["one", "two words"]
        assert one["chart"] == chart
    assert "hunter2" not in log
    job.wait_released()


def test_a_launcher_that_does_not_wait_for_its_connections(job, tmp_path):
    """mpirun ends when its ranks have told it that they are done, a moment before ssh does."""
    job.install(tmp_path, run={"command": "ssh -n job-worker-0.job 'sleep 1; echo end' & exit 0"})
    assert job.wait_ended() == "Complete", job.describe()
    assert "\nend\n" in job.log()
