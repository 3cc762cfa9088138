"""The node's own network and mount namespace: whatever it sets up there goes away with them."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from .base import CACHE, LOGS, STATE, Problem, run, succeeds
from .identity import HOST_IP, NAME, NODE_IP, SERVICE_CIDR

# A tmpfs: holds the namespaces, the sockets and the pid files, none of which outlives a reboot.
RUN = STATE / "run"
MOUNT_NAMESPACE = RUN / "mnt"
NETWORK_NAMESPACE = RUN / "net"
# Inside, empty file systems cover these: kubelet, containerd's shims and CNI insist on places below them.
EMPTY = (Path("/run"), Path("/var/lib"))
# And these lead to the node's state.
BOUND = {
    Path("/var/lib/kubelet"): STATE / "kubelet",
    Path("/var/lib/cni"): STATE / "cni/state",
    Path("/var/log"): LOGS / "node",
}

# What kubelet would write to the host's kernel; it finds these values in place and leaves the host alone.
SYSCTLS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def exist() -> bool:
    """Whether the namespaces are there, and whole."""
    return (RUN / "whole").exists()


def need_name() -> None:
    """Refuse a state folder for which another folder's node has the name and addresses."""
    for name, run_folder in other_nodes():
        if name == NAME:
            raise Problem(
                f"the node in {run_folder.parent} has the name {NAME}, which {STATE} stands for too: "
                "set XDG_STATE_HOME to another folder, or stop that node"
            )


def other_nodes() -> list[tuple[str, Path]]:
    """The name and the run folder of each other node on this machine."""
    lines = Path("/proc/mounts").read_text().splitlines()
    mounts = [[word.replace(r"\040", " ") for word in line.split()] for line in lines]
    nodes = [(source, Path(place)) for source, place, *_ in mounts if re.fullmatch(r"dsjob\d+", source)]
    return [(name, run_folder) for name, run_folder in nodes if run_folder != RUN]


def enter() -> list[str]:
    """The words before a command that make it run inside the node."""
    return ["nsenter", f"--net={NETWORK_NAMESPACE}", f"--mount={MOUNT_NAMESPACE}", "--"]


def create() -> None:
    """Make the namespaces, the mounts inside, and the veth pair that joins them to the host."""
    for folder in (STATE, CACHE):
        if any(path in folder.resolve().parents for path in (*EMPTY, *BOUND)):
            raise Problem(
                f"the node cannot use {folder}: set XDG_STATE_HOME and XDG_CACHE_HOME to other places"
            )
    remove()
    RUN.mkdir(parents=True, exist_ok=True)
    run(["mount", "-t", "tmpfs", "-o", "mode=700", NAME, RUN])
    # unshare can keep a mount namespace only in a file on a mount that is not shared.
    run(["mount", "--make-private", RUN])
    for path in (MOUNT_NAMESPACE, NETWORK_NAMESPACE):
        path.touch()
    run(["unshare", f"--mount={MOUNT_NAMESPACE}", f"--net={NETWORK_NAMESPACE}", "--", "true"])
    sysctls = RUN / "sysctl"
    for name, value in SYSCTLS.items():
        (sysctls / name).parent.mkdir(parents=True, exist_ok=True)
        (sysctls / name).write_text(value + "\n")
    mounts = [f"mount --bind '{sysctls / name}' /proc/sys/{name}" for name in SYSCTLS]
    mounts += [f"mount -t tmpfs -o mode=755 {NAME} {path}" for path in EMPTY]
    # Else this namespace would keep theirs alive when they stop.
    mounts += [f"umount --lazy '{run_folder}' || true" for _, run_folder in other_nodes()]
    for target, source in BOUND.items():
        source.mkdir(parents=True, exist_ok=True)
        mounts.append(f"mkdir -p {target} && mount --bind '{source}' {target}")
    network = [
        f"ip link add eth0 type veth peer name {NAME} netns {os.getpid()}",
        f"ip address add {NODE_IP}/30 dev eth0",
        "ip link set lo up",
        "ip link set eth0 up",
        # Nothing leads out of the node, but a packet to a Service needs a route before kube-proxy sees it.
        f"ip route add {SERVICE_CIDR} dev eth0",
        "echo 1 > /proc/sys/net/ipv4/ip_forward",
        "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6 || true",
        # Without this, what pods of the one bridge send each other through a Service is not translated back.
        "echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables || true",
    ]
    succeeds(["modprobe", "br_netfilter"])
    # Shared inside, as a node's mounts are, so that a pod can ask for mount propagation.
    run([*enter(), "sh", "-ec", "\n".join(["mount --make-rshared /", *network, *mounts])])
    run(["ip", "address", "add", f"{HOST_IP}/30", "dev", NAME])
    run(["ip", "link", "set", NAME, "up"])
    (RUN / "whole").touch()


def remove() -> None:
    """Let go of the namespaces and the interface; needs all processes of the node to be gone."""
    succeeds(["ip", "link", "delete", NAME])
    for path in (MOUNT_NAMESPACE, NETWORK_NAMESPACE, RUN):
        for _ in range(8):
            if not os.path.ismount(path):
                break
            succeeds(["umount", path])
        else:
            raise Problem(f"cannot unmount {path}: `findmnt {path}` and `fuser -m {path}` show what holds it")
    shutil.rmtree(RUN, ignore_errors=True)
