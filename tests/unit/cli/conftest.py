"""What the tests of dsjob share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import GOOD, Dsjob, FakeCluster, FakeHelm

from dsjob import cluster, helm


@pytest.fixture
def dsjob(monkeypatch: pytest.MonkeyPatch) -> Dsjob:
    """The command line over a fake cluster and a fake helm."""
    fake = Dsjob(FakeCluster(), FakeHelm())
    monkeypatch.setattr(cluster, "connect", lambda target: fake.cluster)
    monkeypatch.setattr(helm, "connect", lambda target, namespace: fake.helm)
    return fake


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a file and return its path."""

    def _write(text: str, name: str = "values.yaml") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return _write


@pytest.fixture
def good(write: Callable[..., Path]) -> Path:
    """A valid values file of the job `hello`."""
    return write(GOOD, "hello.yaml")
