"""How long a job takes to start and to end on the cluster, and what it costs to train in one."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from itertools import count
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts" / "deepspeed-job"
TWIN = yaml.safe_load((ROOT / "values" / "hello-deepspeed-cpu.yaml").read_text())
STEP = re.compile(r"^(\S+) .*step (\d+)/\d+ loss")
WARM_UP_STEPS = 10
NUMBERS = count(1)


def run(*argv: str, text: str | None = None) -> str:
    """Run a command that must succeed; return its standard output."""
    return subprocess.run(argv, check=True, input=text, capture_output=True, text=True).stdout


def unix(timestamp: str) -> float:
    """Return the Unix time of a timestamp with nanoseconds, as `kubectl logs --timestamps` prints it."""
    return datetime.fromisoformat(timestamp[:26].rstrip("Z") + "+00:00").timestamp()


class Space:
    """A namespace for the jobs of this run."""

    def __init__(self, name: str, folder: str) -> None:
        self.name = name
        self.folder = Path(folder)

    def kubectl(self, *args: str, text: str | None = None) -> str:
        """Run kubectl in the namespace."""
        return run("kubectl", "-n", self.name, *args, text=text)

    def log(self, job: str) -> list[str]:
        """Return the launcher's log so far, each line with its time; empty before there is one."""
        argv = [
            "kubectl",
            "-n",
            self.name,
            "logs",
            "-l",
            f"app.kubernetes.io/instance={job},app.kubernetes.io/component=launcher",
        ]
        done = subprocess.run(
            [*argv, "-c", "launcher", "--timestamps", "--tail=-1"], capture_output=True, text=True
        )
        return done.stdout.splitlines()

    def when(self, job: str, pattern: str) -> float:
        """Return when the first line that matches was printed."""
        log = self.log(job)
        found = [unix(line.split()[0]) for line in log if re.search(pattern, line)]
        if not found:
            raise LookupError(f"{job}: no {pattern!r} in its log:\n" + "\n".join(log[-20:]))
        return found[0]

    def wait_end(self, job: str) -> None:
        """Wait for the launcher to end, by a watch: to ask again and again would take the time that is measured."""
        selector = f"app.kubernetes.io/instance={job},app.kubernetes.io/component=launcher"
        self.kubectl("wait", "--for=condition=complete", "job", "-l", selector, "--timeout=300s")

    def values(self, **values: Any) -> str:
        """Write a values file over the CPU twin's and return its path."""
        path = self.folder / "values.yaml"
        path.write_text(yaml.safe_dump({**TWIN, **values}))
        return str(path)

    def remove(self, job: str) -> None:
        """Uninstall a job and wait for its pods to go."""
        run("helm", "-n", self.name, "uninstall", job)
        self.kubectl(
            "wait", "--for=delete", "pod", "-l", f"app.kubernetes.io/instance={job}", "--timeout=120s"
        )


@contextmanager
def namespace(name: str) -> Iterator[Space]:
    """A namespace with the claim that the CPU twin needs; gone after the block."""
    run("kubectl", "create", "namespace", name)
    folder = tempfile.TemporaryDirectory()
    space = Space(name, folder.name)
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "training-data"},
        "spec": spec,
    }
    space.kubectl("apply", "-f", "-", text=json.dumps(claim))
    try:
        yield space
    finally:
        folder.cleanup()
        run("kubectl", "delete", "namespace", name)


def worker_deletions(space: Space, job: str) -> subprocess.Popen[str]:
    """Start to watch the job's workers."""
    selector = f"app.kubernetes.io/instance={job},app.kubernetes.io/component=worker"
    events = [
        "--watch",
        "--output-watch-events",
        "-o",
        'jsonpath={.type} {.object.metadata.name}{"\\n"}',
        "--request-timeout=60s",
    ]
    argv = ["kubectl", "-n", space.name, "get", "pods", "-l", selector, *events]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


def start_and_end(space: Space) -> tuple[float, float]:
    """Return seconds from `helm install` to ssh on all workers, and from the launcher's end to the last worker's."""
    # A new name each time, as a new job has: the cluster's DNS remembers the addresses of an old one for 30 s.
    job = f"start-{next(NUMBERS)}"
    path = space.values(run={"command": ["sleep", "3"]}, tensorboard={"enabled": False}, data=[])
    begin = time.time()
    run("helm", "-n", space.name, "install", job, str(CHART), "-f", path)
    watch = worker_deletions(space, job)
    assert watch.stdout
    gone, last = 0, 0.0
    for line in watch.stdout:
        if line.startswith("DELETED"):
            gone, last = gone + 1, time.time()
        if gone == 3:
            break
    watch.kill()
    watch.wait()
    connected = space.when(job, "workers connected") - begin
    released = last - space.when(job, "Succeeded")
    space.remove(job)
    return connected, released


def speed(lines: list[str]) -> float:
    """Return steps per second from a log with times, without the first steps."""
    steps = [(int(found[2]), unix(found[1])) for line in lines if (found := STEP.search(line))]
    (first, begin), (last, end) = next(one for one in steps if one[0] >= WARM_UP_STEPS), steps[-1]
    return (last - first) / (end - begin)


def training(space: Space) -> tuple[float, float, float, float]:
    """Return seconds to the first step by `dsjob up` and by hand in a standing job, and the steps/s of both."""
    number = next(NUMBERS)
    command = (
        TWIN["run"]["command"]
        .replace("/data/deepspeed_data", f"/data/{number}")
        .replace("--steps 80", "--steps 200")
    )
    job = f"up-{number}"
    path = space.values(run={"command": command}, tensorboard={"enabled": False})
    begin = time.time()
    run("dsjob", "up", "-d", path, job, "-n", space.name)
    space.wait_end(job)
    up = space.when(job, "step 1/") - begin
    up_speed = speed(space.log(job))
    space.remove(job)

    job = f"hand-{number}"
    path = space.values(
        run={"command": ["sh", "-c", "echo ready; sleep infinity"]}, tensorboard={"enabled": False}
    )
    run("helm", "-n", space.name, "install", job, str(CHART), "-f", path)
    until = time.monotonic() + 120
    while not any(line.endswith(" ready") for line in space.log(job)):
        assert time.monotonic() < until
        time.sleep(0.5)
    pod = space.kubectl(
        "get",
        "pods",
        "-l",
        f"app.kubernetes.io/instance={job},app.kubernetes.io/component=launcher",
        "-o",
        "name",
    )
    typed = f"PATH=/opt/deepspeed-job:$PATH exec {command.replace(f'/data/{number}', f'/data/{number}-hand')}"
    begin = time.time()
    argv = ["kubectl", "-n", space.name, "exec", pod.strip(), "-c", "launcher", "--", "bash", "-c", typed]
    hand = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert hand.stdout
    lines = [
        f"{datetime.now(timezone.utc).strftime('%Y-%m-%dT%H:%M:%S.%f')}Z {line.rstrip()}"
        for line in hand.stdout
    ]
    hand.wait()
    first = next(unix(line.split()[0]) for line in lines if "step 1/" in line) - begin
    space.remove(job)
    return up, first, up_speed, speed(lines)
