"""render(values) gives the chart's objects as dicts, each of them valid."""

import json

import kubernetes_validate
import pytest
import yaml
from rendering import MINIMAL, NEWEST, OLDEST, Objects, merged, run_helm


@pytest.fixture
def render_text(tmp_path):
    """Render values (merged over the least that works) or a values file's text; return Helm's output."""

    def function(values=None, name="job", args=()):
        path = tmp_path / "values.yaml"
        # JSON is YAML that Helm cannot read in another way.
        path.write_text(values if isinstance(values, str) else json.dumps(merged(MINIMAL, values or {})))
        return run_helm(path, name, *args)

    return function


@pytest.fixture
def render(render_text):
    """Render values and return Objects, each of which is valid for the oldest and the newest Kubernetes."""

    def function(values=None, name="job", args=()):
        objects = Objects(one for one in yaml.safe_load_all(render_text(values, name, args)) if one)
        for one in objects:
            for version in (OLDEST, NEWEST):
                kubernetes_validate.validate(one, version, strict=True)
        return objects

    return function
