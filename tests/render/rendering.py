"""The chart's objects as dicts, as `helm template` makes them."""

import functools
import subprocess
from pathlib import Path

CHART = Path(__file__).parents[2] / "charts" / "deepspeed-job"
OLDEST, NEWEST = "1.29", "1.34"
MINIMAL = {"image": {"repository": "example/image", "tag": "v1"}, "run": {"command": "deepspeed train.py"}}


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


@functools.cache
def run_helm(values, name="job", *args):
    """Render a values file's text. Many tests want the same; a refusal is not remembered."""
    done = subprocess.run(
        ["helm", "template", name, str(CHART), "-f", "-", "-n", "team", *args],
        input=values,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RenderError(done.stderr)
    return done.stdout
