"""Wait until the cluster's DNS knows a host, without teaching its cache the opposite.

A lookup that comes too early is remembered as "does not exist", by CoreDNS for 5 to 30 s. So the question is asked with the CD flag
(checking disabled, RFC 4035 3.2.2) set: CoreDNS and NodeLocal DNSCache cache such answers apart from those to ordinary lookups.
"""

import random
import socket
import struct
import time
from pathlib import Path

RESOLV_CONF = Path("/etc/resolv.conf")
RECURSION_DESIRED, CHECKING_DISABLED = 0x0100, 0x0010
PORT = 53
TYPE_A, TYPE_AAAA, CLASS_IN = 1, 28, 1


def parse_resolv_conf(text: str) -> tuple:
    """Return the first name server and the first search domain; either may be empty."""
    server, domain = "", ""
    for words in (line.split() for line in text.splitlines()):
        if words[:1] == ["nameserver"] and not server:
            server = words[1]
        if words[:1] == ["search"]:
            domain = (words + [""])[1]
    return server, domain


def make_query(name: str, kind: int, number: int) -> bytes:
    """Return the DNS message that asks for one record type of a name."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.strip(".").split("."))
    header = struct.pack(">HHHHHH", number, RECURSION_DESIRED | CHECKING_DISABLED, 1, 0, 0, 0)
    return header + labels + b"\0" + struct.pack(">HH", kind, CLASS_IN)


def has_answer(message: bytes, number: int) -> bool:
    """Tell whether a DNS message is the answer to query `number` and holds a record."""
    if len(message) < 12:
        return False
    got, flags, _, answers = struct.unpack(">HHHH", message[:8])
    return got == number and flags & 0x000F == 0 and answers > 0


def await_names(hosts: list, deadline: float) -> None:
    """Wait until every host has an address, or until time.monotonic() reaches `deadline`: who looks it up then says what is missing."""
    server, domain = parse_resolv_conf(RESOLV_CONF.read_text())
    if not server:
        return
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as link:
        link.settimeout(1)
        link.connect((server, PORT))
        for host in hosts:
            while time.monotonic() < deadline and not any(_ask(link, f"{host}.{domain}", kind) for kind in (TYPE_A, TYPE_AAAA)):
                time.sleep(0.05)


def _ask(link: socket.socket, name: str, kind: int) -> bool:
    number = random.randrange(1 << 16)
    try:
        link.send(make_query(name, kind, number))
        return has_answer(link.recv(4096), number)
    except OSError:
        return False
