"""What all programs share: the last words, the names of the workers, and who we are."""

import json

import common
import pytest
from common import Refusal, find_programs, finish, host_names, write_private


@pytest.fixture
def last_words(tmp_path, monkeypatch):
    """Return what was left for `dsjob status`, as Kubernetes keeps it."""
    monkeypatch.setattr(common, "TERMINATION_LOG", tmp_path / "told")

    def read():
        text = (tmp_path / "told").read_bytes()
        assert len(text) <= 4096, "Kubernetes cuts what is longer"
        return json.loads(text)

    return read


def test_the_last_words_are_a_small_json_and_a_line_of_the_log(last_words, capsys):
    finish("Failed", 3, "RankFailed", "job-worker-1 failed", host="job-worker-1", lastLines=["boom"])
    assert last_words() == {
        "phase": "Failed",
        "exitCode": 3,
        "reason": "RankFailed",
        "message": "job-worker-1 failed",
        "host": "job-worker-1",
        "lastLines": ["boom"],
    }
    assert capsys.readouterr().out == "[deepspeed-job] Failed: job-worker-1 failed\n"


@pytest.mark.parametrize("letter", ["x", '"', "ß", "☃", "\0"])
def test_of_many_last_lines_the_last_are_kept(last_words, letter):
    lines = [letter * 200 + str(i) for i in range(100)]
    finish("Failed", 1, "RankFailed", "boom", lastLines=lines, restarts=0)
    kept = last_words()["lastLines"]
    assert kept
    assert kept == lines[-len(kept) :]


@pytest.mark.parametrize("letter", ["x", "☃"])
def test_long_causes_make_the_last_words_no_broken_json(last_words, letter):
    """A cause holds what ssh wrote, which may be a banner."""
    causes = [f"2026-12-01T12:00:0{i}Z " + letter * 1500 for i in range(5)]
    finish("Failed", 1, "WorkerUnreachable", "boom", lastLines=["x"], restarts=5, causes=causes)
    told = last_words()
    assert (told["reason"], told["restarts"]) == ("WorkerUnreachable", 5)
    assert told["causes"] == causes[5 - len(told["causes"]) :], "the last ones"


@pytest.mark.parametrize("letter", ["x", "☃"])
def test_a_long_message_is_cut(last_words, letter):
    finish("Failed", 1, "CannotStart", letter * 9000)
    assert last_words()["message"].startswith(letter * 100)


def test_the_names_of_all_workers_that_there_may_be():
    run = {"name": "job", "stem": "job-worker", "workers": 2}
    assert host_names(run) == ["job-worker-0.job", "job-worker-1.job"]
    assert host_names({**run, "elastic": {}}) == host_names(run)
    assert len(host_names({**run, "elastic": {"min": 1, "max": 4, "patience": 60}})) == 4


def test_programs_that_the_image_lacks_are_all_named():
    assert find_programs(["sh"], "worker")["sh"].endswith("/sh")
    with pytest.raises(Refusal, match=r"the image of the worker lacks no-sshd, no-pkill: install"):
        find_programs(["no-sshd", "sh", "no-pkill"], "worker")


def test_a_private_file_is_this_users_alone(tmp_path):
    path = tmp_path / "a" / "key"
    for data in (b"one", b"two"):
        write_private(path, data)
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in path.parent.iterdir()] == ["key"]
