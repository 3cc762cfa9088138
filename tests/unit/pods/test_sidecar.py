"""When the sidecar may drive the workers, and when it calls them ready."""

import pytest
from sidecar import has_old_workers, lease_is_free, workers_ready


def stateful_set(generation=2, **status):
    return {"metadata": {"generation": generation}, "status": {"observedGeneration": 2, **status}}


@pytest.mark.parametrize(
    ("spec", "free"),
    [
        ({}, True),
        ({"holderIdentity": ""}, True),
        ({"holderIdentity": "me", "renewTime": "1970-01-01T00:16:40.000000Z"}, True),
        (
            {
                "holderIdentity": "other",
                "renewTime": "1970-01-01T00:16:40.000000Z",
                "leaseDurationSeconds": 15,
            },
            False,
        ),
        (
            {
                "holderIdentity": "other",
                "renewTime": "1970-01-01T00:16:20.000000Z",
                "leaseDurationSeconds": 15,
            },
            True,
        ),
    ],
)
def test_a_lease_is_free_when_nobody_renews_it(spec, free):
    assert lease_is_free(spec, "me", at=1005.0) is free


@pytest.mark.parametrize(
    ("found", "ready"),
    [
        (stateful_set(), 0),
        (stateful_set(replicas=3, updatedReplicas=3, readyReplicas=2), 2),
        (stateful_set(replicas=3, updatedReplicas=3, readyReplicas=3), 3),
        (
            stateful_set(generation=3, replicas=3, updatedReplicas=3, readyReplicas=3),
            0,
        ),  # the status is older than the spec
        (stateful_set(replicas=3, updatedReplicas=1, readyReplicas=3), 0),  # two are of an older run
    ],
)
def test_only_workers_of_this_revision_are_ready(found, ready):
    assert workers_ready(found, 3) == ready


@pytest.mark.parametrize(
    ("found", "old"),
    [
        (stateful_set(), False),
        (stateful_set(replicas=1, updatedReplicas=1), False),
        (stateful_set(replicas=3, updatedReplicas=0), True),
        (stateful_set(generation=3, replicas=3, updatedReplicas=3), True),
    ],
)
def test_workers_of_an_older_run_are_noticed(found, old):
    assert has_old_workers(found) is old
