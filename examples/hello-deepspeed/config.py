"""DeepSpeed's configuration: the file that is named, or the example's own. Plain Python: no torch in here."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

# Mixed precision, ZeRO stage 1 and the optimizer's state in the host's memory.
DEFAULT: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 32,
    "optimizer": {"type": "Adam", "params": {"lr": 1e-4}},
    "fp16": {"enabled": True},
    "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}},
}
# A model this small learns too little in a short run with that rate.
TINY_LR = 1e-3


def load(path: str | None, model: str, device: str) -> tuple[dict[str, Any], list[str]]:
    """The configuration from PATH, $DEEPSPEED_CONFIG or DEFAULT, and what there is to say of it."""
    path = path or os.environ.get("DEEPSPEED_CONFIG")
    if path:
        config, said = read(path), [f"DeepSpeed configuration: {path}"]
    else:
        config, said = copy.deepcopy(DEFAULT), ["DeepSpeed configuration: the example's own"]
        if model == "tiny":
            config["optimizer"]["params"]["lr"] = TINY_LR
    if device == "cpu":
        for precision in ("fp16", "bf16"):
            if config.get(precision, {}).get("enabled"):
                config[precision]["enabled"] = False
                said.append(f"{precision} is switched off: this is a CPU, which trains in fp32")
    config.setdefault("steps_per_print", 1_000_000)  # train.py prints the steps
    return config, said


def read(path: str) -> dict[str, Any]:
    """Read one JSON file, or end with what is wrong with it."""
    try:
        config = json.loads(Path(path).read_text())
    except OSError as error:
        wanted = "--deepspeed_config or $DEEPSPEED_CONFIG must name a JSON file"
        raise SystemExit(f"{path}: {error.strerror}; {wanted}") from None
    except ValueError as error:
        raise SystemExit(f"{path} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise SystemExit(f"{path} holds a {type(config).__name__}; DeepSpeed's configuration is an object")
    return config
