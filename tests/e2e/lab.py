"""A real cluster for a test: a namespace of its own, jobs in it, and waiting for conditions instead of sleeping."""

import json
import os
import subprocess
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "deepspeed-job"
SEED_NAME = "deepspeed-helloworld"
CPU_TWIN = ROOT / "values" / "hello-deepspeed-cpu.yaml"
IMAGE = {"repository": "localhost/deepspeed-hello", "tag": "cpu"}
ENVIRONMENT = {
    **{key: value for key, value in os.environ.items() if not key.startswith("HELM_")},
    "KUBECONFIG": os.environ["E2E_KUBECONFIG"],
    "NO_COLOR": "1",
}


def run(*argv, code=0, stdin=None, timeout=300, merge=False):
    """Run a program and return its standard output, with `merge` its standard error too; its exit code must be `code`.

    With code=None it may be any, and what subprocess.run made is returned.
    """
    errors = subprocess.STDOUT if merge else subprocess.PIPE
    argv = [str(one) for one in argv]
    done = subprocess.run(
        argv, env=ENVIRONMENT, input=stdin, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=timeout
    )
    text = f"$ {' '.join(argv)}\n{done.stdout}{done.stderr or ''}-> {done.returncode}"
    assert code is None or done.returncode == code, text
    return done.stdout if code is not None else done


def wait_for(condition, seconds, what):
    """Return the first true result of `condition()`; fail with `what` after so many seconds."""
    until = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < until, f"after {seconds} s: {what() if callable(what) else what}"
        time.sleep(0.1)
    return result


def on_all(command, workers=2, name="job", mode="launcher"):
    """What `run.command` must be to run a command on all workers: by pdsh, as DeepSpeed does; in mode direct each worker runs it itself."""
    if mode == "direct":
        return command
    return ["pdsh", "-S", "-w", f"{name}-worker-[0-{workers - 1}].{name}", command]


class Namespace:
    """A namespace that enforces Pod Security, and the tools that act in it."""

    def __init__(self, name, level="restricted"):
        self.name = name
        labels = {"pod-security.kubernetes.io/enforce": level, "deepspeed-job-e2e": "true"}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        # Pods are refused until the namespace has it.
        wait_for(lambda: self.get("serviceaccount", "default"), 30, "no default service account")

    def kubectl(self, *args, **more):
        return run("kubectl", "-n", self.name, *args, **more)

    def apply(self, *objects):
        return self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def get(self, kind, name=None, selector=None):
        """Return one object (None if it is not there), or the list of those that the selector selects."""
        if name:
            text = self.kubectl("get", kind, name, "-o", "json", "--ignore-not-found")
            return json.loads(text) if text else None
        return json.loads(self.kubectl("get", kind, "-o", "json", *(["-l", selector] if selector else [])))[
            "items"
        ]

    def claim(self, name="training-data"):
        """Make a claim that all workers can mount."""
        spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        self.apply(
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}
        )

    def helm(self, *args, **more):
        return run("helm", "-n", self.name, *args, **more)

    def dsjob(self, *args, **more):
        """Run dsjob; return what a person sees of it, results and notes."""
        return run("dsjob", *args, "-n", self.name, merge=True, **more)

    def delete(self):
        """Begin to delete it; the end of the session waits for all."""
        run("kubectl", "delete", "namespace", self.name, "--wait=false")


def namespaces_left():
    """Return the names of the tests' namespaces that still exist."""
    return run("kubectl", "get", "namespace", "-l", "deepspeed-job-e2e", "-o", "name").split()


class Job:
    """A release in a namespace."""

    def __init__(self, namespace, name="job"):
        self.namespace = namespace
        self.name = name
        self.selector = f"app.kubernetes.io/instance={name}"

    def values_file(self, tmp_path, values):
        path = tmp_path / f"{self.name}.yaml"
        path.write_text(yaml.safe_dump(values))
        return path

    def install(self, tmp_path, **values):
        """Install with values merged into a small job on the test image."""
        path = self.values_file(tmp_path, {"image": IMAGE, **values})
        self.namespace.helm("upgrade", "--install", self.name, CHART, "-f", path)
        return path

    def pods(self, component):
        return self.namespace.get("pod", selector=f"{self.selector},app.kubernetes.io/component={component}")

    def kube_job(self):
        """Return the newest Job of the release."""
        found = self.namespace.get("job", selector=self.selector)
        return max(found, key=lambda one: one["metadata"]["creationTimestamp"], default=None)

    def condition(self):
        """Return Complete, Failed or None."""
        job = self.kube_job()
        true = [
            one["type"]
            for one in (job or {}).get("status", {}).get("conditions", [])
            if one["status"] == "True"
        ]
        return next((one for one in true if one in ("Complete", "Failed")), None)

    def wait_ended(self, seconds=180):
        return wait_for(self.condition, seconds, lambda: f"{self.name} has not ended\n{self.describe()}")

    def wait_released(self, seconds=10):
        wait_for(lambda: not self.pods("worker"), seconds, f"{self.name} still has workers")

    def launcher(self):
        """Return the pod of the newest launcher."""
        job = self.kube_job()["metadata"]["name"]
        found = self.namespace.get("pod", selector=f"batch.kubernetes.io/job-name={job}")
        return max(found, key=lambda one: one["metadata"]["creationTimestamp"], default=None)

    def log(self, container="launcher"):
        job = self.kube_job()["metadata"]["name"]
        return self.namespace.kubectl("logs", f"job/{job}", "-c", container)

    def log_so_far(self):
        """Return the launcher's log, which may not have begun."""
        job = self.kube_job()["metadata"]["name"]
        return self.namespace.kubectl("logs", f"job/{job}", "-c", "launcher", code=None).stdout

    def wait_log(self, text, seconds=60):
        """Wait until the launcher's log has the text."""

        wait_for(
            lambda: text in self.log_so_far(), seconds, lambda: f"no {text!r} in the log\n{self.describe()}"
        )

    def report(self):
        """Return the launcher's termination message."""
        status = next(
            one for one in self.launcher()["status"]["containerStatuses"] if one["name"] == "launcher"
        )
        return json.loads(status["state"]["terminated"]["message"])

    def told(self):
        """Return what the launcher tells of the run while it goes on."""
        found = self.namespace.get("lease", self.name)["metadata"].get("annotations") or {}
        ours = "deepspeed-job/"
        return {key[len(ours) :]: value for key, value in found.items() if key.startswith(ours)}

    def describe(self):
        """Return all that helps to understand a failed test."""
        pods = self.namespace.kubectl("get", "pods,job,statefulset,events", "-o", "wide", code=None).stdout
        logs = [
            self.namespace.kubectl(
                "logs", pod["metadata"]["name"], "--all-containers", "--tail=40", code=None
            )
            for pod in self.namespace.get("pod", selector=self.selector)
        ]
        return "\n".join([pods, *(one.stdout + one.stderr for one in logs)])
