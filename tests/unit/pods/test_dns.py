"""Asking the cluster's DNS, against a name server of our own on loopback."""

import socket
import struct
import threading
import time

import dns
import pytest


@pytest.mark.parametrize(
    ("text", "result"),
    [
        (
            "search team.svc.cluster.local svc.cluster.local\nnameserver 10.0.0.10\noptions ndots:5\n",
            ("10.0.0.10", "team.svc.cluster.local"),
        ),
        ("nameserver fd00::10\nnameserver 10.0.0.10\n", ("fd00::10", "")),
        ("# nothing\nsearch\n", ("", "")),
    ],
)
def test_resolv_conf(text, result):
    assert dns.parse_resolv_conf(text) == result


def test_a_query_is_for_a_record_that_nobody_else_asks_for():
    query = dns.make_query("job-worker-0.job.team.svc.cluster.local", 65280, 7)
    number, flags, questions = struct.unpack(">HHH", query[:6])
    assert (number, flags, questions) == (7, 0x0100, 1)
    assert query[12:].startswith(b"\x0cjob-worker-0\x03job\x04team\x03svc")
    assert query.endswith(b"\x05local\x00\xff\x00\x00\x01")


@pytest.mark.parametrize(
    ("flags", "number", "exists"),
    [(0x8180, 7, True), (0x8183, 7, False), (0x8182, 7, False), (0x8180, 8, False), (0x8184, 7, True)],
)
def test_a_name_exists_unless_that_is_denied(flags, number, exists):
    assert dns.tells_existence(struct.pack(">HHHHHH", 7, flags, 1, 0, 0, 0), number) is exists


def test_a_name_that_comes_later_is_waited_for(monkeypatch, tmp_path):
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))
    asked = []

    def serve():
        while len(asked) < 5:
            query, client = server.recvfrom(512)
            asked.append(query)
            found = len(asked) == 5
            server.sendto(
                query[:2] + struct.pack(">HHHHH", 0x8180 if found else 0x8183, 1, 0, 0, 0) + query[12:],
                client,
            )

    threading.Thread(target=serve, daemon=True).start()
    monkeypatch.setattr(dns, "RESOLV_CONF", tmp_path / "resolv.conf")
    monkeypatch.setattr(dns, "PORT", server.getsockname()[1])
    dns.RESOLV_CONF.write_text("search x\nnameserver 127.0.0.1\n")
    dns.await_name("host", time.monotonic() + 10)
    assert len({query[-4:-2] for query in asked}) == 5, "each question must be another one to a cache"


def test_a_silent_server_is_not_waited_for_beyond_the_deadline(monkeypatch, tmp_path):
    silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    silent.bind(("127.0.0.1", 0))
    monkeypatch.setattr(dns, "RESOLV_CONF", tmp_path / "resolv.conf")
    monkeypatch.setattr(dns, "PORT", silent.getsockname()[1])
    dns.RESOLV_CONF.write_text("nameserver 127.0.0.1\n")
    began = time.monotonic()
    dns.await_name("host", began + 0.1)
    assert time.monotonic() - began < 10
