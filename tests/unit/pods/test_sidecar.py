"""When the sidecar may drive the workers, when it frees them, and what it passes on."""

import json
import socket

import pytest
import sidecar
from cluster_fakes import FakeApi
from sidecar import Sidecar, has_other_workers, keeps_workers, make_key
from waiting import wait_for

RUN = {
    "name": "job",
    "stem": "job-worker",
    "workers": 2,
    "port": 2222,
    "startTimeout": 60,
    "release": "Always",
}
SCALE = "/apis/apps/v1/namespaces/{ns}/statefulsets/job-worker/scale"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases/job"


def stateful_set(generation=2, **status):
    return {"metadata": {"generation": generation}, "status": {"observedGeneration": 2, **status}}


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


FAILURES = [
    "RankFailed",
    "OOMKilled",
    "WorkerLost",
    "StartTimeout",
    "DeadlineExceeded",
    "Stalled",
    "CannotStart",
]


@pytest.mark.parametrize(
    ("policy", "reason", "keeps"),
    [
        *[("Always", reason, False) for reason in ("Completed", "Stopped", "", *FAILURES)],
        *[("OnSuccess", reason, True) for reason in FAILURES],
        *[("Never", reason, True) for reason in ("Completed", *FAILURES)],
        ("OnSuccess", "Completed", False),
        # Killed, without a last word: that was no success.
        ("OnSuccess", "", True),
        ("Never", "", True),
        # Suspended, deleted, drained: whoever ends a run wants its devices.
        ("OnSuccess", "Stopped", False),
        ("Never", "Stopped", False),
    ],
)
def test_workers_are_kept_as_the_values_say(policy, reason, keeps):
    assert keeps_workers(policy, reason) is keeps


@pytest.fixture
def api(monkeypatch):
    found = FakeApi()
    found.put(LEASE, {"metadata": {"name": "job"}, "spec": {"holderIdentity": "job-launcher-x"}})
    monkeypatch.setattr(sidecar, "Api", lambda: found)
    return found


@pytest.fixture
def one(api, monkeypatch):
    """Make a sidecar for a run."""

    def make(**run):
        monkeypatch.setattr(sidecar, "load_run", lambda: {**RUN, **run})
        monkeypatch.setenv("POD_NAME", "job-launcher-x")
        monkeypatch.setenv("KEY_SECRET", "job-ssh")
        return Sidecar()

    return make


def listen(side, *lines):
    """Let the sidecar hear these lines from the launcher, and then the end of the connection."""
    ours, its = socket.socketpair()
    with ours, its:
        ours.sendall("".join(f"{line}\n" for line in lines).encode())
        ours.shutdown(socket.SHUT_WR)
        side.listen(its)


def test_what_the_launcher_tells_goes_to_the_lease_and_why_it_ended_is_kept(one, monkeypatch):
    side, told = one(), []
    monkeypatch.setattr(side.lease, "tell", lambda **facts: told.append(facts))
    listen(
        side,
        '{"phase": "Running", "members": 2}',
        '{"phase": "Running", "members": 2, "reason": "RankFailed"}',
    )
    assert told == [{"phase": "Running", "members": 2}] * 2
    assert side.reason == "RankFailed"


@pytest.mark.parametrize(
    ("release", "told", "scales"),
    [
        ("Always", ['{"reason": "Completed"}'], [0]),
        ("Always", [], [0]),
        ("OnSuccess", ['{"reason": "RankFailed"}'], []),
        ("Never", ['{"reason": "Completed"}'], []),
        ("Never", ['{"reason": "Stopped"}'], [0]),
        # What it told of an attempt that failed is not why the run ended.
        ("OnSuccess", ['{"phase": "Restarting"}', '{"reason": "Completed"}'], [0]),
    ],
)
def test_the_end_of_the_launcher_frees_the_workers_or_keeps_them_and_lets_the_lease_go(
    one, api, release, told, scales
):
    side = one(release=release)
    listen(side, *told)
    side.release()
    side.release()
    assert [json.loads(line) for line in side.events] == [{"event": "released"}]
    assert [body["spec"]["replicas"] for body in api.bodies("PATCH", "/scale")] == scales
    assert api.objects[LEASE]["spec"]["holderIdentity"] == ""


def test_a_worker_that_runs_is_passed_on_and_one_that_cannot_serve_ends_the_wait(one):
    side = one()
    side.hear("job-worker-0.job", "10.0.0.1", "")
    side.hear("job-worker-1.job", "10.0.0.2", "the image of the worker lacks sshd")
    assert [json.loads(line) for line in side.events] == [
        {"event": "worker", "host": "job-worker-0.job", "address": "10.0.0.1"},
        {"event": "error", "message": "job-worker-1: the image of the worker lacks sshd"},
    ]


def test_what_keeps_the_first_missing_worker_from_running_is_told_once(one, api, monkeypatch):
    monkeypatch.setattr(sidecar, "OBSTACLE_SECONDS", 0.02)
    side = one()
    pods = "/api/v1/namespaces/{ns}/pods/job-worker-"
    side.hear("job-worker-0.job", "10.0.0.1", "")
    unscheduled = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}
    steps = iter([None, {"conditions": [unscheduled]}, {"conditions": [unscheduled]}, {"phase": "Running"}])
    asked = []

    def answer(method, path):
        asked.append(path)
        status = next(steps, "reported")
        if status == "reported":
            side.hear("job-worker-1.job", "10.0.0.2", "")
        elif status:
            api.put(path, {"status": status})

    api.on_call = answer
    side.name_obstacles()
    assert set(asked) == {pods + "1"}
    assert [json.loads(line)["message"] for line in side.events if b"obstacle" in line] == [
        "waiting for job-worker-1: it has no pod: `kubectl describe statefulset` says why",
        "waiting for job-worker-1: not scheduled: 0/1 nodes are available",
    ]


def test_each_new_scale_is_told_whoever_set_it(one, api):
    side = one(elastic={"min": 1, "max": 4, "patience": 60})
    scales = [2, 2, 3, 1]

    def watch(path, seconds):
        assert "metadata.name%3Djob-worker" in path
        for count in scales:
            yield {"spec": {"replicas": count}}
        side.ending.set()
        yield {"spec": {"replicas": 0}}

    api.watch = watch
    side.watch_scale()
    assert [json.loads(line) for line in side.events] == [
        {"event": "scale", "count": count} for count in (2, 3, 1)
    ]


def prepared(side, monkeypatch, tmp_path):
    """Let the sidecar prepare the workers, up to their reports."""
    monkeypatch.setattr(sidecar, "SSH", tmp_path)
    monkeypatch.setattr(sidecar.rollcall, "listen", lambda *_: None)
    monkeypatch.setattr(side, "provide_key", lambda: b"key")
    monkeypatch.setattr(side, "watch_scale", lambda: None)
    monkeypatch.setattr(side, "name_obstacles", lambda: None)
    side.prepare()
    wait_for(lambda: b'{"event": "key"}\n' in side.events)


@pytest.mark.parametrize(
    ("run", "holder", "scales"),
    [
        ({}, "", [2]),
        ({}, "job-launcher-x", [2]),
        ({"elastic": {"min": 1, "max": 4, "patience": 60}}, "", [2]),
        # It was started again in the middle of the run.
        ({"elastic": {"min": 1, "max": 4, "patience": 60}}, "job-launcher-x", []),
    ],
)
def test_the_scale_at_the_start_is_the_values_and_later_an_elastic_runs_own(
    one, api, monkeypatch, tmp_path, run, holder, scales
):
    api.put(LEASE, {"metadata": {}, "spec": {"holderIdentity": holder}})
    side = one(**run)
    api.put(side.set_path, stateful_set())
    prepared(side, monkeypatch, tmp_path)
    assert [body["spec"]["replicas"] for body in api.bodies("PATCH", "/scale")] == scales


def test_a_launcher_that_ended_meanwhile_gets_no_workers(one, api, monkeypatch, tmp_path):
    side = one()
    api.put(side.set_path, stateful_set())
    side.ending.set()
    prepared(side, monkeypatch, tmp_path)
    assert api.bodies("PATCH", "/scale") == []
