"""render(values) gives the chart's objects as dicts: the same by Helm 3 and 4, and each of them valid."""

import json

import pytest
from rendering import HELMS, MINIMAL, Objects, merged, run_helm, run_helm_to_objects
from validity import check


def text_of(values):
    # JSON is YAML that Helm cannot read in another way.
    return values if isinstance(values, str) else json.dumps(merged(MINIMAL, values or {}))


@pytest.fixture
def render_text():
    """Render values (merged over the least that works) or a values file's text; return Helm's output."""

    def function(values=None, name="job", helm=None):
        return run_helm(text_of(values), name, (helm,) if helm else HELMS)

    return function


@pytest.fixture
def render():
    """Render by one Helm or both and return Objects, each of which is valid for the oldest and the newest Kubernetes.

    `show_only` is a template's path, such as templates/worker/statefulset.yaml.
    """

    def function(values=None, name="job", show_only=None, helm=None):
        found = json.loads(run_helm_to_objects(text_of(values), name, (helm,) if helm else HELMS))
        check(one["object"] for one in found)
        return Objects(
            one["object"] for one in found if not show_only or one["source"].endswith(f"/{show_only}")
        )

    return function
