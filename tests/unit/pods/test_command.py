"""How the user's command is made, listened to and ended. The processes are real."""

import os
import signal
import sys
import time

import command
import pytest
from command import Command, make_command
from rank import argv_of

NASTY = ["", "a b", "$HOME", "`id`", 'q"uo\'te', "%h", "tab\there", "line\nbreak", "{{ x }}", "--flag=1", "ünïcode", "a(b)", "*"]


def run_python(code, **environment):
    return Command([sys.executable, "-c", code], {**os.environ, **environment})


def test_a_text_goes_to_bash_as_written():
    argv = make_command({"command": 'echo "$HOME" `id`'})
    assert argv[0].endswith("/bash")
    assert argv[1:] == ["-c", 'echo "$HOME" `id`']


def test_a_list_is_run_without_a_shell():
    assert make_command({"command": ["echo", *NASTY]}) == ["echo", *NASTY]


def test_a_script_is_started_through_rank_py_so_that_pdsh_never_sees_its_arguments():
    argv = make_command({"script": "train.py", "args": NASTY, "launcherArgs": ["--module", "--master_port", "29501"]})
    assert argv[:4] == ["deepspeed", "--no_local_rank", "--master_port", "29501"]
    assert argv[4].endswith("/rank.py")
    assert len(argv) == 5


@pytest.mark.parametrize(
    ("launcher_args", "argv"),
    [
        ([], ["py", "-u", "train.py", *NASTY]),
        (["--module"], ["py", "-u", "-m", "train.py", *NASTY]),
        (["--no_python"], ["train.py", *NASTY]),
    ],
)
def test_rank_becomes_the_script_with_its_exact_arguments(launcher_args, argv):
    assert argv_of({"script": "train.py", "args": NASTY, "launcherArgs": launcher_args}, "py") == argv


def test_output_passes_unchanged_and_its_last_lines_are_kept(capfdbinary):
    running = run_python("import sys; sys.stdout.buffer.write(b'one\\r50%\\r100%\\n\\xff\\nno end'); print('oh', file=sys.stderr)")
    assert running.wait() == 0
    out, err = capfdbinary.readouterr()
    assert out == b"one\r50%\r100%\n\xff\nno end"
    assert err == b"oh\n"
    assert {"100%", "no end", "oh"} <= set(running.last_lines)


def test_a_signal_ends_as_in_a_shell():
    assert run_python("import os; os.kill(os.getpid(), 9)").wait() == 137


def test_when_pdsh_gives_up_a_host_the_others_are_not_waited_for_long(monkeypatch):
    monkeypatch.setattr(command, "LOST_GRACE_SECONDS", 0.2)
    line = "pdsh@job-launcher: job-worker-1: ssh exited with exit code 255"
    began = time.monotonic()
    running = run_python(f"import sys, time; print({line!r}, file=sys.stderr, flush=True); time.sleep(60)")
    assert running.wait() == 128 + signal.SIGTERM
    assert time.monotonic() - began < 30
    assert running.lost == {"job-worker-1": 255}


def test_what_ignores_term_is_killed():
    running = run_python("import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)")
    while "deaf" not in running.last_lines:
        assert running.process.poll() is None
        time.sleep(0.01)
    running.stop(grace=0.2)
    assert running.wait() == 137
    assert running.stopped.is_set()
