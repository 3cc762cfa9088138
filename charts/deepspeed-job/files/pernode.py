#!/usr/bin/env python3
"""`deepspeed` in mode direct: takes the options of the image's `deepspeed`, and becomes DeepSpeed's launcher of this one node.

The image's own would go to the other nodes by ssh. Its --no_ssh ignores SIGTERM as the first process, leaves its ranks behind, and ends
with 0 when its child is killed.
"""

import argparse
import base64
import importlib.util
import json
import os
import sys
from pathlib import Path

from common import Refusal, load_run

# Options of `deepspeed` (launcher/runner.py of 0.19.8), by what becomes of them here: the node's launcher has them too, ...
FLAGS = ["--module", "--no_python", "--no_local_rank", "--bind_cores_to_rank", "--quiet"]
VALUES = ["--master_addr", "--master_port", "--bind_core_list", "--enable_each_rank_log", "--log_level"]
# ... they are about reaching other nodes, ...
IDLE_FLAGS = ["--no_ssh", "--no_ssh_check", "--force_multi"]
IDLE_VALUES = ["--hostfile", "--launcher", "--launcher_args", "--ssh_port", "--node_rank"]
# ... or they cannot be honoured.
REFUSED = {
    "--include": "choose by `workers.count` and `workers.slots`",
    "--exclude": "choose by `workers.count` and `workers.slots`",
    "--autotuning": "the tuner starts runs by ssh: use `mode: launcher`",
    "--venv_script": "source the script in `run.command`, before `deepspeed`",
}
SHORT = {"--hostfile": "-H", "--include": "-i", "--exclude": "-e", "--quiet": "-q"}


def make_parser() -> argparse.ArgumentParser:
    """Return a parser that tells options from the script as `deepspeed` does: what follows the script is the script's."""
    parser = argparse.ArgumentParser(prog="deepspeed", argument_default=argparse.SUPPRESS)

    def add(name: str, *more: str, **how: object) -> None:
        parser.add_argument(*([SHORT[name]] if name in SHORT else []), name, *more, **how)

    for name in [*FLAGS, *IDLE_FLAGS, "--save_pid"]:
        add(name, action="store_true")
    for name in [*VALUES, *IDLE_VALUES, *REFUSED]:
        add(name)
    add("--num_nodes", type=int)
    add("--num_gpus", "--num_accelerators", type=int)
    parser.add_argument("script")
    parser.add_argument("args", nargs=argparse.REMAINDER)
    return parser


def encode_world(workers: int, slots: int) -> str:
    """Return the ranks of each node as DeepSpeed's launcher reads them. An argument has at most 128 KiB, hence the short names."""
    world = {f"worker-{i}": list(range(slots)) for i in range(workers)}
    return base64.urlsafe_b64encode(json.dumps(world, separators=(",", ":")).encode()).decode()


def launch_argv(arguments: list, run: dict, environment: dict) -> list:
    """Return the command of DeepSpeed's launcher for this node, for the arguments of `deepspeed`.

    Raises Refusal for an option that has no like here.
    """
    chosen = vars(make_parser().parse_args(arguments))
    for name, advice in REFUSED.items():
        if name[2:] in chosen:
            raise Refusal(f"{name} cannot be used in `mode: direct`: {advice}")
    if chosen.get("num_nodes", -1) not in (-1, run["workers"]):
        raise Refusal(f"--num_nodes {chosen['num_nodes']} is not `workers.count`, which is {run['workers']}")
    slots = chosen["num_gpus"] if chosen.get("num_gpus", -1) > 0 else run["slots"]
    for name in ("master_addr", "master_port"):
        chosen.setdefault(name, environment[name.upper()])
    options = [name for name in FLAGS if name[2:] in chosen]
    options += [f"{name}={chosen[name[2:]]}" for name in VALUES if name[2:] in chosen]
    options += [f"--save_pid={os.getpid()}"] if "save_pid" in chosen else []
    world, index = encode_world(run["workers"], slots), environment["NODE_RANK"]
    launch = ["-u", "-m", "deepspeed.launcher.launch", f"--world_info={world}", f"--node_rank={index}"]
    return [sys.executable, *launch, *options, chosen["script"], *chosen["args"]]


def main() -> None:
    """Become the launcher of this node."""
    if importlib.util.find_spec("deepspeed") is None:
        sys.stderr.write(
            f"deepspeed: {sys.executable} has no module `deepspeed`: install it in the image, or start from Dockerfile.base\n"
        )
        sys.exit(127)
    try:
        argv = launch_argv(sys.argv[1:], load_run(), dict(os.environ))
    except Refusal as refusal:
        sys.stderr.write(f"deepspeed: {refusal}\n")
        sys.exit(2)
    # As `deepspeed` does for the ranks that it starts by ssh.
    os.environ["PYTHONPATH"] = ":".join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")]))
    os.execv(argv[0], argv)


if __name__ == "__main__":
    main()
