"""Mode direct: the worker's own program, and the `deepspeed` that becomes the launcher of one node."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import direct
import pernode
import pytest
from command import Command
from common import Refusal

LIMITS = {"gracePeriod": 30, "deadline": 0, "stallTimeout": 0, "logdir": ""}
RUN = {
    "name": "job",
    "stem": "job-worker-1a2b3c4d",
    "workers": 2,
    "slots": 2,
    "startTimeout": 600,
    **LIMITS,
    "run": {"command": "true"},
}
ENVIRONMENT = {"NODE_RANK": "1", "MASTER_ADDR": "job-worker-1a2b3c4d-0.job", "MASTER_PORT": "29500"}
FILES = Path(pernode.__file__).parent


def launch(*arguments):
    """The node's command for arguments of `deepspeed`: its options as a dict, and the rest."""
    argv = pernode.launch_argv(list(arguments), RUN, ENVIRONMENT)
    assert argv[:4] == [sys.executable, "-u", "-m", "deepspeed.launcher.launch"]
    options = {}
    for position, one in enumerate(argv[4:], 4):
        if not one.startswith("--"):
            return options, argv[position:]
        name, _, value = one.partition("=")
        options[name] = value
    raise AssertionError("no script")


def world(options):
    return json.loads(base64.urlsafe_b64decode(options["--world_info"]))


def test_the_node_gets_its_rank_the_master_and_the_world():
    options, rest = launch("train.py")
    assert world(options) == {"worker-0": [0, 1], "worker-1": [0, 1]}
    del options["--world_info"]
    assert options == {
        "--node_rank": "1",
        "--master_addr": "job-worker-1a2b3c4d-0.job",
        "--master_port": "29500",
    }
    assert rest == ["train.py"]


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["-H", "/job/hostfile"],
        ["--hostfile=/x", "--launcher", "openmpi", "--launcher_args", "a b"],
        ["--no_ssh", "--node_rank", "7", "--no_ssh_check", "--force_multi", "--ssh_port=22"],
        ["--module", "--num_nodes", "2", "-q"],
    ],
)
@pytest.mark.parametrize(
    "args",
    [
        [],
        ["--epochs", "3"],
        ["--hostfile", "mine", "--num_gpus", "x", "--include", "y"],
        ["a b", "", "--", "$HOME", "--module", "line\nbreak"],
    ],
)
def test_options_are_told_from_the_scripts_arguments(options, args):
    found, rest = launch(*options, "train.py", *args)
    assert rest == ["train.py", *args]
    assert not found.keys() & {"--hostfile", "--launcher", "--no_ssh", "--force_multi", "--num_nodes"}
    assert found["--node_rank"] == "1"


def test_options_of_the_node_are_passed_on():
    options, _ = launch(
        "--master_port", "3", "--no_python", "--no_local_rank", "--log_level", "error", "--enable_each_rank_log=/l", "train.py"
    )  # fmt: skip
    assert options["--master_port"] == "3"
    assert options.keys() >= {"--no_python", "--no_local_rank"}
    assert (options["--log_level"], options["--enable_each_rank_log"]) == ("error", "/l")
    options, _ = launch("--save_pid", "--bind_cores_to_rank", "--bind_core_list", "1,3-5", "train.py")
    assert (options["--save_pid"], options["--bind_core_list"]) == (str(os.getpid()), "1,3-5")


@pytest.mark.parametrize("name", ["--num_gpus", "--num_accelerators"])
def test_fewer_ranks_on_each_worker(name):
    assert world(launch(name, "1", "train.py")[0]) == {"worker-0": [0], "worker-1": [0]}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-i", "worker-0"], "--include cannot be used in `mode: direct`: choose by `workers.count`"),
        (["--exclude", "worker-0"], "--exclude"),
        (["--autotuning", "run"], "`mode: launcher`"),
        (["--venv_script", "x"], "`run.command`"),
        (["--num_nodes", "1"], "`workers.count`, which is 2"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(options, message):
    with pytest.raises(Refusal) as refused:
        launch(*options, "train.py")
    assert message in str(refused.value)


def test_many_workers_fit_into_one_argument():
    assert len(pernode.encode_world(2000, 8)) < 128 * 1024


def test_the_image_without_deepspeed():
    program = "import importlib.util as u, runpy; u.find_spec = lambda name: None; runpy.run_path('pernode.py', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", program], cwd=FILES, capture_output=True, text=True)
    assert done.returncode == 127
    assert "no module `deepspeed`: install it in the image" in done.stderr


def test_worker_0_is_found_by_any_workers_host_name():
    names = direct.host_names({"name": "my-job", "stem": "my-job-worker-1a2b3c4d", "workers": 2})
    assert names == ["my-job-worker-1a2b3c4d-0.my-job", "my-job-worker-1a2b3c4d-1.my-job"]


def test_the_commands_environment():
    found = direct.environment({"JOB_COMPLETION_INDEX": "2", "PATH": "/usr/bin", "A": "b"})
    assert (found["NODE_RANK"], found["A"]) == ("2", "b")
    assert found["PATH"] == "/job/bin:/usr/bin"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (0, ("Succeeded", 0, "Completed")),
        (3, ("Failed", 3, "RankFailed")),
        (127, ("Failed", 127, "CommandFailed")),
    ],
)
def test_what_is_told_of_the_end(code, expected):
    found = direct.judge("job-worker-1", code, ["ValueError", "[launch.py:1] noise"], {})
    assert (found["phase"], found["exitCode"], found["reason"]) == expected
    if code:
        assert found["lastLines"] == ["ValueError"]
        assert "job-worker-1 failed with exit code" in found["message"]


@pytest.mark.parametrize("code", [0, 1, 143])
def test_what_ended_the_command_is_told_rather_than_how_it_ended(code):
    """The Job would count a 0 as done."""
    limit = {"phase": "Failed", "exitCode": 124, "reason": "Stalled", "message": "no line of output"}
    found = direct.judge("job-worker-1", code, ["step 3"], limit)
    assert found == {**limit, "host": "job-worker-1", "lastLines": ["step 3"]}


@pytest.fixture
def worker(tmp_path):
    """Start direct.py as a process with a run, its folders and its report in a temporary place."""

    def start(run, name_known=True, index=1):
        (tmp_path / "pernode.py").write_text("")
        (tmp_path / "pernode.py").chmod(0o755)
        (tmp_path / "run.json").write_text(json.dumps({**RUN, **run}))
        program = (
            "import pathlib, sys, time; import common; t = pathlib.Path(sys.argv[1]); common.FILES = common.JOB = t; "
            "common.HOSTFILE = t / 'hostfile'; common.TERMINATION_LOG = t / 'told'; import direct; "
            f"direct.await_name = lambda name, deadline: None if {name_known} else time.sleep(deadline - time.monotonic()); "
            "print('begun', flush=True); sys.exit(direct.main())"
        )
        return subprocess.Popen(
            [sys.executable, "-c", program, tmp_path],
            cwd=FILES,
            env={**os.environ, "JOB_COMPLETION_INDEX": str(index), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )

    return start


def told(tmp_path):
    return json.loads((tmp_path / "told").read_text())


def test_a_command_is_run_and_its_end_is_told(worker, tmp_path):
    running = worker({"run": {"command": "echo node $NODE_RANK; command -v deepspeed; exit 3"}})
    output, _ = running.communicate(timeout=30)
    assert running.returncode == 3
    assert "\nnode 1\n" in output
    assert f"\n{tmp_path}/bin/deepspeed\n" in output
    assert len((tmp_path / "hostfile").read_text().splitlines()) == 2
    report = told(tmp_path)
    assert (report["reason"], report["exitCode"]) == ("RankFailed", 3)
    assert report["endedAt"].endswith("+00:00")


def test_a_command_that_is_not_there(worker, tmp_path):
    running = worker({"run": {"command": ["no-such-program"]}})
    running.communicate(timeout=30)
    assert running.returncode == 127
    assert "no-such-program: No such file" in told(tmp_path)["message"]


def test_a_first_worker_that_is_not_found(worker, tmp_path):
    running = worker({"startTimeout": 0.2}, name_known=False)
    running.communicate(timeout=30)
    assert running.returncode == 1
    assert told(tmp_path)["reason"] == "StartTimeout"
    assert "within 0.2 s" in told(tmp_path)["message"]


@pytest.fixture
def one(monkeypatch, tmp_path):
    """Make a direct.Worker for a run, in this process."""

    def make(**run):
        monkeypatch.setattr(direct, "load_run", lambda: {**RUN, **run})
        monkeypatch.setattr(direct, "await_name", lambda *_: None)
        monkeypatch.setattr(direct, "BIN", tmp_path / "bin")
        monkeypatch.setattr(direct, "HOSTFILE", tmp_path / "hostfile")
        monkeypatch.setenv("JOB_COMPLETION_INDEX", "0")
        return direct.Worker()

    return make


def test_told_to_end_before_the_command_is_started(one, monkeypatch):
    """Nothing is run then, and the Job must not count it as done."""
    said, codes = [], []
    monkeypatch.setattr(direct, "finish", lambda **told: said.append(told))
    monkeypatch.setattr(os, "_exit", codes.append)
    one().stop()
    assert codes == [143]
    assert (said[0]["phase"], said[0]["exitCode"], said[0]["reason"]) == ("Failed", 143, "Stopped")


def test_told_to_end_while_the_command_is_being_started(one, monkeypatch):
    worker = one(run={"command": "sleep 60"})

    def start(*arguments):
        worker.stop()
        return Command(*arguments)

    monkeypatch.setattr(direct, "Command", start)
    assert worker.work()["reason"] == "Stopped"


def test_told_to_end_the_command_gets_its_time_and_is_no_success(worker, tmp_path):
    save = "(time.sleep(0.3), print('saved'), sys.exit(0))"
    script = f"import signal, sys, time; signal.signal(15, lambda *_: {save}); print('up'); time.sleep(60)"
    running = worker({"run": {"command": f'"{sys.executable}" -uc "{script}"; exit 0'}})
    while running.stdout.readline() != "up\n":
        pass
    running.terminate()
    output, _ = running.communicate(timeout=30)
    assert "saved\n" in output
    assert running.returncode == 143
    assert told(tmp_path)["reason"] == "Stopped"


def test_a_run_whose_time_is_over_ends_with_that_reason(worker, tmp_path):
    running = worker({"deadline": 1, "run": {"command": "echo up; sleep 60"}})
    output, _ = running.communicate(timeout=30)
    assert "up\n" in output
    assert running.returncode == 124
    report = told(tmp_path)
    assert (report["reason"], report["lastLines"]) == ("DeadlineExceeded", ["up"])
    assert report["host"]


def test_a_run_whose_time_is_over_before_the_first_worker_is_found(worker, tmp_path):
    running = worker({"deadline": 0.2}, name_known=False)
    running.communicate(timeout=30)
    assert running.returncode == 124
    assert told(tmp_path)["reason"] == "DeadlineExceeded"


@pytest.mark.parametrize(("index", "code", "reason"), [(0, 124, "Stalled"), (1, 3, "RankFailed")])
def test_only_the_first_worker_has_something_to_say_and_so_can_stall(worker, tmp_path, index, code, reason):
    running = worker({"stallTimeout": 0.3, "run": {"command": "sleep 0.7; exit 3"}}, index=index)
    running.communicate(timeout=30)
    assert running.returncode == code
    assert told(tmp_path)["reason"] == reason


def test_a_command_that_fails_after_its_time_is_over_is_not_blamed(one):
    """The first of what ended it is the cause."""
    worker = one(run={"command": "exit 3"}, deadline=60)
    worker.interruption = worker.limits.deadline_verdict()
    found = worker.work()
    assert (found["reason"], found["exitCode"]) == ("DeadlineExceeded", 124)
    worker.stop()
    assert worker.interruption["reason"] == "DeadlineExceeded"
