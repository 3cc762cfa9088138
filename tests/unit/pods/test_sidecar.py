"""When the sidecar may drive the workers, and when it calls them ready."""

import pytest
import sidecar
from sidecar import has_other_workers, lease_is_free, make_key


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
    ("found", "others"),
    [
        (stateful_set(), False),
        # worker-0 of a new release, which the default of replicas makes: it waits for the key
        (stateful_set(replicas=1, updatedReplicas=1), False),
        (stateful_set(replicas=3, updatedReplicas=0), True),
        (stateful_set(replicas=1, updatedReplicas=1, readyReplicas=1), True),
        (stateful_set(generation=3, replicas=3, updatedReplicas=3), True),
    ],
)
def test_workers_of_another_run_or_launcher_are_noticed(found, others):
    assert has_other_workers(found) is others


def test_a_new_key_is_one_that_ssh_can_read(tmp_path, monkeypatch):
    monkeypatch.setattr(sidecar, "SSH", tmp_path / "ssh")
    key = make_key()
    assert key.startswith(b"-----BEGIN OPENSSH PRIVATE KEY-----")
    assert make_key() != key
    assert list(tmp_path.iterdir()) == []
