#!/usr/bin/env python3
"""Train a small BERT with DeepSpeed to fill in masked words, on GPUs (NCCL, fp16) or on CPUs (gloo, fp32).

    deepspeed train.py --checkpoint_dir /data/deepspeed_data

A run that finds a whole checkpoint in --checkpoint_dir goes on from there. SIGTERM ends a run after one more
checkpoint.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
import warnings
from pathlib import Path
from typing import Any

import deepspeed
import torch
from deepspeed import comm
from deepspeed.accelerator import get_accelerator

import checkpoint
import config
from checkpoint import Checkpoint
from data import Corpus, batches
from model import SIZES, MaskedLanguageModel
from progress import Progress

STOPPED = 128 + signal.SIGTERM


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    option = parser.add_argument
    option("--checkpoint_dir", type=Path, required=True, help="a folder that all ranks share")
    option("--logdir", type=Path, help="for TensorBoard's files (default: the checkpoint folder)")
    option("--deepspeed_config", help="a JSON file (default: $DEEPSPEED_CONFIG, else what config.py has)")
    option("--model", choices=SIZES, default="small", help="its size (default: %(default)s)")
    option("--steps", type=positive, default=1000, help="where to end (default: %(default)s)")
    option("--checkpoint_every", type=positive, default=100, help="steps (default: %(default)s)")
    option("--log_every", type=positive, default=10, help="steps (default: %(default)s)")
    option("--seed", type=int, default=42, help="of weights, order and masks (default: %(default)s)")
    option("--local_rank", type=int, default=os.environ.get("LOCAL_RANK", "0"), help="deepspeed sets it")
    return parser.parse_args()


def positive(text: str) -> int:
    """A whole number from one on."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def main() -> int:
    """Train until --steps and return the exit code."""
    args = arguments()
    stop = StopRequest()
    quieten()
    os.environ["LOCAL_RANK"] = str(args.local_rank)
    accelerator = get_accelerator()
    accelerator.set_device(args.local_rank)
    deepspeed.init_distributed(verbose=False)
    rank, world = comm.get_rank(), comm.get_world_size()
    device, backend = accelerator.current_device_name(), accelerator.communication_backend_name()
    print(f"rank {rank} of {world} on {socket.gethostname()}: {device}, {backend}", flush=True)

    checkpoint.prepare(args.checkpoint_dir)
    progress = Progress(speaks=rank == 0)
    corpus = Corpus.load()
    settings, said = config.load(args.deepspeed_config, args.model, accelerator.device_name())
    for line in said:
        progress.say(line)
    torch.manual_seed(args.seed)
    model = MaskedLanguageModel(args.model, len(corpus.vocabulary), corpus.length)
    parameters = sum(p.numel() for p in model.parameters())
    progress.say(f"model {args.model}: {parameters:,} parameters; {len(corpus.lines):,} lines of text")
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)

    step = resume(engine, args, progress)
    if step >= args.steps:
        progress.say(f"nothing to do: step {step} is done and --steps is {args.steps}")
        return 0
    return train(engine, corpus, args, step, stop, progress)


def train(
    engine: Any, corpus: Corpus, args: argparse.Namespace, step: int, stop: StopRequest, progress: Progress
) -> int:
    """Train from STEP on; return 0 at the end, or STOPPED after a SIGTERM to any of the ranks."""
    first = step + 1
    accumulate = engine.gradient_accumulation_steps()
    source = batches(
        corpus,
        batch=engine.train_micro_batch_size_per_gpu(),
        seed=args.seed,
        rank=comm.get_rank(),
        world=comm.get_world_size(),
        start=step * accumulate,
    )
    progress.start(args.logdir or args.checkpoint_dir, step)
    stopped = False
    while step < args.steps and not stopped:
        loss = sum(train_batch(engine, *next(source)) for _ in range(accumulate)) / accumulate
        step += 1
        # One small sum over the ranks: of the loss, and of who was told to stop, so that all stop together.
        total = torch.stack([loss, torch.tensor(float(stop.requested), device=loss.device)])
        comm.all_reduce(total)
        mean, stopped = total[0].item() / comm.get_world_size(), total[1].item() > 0
        last = stopped or step == args.steps
        if last or step == first or step % args.log_every == 0:
            scale = float(getattr(engine.optimizer, "loss_scale", 1))
            progress.report(step, args.steps, mean, engine.get_lr()[0], scale)
        if last or step % args.checkpoint_every == 0:
            save(engine, args, step, progress)
    progress.close()
    if step < args.steps:
        progress.say(f"stopped by SIGTERM at step {step}: the same command goes on from there")
        return STOPPED
    progress.say(f"done: {step} steps")
    return 0


def train_batch(engine: Any, inputs: list[list[int]], labels: list[list[int]]) -> torch.Tensor:
    """One micro batch forward and backward; DeepSpeed knows after how many the weights change."""
    loss = engine(torch.tensor(inputs, device=engine.device), torch.tensor(labels, device=engine.device))
    engine.backward(loss)
    engine.step()
    return loss.detach().float()


def save(engine: Any, args: argparse.Namespace, step: int, progress: Progress) -> None:
    """Write a checkpoint: every rank its part, and then rank 0 that it is whole."""
    saved = Checkpoint(step, comm.get_world_size(), args.model)
    if comm.get_rank() == 0:
        checkpoint.unmark(args.checkpoint_dir, saved.tag)
    engine.save_checkpoint(args.checkpoint_dir, tag=saved.tag, save_latest=False)
    comm.barrier()
    if comm.get_rank() == 0:
        checkpoint.mark_whole(args.checkpoint_dir, saved)
    progress.say(f"checkpoint: {args.checkpoint_dir / saved.tag}")


def resume(engine: Any, args: argparse.Namespace, progress: Progress) -> int:
    """Load the newest whole checkpoint of this model, if there is one, and return its step."""
    # Rank 0 chooses for all: on a network file system the others may see a new folder a moment later.
    choice = [checkpoint.newest(args.checkpoint_dir, args.model) if comm.get_rank() == 0 else None]
    torch.distributed.broadcast_object_list(choice, src=0, device=engine.device)
    newest = choice[0]
    if newest is None:
        progress.say(f"starting at step 0: {args.checkpoint_dir} has no whole checkpoint of this model")
        return 0
    folder = args.checkpoint_dir / newest.tag
    if not folder.is_dir():
        sys.exit(f"{socket.gethostname()} sees no {folder}: all ranks must share --checkpoint_dir")
    # With ZeRO each rank keeps a part of Adam's averages, which fits the same number of ranks only.
    same = newest.world == comm.get_world_size()
    rates = engine.get_lr()
    engine.load_checkpoint(args.checkpoint_dir, tag=newest.tag, load_module_only=not same)
    if engine.lr_scheduler is None:
        # The checkpoint brought the rate that it was trained with; this run's configuration may have another.
        for group, rate in zip(engine.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
    progress.say(f"resuming from {folder}")
    if not same:
        ranks = f"{newest.world} ranks wrote it and {comm.get_world_size()} read it"
        progress.say(f"{ranks}: only the weights fit, Adam's averages start anew")
    return newest.step


class StopRequest:
    """Whether SIGTERM has come; the training loop asks between two steps."""

    def __init__(self) -> None:
        self.requested = False
        signal.signal(signal.SIGTERM, self.note)

    def note(self, *_: object) -> None:
        """The signal's handler."""
        self.requested = True


def quieten() -> None:
    """Keep DeepSpeed's list of settings and PyTorch's advice to DeepSpeed's authors out of the log."""
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.")


if __name__ == "__main__":
    code = main()
    comm.destroy_process_group()
    sys.exit(code)
