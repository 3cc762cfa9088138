"""The life of the node: start, heal, status, stop."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import builds, certificates, cgroups, configs, images, namespaces, processes
from .base import (
    BIN,
    ELSEWHERE,
    KUBECONFIG,
    NO_PROXY,
    STATE,
    Problem,
    locked,
    need_linux_root,
    need_packages,
    run,
    say,
    succeeds,
)
from .identity import API_URL, DNS_SERVICE_IP, FAKE_GPUS, GPU_RESOURCE, HOST_IP, NODE, NODE_IP
from .parts import PARTS, Part

PACKAGES = {
    "containerd": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "iptables": "iptables",
    "ip": "iproute2",
    "openssl": "openssl",
    "nsenter": "util-linux",
    "buildah": "buildah",
}
MEMORY_GIB = 4
LOCK = STATE.with_name(f"{STATE.name}.lock")
# What a part may take to answer after its start, in seconds; a cold disk is slow.
PATIENCE = 90.0


def start() -> None:
    """Bring the node up, or what is missing of it; a second start changes nothing."""
    need_machine()
    need_packages({program: package for program, package in PACKAGES.items() if not usable(program)})
    builds.build([program.name for program in builds.programs() if program.name not in builds.FOR_TESTS])
    os.environ.update(NO_PROXY)
    with locked(LOCK):
        started = time.monotonic()
        if is_up():
            say(f"the node is up: KUBECONFIG={KUBECONFIG}")
            return
        pause = images.pause_archive()
        is_new = certificates.create()
        configs.write_all()
        if not namespaces.exist():
            cgroups.create()
            cgroups.kill()  # what a lost namespace left running
            namespaces.create()
        for wave in sorted({part.wave for part in PARTS}):
            before_wave(wave, pause, is_new)
            bring_up([part for part in PARTS if part.wave == wave])
        wait_until("the node is Ready", node_is_ready)
        wait_until("the namespace `default` takes pods", takes_pods)
        wait_until(f"{FAKE_GPUS} {GPU_RESOURCE} are on the node", gpus_are_there)
        say(f"the node is up after {time.monotonic() - started:.1f} s: KUBECONFIG={KUBECONFIG}")


def before_wave(wave: int, pause: Path, is_new: bool) -> None:
    """What parts of this wave need and the parts before them make possible."""
    if wave == 2 and is_new:
        forget_containers()  # of a cluster that was stopped when containerd was dead
    if wave == 3:
        images.load(pause)
        say("  the objects of the parts")
        run([*kubectl(), "apply", "-f", "-"], stdin=configs.objects())


def bring_up(parts: list[Part]) -> None:
    """Start those that do not run, and wait until all answer."""
    dead = [part for part in parts if part.pid() is None]
    for part in dead:
        processes.spawn(part.name, part.argv())
    if dead:
        say(f"  {', '.join(part.name for part in dead)}")
    for part in parts:
        give_up = time.monotonic() + PATIENCE
        while not part.answers():
            if part.pid() is None:
                raise Problem(
                    f"{part.name} ended at once; the last line of {part.log()}: {last_line(part.log())}"
                )
            if time.monotonic() > give_up:
                raise Problem(f"{part.name} runs but does not answer: see {part.log()}")
            time.sleep(0.05)


def wait_until(what: str, condition: Callable[[], bool]) -> None:
    """Wait for a condition of the cluster; `what` completes a sentence."""
    give_up = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > give_up:
            raise Problem(f"waited {PATIENCE:.0f} s in vain until {what}; see `cluster/logs kubelet`")
        time.sleep(0.2)


def status() -> bool:
    """Print a row for each part, the node's condition and the addresses; whether all of it is up."""
    os.environ.update(NO_PROXY)
    good = True
    for part in PARTS:
        pid = part.pid()
        state = "down" if pid is None else "up" if part.answers() else "not answering"
        good = good and state == "up"
        say(f"{part.name:<26}{pid or '-':<10}{state}")
    ready = good and node_is_ready()
    say(f"{'node ' + NODE:<36}{'Ready' if ready else 'not Ready'}")
    if namespaces.exist():
        say(f"{'API server':<36}{API_URL}")
        say(f"{'host, node, DNS':<36}{HOST_IP}, {NODE_IP}, {DNS_SERVICE_IP}")
        say(f"{'kubeconfig':<36}{KUBECONFIG}")
    return ready


def stop(delete: bool = False) -> None:
    """End the node and take away all it made; the images it has loaded stay unless `delete`."""
    need_linux_root()
    namespaces.need_name()
    with locked(LOCK):
        if not STATE.exists() and not cgroups.pids():
            say("there is no node")
            return
        for part in PARTS:
            if part.name != "containerd":
                processes.end(part.name, patience=0.5)
        containerd = processes.pid_of("containerd")
        cgroups.kill(spare=containerd)
        if containerd:
            forget_containers()
            processes.end("containerd")
        cgroups.kill()
        cgroups.remove()
        namespaces.remove()
        remove_state(delete)
        kept = "; its images stay for the next one (`cluster/stop --delete` removes them)"
        say("the node is gone" + ("" if delete else kept))


def forget_containers() -> None:
    """Remove what is left of the pods from containerd's records, with their file systems."""
    containers = run([*configs.ctr(), "containers", "list", "--quiet"], check=False).split()
    if containers:
        run([*configs.ctr(), "containers", "delete", *containers], check=False)


def remove_state(delete: bool) -> None:
    """Remove the node's files, all or all but containerd's images."""
    if delete:
        shutil.rmtree(STATE, ignore_errors=True)
        return
    for entry in STATE.iterdir():
        if entry == configs.CONTAINERD_ROOT:
            shutil.rmtree(entry / "io.containerd.grpc.v1.cri", ignore_errors=True)
        elif entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def need_machine() -> None:
    """Refuse a machine that cannot run the node, and say where to go instead."""
    need_linux_root()
    namespaces.need_name()
    sizes = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    total = int(sizes["MemTotal"].split()[0]) / 1024**2
    if total < MEMORY_GIB * 0.9:
        raise Problem(f"the node needs {MEMORY_GIB} GiB of memory, this machine has {total:.1f}. {ELSEWHERE}")


def usable(program: str) -> bool:
    """Whether a program is there, at any of the places where systems put it."""
    if program.endswith("/bridge"):
        return any(shutil.which(f"{folder}/bridge") for folder in configs.CNI_PLUGINS)
    return shutil.which(program) is not None


def is_up() -> bool:
    """Whether every part runs and answers, and the node is Ready with all it offers."""
    return (
        namespaces.exist()
        and all(part.pid() for part in PARTS)
        and all(part.answers() for part in PARTS)
        and node_is_ready()
        and gpus_are_there()
    )


def node_is_ready() -> bool:
    """Whether the node has the condition Ready."""
    conditions = node_status().get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def takes_pods() -> bool:
    """Whether the controllers have made what every pod of the namespace `default` mounts."""
    made = ["serviceaccount/default", "configmap/kube-root-ca.crt"]
    return succeeds([*kubectl(), "get", *made, "--namespace=default"])


def gpus_are_there() -> bool:
    """Whether the node offers the fake GPUs; offers them if not, for the next time."""
    offered = node_status()
    if all(offered.get(key, {}).get(GPU_RESOURCE) == str(FAKE_GPUS) for key in ("capacity", "allocatable")):
        return True
    patch = {"status": {key: {GPU_RESOURCE: str(FAKE_GPUS)} for key in ("capacity", "allocatable")}}
    succeeds([*kubectl(), "patch", "node", NODE, "--subresource=status", "--patch", json.dumps(patch)])
    return False


def node_status() -> dict[str, Any]:
    """The status of the Node object; empty while there is none."""
    said = run([*kubectl(), "get", "node", NODE, "--output=json", "--request-timeout=5s"], check=False)
    status: dict[str, Any] = json.loads(said)["status"] if said else {}
    return status


def kubectl() -> list[str | Path]:
    """The cluster's own kubectl and kubeconfig."""
    return [BIN / "kubectl", f"--kubeconfig={KUBECONFIG}"]


def need_containerd() -> None:
    """Refuse to go on without a node to load images into."""
    if processes.pid_of("containerd") is None:
        raise Problem("the node is down: `cluster/start` starts it")


def last_line(path: Path) -> str:
    """The last line of a file that says something."""
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1] if lines else "(nothing)"
