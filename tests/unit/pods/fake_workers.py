"""Workers of a launcher that a test plays: who comes to which attempt, who is lost, what they report."""

import threading
import time

from link import Unreachable


class FakeLink:
    """Whether a worker is lost, as link.Link tells it."""

    def __init__(self):
        self.lost = None


class FakeRoster:
    """What the launcher tells of the run, and who is wanted."""

    def __init__(self):
        self.told = []
        self.forgotten = []
        self.asked_for = []
        self.released = threading.Event()

    def tell(self, **facts):
        self.told.append(facts)

    def forget(self, host):
        self.forgotten.append(host)

    def wanted(self):
        return self.asked_for

    def release(self):
        self.released.set()

    def await_released(self, seconds):
        assert self.released.is_set()


class FakeWorkers:
    """In place of workers.Workers. `come` says who comes to each attempt: names, or an error, or a function of the deadline."""

    come = (["job-worker-0.job", "job-worker-1.job"],)
    answers = {}  # noqa: RUF012

    def __init__(self, run, on_failed, on_lost, on_changed):
        self.run = run
        self.on_failed, self.on_lost, self.on_changed = on_failed, on_lost, on_changed
        self.members = []
        self.links = {f"job-worker-{i}.job": FakeLink() for i in range(4)}
        self.roster = FakeRoster()
        self.there = []
        self.attempts = self.parted = self.stopped = self.reported = 0
        self.on_stop = lambda: None
        self.on_report = lambda: None

    def greet(self, deadline):
        self.members = []
        for link in self.links.values():
            link.lost = None
        come = self.come[min(self.attempts, len(self.come) - 1)]
        self.attempts += 1
        if callable(come):
            come = come(self, deadline)
        if isinstance(come, Exception):
            raise come
        self.members = list(come)
        if not self.roster.asked_for or self.attempts == 1:
            self.roster.asked_for = list(come)
            self.there = list(come)

    def environment(self):
        return {"workers": str(len(self.members))} if self.run.get("elastic") else {}

    def usable(self):
        return [host for host in self.roster.wanted() if host in self.there]

    def count_that_fits(self, present):
        return min(present, self.run["elastic"]["max"])

    def lose(self, index, step="stay", text="its pod was told to end"):
        """A worker is lost, and the launcher is told as link.Link tells it."""
        host = f"job-worker-{index}.job"
        self.links[host].lost = Unreachable(host, step, text)
        self.on_lost(host)

    def pids(self):
        return frozenset()

    def stop(self):
        self.stopped += 1
        self.on_stop()

    def reports(self, settle=15):
        self.reported += 1
        self.on_report()
        calm = {"sessions": [], "oomKills": 0}
        return {host: self.links[host].lost or self.answers.get(host, calm) for host in self.members}

    def part(self):
        self.parted += 1


def nobody_comes(workers, deadline):
    """A greeting that waits for its deadline."""
    time.sleep(max(0, deadline - time.monotonic()))
    raise TimeoutError("1 of 2 workers do not run in time")
