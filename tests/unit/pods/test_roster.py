"""What the launcher makes of what the sidecar tells it, and what the sidecar hears, over a real socket."""

import json
import socket
import threading
import time

import pytest
import roster
from common import Refusal
from waiting import soon, wait_for

HOSTS = ["job-worker-0.job", "job-worker-1.job", "job-worker-2.job"]


@pytest.fixture
def sidecar(tmp_path, monkeypatch):
    """A listening sidecar."""
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


@pytest.fixture
def changes():
    """One entry for each time that the roster says that something changed."""
    return []


@pytest.fixture
def connected(sidecar, replaced, changes):
    """Make a roster that wants so many workers; return it and the sidecar's side of its connection."""
    made = []

    def make(count=2):
        names = roster.Roster(HOSTS, count, replaced.append, lambda: changes.append(True))
        made.append(names)
        link, _ = sidecar.accept()
        link.settimeout(10)
        return names, link

    yield make
    for names in made:
        names.release()
        names._released = True  # it would look for another sidecar


def tell(link, **event):
    link.sendall(json.dumps(event).encode() + b"\n")


def report(link, index, address):
    tell(link, event="worker", host=HOSTS[index], address=address)


def heard(link):
    """Yield what the roster tells of the run, from what it says first on its connection."""
    for line in link.makefile("r"):
        yield json.loads(line)


def test_key_and_addresses_are_waited_for(connected):
    names, link = connected()
    tell(link, event="key")
    names.await_key(soon())
    report(link, 1, "10.0.0.2")
    assert names.await_address(HOSTS[1], soon()) == "10.0.0.2"
    assert names.present() == [HOSTS[1]]
    assert not names.await_all(time.monotonic())
    report(link, 0, "10.0.0.1")
    assert names.await_all(soon())
    assert names.present() == HOSTS[:2], "in rank order, whoever came first"


def test_who_has_not_reported_is_named(connected):
    names, link = connected()
    report(link, 0, "10.0.0.1")
    names.await_address(HOSTS[0], soon())
    with pytest.raises(
        TimeoutError, match=r"1 of 2 workers .*: job-worker-1; `kubectl describe pod job-worker-1`"
    ):
        names.await_address(HOSTS[1], time.monotonic() + 0.1)


def test_of_many_that_have_not_reported_five_are_named(sidecar):
    many = [f"job-worker-{i}.job" for i in range(9)]
    names = roster.Roster(many, 9, lambda host: None)
    assert "9 of 9 workers" in str(names.missing())
    assert "job-worker-3, job-worker-4 …;" in str(names.missing())
    names.release()
    names._released = True


def test_what_keeps_a_worker_from_running_is_said_and_is_in_the_last_words(connected, capsys):
    names, link = connected()
    report(link, 0, "10.0.0.1")
    tell(link, event="obstacle", message="waiting for job-worker-1: not scheduled: no node fits")
    text = "waiting for workers: 1/2 run; waiting for job-worker-1: not scheduled: no node fits"
    wait_for(lambda: text in capsys.readouterr().out)
    with pytest.raises(
        TimeoutError, match=r"job-worker-1; waiting for job-worker-1: not scheduled: no node fits"
    ):
        names.await_address(HOSTS[1], time.monotonic())


def test_a_worker_that_was_replaced_has_its_new_address(connected, replaced, changes):
    names, link = connected()
    for address in ("10.0.0.1", "10.0.0.9"):
        report(link, 0, address)
    wait_for(lambda: names.await_address(HOSTS[0], soon()) == "10.0.0.9")
    wait_for(lambda: len(changes) == 2)
    assert replaced == [HOSTS[0]]


def test_a_report_that_comes_twice_is_no_replacement(connected, replaced):
    names, link = connected()
    for index in (0, 0, 1):
        report(link, index, "10.0.0.1")
    names.await_address(HOSTS[1], soon())
    assert replaced == []


def test_one_that_was_forgotten_is_waited_for_and_its_successor_replaces_nobody(connected, replaced):
    names, link = connected()
    report(link, 0, "10.0.0.1")
    names.await_address(HOSTS[0], soon())
    names.forget(HOSTS[0])
    assert names.present() == []
    with pytest.raises(TimeoutError):
        names.await_address(HOSTS[0], time.monotonic())
    report(link, 0, "10.0.0.9")
    assert names.await_address(HOSTS[0], soon()) == "10.0.0.9"
    assert replaced == []


@pytest.mark.parametrize(("scale", "wanted"), [(3, HOSTS), (1, HOSTS[:1]), (0, []), (7, HOSTS)])
def test_the_scale_says_who_is_wanted(connected, changes, scale, wanted):
    names, link = connected()
    assert names.wanted() == HOSTS[:2]
    tell(link, event="scale", count=scale)
    wait_for(lambda: changes)
    assert names.wanted() == wanted


def test_a_scale_that_stays_changes_nothing(connected, changes):
    names, link = connected()
    tell(link, event="scale", count=2)
    report(link, 0, "10.0.0.1")
    names.await_address(HOSTS[0], soon())
    wait_for(lambda: changes)
    assert len(changes) == 1


def test_a_worker_that_the_scale_no_longer_has_is_not_present(connected, changes):
    names, link = connected()
    for index in (0, 1):
        report(link, index, f"10.0.0.{index}")
    assert names.await_all(soon())
    tell(link, event="scale", count=1)
    wait_for(lambda: names.wanted() == HOSTS[:1])
    assert names.present() == HOSTS[:1]
    assert names.await_all(soon())


@pytest.mark.parametrize(
    "event", [{"event": "worker", "host": HOSTS[0], "address": "10.0.0.1"}, {"event": "scale", "count": 1}]
)
def test_a_change_is_waited_for(connected, event):
    names, link = connected()
    began = time.monotonic()
    threading.Timer(0.1, tell, [link], event).start()
    names.await_change(began + 10)
    assert time.monotonic() < began + 5
    names.await_change(time.monotonic() + 0.1)  # another one, which does not come


def test_why_the_sidecar_cannot_go_on_is_passed_on(connected):
    names, link = connected()
    tell(link, event="error", message="the image lacks ssh-keygen")
    for wait in (
        names.await_key,
        names.await_all,
        names.await_change,
        lambda deadline: names.await_address(HOSTS[0], deadline),
    ):
        with pytest.raises(Refusal, match="lacks ssh-keygen"):
            wait(soon())


def test_a_sidecar_without_a_word_is_named(connected):
    names, _ = connected()
    with pytest.raises(Refusal, match=r"kubectl logs POD -c workers"):
        names.await_key(time.monotonic() + 0.1)


def test_the_sidecar_hears_the_whole_state_each_time(connected):
    names, link = connected()
    told = heard(link)
    assert next(told) == {}
    names.tell(phase="Running", members=2)
    assert next(told) == {"phase": "Running", "members": 2}
    names.tell(phase="Restarting", restarts=1, causes=["job-worker-1 failed"])
    assert next(told) == {
        "phase": "Restarting",
        "members": 2,
        "restarts": 1,
        "causes": ["job-worker-1 failed"],
    }


def test_the_last_words_come_before_the_end(connected):
    names, link = connected()
    told = heard(link)
    next(told)
    names.tell(reason="Completed")
    names.release()
    assert list(told) == [{"reason": "Completed"}]


def test_the_release_is_waited_for(connected):
    names, link = connected()
    names.release()
    names.await_released(0.1)
    threading.Timer(0.2, tell, [link], {"event": "released"}).start()
    began = time.monotonic()
    names.await_released(10)
    assert 0.1 < time.monotonic() - began < 5


def test_a_sidecar_that_is_killed_before_it_released_has_its_successor_do_it(sidecar, connected):
    names, first = connected()
    names.tell(reason="Completed")
    first.shutdown(socket.SHUT_RDWR)
    first.close()
    names.release()
    second, _ = sidecar.accept()
    second.settimeout(10)
    assert list(heard(second)) == [{"reason": "Completed"}], "it hears why, and then the end"
    tell(second, event="released")
    names.await_released(10)
    assert names._released


def test_a_restarted_sidecar_is_found_again_and_addresses_are_kept(sidecar, connected):
    names, first = connected()
    report(first, 0, "10.0.0.1")
    names.await_address(HOSTS[0], soon())
    names.tell(phase="Running")
    first.shutdown(socket.SHUT_RDWR)
    first.close()
    second, _ = sidecar.accept()
    second.settimeout(10)
    assert next(heard(second)) == {"phase": "Running"}, "it hears again what the one before heard"
    report(second, 1, "10.0.0.2")
    assert names.await_address(HOSTS[1], soon()) == "10.0.0.2"
    assert names.await_address(HOSTS[0], soon()) == "10.0.0.1"


def test_what_is_told_while_there_is_no_sidecar_is_heard_by_the_next_one(sidecar, connected):
    names, first = connected()
    next(heard(first))
    first.close()
    names.tell(phase="Running")
    second, _ = sidecar.accept()
    second.settimeout(10)
    assert next(heard(second)) == {"phase": "Running"}
