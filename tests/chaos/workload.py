"""The small job of a trial: ranks without torch that write what they do into a shared folder, and a pod that reads it."""

from __future__ import annotations

from typing import Any

from plan import Plan

CLAIM = "chaos"
WITNESS = "witness"
# The environment variable that tells a trial's processes from all others, and the word in a rank's arguments.
MARKER, WORD = "CHAOS", "chaos-rank"

# A rank has a helper that left its session, as data loaders do.
RANK = """
import os, signal, subprocess, sys, time
attempt, seconds, saving = (int(one) for one in sys.argv[2:])
def mark(word):
    file = os.open("/out/marks", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(file, f"{word} {attempt} {os.uname().nodename} {time.time():.2f}\\n".encode())
    os.close(file)
def told(*_):
    mark("told")
    time.sleep(saving)
    os._exit(1)
signal.signal(signal.SIGTERM, told)
mark("begin")
print("begin", flush=True)
subprocess.Popen(["sleep", "1000"], start_new_session=True)
until = time.monotonic() + seconds
while time.monotonic() < until:
    time.sleep(0.5)
    mark("tick")
mark("end")
"""


def values(plan: Plan, name: str, space: str) -> dict[str, Any]:
    """The values of the job."""
    rank = f'exec python3 -uc "$RANK_CODE" {WORD}'
    numbers = f"$(date +%s%N) {plan.seconds} {plan.saving}"
    command = f"{rank} {numbers}"
    run: dict[str, Any] = {"startTimeout": 90}
    if plan.kind.mode == "launcher":
        hosts = f"{name}-worker-[0-{plan.workers - 1}].{name}"
        # As `deepspeed` does, it ends with 0 when pdsh is killed; so the truth is not in its exit code.
        command = f"pdsh -S -w {hosts} '{rank}' {numbers} || [ $? -gt 128 ]"
        run |= {"maxRestarts": plan.max_restarts, "countLostWorkers": plan.count_lost_workers}
    small = {"requests": {"cpu": "10m", "memory": "32Mi"}}
    return {
        "mode": plan.kind.mode,
        "run": {**run, "command": command},
        "workers": {"count": plan.workers, "resources": small},
        "launcher": {"resources": small},
        "data": [{"claim": CLAIM, "mountPath": "/out"}],
        "env": {"RANK_CODE": RANK, MARKER: space},
    }


def witness(image: str) -> dict[str, Any]:
    """A pod that sees the shared folder, before, during and after the run."""
    restricted = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "3600"],
        "securityContext": restricted,
        "volumeMounts": [{"name": "out", "mountPath": "/out"}],
    }
    user = {"runAsNonRoot": True, "runAsUser": 1000, "fsGroup": 1000}
    spec = {
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "securityContext": {**user, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "out", "persistentVolumeClaim": {"claimName": CLAIM}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": WITNESS}, "spec": spec}
