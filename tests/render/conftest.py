"""render(values) gives the chart's objects as dicts, each of them valid."""

import functools
import json

import kubernetes_validate
import pytest
import yaml
from rendering import MINIMAL, NEWEST, OLDEST, Objects, merged, run_helm

# Of schedulers that bring these resources with them.
OPTIONAL = ("scheduling.volcano.sh/v1beta1", "scheduling.x-k8s.io/v1alpha1")


@functools.cache
def validate(text):
    """Check an object for the oldest and the newest Kubernetes; most objects of most tests are the same."""
    if json.loads(text)["apiVersion"] in OPTIONAL:
        return
    for version in (OLDEST, NEWEST):
        kubernetes_validate.validate(json.loads(text), version, strict=True)


@pytest.fixture
def render_text():
    """Render values (merged over the least that works) or a values file's text; return Helm's output."""

    def function(values=None, name="job", args=()):
        # JSON is YAML that Helm cannot read in another way.
        text = values if isinstance(values, str) else json.dumps(merged(MINIMAL, values or {}))
        return run_helm(text, name, *args)

    return function


@pytest.fixture
def render(render_text):
    """Render values and return Objects, each of which is valid for the oldest and the newest Kubernetes."""

    def function(values=None, name="job", args=()):
        text = render_text(values, name, args)
        objects = Objects(one for one in yaml.load_all(text, Loader=yaml.CSafeLoader) if one)
        for one in objects:
            validate(json.dumps(one))
        return objects

    return function
