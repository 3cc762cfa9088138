"""Who may drive the workers, and what the Lease tells of the run."""

import json
import threading

import lease
import pytest
from cluster_fakes import FakeApi
from kubeapi import ApiError
from lease import Lease, lease_is_free
from waiting import wait_for

PATH = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases/job"


@pytest.fixture(autouse=True)
def soon_renewed(monkeypatch):
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.3)


@pytest.fixture
def api():
    """An API server with the Lease as the chart makes it."""
    found = FakeApi()
    found.put(PATH, {"metadata": {"name": "job", "annotations": {"meta.helm.sh/release-name": "job"}}})
    return found


def spec(api):
    return api.objects[PATH]["spec"]


def told(api):
    return {
        key[len("deepspeed-job/") :]: value
        for key, value in api.objects[PATH]["metadata"].get("annotations", {}).items()
        if key.startswith("deepspeed-job/")
    }


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


def test_a_free_lease_is_taken_and_tells_that_the_run_starts(api):
    mine = Lease(api, "job", "me")
    assert mine.acquire() is False, "we did not hold it before"
    assert spec(api)["holderIdentity"] == "me"
    assert told(api) == {"phase": "Starting"}
    assert api.objects[PATH]["metadata"]["annotations"]["meta.helm.sh/release-name"] == "job"


def test_a_sidecar_that_was_started_again_holds_its_lease_already(api):
    Lease(api, "job", "me").acquire()
    assert Lease(api, "job", "me").acquire() is True


def test_another_launcher_is_waited_for_until_it_lets_go(api, capsys):
    other = Lease(api, "job", "other")
    other.acquire()
    waiting = threading.Thread(target=Lease(api, "job", "me").acquire, daemon=True)
    waiting.start()
    wait_for(lambda: "waiting for other" in capsys.readouterr().out)
    assert spec(api)["holderIdentity"] == "other"
    other.release()
    waiting.join(10)
    assert spec(api)["holderIdentity"] == "me"


def test_one_that_was_faster_is_not_overwritten(api):
    """The other's write comes between our reading and our writing."""
    taken = []

    def take_it(method, path):
        if method == "PUT" and not taken:
            taken.append(True)
            found = json.loads(json.dumps(api.objects[PATH]))
            api.put(
                PATH,
                {
                    **found,
                    "spec": {
                        "holderIdentity": "other",
                        "renewTime": lease.now(),
                        "leaseDurationSeconds": 0.2,
                    },
                },
            )

    api.on_call = take_it
    assert Lease(api, "job", "me").acquire() is False
    assert spec(api)["holderIdentity"] == "me"
    assert [body["spec"]["holderIdentity"] for body in api.bodies("PUT", "/job")][:2] == ["me", "me"]


def test_it_is_renewed(api):
    Lease(api, "job", "me").acquire()
    first = spec(api)["renewTime"]
    wait_for(lambda: spec(api)["renewTime"] > first)


def test_what_the_launcher_tells_becomes_annotations_at_once(api, monkeypatch):
    monkeypatch.setattr(lease, "LEASE_SECONDS", 3600)
    mine = Lease(api, "job", "me")
    mine.acquire()
    mine.tell(phase="Restarting", restarts=2, members=3, causes=["2026-12-01T12:00:00Z job-worker-1 failed"])
    wait_for(lambda: "restarts" in told(api))
    mine.tell(phase="Running")
    wait_for(lambda: told(api)["phase"] == "Running")
    assert told(api) == {
        "phase": "Running",
        "restarts": "2",
        "members": "3",
        "causes": '["2026-12-01T12:00:00Z job-worker-1 failed"]',
    }
    assert api.objects[PATH]["metadata"]["annotations"]["meta.helm.sh/release-name"] == "job"


def test_what_an_earlier_launcher_told_is_gone(api):
    other = Lease(api, "job", "other")
    other.tell(phase="Running", restarts=7, causes=["x"])
    other.acquire()
    other.release()
    Lease(api, "job", "me").acquire()
    assert told(api) == {"phase": "Starting"}


def test_a_lease_that_another_has_taken_is_left_alone(api):
    mine = Lease(api, "job", "me")
    mine.acquire()
    found = json.loads(json.dumps(api.objects[PATH]))
    api.put(PATH, {**found, "spec": {"holderIdentity": "other", "renewTime": "x"}})
    calls = len(api.calls)
    wait_for(lambda: len(api.calls) > calls + 2)
    mine.release()
    assert spec(api) == {"holderIdentity": "other", "renewTime": "x"}


def test_whoever_lets_go_holds_it_no_longer(api):
    mine = Lease(api, "job", "me")
    mine.acquire()
    mine.release()
    assert spec(api)["holderIdentity"] == ""


def test_letting_go_gets_through_a_renewal_that_comes_between(api):
    """The last words come just before the end, so that one of both writes has an old version."""
    mine = Lease(api, "job", "me")
    mine.acquire()
    changed = []

    def change_it(method, path):
        if method == "PUT" and not changed:
            changed.append(True)
            api.put(PATH, json.loads(json.dumps(api.objects[PATH])))

    api.on_call = change_it
    mine.release()
    assert spec(api)["holderIdentity"] == ""


def test_an_api_server_that_fails_is_asked_again(api, capsys):
    mine = Lease(api, "job", "me")
    mine.acquire()
    fails = [True] * 2

    def fail(method, path):
        if method == "GET" and fails:
            fails.pop()
            raise ApiError(500, "busy")

    api.on_call = fail
    mine.tell(phase="Running")
    wait_for(lambda: "the Lease is not renewed: busy" in capsys.readouterr().out)
    wait_for(lambda: told(api)["phase"] == "Running")
