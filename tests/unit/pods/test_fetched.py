"""How the commit goes from the launcher's init container to the workers and to whoever looks at the job."""

import base64
import threading

import fetched
import pytest
import sidecar
from cluster_fakes import FakeApi
from sidecar import Sidecar
from test_sidecar import LEASE, RUN, stateful_set
from waiting import wait_for

SHA = "0123456789abcdef0123456789abcdef01234567"
STATEFUL_SET = "/apis/apps/v1/namespaces/{ns}/statefulsets/job-worker"
SECRET = "/api/v1/namespaces/{ns}/secrets/job-ssh"


def encoded(text):
    return base64.b64encode(text.encode()).decode()


@pytest.fixture
def commit(tmp_path, monkeypatch):
    """The file that the init container of a job with code leaves."""
    monkeypatch.setattr(fetched, "COMMIT", tmp_path / "commit")
    monkeypatch.setattr(fetched, "JOB_UID", "uid-1")
    return tmp_path / "commit"


@pytest.fixture
def api(tmp_path, monkeypatch):
    """A cluster whose Secret has a key, and the surroundings of a sidecar."""
    found = FakeApi()
    found.put(SECRET, {"data": {"ssh-privatekey": encoded("key")}})
    found.put(LEASE, {"metadata": {}, "spec": {"holderIdentity": ""}})
    found.put(STATEFUL_SET, stateful_set())
    monkeypatch.setattr(sidecar, "Api", lambda: found)
    monkeypatch.setattr(sidecar, "load_run", lambda: {**RUN, "startTimeout": 0.1})
    monkeypatch.setattr(sidecar, "SSH", tmp_path / "ssh")
    monkeypatch.setattr(sidecar, "SOCKET", tmp_path / "socket")
    monkeypatch.setattr(sidecar.rollcall, "listen", lambda *_: None)
    monkeypatch.setattr(Sidecar, "name_obstacles", lambda _: None)
    for name, text in {"POD_NAME": "job-launcher-x", "POD_IP": "10.0.0.9", "KEY_SECRET": "job-ssh"}.items():
        monkeypatch.setenv(name, text)
    return found


def patched(api):
    """What was written to the Secret and to the scale, in its order."""
    calls = [(path, body) for method, path, body in api.calls if method == "PATCH"]
    return [body["data"] if path == SECRET else body["spec"]["replicas"] for path, body in calls]


def test_workers_come_after_the_code_and_with_its_commit(api, commit):
    side = Sidecar()
    thread = threading.Thread(target=side.prepare)
    thread.start()
    wait_for(lambda: api.bodies("PUT", "/leases/job"))
    assert patched(api) == []
    commit.write_text(SHA)
    thread.join(10)
    assert patched(api) == [{"launcher": encoded("10.0.0.9"), "commit": encoded(f"{SHA} uid-1\n")}, 2]
    wait_for(lambda: api.objects[LEASE]["metadata"].get("annotations", {}).get("deepspeed-job/commit") == SHA)


@pytest.mark.parametrize("uid", ["uid-1", ""])
def test_code_without_a_commit_and_no_code_have_none_for_the_workers(api, commit, monkeypatch, uid):
    monkeypatch.setattr(fetched, "JOB_UID", uid)
    if uid:
        commit.write_text("")
    side = Sidecar()
    side.prepare()
    assert patched(api) == [{"launcher": encoded("10.0.0.9")}, 2]


def test_a_launcher_whose_code_cannot_be_had_gets_no_workers(api, commit):
    """The kubelet ends the sidecar of a pod whose init container has failed."""
    side = Sidecar()
    thread = threading.Thread(target=side.serve)
    thread.start()
    wait_for(lambda: api.bodies("PUT", "/leases/job"))
    side.release()
    thread.join(10)
    assert [one for one in patched(api) if isinstance(one, int)] == [0]


@pytest.mark.parametrize(
    ("data", "other"),
    [
        ({}, False),
        ({"commit": encoded(f"{SHA} uid-1\n")}, False),
        ({"commit": encoded(f"{SHA} uid-0\n")}, True),
    ],
)
def test_workers_that_have_the_commit_of_another_job_are_replaced(api, commit, monkeypatch, data, other):
    side = Sidecar()
    api.put(SECRET, {"data": data})
    # They are not ready yet: their init container fetches.
    api.put(STATEFUL_SET, stateful_set(replicas=2, updatedReplicas=2))
    monkeypatch.setattr(side, "watch_until", lambda done: None)
    side.replace_others()
    assert patched(api) == ([0] if other else [])


def test_the_log_says_which_commit_is_run(commit, capsys):
    fetched.say_commit()
    commit.write_text("")
    fetched.say_commit()
    assert capsys.readouterr().out == ""
    commit.write_text(SHA)
    fetched.say_commit()
    assert capsys.readouterr().out == f"[deepspeed-job] code: commit {SHA}\n"
