"""How workers report to the launcher's pod, over real sockets on loopback."""

import queue
import socket
import threading

import pytest
import rollcall

KEY = b"-----BEGIN OPENSSH PRIVATE KEY-----\n..."


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.mark.parametrize("refusal", ["", "the image of the worker lacks sshd", "ünïcode ☃\n\0"])
def test_a_report_tells_which_worker_it_is_and_proves_that_it_has_the_key(refusal):
    line = rollcall.make_report("job-worker-1.job", KEY, refusal)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert rollcall.read_report(line, KEY) == ("job-worker-1.job", refusal)


@pytest.mark.parametrize("letter", ["x", "ß", "☃"])
def test_a_long_refusal_is_cut_so_that_the_report_can_be_read(letter):
    line = rollcall.make_report("job-worker-1.job", KEY, letter * 5000)
    assert len(line) <= rollcall.MAX_BYTES
    assert rollcall.read_report(line, KEY) == ("job-worker-1.job", letter * 512)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"GET / HTTP/1.1\r\n",
        b"[]\n",
        b"{}\n",
        b'{"host": "job-worker-1.job", "proof": ""}\n',
        b'{"host": "job-worker-1.job", "refusal": "", "proof": ""}\n',
        rollcall.make_report("job-worker-1.job", b"another key"),
        rollcall.make_report("job-worker-1.job", KEY).replace(b"worker-1", b"worker-2"),
        rollcall.make_report("job-worker-1.job", KEY).replace(b'"refusal": ""', b'"refusal": "no"'),
        rollcall.make_report("job-worker-1.job", KEY, "no sshd").replace(b"no sshd", b""),
    ],
)
def test_nobody_else_can_report(line):
    with pytest.raises(ValueError, match=r"not a report|Expecting value"):
        rollcall.read_report(line, KEY)


def test_a_worker_that_is_early_reports_again_and_its_address_is_the_connections(capsys):
    port, heard = free_port(), queue.Queue()
    worker = threading.Thread(
        target=rollcall.report, args=["job-worker-0.job", KEY, "127.0.0.1", port], daemon=True
    )
    worker.start()
    rollcall.listen(port, KEY, lambda *report: heard.put(report))
    assert heard.get(timeout=10) == ("job-worker-0.job", "127.0.0.1", "")
    worker.join(10)
    assert not worker.is_alive()


def test_a_stranger_does_not_keep_others_from_reporting():
    port, heard = free_port(), queue.Queue()
    rollcall.listen(port, KEY, lambda *report: heard.put(report))
    silent = socket.create_connection(("127.0.0.1", port))
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(b"hello\n")
        assert stranger.recv(16) == b""
    rollcall.report("job-worker-0.job", KEY, "127.0.0.1", port, refusal="the image lacks sshd")
    assert heard.get(timeout=10) == ("job-worker-0.job", "127.0.0.1", "the image lacks sshd")
    silent.close()
