"""Each preset goes with a job, and with those of other kinds."""

import json

import pytest
import yaml
from rendering import CHART, MINIMAL, merged

FOLDER = CHART.parents[1] / "values" / "presets"
PRESETS = sorted(path.stem for path in FOLDER.glob("*.yaml"))


def preset(name):
    return yaml.safe_load((FOLDER / f"{name}.yaml").read_text())


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_goes_with_a_job(render, name):
    assert render(preset(name))


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("mode", ["spot", "elastic", "strict-network"])
def test_presets_of_different_kinds_go_together(render, name, mode):
    both = merged(preset(name), preset(mode))
    if both.get("mode") == "direct":
        both = {key: value for key, value in both.items() if key not in ("run", "elastic")}
    elif both.get("run", {}).get("interactive"):
        both.pop("elastic", None)
    assert render(json.loads(json.dumps(merged(MINIMAL, both))))
