"""One throwaway node for all tests here, in the order in which they stand; the machine's own node is left alone."""

import shutil
import tempfile
from pathlib import Path

import pytest
from throwaway import CLUSTER, ROOT, Node, traces


@pytest.fixture(scope="session")
def before(tmp_path_factory):
    """The traces of nodes on the machine before the first test."""
    return traces()


@pytest.fixture(scope="session")
def node(before, tmp_path_factory):
    """A node that has not been started."""
    node = Node(tmp_path_factory.mktemp("nodes"))
    yield node
    node("stop", "--delete", code=None)


@pytest.fixture
def checkout():
    """A copy of what the commands are made of, that every user can read."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        shutil.copy(ROOT / "versions.env", root)
        shutil.copytree(CLUSTER, root / "cluster", ignore=shutil.ignore_patterns("__pycache__", ".*"))
        yield root
