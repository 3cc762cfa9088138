"""Every test has a namespace of its own on the shared cluster, and leaves nothing behind."""

import re
import uuid

import pytest
from lab import Job, Namespace


def named(request):
    stem = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())[:30].strip("-")
    return f"e2e-{stem}-{uuid.uuid4().hex[:4]}"


@pytest.fixture
def namespace(request):
    space = Namespace(named(request))
    yield space
    space.delete()


@pytest.fixture
def job(namespace):
    return Job(namespace)
