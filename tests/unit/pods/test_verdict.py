"""What the launcher makes of an ended attempt: never a success that was none, and the cause rather than its echo."""

import pytest
from link import Unreachable
from verdict import explain_code, judge, tail_of

HOSTS = ["job-worker-0.job", "job-worker-1.job"]


def answer(*codes, oom=0, begin=10.0):
    """What a host reports whose sessions ended with these codes, one second apart."""
    ended = [
        {"startedAt": 1.0, "pid": 7, "exitCode": code, "endedAt": begin + i} for i, code in enumerate(codes)
    ]
    return {"sessions": ended, "oomKills": oom}


def unfinished():
    return {"sessions": [{"startedAt": 1.0, "pid": 7}], "oomKills": 0}


def verdict(code, *answers, lines=()):
    return judge(code, list(lines), {HOSTS[i]: one for i, one in enumerate(answers)})


def lost(text="its pod was told to end"):
    return Unreachable(HOSTS[1], "stay", text)


def test_success_needs_a_zero_from_everything():
    result = verdict(0, answer(0), answer(0))
    assert (result["phase"], result["exitCode"]) == ("Succeeded", 0)


def test_a_call_that_was_killed_before_anything_ran_is_no_success():
    """pdsh ends with 0 when one of its ssh was killed, and the worker knows nothing of it."""
    result = verdict(0, answer(0), {**answer(), "called": True})
    assert (result["phase"], result["reason"], result["host"]) == ("Failed", "RankFailed", "job-worker-1")
    assert "nothing ran there" in result["message"]
    assert verdict(0, answer(0), {**answer(0), "called": True})["phase"] == "Succeeded"


def test_a_command_that_uses_no_worker_succeeds_on_its_own_exit_code():
    assert verdict(0, answer(), answer())["phase"] == "Succeeded"


@pytest.mark.parametrize(
    ("answers", "reason", "host"),
    [
        ((answer(0), answer(1)), "RankFailed", "job-worker-1"),
        ((unfinished(), answer(0)), "RankFailed", "job-worker-0"),
        ((answer(0), lost()), "WorkerLost", "job-worker-1"),
        ((answer(0, 0), answer(0, -9)), "RankFailed", "job-worker-1"),
        ((answer(0), answer(0, oom=1)), "Succeeded", None),
    ],
)
def test_zero_from_the_command_alone_is_no_success(answers, reason, host):
    """`deepspeed` exits with 0 when pdsh is killed, whatever the ranks do."""
    result = verdict(0, *answers)
    if (
        reason == "Succeeded"
    ):  # a data loader's child may be killed and replaced; the ranks say that they are fine
        assert result["phase"] == "Succeeded"
        return
    assert (result["phase"], result["reason"], result["host"]) == ("Failed", reason, host)
    assert result["exitCode"] != 0


def test_the_first_failure_is_the_cause():
    result = verdict(1, answer(1, begin=20.0), answer(3, begin=10.0))
    assert (result["host"], result["exitCode"]) == ("job-worker-1", 1)
    assert "exit code 3" in result["message"]


def test_a_failure_by_itself_comes_before_one_that_was_ended():
    assert verdict(1, unfinished(), answer(3))["host"] == "job-worker-1"


def test_out_of_memory_names_the_worker_and_the_key_to_raise():
    result = verdict(247, answer(1), answer(247, oom=1))
    assert (result["reason"], result["host"]) == ("OOMKilled", "job-worker-1")
    assert "workers.resources.limits.memory" in result["message"]


def test_a_lost_worker_is_the_cause_of_what_fails_elsewhere():
    result = verdict(1, answer(1), lost())
    assert (result["reason"], result["host"], result["exitCode"]) == ("WorkerLost", "job-worker-1", 1)
    assert result["message"] == "job-worker-1 is lost: its pod was told to end"


def test_a_command_that_is_not_there():
    result = verdict(127, answer(), answer(), lines=["bash: line 1: deepsped: command not found"])
    assert result["reason"] == "CommandFailed"
    assert result["lastLines"] == ["bash: line 1: deepsped: command not found"]


def test_last_lines_are_the_failed_hosts_own_and_not_the_noise_after_them():
    lines = [
        "job-worker-0: step 3",
        "job-worker-1: Traceback (most recent call last):",
        "job-worker-1: ValueError: boom",
        "job-worker-1: [2026-01-01 00:00:00,000] [INFO] [launch.py:335:sigkill_handler] Killing subprocess 88",
        "pdsh@job-launcher: job-worker-1: ssh exited with exit code 1",
        "",
    ]
    assert tail_of(lines, "job-worker-1")[-1] == "job-worker-1: ValueError: boom"
    assert "job-worker-0: step 3" not in tail_of(lines, "job-worker-1")
    assert tail_of(lines, "job-worker-7") == lines[:3]


@pytest.mark.parametrize(
    ("code", "text"),
    [(1, "exit code 1"), (137, "killed"), (247, "killed"), (135, "shm"), (139, "segmentation")],
)
def test_exit_codes_are_decoded(code, text):
    assert text in explain_code(code)
