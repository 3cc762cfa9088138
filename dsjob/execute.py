"""`dsjob exec`: a command in the launcher of an interactive job, with this terminal or these pipes."""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, BinaryIO

from dsjob import cluster, look, output
from dsjob.channels import RESIZE, STATUS, STDERR, STDIN, STDOUT, Broken, Channels, exit_code
from dsjob.errors import DsjobError, ExitCode
from dsjob.model import JobState, Phase
from dsjob.target import Target

ENTER = "/opt/deepspeed-job/enter"  # gives the command what the job's own would have
_CHUNK = 4096  # bytes that a socket takes at once when select calls it writable
_LOOK = 0.5  # seconds between two looks at the terminal's size
_SIGN = 20.0  # seconds between two signs of life


def execute(target: Target, name: str, command: Sequence[str]) -> int:
    """Run a command where the job's own would run, and return its exit code."""
    api = cluster.connect(target)
    state, _ = look.find(api, name)
    check(api, state)
    terminal = 0 if os.isatty(0) and os.isatty(1) else None
    stdin = 0 if terminal is not None or (sys.stdin and not os.isatty(0)) else None
    channels = api.start(
        state.launcher, "launcher", [ENTER, *command], stdin=stdin is not None, tty=terminal is not None
    )
    try:
        with nullcontext() if terminal is None else _raw(terminal):
            return attach(channels, stdin, sys.stdout.buffer, sys.stderr.buffer, terminal)
    except KeyboardInterrupt:
        output.note(f"\ninterrupted; the command may go on in {state.launcher}")
        return ExitCode.INTERRUPTED
    finally:
        channels.close()


def check(api: cluster.Cluster, state: JobState) -> None:
    """Refuse a job that takes no commands now, and say what to do."""
    look.refuse_over(state)
    if state.interactive:
        if state.phase is Phase.DEGRADED:
            output.note(f"warning: {state.message}", "yellow")
        return
    if state.mode == "direct" or not look.run_config(api, state)[0].get("interactive"):
        raise DsjobError(
            f"{state.name} is not interactive: it runs its own command",
            ExitCode.INVALID,
            hint="set `run.interactive: true` (it needs `mode: launcher`), and `dsjob up` again",
        )
    raise DsjobError(
        f"{state.name} takes no commands yet: {state.message}",
        ExitCode.PREFLIGHT,
        hint=f"`dsjob status {state.name} -n {state.namespace}` says what is missing",
    )


def attach(
    channels: Channels,
    stdin: int | None,
    stdout: BinaryIO,
    stderr: BinaryIO,
    terminal: int | None = None,
) -> int:
    """Pass on input, output and the size of the terminal until the command ends; return its exit code."""
    sinks, chunk, status = {STDOUT: stdout, STDERR: stderr}, b"", b""
    size, signed = (0, 0), time.monotonic()
    if stdin is not None and terminal is None and not channels.can_end_input:
        output.note("warning: before Kubernetes 1.30, the command is not told when its input ends", "yellow")
    while True:
        if terminal is not None and size != (now := _size(terminal)):
            size = now
            channels.send(RESIZE, json.dumps({"Width": size[0], "Height": size[1]}).encode())
        if time.monotonic() - signed > _SIGN:
            channels.keep_alive()
            signed = time.monotonic()
        # Input is sent only where that cannot block: the command may wait for us to take its output first.
        readers: list[Any] = [channels] if stdin is None or chunk else [channels, stdin]
        readable, writable, _ = select.select(readers, [channels] if chunk else [], [], _LOOK)
        if writable:
            channels.send(STDIN, chunk)
            chunk = b""
        if stdin is not None and stdin in readable:
            chunk = os.read(stdin, _CHUNK)
            if not chunk:
                channels.end_input()
                stdin = None
        arrived = channels in readable
        while arrived or channels.pending():
            arrived = False
            try:
                channel, data = channels.receive()
            except Broken:
                if status:
                    return exit_code(status)
                raise
            if channel == STATUS:
                status += data
            elif channel in sinks:
                sinks[channel].write(data)
                sinks[channel].flush()


def _size(terminal: int) -> tuple[int, int]:
    size = os.get_terminal_size(terminal)
    return size.columns, size.lines


@contextmanager
def _raw(terminal: int) -> Iterator[None]:
    """Every key goes to the command, Ctrl-C too."""
    import termios
    import tty

    before = termios.tcgetattr(terminal)
    try:
        tty.setraw(terminal)
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
