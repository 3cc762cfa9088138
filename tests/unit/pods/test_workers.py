"""Which workers take part in an attempt. The roster is real and hears from a sidecar of the test; the connections are played."""

import json
import queue
import socket
import threading
import time

import pytest
import roster
import workers
from batch import MICRO, STEPS, TOTAL
from common import Refusal
from link import Unreachable
from waiting import soon, wait_for
from workers import Workers

RUN = {"name": "job", "stem": "job-worker", "workers": 3, "slots": 2}
ELASTIC = {"min": 1, "max": 4, "patience": 0.3}
HOSTS = [f"job-worker-{i}.job" for i in range(4)]


class FakeLink:
    """A connection that opens once its worker has reported, unless the worker is among `broken`."""

    broken = frozenset()
    silent = frozenset()

    def __init__(self, host, roster, on_failed, on_lost):
        self.host = host
        self.lost = None
        self.is_open = False
        self.heard = []
        self.was_replaced = 0
        self._roster = roster

    def open(self, deadline):
        self._roster.await_address(self.host, deadline)
        if self.host in self.broken:
            raise Unreachable(self.host, "connect", "No route to host")
        self.is_open = True

    def order(self, word, **more):
        self.heard.append((word, more))

    def ask(self, word, timeout, **more):
        self.order(word, **more)
        return Unreachable(self.host, "stay", "its pod ends") if self.host in self.silent else {"event": word}

    def replaced(self):
        self.was_replaced += 1

    def pid(self):
        return 7 if self.is_open else 0

    def close(self):
        self.is_open = False


class Group:
    """Workers, and the sidecar that tells of them."""

    def __init__(self, tmp_path, monkeypatch):
        self.path = tmp_path
        self.monkeypatch = monkeypatch
        self.changes = queue.Queue()
        self.hosts = []
        monkeypatch.setattr(roster, "SOCKET", tmp_path / "sidecar.sock")
        monkeypatch.setattr(workers, "FILES", tmp_path)
        monkeypatch.setattr(workers, "CONFIG", tmp_path / "job" / "deepspeed.json")
        monkeypatch.setattr(workers, "Link", FakeLink)
        monkeypatch.setattr(workers, "write_settings", lambda run: None)
        monkeypatch.setattr(workers, "write_hosts", lambda run, addresses: self.hosts.append(addresses))
        monkeypatch.setattr(workers.dns, "await_name", lambda host, deadline: None)
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(str(tmp_path / "sidecar.sock"))
        self.server.listen()
        self.server.settimeout(10)

    def make(self, elastic=None, config=None, **run):
        """Make the workers of a run; the key is there."""
        if config is not None:
            (self.path / "deepspeed.json").write_text(json.dumps(config))
        run = {**RUN, "elastic": {**ELASTIC, **elastic} if elastic is not None else {}, **run}
        self.workers = Workers(run, None, None, lambda: self.changes.put(True))
        self.sidecar = self.server.accept()[0]
        self.tell(event="key")
        return self.workers

    def tell(self, **event):
        self.sidecar.sendall(json.dumps(event).encode() + b"\n")

    def report(self, *indexes):
        """Let workers report, and return when the roster has heard it."""
        for index in indexes:
            self.tell(event="worker", host=HOSTS[index], address=f"10.0.0.{index}")
        wait_for(lambda: all(HOSTS[index] in self.workers.roster.addresses for index in indexes))

    def scale(self, count):
        self.tell(event="scale", count=count)
        wait_for(lambda: len(self.workers.roster.wanted()) == min(count, len(self.workers.links)))

    def greet(self, deadline=None):
        """Greet elsewhere; return what to join, and where the end comes to."""
        ends = queue.Queue()

        def run():
            try:
                self.workers.greet(deadline or soon())
                ends.put(list(self.workers.members))
            except (Refusal, Unreachable, TimeoutError) as error:
                ends.put(error)

        threading.Thread(target=run, daemon=True).start()
        return ends

    def begun(self):
        """What each member was given for the attempt."""
        return {host: self.workers.links[host].heard[-1] for host in self.workers.members}


@pytest.fixture
def group(tmp_path, monkeypatch):
    monkeypatch.setattr(FakeLink, "broken", set())
    monkeypatch.setattr(FakeLink, "silent", set())
    found = Group(tmp_path, monkeypatch)
    yield found
    found.workers.roster.release()
    found.server.close()


def test_a_run_that_is_not_elastic_takes_all_its_workers_and_nothing_less(group):
    group.make()
    ends = group.greet()
    group.report(0, 2)
    assert ends.empty()
    group.report(1)
    assert ends.get(timeout=10) == HOSTS[:3]
    assert group.hosts == [{HOSTS[i]: f"10.0.0.{i}" for i in range(3)}], "in rank order"
    assert group.workers.environment() == {}
    assert all(group.workers.links[host].heard == [] for host in HOSTS[:3]), "the pods have all already"


def test_of_a_run_that_is_not_elastic_each_missing_worker_is_named(group):
    group.make()
    ends = group.greet(time.monotonic() + 0.3)
    group.report(0)
    error = ends.get(timeout=10)
    assert isinstance(error, TimeoutError)
    assert "2 of 3 workers" in str(error)
    assert group.workers.members == []


def test_of_a_run_that_is_not_elastic_one_unusable_worker_is_the_end(group):
    group.make()
    FakeLink.broken.add(HOSTS[1])
    group.report(0, 1, 2)
    error = group.greet().get(timeout=10)
    assert (error.host, error.step) == (HOSTS[1], "connect")


def test_why_the_sidecar_cannot_go_on_ends_the_wait(group):
    group.make(elastic={})
    ends = group.greet()
    group.tell(event="error", message="job-worker-1: the image of the worker lacks sshd")
    assert isinstance(ends.get(timeout=10), Refusal)


def test_an_elastic_run_begins_at_once_when_all_that_are_wanted_are_there(group):
    group.make(elastic={"patience": 3600})
    group.report(0, 1, 2)
    assert group.greet().get(timeout=10) == HOSTS[:3]
    assert group.workers.environment() == {"workers": "3", "MASTER_ADDR": HOSTS[0]}
    assert group.begun() == {
        host: ("begin", {"environment": group.workers.environment(), "config": {}}) for host in HOSTS[:3]
    }


def test_it_goes_on_without_a_missing_worker_after_the_time_of_patience(group, capsys):
    group.make(elastic={})
    began = time.monotonic()
    group.report(0, 2)
    assert group.greet().get(timeout=10) == [HOSTS[0], HOSTS[2]]
    assert time.monotonic() >= began + ELASTIC["patience"]
    assert "going on with 2 of 3 workers" in capsys.readouterr().out
    assert group.workers.environment() == {"workers": "2", "MASTER_ADDR": HOSTS[0]}
    assert group.hosts == [{HOSTS[0]: "10.0.0.0", HOSTS[2]: "10.0.0.2"}]


def test_the_master_is_the_first_that_is_there(group):
    group.make(elastic={})
    group.report(1, 2)
    assert group.greet().get(timeout=10) == HOSTS[1:3]
    assert group.workers.environment()["MASTER_ADDR"] == HOSTS[1]


def test_one_that_comes_in_time_is_taken(group):
    group.make(elastic={"patience": 3600})
    group.report(0, 1)
    ends = group.greet()
    group.report(2)
    assert ends.get(timeout=10) == HOSTS[:3]


def test_one_that_has_reported_but_cannot_be_used_is_gone_on_without(group):
    group.make(elastic={})
    FakeLink.broken.add(HOSTS[1])
    group.report(0, 1, 2)
    began = time.monotonic()
    assert group.greet().get(timeout=10) == [HOSTS[0], HOSTS[2]]
    assert time.monotonic() >= began + ELASTIC["patience"]


def test_one_that_cannot_be_used_is_not_counted_on_until_it_reports_anew(group):
    """A dead node's worker has reported once, and its pod may stay for ever: no restart for its sake would help."""
    group.make(elastic={})
    FakeLink.broken.add(HOSTS[1])
    group.report(0, 1, 2)
    group.greet().get(timeout=10)
    assert group.workers.usable() == [HOSTS[0], HOSTS[2]]
    FakeLink.broken.clear()
    group.report(1)  # its container was started again, in the same pod
    wait_for(lambda: group.workers.usable() == HOSTS[:3])
    group.workers.part()
    assert group.greet().get(timeout=10) == HOSTS[:3]


def test_a_scale_that_shrinks_while_it_waits_is_followed(group):
    group.make(elastic={"patience": 3600})
    group.report(0, 1)
    ends = group.greet()
    group.scale(2)
    assert ends.get(timeout=10) == HOSTS[:2]


def test_a_scale_that_grows_has_its_workers_waited_for(group):
    group.make(elastic={"patience": 3600})
    group.scale(4)
    group.report(0, 1, 2)
    ends = group.greet()
    assert ends.empty()
    group.report(3)
    assert ends.get(timeout=10) == HOSTS


def test_workers_beyond_the_largest_number_are_not_used(group):
    group.make(elastic={"max": 3})
    group.scale(9)
    group.report(0, 1, 2)
    assert group.greet().get(timeout=10) == HOSTS[:3]


def test_too_few_are_waited_for_and_named_at_the_end(group):
    group.make(elastic={"min": 2, "patience": 0.1})
    group.report(0)
    error = group.greet(time.monotonic() + 0.5).get(timeout=10)
    assert isinstance(error, TimeoutError)
    assert "job-worker-1, job-worker-2" in str(error)
    assert group.workers.members == []


def test_too_few_are_waited_for_beyond_the_time_of_patience(group):
    group.make(elastic={"min": 2, "patience": 0.1})
    group.report(0)
    ends = group.greet()
    with pytest.raises(queue.Empty):
        ends.get(timeout=0.3)
    group.report(2)
    assert ends.get(timeout=10) == [HOSTS[0], HOSTS[2]]


def test_a_scale_below_the_smallest_number_is_named_with_both_numbers(group):
    group.make(elastic={"min": 2, "patience": 0.1})
    group.scale(1)
    group.report(0)
    error = group.greet(time.monotonic() + 0.3).get(timeout=10)
    assert str(error) == "the scale is 1, less than elastic.min, which is 2"


def test_workers_that_reported_but_cannot_be_used_are_named_at_the_end(group):
    group.make(elastic={"min": 3, "patience": 0.1})
    FakeLink.broken.add(HOSTS[1])
    group.report(0, 1, 2)
    error = group.greet(time.monotonic() + 0.3).get(timeout=10)
    assert isinstance(error, TimeoutError)
    assert str(error) == "workers run, but cannot be logged in to (run.startTimeout): job-worker-1"


CONFIG = {TOTAL: 16, MICRO: 2, STEPS: 4, "optimizer": {"type": "Adam"}}


@pytest.mark.parametrize(("count", "steps"), [(1, 4), (2, 2), (4, 1)])
def test_the_configuration_of_the_attempt_has_the_steps_for_its_ranks(group, count, steps):
    group.make(elastic={}, config=CONFIG)
    group.scale(count)
    group.report(*range(count))
    assert len(group.greet().get(timeout=10)) == count
    config = {**CONFIG, STEPS: steps}
    assert json.loads((group.path / "job" / "deepspeed.json").read_text()) == config
    assert {more["config"][STEPS] for _, more in group.begun().values()} == {steps}


def test_as_many_are_taken_as_can_share_the_batch(group, capsys):
    group.make(elastic={"patience": 3600}, config=CONFIG)
    group.report(0, 1, 2)
    assert group.greet().get(timeout=10) == HOSTS[:2]
    assert "going on with 2 of 3 workers" in capsys.readouterr().out
    assert not group.workers.links[HOSTS[2]].is_open
    assert (group.workers.count_that_fits(3), group.workers.count_that_fits(4)) == (2, 4)


def test_fewer_than_the_smallest_number_are_not_taken_for_the_batchs_sake(group):
    group.make(elastic={"min": 3, "patience": 0.1}, config=CONFIG)
    group.report(0, 1, 2)
    error = group.greet().get(timeout=10)
    assert isinstance(error, Refusal)
    assert str(error) == (
        "deepspeed.config: train_batch_size 16 / train_micro_batch_size_per_gpu 2 cannot be shared among 6 ranks; "
        "possible are 1, 2, 4, 8"
    )


@pytest.mark.parametrize("count", [1, 2, 3])
def test_no_more_fit_than_are_present_and_no_more_than_the_largest_number(group, count):
    group.make(elastic={"max": 2})
    assert group.workers.count_that_fits(count) == min(count, 2)


def test_a_member_that_is_lost_before_the_attempt_begins_ends_it(group):
    group.make(elastic={})
    FakeLink.silent.add(HOSTS[1])
    group.report(0, 1, 2)
    error = group.greet().get(timeout=10)
    assert (error.host, error.step) == (HOSTS[1], "stay"), (
        "the step says that it is lost, not that it is wrong"
    )


def test_a_second_attempt_chooses_anew(group):
    group.make(elastic={})
    group.report(0, 1, 2)
    assert group.greet().get(timeout=10) == HOSTS[:3]
    group.workers.part()
    assert not any(link.is_open for link in group.workers.links.values())
    group.workers.roster.forget(HOSTS[0])
    assert group.greet().get(timeout=10) == HOSTS[1:3]
    group.workers.part()
    group.report(0)
    group.scale(4)
    group.report(3)
    assert group.greet().get(timeout=10) == HOSTS


def test_members_are_told_and_asked_and_no_others(group):
    group.make(elastic={})
    group.report(0, 2)
    group.greet().get(timeout=10)
    group.workers.stop()
    report = {"event": "report", "called": False}
    assert group.workers.reports() == dict.fromkeys((HOSTS[0], HOSTS[2]), report)
    assert [word for word, _ in group.workers.links[HOSTS[0]].heard] == ["begin", "stop", "report"]
    assert group.workers.links[HOSTS[1]].heard == []


def test_a_worker_that_reports_from_elsewhere_has_its_link_told(group):
    group.make()
    group.report(0)
    group.tell(event="worker", host=HOSTS[0], address="10.9.9.9")
    wait_for(lambda: group.workers.links[HOSTS[0]].was_replaced)


def test_changes_are_passed_on(group):
    group.make(elastic={})
    group.report(0)
    group.changes.get(timeout=10)
    group.scale(2)
    group.changes.get(timeout=10)
