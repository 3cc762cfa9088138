#!/usr/bin/env python3
"""One rank: adds its number to those of all others by torch.distributed, and says who it is.

It knows the variables of torch and of OpenMPI.
"""

import json
import os
import socket
import sys

import torch
import torch.distributed as dist

CHART = ("workers", "gpus", "MASTER_ADDR", "MASTER_PORT")
OPENMPI = {"RANK": "OMPI_COMM_WORLD_RANK", "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE"}


def main():
    """Take part in one all-reduce."""
    for ours, theirs in OPENMPI.items():
        if theirs in os.environ:
            os.environ.setdefault(ours, os.environ[theirs])
    dist.init_process_group("gloo")
    numbers = torch.tensor([dist.get_rank() + 1])
    dist.all_reduce(numbers)
    facts = {
        "rank": dist.get_rank(),
        "size": dist.get_world_size(),
        "host": socket.gethostname(),
        "sum": int(numbers),
        "args": sys.argv[1:],
        "chart": {name: os.environ.get(name) for name in CHART},
    }
    # In one write, since ranks may share their output.
    os.write(1, f"RANK {json.dumps(facts)}\n".encode())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
