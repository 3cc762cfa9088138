"""Names and addresses of the node; they follow from its state folder, so two nodes can share a machine."""

from __future__ import annotations

import zlib
from pathlib import Path

from .base import STATE

NODE = "dsjob-local"
CONTEXT = "dsjob-local"


def key_of(state: Path) -> int:
    """Which of 250 names and networks is that of the node with this state folder."""
    return zlib.crc32(str(state).encode()) % 250


_KEY = key_of(STATE)
# The host's end of the veth pair and the node's cgroup have this name.
NAME = f"dsjob{_KEY}"
# A /30 of the range for benchmarks (RFC 2544): nobody routes it.
HOST_IP = f"198.18.{_KEY}.1"
NODE_IP = f"198.18.{_KEY}.2"

# These exist inside the node's network namespace only.
POD_CIDR = "10.244.0.0/16"
SERVICE_CIDR = "10.96.0.0/16"
API_SERVICE_IP = "10.96.0.1"
DNS_SERVICE_IP = "10.96.0.10"
DOMAIN = "cluster.local"
API_URL = f"https://{NODE_IP}:6443"

GPU_RESOURCE = "nvidia.com/gpu"
FAKE_GPUS = 8
