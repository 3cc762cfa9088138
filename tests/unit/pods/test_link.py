"""What the launcher hears from a worker, and what stands between them, over an `ssh` that a test plays."""

import contextlib
import threading
import time

import link
import pytest
from common import SSH, Refusal
from fake_ssh import FakeSsh
from link import Link, Unreachable, read_events, step_of
from waiting import soon, wait_for

HOST = "job-worker-1.job"


@pytest.mark.parametrize(
    ("stderr", "step"),
    [
        ("ssh: Could not resolve hostname job-worker-0.job: Name or service not known", "resolve"),
        ("ssh: connect to host job-worker-0.job port 2222: Connection refused", "connect"),
        ("ssh: connect to host job-worker-0.job port 2222: No route to host", "connect"),
        ("Connection closed by 10.1.2.3 port 2222", "connect"),
        ("kex_exchange_identification: read: Connection reset by peer", "connect"),
        ("Timeout, server 10.1.2.3 not responding.", "connect"),
        ("client_loop: send disconnect: Broken pipe", "connect"),
        ("Host key verification failed.", "connect"),
        ("", "connect"),
        ("job@job-worker-0.job: Permission denied (publickey).", "authenticate"),
        ("Can't open user config file /job/ssh/config: No such file or directory", "execute"),
    ],
)
def test_the_step_is_named(stderr, step):
    assert step_of(stderr) == step


def test_what_a_shells_start_up_file_prints_is_no_event():
    lines = [
        b"Welcome!\n",
        b"\n",
        b"42\n",
        b"[]\n",
        b'{"event": "ready"}\n',
        b'{"x": 1}\n',
        b'{"event": "ended", "exitCode": 3}\n',
    ]
    assert [one["event"] for one in read_events(lines)] == ["ready", "ended"]


class Addresses:
    """The roster, as far as a link asks it."""

    def __init__(self):
        self.address = "10.0.0.1"
        self.asked = []

    def await_address(self, host, deadline):
        self.asked.append(host)
        if isinstance(self.address, Exception):
            raise self.address
        return self.address


@pytest.fixture
def ssh(tmp_path, monkeypatch):
    fake = FakeSsh(tmp_path, monkeypatch)
    yield fake
    fake.close()


class Watched:
    """A link, and what it told."""

    def __init__(self):
        self.addresses = Addresses()
        self.failed, self.lost = [], []
        self.link = Link(HOST, self.addresses, self.failed.append, self.lost.append)

    def start(self, deadline=None):
        """Open the link elsewhere; return what to join, and where an error comes to."""
        errors = []

        def run():
            try:
                self.link.open(deadline or soon())
            except (Unreachable, Refusal, TimeoutError) as error:
                errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread, errors

    def open(self, ssh):
        """Open the link; return the call of ssh."""
        thread, errors = self.start()
        call = ssh.accept()
        call.tell("ready")
        thread.join(10)
        assert not thread.is_alive()
        assert errors == []
        return call


@pytest.fixture
def watched():
    one = Watched()
    yield one
    one.link.close()


def test_it_logs_in_to_the_address_that_was_reported_with_the_jobs_settings(ssh, watched):
    call = watched.open(ssh)
    assert call.argv[:2] == ["-F", str(SSH / "config")]
    assert "HostName=10.0.0.1" in call.argv
    assert call.argv[-2:] == [HOST, "@watch"]
    assert watched.link.lost is None
    assert watched.link.pid() > 0
    assert (watched.failed, watched.lost) == ([], [])


def test_what_the_login_prints_before_it_is_ready_does_no_harm(ssh, watched):
    thread, errors = watched.start()
    call = ssh.accept()
    call.say("Welcome to the worker!\n{}\n")
    call.tell("ready")
    thread.join(10)
    assert errors == []


@pytest.mark.parametrize(
    "error",
    ["ssh: connect to host 10.0.0.1 port 2222: Connection refused", "ssh: Could not resolve hostname x", ""],
)
def test_what_mends_itself_is_tried_again(ssh, watched, error):
    thread, errors = watched.start()
    for _ in range(2):
        ssh.accept().end(255, error)
    watched.addresses.address = "10.0.0.9"
    call = ssh.accept()
    if "HostName=10.0.0.9" not in call.argv:
        call.end(255, error)
        call = ssh.accept()
    assert "HostName=10.0.0.9" in call.argv, "it may have come back elsewhere"
    call.tell("ready")
    thread.join(10)
    assert errors == []


@pytest.mark.parametrize(
    ("code", "error", "step"),
    [
        (255, "job@10.0.0.1: Permission denied (publickey).", "authenticate"),
        (127, "sh: python3: not found", "execute"),
        (1, "", "execute"),
    ],
)
def test_what_does_not_mend_itself_is_told_at_once(ssh, watched, code, error, step):
    thread, errors = watched.start()
    ssh.accept().end(code, error)
    thread.join(10)
    assert [(one.host, one.step) for one in errors] == [(HOST, step)]
    assert (error or "ssh ended with 1") in str(errors[0])
    assert str(errors[0]).startswith(f"{HOST}: cannot {step}: ")


def test_after_the_deadline_it_says_what_stood_between(ssh, watched):
    def refuse():
        with contextlib.suppress(OSError):
            while True:
                ssh.accept().end(255, "ssh: connect to host 10.0.0.1 port 2222: Connection refused")

    threading.Thread(target=refuse, daemon=True).start()
    thread, errors = watched.start(time.monotonic() + 0.2)
    thread.join(10)
    assert errors[0].step == "connect"
    assert "Connection refused" in str(errors[0])


@pytest.mark.parametrize("error", [TimeoutError("1 of 2 workers do not run"), Refusal("no key")])
def test_a_worker_that_never_reports_is_the_rosters_to_tell(watched, error):
    watched.addresses.address = error
    thread, errors = watched.start()
    thread.join(10)
    assert errors == [error]


def test_a_login_that_hangs_is_ended(ssh, watched, monkeypatch):
    monkeypatch.setattr(link, "LOGIN_SECONDS", 0.2)
    thread, errors = watched.start()
    thread.join(10)
    assert errors[0].host == HOST


def test_orders_arrive_as_lines_and_answers_come_back(ssh, watched):
    call = watched.open(ssh)
    answers = []
    asking = threading.Thread(
        target=lambda: answers.append(watched.link.ask("begin", 10, environment={"workers": "2"})),
        daemon=True,
    )
    asking.start()
    assert call.read() == {"order": "begin", "environment": {"workers": "2"}}
    call.tell("begun")
    asking.join(10)
    watched.link.order("stop")
    assert call.read() == {"order": "stop"}
    asking = threading.Thread(target=lambda: answers.append(watched.link.ask("report", 10)), daemon=True)
    asking.start()
    assert call.read() == {"order": "report"}
    call.tell("report", sessions=[], oomKills=0)
    asking.join(10)
    assert answers == [{"event": "begun"}, {"event": "report", "sessions": [], "oomKills": 0}]


@pytest.mark.parametrize(("code", "failed"), [(0, []), (3, [HOST]), (-9, [HOST])])
def test_a_command_that_ends_there_is_told_if_it_failed(ssh, watched, code, failed):
    call = watched.open(ssh)
    call.tell("ended", exitCode=code)
    call.tell("report", sessions=[], oomKills=0)
    watched.link.ask("report", 10)  # what was said before is read by now
    assert watched.failed == failed
    assert watched.lost == []


def test_a_pod_that_is_told_to_end_is_lost_before_it_is_gone(ssh, watched):
    call = watched.open(ssh)
    call.tell("leaving")
    wait_for(lambda: watched.lost)
    assert watched.lost == [HOST]
    assert (watched.link.lost.step, watched.link.lost.host) == ("stay", HOST)
    assert "drain, preemption, eviction" in watched.link.lost.text
    call.tell("report", sessions=[{"exitCode": -15}], oomKills=0)
    assert watched.link.ask("report", 10) is watched.link.lost, (
        "that its ranks were told to end is no failure of theirs"
    )
    call.end(255, "Connection to 10.0.0.1 closed")
    wait_for(lambda: watched.link.ask("report", 0.1) is watched.link.lost)
    assert watched.lost == [HOST], "once"


@pytest.mark.parametrize(
    ("code", "error", "step"),
    [
        (255, "Timeout, server 10.0.0.1 not responding.", "connect"),
        (255, "client_loop: send disconnect: Broken pipe", "connect"),
        (255, "", "connect"),
        (1, "Traceback", "execute"),
    ],
)
def test_a_connection_that_ends_is_a_lost_worker(ssh, watched, code, error, step):
    call = watched.open(ssh)
    call.end(code, error)
    wait_for(lambda: watched.lost)
    assert watched.lost == [HOST]
    assert watched.link.lost.step == step
    assert error in watched.link.lost.text
    wait_for(lambda: watched.link.ask("report", 0.1) is watched.link.lost)


def test_a_worker_that_is_lost_while_it_is_asked_is_the_answer(ssh, watched):
    call = watched.open(ssh)
    answers = []
    asking = threading.Thread(target=lambda: answers.append(watched.link.ask("report", 10)), daemon=True)
    asking.start()
    call.read()
    call.end(255, "Broken pipe")
    asking.join(10)
    wait_for(lambda: watched.lost)
    assert answers == [watched.link.lost]


def test_a_worker_that_does_not_answer_is_told(ssh, watched):
    call = watched.open(ssh)
    answer = watched.link.ask("report", 0.1)
    assert isinstance(answer, Unreachable)
    assert "no answer" in str(answer)
    assert call.read() == {"order": "report"}


def test_without_a_connection_there_is_nobody_to_ask(watched):
    assert isinstance(watched.link.ask("report", 0.1), Unreachable)
    with pytest.raises(OSError, match="no connection"):
        watched.link.order("stop")
    assert watched.link.pid() == 0


def test_a_worker_that_is_another_pod_now_is_lost_although_nothing_was_said(ssh, watched):
    call = watched.open(ssh)
    watched.link.replaced()
    wait_for(lambda: watched.lost)
    assert "replaced by a new one" in watched.link.lost.text
    assert call.read() is None


def test_one_that_is_replaced_during_its_login_is_logged_in_to_again(ssh, watched):
    thread, errors = watched.start()
    ssh.accept()
    wait_for(watched.link.pid)
    watched.addresses.address = "10.0.0.9"
    watched.link.replaced()
    call = ssh.accept()
    assert "HostName=10.0.0.9" in call.argv
    call.tell("ready")
    thread.join(10)
    assert errors == []
    assert watched.link.lost is None
    assert watched.lost == []


def test_a_connection_that_we_end_is_no_lost_worker(ssh, watched):
    call = watched.open(ssh)
    watched.link.close()
    assert call.read() is None
    assert watched.link.pid() == 0
    second = watched.open(ssh)
    second.tell("report", sessions=[], oomKills=0)
    assert watched.link.ask("report", 10) == {"event": "report", "sessions": [], "oomKills": 0}
    assert watched.lost == []


def test_a_new_attempt_starts_without_what_the_last_one_lost(ssh, watched):
    watched.open(ssh).end(255, "Broken pipe")
    wait_for(lambda: watched.lost)
    call = watched.open(ssh)
    assert watched.link.lost is None
    call.end(255, "Broken pipe")
    wait_for(lambda: len(watched.lost) == 2)


def test_orders_from_several_threads_are_whole_lines(ssh, watched):
    call = watched.open(ssh)
    threads = [threading.Thread(target=watched.link.order, args=["stop"], kwargs={"n": i}) for i in range(20)]
    for thread in threads:
        thread.start()
    assert sorted(call.read()["n"] for _ in threads) == list(range(20))
