"""Every test has a namespace of its own on the shared cluster, and leaves nothing behind."""

import re
import uuid

import pytest
from lab import Job, Namespace, namespaces_left, wait_for


def named(request):
    stem = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())[:30].strip("-")
    return f"e2e-{stem}-{uuid.uuid4().hex[:4]}"


@pytest.fixture
def namespace(request):
    """A namespace with Pod Security `restricted`, or the level that a parameter says."""
    space = Namespace(named(request), *([request.param] if hasattr(request, "param") else []))
    yield space
    space.delete()


@pytest.fixture(scope="session", autouse=True)
def nothing_left(worker_id):
    """After the last test, no namespace of a test is there."""
    yield
    if worker_id == "master":
        wait_for(lambda: not namespaces_left(), 180, lambda: f"left behind: {namespaces_left()}")


@pytest.fixture
def job(namespace):
    return Job(namespace)
