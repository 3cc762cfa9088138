"""How the user's command is made, listened to and ended. The processes are real."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import command
import processes
import pytest
from command import Command, make_command
from rank import argv_of
from waiting import wait_for

FILES = Path(command.__file__).parent
NASTY = [
    "",
    "a b",
    "$HOME",
    "`id`",
    "q\"uo'te",
    "%h",
    "tab\there",
    "line\nbreak",
    "{{ x }}",
    "--flag=1",
    "ünïcode",
    "a(b)",
    "*",
]


def run_python(code, **environment):
    return Command([sys.executable, "-c", code], {**os.environ, **environment})


def test_a_text_goes_to_bash_as_written():
    argv = make_command({"command": 'echo "$HOME" `id`'})
    assert argv[0].endswith("/bash")
    assert argv[1:] == ["-c", 'echo "$HOME" `id`']


def test_a_list_is_run_without_a_shell():
    assert make_command({"command": ["echo", *NASTY]}) == ["echo", *NASTY]


def test_a_script_is_started_through_rank_py_so_that_pdsh_never_sees_its_arguments():
    argv = make_command(
        {"script": "train.py", "args": NASTY, "launcherArgs": ["--module", "--master_port", "29501"]}
    )
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
    running = run_python(
        "import sys; sys.stdout.buffer.write(b'one\\r50%\\r100%\\n\\xff\\nno end'); print('oh', file=sys.stderr)"
    )
    assert running.wait() == 0
    out, err = capfdbinary.readouterr()
    assert out == b"one\r50%\r100%\n\xff\nno end"
    assert err == b"oh\n"
    assert {"100%", "no end", "oh"} <= set(running.last_lines)


@pytest.mark.parametrize("end", ["\\n", "\\r"])
def test_the_time_of_the_last_output_is_known_also_of_a_progress_bar(end):
    running = run_python(
        f"import time; time.sleep(0.3); print('50%', end='{end}', flush=True); time.sleep(60)"
    )
    at_first = running.last_output
    wait_for(lambda: running.last_output > at_first)
    spoke = running.last_output
    assert at_first + 0.2 < spoke <= time.monotonic()
    running.end(grace=10)
    running.wait()
    assert running.last_output == spoke, "its end is no output"


def test_what_others_run_beside_it_finds_the_same_programs(tmp_path):
    """`kubectl exec … /opt/deepspeed-job/enter COMMAND`."""
    environment = {**os.environ, "PATH": f"{tmp_path}:/bin:/usr/bin"}
    script = "echo $PATH; echo $PDSH_RCMD_TYPE; printf '<%s>' \"$@\"; exit 3"
    argv = ["sh", FILES / "enter", "sh", "-c", script, "sh", *NASTY]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True)
    assert done.returncode == 3
    path, rcmd, arguments = done.stdout.split("\n", 2)
    assert path == f"/opt/deepspeed-job:{tmp_path}:/bin:/usr/bin"
    assert rcmd == "ssh"
    assert arguments == "".join(f"<{one}>" for one in NASTY)


@pytest.mark.parametrize(
    "arguments",
    [
        ["job-worker-1.job", "cat", "/out/job-worker-0"],
        ["-oConnectTimeout=10", "-2", "-a", "-x", "me@job-worker-1", "true"],
    ],
)
def test_the_ssh_of_a_command_notes_whom_it_calls_and_is_the_images(tmp_path, arguments):
    shim, image = tmp_path / "shims" / "ssh", tmp_path / "image" / "ssh"
    for path in (shim, image):
        path.parent.mkdir()
    (tmp_path / "called").mkdir()
    shim.write_text((FILES / "ssh").read_text().replace("/job/called", f"{tmp_path}/called"))
    image.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    for path in (shim, image):
        path.chmod(0o755)
    environment = {**os.environ, "PATH": f"{shim.parent}:{image.parent}:/bin:/usr/bin"}
    done = subprocess.run([shim, *arguments], env=environment, capture_output=True, text=True)
    assert done.stdout == "".join(f"<{one}>" for one in ["-F", "/job/ssh/config", *arguments])
    assert [path.name for path in (tmp_path / "called").iterdir()] == ["job-worker-1"]


def test_an_ssh_that_cannot_note_whom_it_calls_calls_all_the_same(tmp_path):
    """Where /job is not to be written to, or there is no attempt."""
    image = tmp_path / "ssh"
    image.write_text("#!/bin/sh\necho here\n")
    image.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:/bin:/usr/bin"}
    done = subprocess.run(
        ["sh", FILES / "ssh", "job-worker-1"], env=environment, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("here\n", "")


def test_a_signal_ends_as_in_a_shell():
    assert run_python("import os; os.kill(os.getpid(), 9)").wait() == 137


def test_when_a_worker_is_lost_the_others_are_not_waited_for_long(monkeypatch):
    monkeypatch.setattr(command, "TROUBLE_GRACE_SECONDS", 0.2)
    running = run_python("import time; time.sleep(60)")
    running.on_trouble()
    assert running.wait() == 128 + signal.SIGTERM
    assert time.time() - running.started < 30


def test_what_ends_by_itself_after_trouble_keeps_its_exit_code():
    running = run_python("import time; time.sleep(0.2); raise SystemExit(3)")
    running.on_trouble()
    assert running.wait() == 3


def test_what_the_command_left_behind_is_killed_but_not_what_is_spared():
    spared = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    code = "import os, subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import os, time; os.setsid(); time.sleep(60)'])"
    running = run_python(code)
    processes.become_guardian()
    running.wait(spare=frozenset([spared.pid]))
    wait_for(lambda: processes.descendants(os.getpid()) == [spared.pid])
    spared.kill()
    spared.wait()


def test_what_ignores_term_is_killed():
    running = run_python(
        "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    wait_for(lambda: "deaf" in running.last_lines)
    running.end(grace=0.2)
    assert running.wait() == 137
