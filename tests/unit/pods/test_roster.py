"""What the launcher makes of what the sidecar tells it, over a real socket."""

import json
import socket
import time

import pytest
import roster
from common import Refusal

HOSTS = ["job-worker-0.job", "job-worker-1.job"]


@pytest.fixture
def sidecar(tmp_path, monkeypatch):
    """A listening sidecar; call it to tell an event to the roster that connects."""
    path = tmp_path / "sidecar.sock"
    monkeypatch.setattr(roster, "SOCKET", path)
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    server.settimeout(10)
    yield server
    server.close()


@pytest.fixture
def replaced():
    """The hosts that the roster says were replaced."""
    return []


def tell(link, **event):
    link.sendall(json.dumps(event).encode() + b"\n")


def soon():
    return time.monotonic() + 10


def test_key_and_addresses_are_waited_for(sidecar, replaced):
    names = roster.Roster(HOSTS, replaced.append)
    link, _ = sidecar.accept()
    tell(link, event="key")
    names.await_key(soon())
    tell(link, event="worker", host=HOSTS[1], address="10.0.0.2")
    assert names.await_address(HOSTS[1], soon()) == "10.0.0.2"


def test_who_has_not_reported_is_named(sidecar, replaced):
    names = roster.Roster(HOSTS, replaced.append)
    link, _ = sidecar.accept()
    tell(link, event="worker", host=HOSTS[0], address="10.0.0.1")
    names.await_address(HOSTS[0], soon())
    with pytest.raises(
        TimeoutError, match=r"1 of 2 workers .*: job-worker-1; `kubectl describe pod job-worker-1`"
    ):
        names.await_address(HOSTS[1], time.monotonic() + 0.1)


def test_a_worker_that_was_replaced_has_its_new_address(sidecar, replaced):
    names = roster.Roster(HOSTS, replaced.append)
    link, _ = sidecar.accept()
    for address in ("10.0.0.1", "10.0.0.9"):
        tell(link, event="worker", host=HOSTS[0], address=address)
    until = soon()
    while names.await_address(HOSTS[0], soon()) != "10.0.0.9":
        assert time.monotonic() < until
        time.sleep(0.01)
    assert replaced == [HOSTS[0]]


def test_a_report_that_comes_twice_is_no_replacement(sidecar, replaced):
    names = roster.Roster(HOSTS, replaced.append)
    link, _ = sidecar.accept()
    for host in (HOSTS[0], HOSTS[0], HOSTS[1]):
        tell(link, event="worker", host=host, address="10.0.0.1")
    names.await_address(HOSTS[1], soon())
    assert replaced == []


def test_why_the_sidecar_cannot_go_on_is_passed_on(sidecar, replaced):
    names = roster.Roster(HOSTS, replaced.append)
    link, _ = sidecar.accept()
    tell(link, event="error", message="the image lacks ssh-keygen")
    with pytest.raises(Refusal, match="lacks ssh-keygen"):
        names.await_key(soon())


def test_a_restarted_sidecar_is_found_again_and_addresses_are_kept(sidecar, replaced):
    names = roster.Roster(HOSTS, replaced.append)
    first, _ = sidecar.accept()
    tell(first, event="worker", host=HOSTS[0], address="10.0.0.1")
    names.await_address(HOSTS[0], soon())
    first.close()
    second, _ = sidecar.accept()
    tell(second, event="worker", host=HOSTS[1], address="10.0.0.2")
    assert names.await_address(HOSTS[1], soon()) == "10.0.0.2"
    assert names.await_address(HOSTS[0], soon()) == "10.0.0.1"
    names.tell_running()
    assert second.recv(16) == b"running"
