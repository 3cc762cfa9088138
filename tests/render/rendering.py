"""The chart's objects as dicts, as `helm template` of Helm 3 and 4 makes them."""

import atexit
import functools
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "deepspeed-job"
HELMS = (3, 4)
NAMESPACE = "team"
MINIMAL = {"image": {"repository": "example/image", "tag": "v1"}, "run": {"command": "deepspeed train.py"}}

# Security context of a container that Pod Security `restricted` takes.
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
NASTY = [
    "", " leading", "trailing ", "a: b", "# no comment", "{{ .Values.x }}", "$HOME $(HOME) $$", "`id`", "'\"\\", "a\nb\n\n", "a\r\nb",
    "---", "- x", "yes", "null", "1e3", "ünïcode ☃", "%n%h", "\t", "*a &b !c", "x" * 20000,
]  # fmt: skip


class RenderError(Exception):
    """Helm refused; the text is its message."""


class Objects(list):
    """Rendered objects, found by kind and the end of their name."""

    def get(self, kind, suffix=""):
        found = [one for one in self if one["kind"] == kind and one["metadata"]["name"].endswith(suffix)]
        assert len(found) == 1, f"{len(found)} objects are a {kind} …{suffix}"
        return found[0]

    def kinds(self):
        return sorted(one["kind"] for one in self)

    def pod(self, component):
        """The pod template's spec of a component."""
        owner = {"launcher": "Job", "worker": "StatefulSet", "tensorboard": "Deployment"}[component]
        return self.get(owner)["spec"]["template"]["spec"]

    def container(self, component):
        return self.pod(component)["containers"][0]


def merged(base, change):
    """Merge as Helm does: maps by key, everything else replaced; a None removes."""
    result = dict(base)
    for key, value in change.items():
        result[key] = (
            merged(result[key], value)
            if isinstance(value, dict) and isinstance(result.get(key), dict)
            else value
        )
        if value is None:
            del result[key]
    return result


def run_config_map(objects):
    """The ConfigMap with what defines the run."""
    return next(one for one in objects if one["kind"] == "ConfigMap" and "-run-" in one["metadata"]["name"])


def run_config(objects):
    """What the programs in the pods read."""
    return json.loads(run_config_map(objects)["data"]["run.json"])


def env_of(objects, component):
    """The entries of a component's environment, by name."""
    return {one["name"]: one for one in objects.container(component)["env"]}


def as_in_the_container(value):
    """What the kubelet makes of an env value: $$ is one dollar; $(NAME) would be expanded, so none may be left unescaped."""
    assert "$(" not in value.replace("$$", "")
    return value.replace("$$", "$")


def run_hash(objects):
    """The hash that the Job's name carries."""
    return objects.get("Job")["metadata"]["labels"]["deepspeed-job/run"]


class Renderer:
    """The program `render` (cluster/go/helm/render) for one Helm and one chart: what `helm template` does, as often as it is asked."""

    def __init__(self, helm, chart):
        self.helm = helm
        # A larger heap: it ends before it is full.
        environment = {**os.environ, "GOGC": "400"}
        self.process = subprocess.Popen(
            ["render", str(chart)], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(self, values, name):
        """Begin to render; `answer` must follow."""
        line = json.dumps({"helm": self.helm, "values": values, "name": name, "namespace": NAMESPACE})
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def answer(self):
        """Return {manifest, notes, objects, error}."""
        line = self.process.stdout.readline()
        assert line, f"render has ended with {self.process.wait()}"
        return json.loads(line)


@functools.cache
def renderer(helm, chart=CHART):
    """One for each process of the tests; it ends with its input."""
    return Renderer(helm, chart)


@functools.cache
def light_chart():
    """The chart without its programs, for sweeps of values: they are most of its bytes, and no value changes them."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    path = Path(folder.name) / CHART.name
    shutil.copytree(CHART, path, ignore=shutil.ignore_patterns("__pycache__"))
    for one in (path / "files").iterdir():
        one.write_text("# empty\n")
    return path


def answers(values, name="job", helms=HELMS, chart=CHART):
    """Render a values file's text by each Helm, side by side; return their answers."""
    several = [renderer(helm, chart) for helm in helms]
    for one in several:
        one.ask(values, name)
    return [one.answer() for one in several]


def both(values, name="job", helms=HELMS, chart=CHART):
    """Render by each Helm and return what they agree upon; a refusal is a RenderError."""
    first, *others = answers(values, name, helms, chart)
    for other in others:
        assert lines(first["error"]) == lines(other["error"]), "Helm 3 and 4 refuse differently"
        assert first["objects"] == other["objects"], "Helm 3 and 4 render differently"
    if first["error"]:
        raise RenderError(first["error"])
    return first


def lines(text):
    """A schema's errors are in no order."""
    return sorted(text.splitlines())


@functools.cache
def run_helm(values, name="job", helms=HELMS):
    """Render a values file's text to YAML. Many tests want the same; a refusal is not remembered."""
    return both(values, name, helms)["manifest"]


@functools.cache
def run_helm_to_objects(values, name="job", helms=HELMS):
    """Render a values file's text to [{source, object}] as JSON, which nobody can change for the next."""
    return json.dumps(both(values, name, helms)["objects"])
