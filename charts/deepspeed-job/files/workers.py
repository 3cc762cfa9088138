"""All workers of the launcher: which of them take part in an attempt, logged in to at once, asked and told at once."""

import concurrent.futures
import contextlib
import json
import time

import batch
import dns
from common import CONFIG, FILES, Refusal, host_names, say, short, write_private
from link import Link, Unreachable
from roster import Roster
from settings import was_called, write_hosts, write_settings

# Connections in flight at once.
PARALLEL = 64
# How long the master's name is waited for once it should exist. Whoever looks it up then says what is missing.
NAME_SECONDS = 10
# How long an elastic run tries to log in to a worker that has reported: it may be gone since.
ELASTIC_LOGIN_SECONDS = 10
ANSWER_SECONDS = 15
# How long a worker waits, before it reports, for ranks whose connection was cut.
SETTLE_SECONDS = 15


class Workers:
    """The links to the workers.

    on_failed(host) is called when a command on one of them failed, on_lost(host) when one of `members` is lost, and on_changed() when a
    worker reports or the scale changes.
    """

    def __init__(self, run: dict, on_failed, on_lost, on_changed):
        self.run = run
        self.elastic = run.get("elastic")
        self.members = []
        config = FILES / "deepspeed.json"
        self.config = json.loads(config.read_text()) if config.exists() else {}
        hosts = host_names(run)
        self.roster = Roster(hosts, run["workers"], lambda host: self.links[host].replaced(), on_changed)
        self.links = {host: Link(host, self.roster, on_failed, on_lost) for host in hosts}
        # Those that could not be logged in to, with the report that came to nothing.
        self._unusable = {}

    def greet(self, deadline: float) -> None:
        """Choose `members`, log in to each of them, and begin an attempt there.

        Raises Refusal, Unreachable or TimeoutError when that is not done by `deadline`.
        """
        self.members = []
        self.roster.await_key(deadline)
        write_settings(self.run)
        self.members = (
            self._assemble(deadline) if self.elastic else self._open(self.roster.wanted(), deadline)
        )
        write_hosts(self.run, {host: self.roster.addresses[host] for host in self.members})
        say(f"all {len(self.members)} workers connected")
        # The master's name is the one that every rank looks up.
        dns.await_name(self.members[0], time.monotonic() + NAME_SECONDS)
        if self.elastic:
            self._begin()

    def _open(self, hosts: list, deadline: float) -> list:
        """Log in to all; raises what Link.open raises for the first that cannot be used by `deadline`."""
        pool = concurrent.futures.ThreadPoolExecutor(PARALLEL)
        try:
            tries = [pool.submit(self.links[host].open, deadline) for host in hosts]
            for one in concurrent.futures.as_completed(tries):
                one.result()
        finally:
            pool.shutdown(wait=False)
        return hosts

    def _open_some(self, hosts: list) -> list:
        """Log in to those that can be used, and return them."""

        def is_open(host: str) -> bool:
            report = self.roster.reports[host]
            with contextlib.suppress(Unreachable, TimeoutError):
                self.links[host].open(time.monotonic() + ELASTIC_LOGIN_SECONDS)
                return True
            self._unusable[host] = report
            return False

        with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
            return [host for host, there in zip(hosts, pool.map(is_open, hosts)) if there]

    def usable(self) -> list:
        """Return those that are present, but not those of a dead node, say: they reported once, and cannot be logged in to since."""
        return [
            host for host in self.roster.present() if self._unusable.get(host) != self.roster.reports[host]
        ]

    def count_that_fits(self, present: int) -> int:
        """Return how many of so many present workers an elastic run takes, 0 if too few or none can share the batch."""
        most = min(present, self.elastic["max"])
        return batch.workers_that_fit(self.config, self.run["slots"], most, self.elastic["min"])

    def _assemble(self, deadline: float) -> list:
        """Take all workers that are wanted, or after the time of patience those that are there, if they are enough."""
        patience = min(deadline, time.monotonic() + self.elastic["patience"])
        while True:
            self.roster.await_all(patience)
            ready = self._open_some(self.roster.present())
            count = self.count_that_fits(len(ready))
            complete = len(ready) == len(self.roster.wanted())
            if count and (complete or time.monotonic() >= patience):
                for host in ready[count:]:
                    self.links[host].close()
                if not complete or count < len(ready):
                    say(f"going on with {count} of {len(self.roster.wanted())} workers")
                return ready[:count]
            if complete and len(ready) >= self.elastic["min"]:
                self._refuse(len(ready))
            if time.monotonic() >= deadline:
                raise self._too_few(ready)
            self.roster.await_change(min(deadline, max(patience, time.monotonic() + 1)))

    def _too_few(self, ready: list) -> TimeoutError:
        wanted, least = len(self.roster.wanted()), self.elastic["min"]
        if wanted < least:
            return TimeoutError(f"the scale is {wanted}, less than elastic.min, which is {least}")
        deaf = [short(host) for host in self.roster.present() if host not in ready]
        if deaf:
            return TimeoutError(
                f"workers run, but cannot be logged in to (run.startTimeout): {', '.join(deaf[:5])}"
            )
        return self.roster.missing()

    def _refuse(self, count: int) -> None:
        """Raise Refusal with the numbers: no number of workers up to this one can share the batch."""
        try:
            batch.fit(self.config, count * self.run["slots"])
        except batch.BatchError as error:
            raise Refusal(f"deepspeed.config: {error}") from None

    def environment(self) -> dict:
        """Return the variables in which this attempt differs from what the pods have; none if the run is not elastic."""
        return {"workers": str(len(self.members)), "MASTER_ADDR": self.members[0]} if self.elastic else {}

    def _begin(self) -> None:
        """Give every member what this attempt alone has. Raises Unreachable."""
        config = batch.fit(self.config, len(self.members) * self.run["slots"])
        if config:
            write_private(CONFIG, json.dumps(config, indent=2).encode())
        begun = self._ask("begin", ANSWER_SECONDS, environment=self.environment(), config=config)
        for answer in begun.values():
            if isinstance(answer, Exception):
                raise answer

    def _ask(self, word: str, seconds: float, **more: object) -> dict:
        with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
            links = [self.links[host] for host in self.members]
            return dict(pool.map(lambda link: (link.host, link.ask(word, seconds, **more)), links))

    def pids(self) -> frozenset:
        """Return the process ids of the links."""
        return frozenset(link.pid() for link in self.links.values())

    def stop(self) -> None:
        """Tell every worker that its ranks are to end."""
        for host in self.members:
            with contextlib.suppress(OSError):
                self.links[host].order("stop")

    def reports(self, settle: float = SETTLE_SECONDS) -> dict:
        """Return the report of each member, or the Unreachable that came instead; ranks that still end have `settle` seconds for it."""
        answers = self._ask("report", settle + ANSWER_SECONDS, settle=settle)
        for host, answer in answers.items():
            if not isinstance(answer, Exception):
                answer["called"] = was_called(host)
        return answers

    def part(self) -> None:
        """End the links."""
        for link in self.links.values():
            link.close()
