"""One trial: a namespace, a small job, one strike, and what is seen of the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import judge
import node
import workload
from plan import Plan
from victims import strike

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
from lab import IMAGE, Job, Namespace, run, wait_for

NAME = "job"
# Of the namespaces, with a value for each call of `make chaos`.
LABEL, OURS = "deepspeed-job-chaos", uuid.uuid4().hex[:8]
# After the strike.
BOUND_SECONDS = 150
# Words of an API server that is away; a trial asks again.
AWAY = (
    "refused",
    "EOF",
    "timeout",
    "timed out",
    "unavailable",
    "reset by peer",
    "etcdserver",
    "TLS",
    "connection",
)


class Space(Namespace):
    """A namespace whose tools bear an API server that is away for a while."""

    def __init__(self, name: str):
        self.name = name
        labels = {"pod-security.kubernetes.io/enforce": "restricted", LABEL: OURS}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        wait_for(lambda: self.get("serviceaccount", "default"), 60, "no default service account")

    def kubectl(self, *args: str, **more: Any) -> Any:
        return patient(lambda: run("kubectl", "-n", self.name, *args, **more))

    def helm(self, *args: str, **more: Any) -> Any:
        return patient(lambda: run("helm", "-n", self.name, *args, **more))


def patient(call: Callable[[], Any]) -> Any:
    """The result of a call that may find the API server away for up to a minute."""
    until = time.monotonic() + 60
    while True:
        try:
            return call()
        except AssertionError as error:
            if time.monotonic() > until or not any(word in str(error) for word in AWAY):
                raise
        time.sleep(0.5)


class Trial:
    """The life of one trial."""

    def __init__(self, plan: Plan, folder: Path, on_node: bool):
        self.plan = plan
        self.folder = folder / plan.name
        self.on_node = on_node
        self.story: list[str] = []
        self.struck = ""
        self.cut = ""
        self.pods: list[dict[str, Any]] = []
        self.uids: set[str] = set()
        self.born = time.monotonic()
        self.space = Space(f"chaos-{plan.name.replace('.', '-')}-{uuid.uuid4().hex[:4]}")
        self.job = Job(self.space, NAME)

    def say(self, text: str) -> None:
        """Add a line to the story."""
        self.story.append(f"{time.monotonic() - self.born:6.1f} {text}")

    def ask(self, *args: str) -> str:
        """What kubectl says, in one line; empty if it fails."""
        done = self.space.kubectl(*args, code=None)
        return " ".join(done.stdout.split()) if done.returncode == 0 else ""

    def look(self) -> str | None:
        """See the job and its pods; return the Job's condition."""
        text = self.space.kubectl("get", "job,pod", "-l", self.job.selector, "-o", "json")
        found = json.loads(text)["items"]
        self.pods = [one for one in found if one["kind"] == "Pod"]
        self.uids |= {pod["metadata"]["uid"] for pod in self.pods}
        jobs = [one for one in found if one["kind"] == "Job"]
        conditions = [one for job in jobs for one in job["status"].get("conditions", [])]
        true = [one["type"] for one in conditions if one["status"] == "True"]
        return next((one for one in true if one in ("Complete", "Failed")), None)

    def marks(self) -> str:
        """What the ranks have written so far."""
        command = ["sh", "-c", "cat /out/marks 2>/dev/null; true"]
        return str(self.space.kubectl("exec", workload.WITNESS, "--", *command))

    def prepare(self) -> None:
        """Make the shared folder and install the job."""
        self.space.claim(workload.CLAIM)
        self.space.apply(workload.witness(":".join(IMAGE.values())))
        self.space.kubectl("wait", "--for=condition=Ready", f"pod/{workload.WITNESS}", "--timeout=120s")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.say(self.plan.describe())
        self.job.install(self.folder, **workload.values(self.plan, NAME, self.space.name))
        self.say("installed")

    def await_moment(self) -> None:
        """Wait until the strike's time has come, or the run has ended."""
        began = time.monotonic()
        if self.plan.moment != "the install":
            until = time.monotonic() + 120
            while not (marks := judge.read_marks(self.marks())) and not self.look():
                if time.monotonic() > until:
                    self.say("no rank began")
                    return
                time.sleep(0.2)
            began = time.monotonic()
            self.say("a rank has begun")
            # It was noticed late; the clock of another machine may say anything.
            if marks:
                began -= min(max(time.time() - marks[0].at, 0), 5)
            self.look()
        ranks = self.plan.seconds if self.plan.moment == "the end" else 0
        time.sleep(max(0.0, began + ranks + self.plan.delay - time.monotonic()))

    def hit(self) -> None:
        """Strike, as soon as there is a victim; it may never come."""
        until = time.monotonic() + 60
        while not self.struck and time.monotonic() < until:
            self.struck = strike(self)
            if not self.struck and self.look():
                break
        self.say(f"struck: {self.struck or 'nothing, it was over'}")
        try:
            until = time.monotonic() + self.plan.outage
            while self.cut and time.monotonic() < until:
                self.look()
                time.sleep(1)
        finally:
            if self.cut:
                node.set_link(self.cut, "up")
                self.say("the network is back")

    def await_end(self) -> judge.Seen:
        """Wait for the run's end and what must follow; return what was seen."""
        plan = self.plan
        seen = judge.Seen(plan.kind.mode, plan.workers, plan.must_survive)
        seen.was_cut_off = bool(self.cut) and plan.kind.name.startswith("launcher")
        began = time.monotonic()
        while not (condition := self.look()) and time.monotonic() < began + BOUND_SECONDS:
            time.sleep(1)
        seen.condition, seen.waited = condition, time.monotonic() - began
        self.say(f"the Job is {condition}")
        ended = time.monotonic()
        while condition:
            seen.load = max(seen.load, os.getloadavg()[0])
            seen.left = [pod["metadata"]["name"] for pod in self.pods if self.holds(pod)]
            seen.strays = self.strays()
            if not seen.left and seen.released is None:
                seen.released = time.monotonic() - ended
                self.say("no worker is left")
            if not seen.left and not seen.strays:
                break
            if time.monotonic() > ended + judge.patience(seen):
                self.say("something is left")
                break
            time.sleep(1)
            self.look()
        seen.marks = judge.read_marks(self.marks())
        return seen

    def strays(self) -> list[str]:
        """The processes of the run that belong to no pod that is left."""
        if not self.on_node:
            return []
        held = {pod["metadata"]["uid"] for pod in self.pods if self.holds(pod)}
        return node.strays(f"{workload.MARKER}={self.space.name}", self.uids - held, held)

    def holds(self, pod: dict[str, Any]) -> bool:
        """Whether a pod still holds what the run needs: any worker, or in mode direct one that has not ended."""
        is_worker = pod["metadata"]["labels"].get("app.kubernetes.io/component") == "worker"
        ended = pod["status"].get("phase") in ("Succeeded", "Failed")
        return not ended if self.plan.kind.mode == "direct" else is_worker or not ended

    def hear(self, seen: judge.Seen) -> None:
        """What the launcher and dsjob tell of the end."""
        if self.plan.kind.mode == "launcher":
            pod = self.job.launcher()
            every = pod["status"].get("containerStatuses", []) if pod else []
            ended = next((one["state"].get("terminated") for one in every if one["name"] == "launcher"), None)
            if ended and (ended.get("message") or "").startswith("{"):
                seen.report = json.loads(ended["message"])
        done = run("dsjob", "status", NAME, "-n", self.space.name, "-o", "json", code=None)
        if done.returncode == 0:
            seen.status = json.loads(done.stdout)
        else:
            self.say(f"dsjob status: {done.returncode}: {done.stderr}")
        if seen.condition:
            follow = ["dsjob", "logs", NAME, "-n", self.space.name, "-f", "--tail", "3"]
            done = run(*follow, code=None, merge=True, timeout=60)
            seen.logs_code = done.returncode
            self.say(f"dsjob logs -f: {done.returncode}: {done.stdout}")

    def run(self) -> tuple[judge.Seen, list[str]]:
        """Make the trial; return what was seen and the faults."""
        try:
            self.prepare()
            self.await_moment()
            self.hit()
            seen = self.await_end()
            self.hear(seen)
            found = judge.faults(seen)
            if found or judge.limits(seen):
                self.keep(seen, found)
            else:
                self.tell(seen, found)
            return seen, found
        except (AssertionError, OSError, ValueError, subprocess.SubprocessError) as error:
            self.say(f"the trial itself failed: {error}")
            seen = judge.Seen(self.plan.kind.mode, self.plan.workers)
            found = [f"the trial itself failed: {str(error).splitlines()[-1] if str(error) else error!r}"]
            self.keep(seen, found)
            return seen, found
        finally:
            self.space.delete()

    def put(self, name: str, text: str) -> None:
        """Write a file of the evidence."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)

    def tell(self, seen: judge.Seen, found: list[str]) -> None:
        """Write down what happened."""
        facts = [f"{key}: {value}" for key, value in vars(seen).items() if key not in ("marks", "status")]
        self.put("story.txt", "\n".join([*self.story, "", *facts, "", *found, *judge.limits(seen)]) + "\n")

    def keep(self, seen: judge.Seen, found: list[str]) -> None:
        """Write down all that helps to understand a fault."""
        self.tell(seen, found)
        put = self.put
        put("status.json", json.dumps(seen.status, indent=1))
        try:
            put("describe.txt", self.job.describe())
            every = "job,pod,statefulset,lease,event"
            put("objects.yaml", self.space.kubectl("get", every, "-o", "yaml"))
            put("marks.txt", self.marks())
            status = run("dsjob", "status", NAME, "-n", self.space.name, code=None, merge=True)
            put("status.txt", status.stdout)
            for pod in self.pods:
                name = pod["metadata"]["name"]
                logs = self.space.kubectl(
                    "logs", name, "--all-containers", "--prefix", "--timestamps", code=None
                )
                put(f"{name}.log", logs.stdout + logs.stderr)
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            put("incomplete.txt", str(error))
