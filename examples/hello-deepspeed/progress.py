"""What rank 0 says about the run: a line now and then, and TensorBoard's scalars."""

from __future__ import annotations

import time
from pathlib import Path


class Progress:
    """Reports on stdout and to TensorBoard. The other ranks make a silent one."""

    def __init__(self, speaks: bool) -> None:
        self.speaks = speaks
        self.board = None
        self.since = time.monotonic()
        self.since_step = 0

    def say(self, line: str) -> None:
        """Print at once: somebody follows the log."""
        if self.speaks:
            print(line, flush=True)

    def start(self, folder: Path, step: int) -> None:
        """Start the clock; training goes on after STEP, and what an earlier run logged after it is hidden."""
        self.since, self.since_step = time.monotonic(), step
        if self.speaks:
            from torch.utils.tensorboard import SummaryWriter  # one rank of many needs it

            self.board = SummaryWriter(str(folder), purge_step=step + 1)

    def report(self, step: int, steps: int, loss: float, lr: float, loss_scale: float) -> None:
        """Report one step; the speed is the mean since the last report."""
        now = time.monotonic()
        speed = (step - self.since_step) / (now - self.since)
        self.since, self.since_step = now, step
        self.say(f"step {step}/{steps} loss {loss:.3f} lr {lr:g} steps/s {speed:.2f}")
        if self.board:
            scalars = {"loss": loss, "lr": lr, "steps_per_s": speed, "loss_scale": loss_scale}
            for name, value in scalars.items():
                self.board.add_scalar(f"train/{name}", value, step)
            self.board.flush()

    def close(self) -> None:
        """Finish TensorBoard's file."""
        if self.board:
            self.board.close()
