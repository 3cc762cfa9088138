"""Wait until the cluster's DNS knows a host, without teaching its cache the opposite.

A lookup that comes too early is remembered as "does not exist", by CoreDNS for 5 to 30 s. It remembers by name and record type, so we
ask for a record type of private use (RFC 6895 3.1), another one each time: a name that exists has no such record, which is another answer
than that the name does not exist.
"""

import itertools
import random
import socket
import struct
import time
from pathlib import Path

RESOLV_CONF = Path("/etc/resolv.conf")
PORT = 53
RECURSION_DESIRED = 0x0100
CLASS_IN = 1
PRIVATE_TYPES = range(65280, 65535)
SERVER_FAILURE, NO_SUCH_NAME = 2, 3


def parse_resolv_conf(text: str) -> tuple:
    """Return the first name server and the first search domain; either may be empty."""
    server, domain = "", ""
    for words in (line.split() for line in text.splitlines()):
        if words[:1] == ["nameserver"] and not server:
            server = words[1]
        if words[:1] == ["search"]:
            domain = [*words, ""][1]
    return server, domain


def make_query(name: str, kind: int, number: int) -> bytes:
    """Return the DNS message that asks for one record type of a name."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.strip(".").split("."))
    header = struct.pack(">HHHHHH", number, RECURSION_DESIRED, 1, 0, 0, 0)
    return header + labels + b"\0" + struct.pack(">HH", kind, CLASS_IN)


def tells_existence(message: bytes, number: int) -> bool:
    """Tell whether a DNS message is the answer to query `number` and does not deny that the name exists."""
    if len(message) < 4:
        return False
    got, flags = struct.unpack(">HH", message[:4])
    return got == number and flags & 0x000F not in (SERVER_FAILURE, NO_SUCH_NAME)


def await_name(host: str, deadline: float) -> None:
    """Wait until the host has a name, or until time.monotonic() reaches `deadline`."""
    server, domain = parse_resolv_conf(RESOLV_CONF.read_text())
    if not server:
        return
    kinds = itertools.cycle(PRIVATE_TYPES)
    with socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.settimeout(1)
        link.connect((server, PORT))
        while time.monotonic() < deadline and not _exists(link, f"{host}.{domain}", next(kinds)):
            time.sleep(0.05)


def _exists(link: socket.socket, name: str, kind: int) -> bool:
    number = random.randrange(1 << 16)
    try:
        link.send(make_query(name, kind, number))
        return tells_existence(link.recv(4096), number)
    except OSError:
        return False
