"""The command line over fakes: what each verb says, changes and returns. Every exit code appears here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes import GOOD, MANIFEST, Dsjob
from objects import (
    NOW,
    board,
    claim,
    failed,
    healthy,
    job,
    launcher,
    objects,
    running,
    succeeded,
    unscheduled,
    worker,
    workers_set,
)

from dsjob import cli, cluster, follow, helm
from dsjob import up as up_verb
from dsjob.errors import DsjobError, ExitCode
from dsjob.helm import Release

OURS = {"hello": Release("hello", "deepspeed-job-0.1.0", "deployed", 1)}
POD = "hello-launcher-1a2b3c4d-x7k2p"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fakes need no pause; and the age of jobs is that of the builders."""
    monkeypatch.setattr(follow, "_EVERY", 0.01)
    monkeypatch.setattr("time.time", lambda: NOW)


def test_the_table_of_exit_codes() -> None:
    assert {code.name: code.value for code in ExitCode} == {
        "OK": 0,
        "JOB_FAILED": 1,
        "INVALID": 2,
        "NOT_FOUND": 3,
        "PREFLIGHT": 4,
        "TIMEOUT": 5,
        "CLUSTER": 6,
        "CONSENT": 7,
        "INTERRUPTED": 130,
    }


VERBS = ["validate", "up", "status", "list", "logs", "tensorboard", "version"]
VERBS += ["exec", "scale", "suspend", "resume", "down"]


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_one_example(verb: str, dsjob: Dsjob) -> None:
    text = dsjob(verb, "--help").output
    assert text.count("Example:") == 1
    assert f"dsjob {verb}" in text


def test_help_names_every_verb(dsjob: Dsjob) -> None:
    text = dsjob("--help").output
    assert all(verb in text for verb in VERBS)


@pytest.mark.parametrize(
    "arguments", [["nope"], ["list", "--nope"], ["up"], ["down"], ["logs", "x", "--tail", "-1"]]
)
def test_wrong_usage(arguments: list[str], dsjob: Dsjob) -> None:
    dsjob(*arguments, code=2)


def test_validate(dsjob: Dsjob, good: Path, write) -> None:
    assert "valid" in dsjob("validate", good).output
    bad = write("image: {repository: r, tag: 1.10}\nrun: {command: x}\n")
    result = dsjob("validate", bad, code=2)
    assert f"{bad}:1:29: error: `image.tag` must be text" in result.stderr
    assert result.stdout == ""
    assert json.loads(dsjob("validate", good, "-o", "json").stdout) == {"schemaVersion": 1, "problems": []}
    told = json.loads(dsjob("validate", bad, "-o", "json", code=2).stdout)["problems"][0]
    assert (told["key"], told["line"], told["column"], told["hint"]) == (
        "image.tag",
        1,
        29,
        'write: tag: "1.10"',
    )
    dsjob("validate", code=2)
    assert "cannot read" in dsjob("validate", "none.yaml", code=2).stderr


def test_validate_several_files(dsjob: Dsjob, good: Path, write) -> None:
    dsjob("validate", write("image: {repository: r}\n"), "-f", good)
    dsjob("validate", good, "-f", write("workers: {count: zero}\n"), code=2)


def test_up_follows_to_a_good_end(dsjob: Dsjob, good: Path) -> None:
    dsjob.cluster.states = [objects(), healthy(), succeeded()]
    dsjob.cluster.logs = {POD: ["[deepspeed-job] run: echo hi", "hi"]}
    result = dsjob("up", good)
    assert dsjob.helm.calls == ["upgrade hello"]
    assert "hi\n" in result.stdout
    said = result.stderr
    assert said.startswith("context lab, namespace team, job hello\n")
    order = [
        "validate",
        "plan      ",
        "apply",
        "schedule",
        "pull",
        "connect",
        "train",
        "hello succeeded after 40s",
    ]
    assert sorted(order, key=said.index) == order


def test_up_of_a_job_that_fails(dsjob: Dsjob, good: Path) -> None:
    dsjob.cluster.states = [objects(), failed()]
    dsjob.cluster.logs = {POD: ["Traceback", "ValueError: loss is nan"]}
    result = dsjob("up", good, code=1)
    assert "hello failed after 40s: hello-worker-1 failed with exit code 3" in result.stderr
    assert "host hello-worker-1" in result.stderr


def test_up_detached(dsjob: Dsjob, good: Path) -> None:
    result = dsjob("up", good, "-d")
    assert dsjob.helm.calls == ["upgrade hello"]
    assert "dsjob logs hello -n team -f" in result.stderr


def test_up_of_invalid_values_changes_nothing(dsjob: Dsjob, write) -> None:
    result = dsjob("up", write("workers: {cout: 1}\n", "hello.yaml"), code=2)
    assert "unknown key" in result.stderr
    assert dsjob.helm.calls == []


def test_up_without_its_claim_changes_nothing(dsjob: Dsjob, good: Path) -> None:
    dsjob.cluster.claims = ["other"]
    assert "claim `training-data` in namespace `team`; it has `other`" in dsjob("up", good, code=4).stderr
    assert dsjob.helm.calls == []


def test_up_of_a_name_that_something_else_has(dsjob: Dsjob, good: Path) -> None:
    dsjob.helm.releases = {"hello": Release("hello", "mysql-1.0.0", "deployed", 1)}
    dsjob("up", good, code=4)
    dsjob.helm.releases, dsjob.cluster.states = {}, [healthy()]
    dsjob("up", good, code=4)
    assert dsjob.helm.calls == []


def test_up_again_changes_nothing(dsjob: Dsjob, good: Path) -> None:
    dsjob.helm.releases = OURS
    dsjob.cluster.states = [succeeded()]
    assert "another `run.id` repeats it" in dsjob("up", good).stderr
    dsjob.cluster.states = [failed()]
    assert "loss is nan" in dsjob("up", good, code=1).stderr
    dsjob.cluster.states = [healthy(), healthy(), succeeded()]
    dsjob.cluster.logs = {POD: ["hi"]}
    assert "hi" in dsjob("up", good).stdout
    assert dsjob.helm.calls == []


def test_a_new_run_needs_consent_while_one_is_under_way(dsjob: Dsjob, good: Path, monkeypatch) -> None:
    dsjob.helm.releases, dsjob.helm.rendered = OURS, MANIFEST.replace("1a2b3c4d", "ffffffff")
    dsjob.cluster.states = [healthy()]
    result = dsjob("up", good, "-d", code=7)
    assert "+ Job hello-launcher-ffffffff" in result.stderr
    assert "--yes gives it" in result.stderr
    monkeypatch.setattr("dsjob.up._can_be_asked", lambda: True)
    dsjob("up", good, "-d", code=7, input="n\n")
    assert dsjob.helm.calls == []
    dsjob("up", good, "-d", input="y\n")
    dsjob("up", good, "-d", "--yes")
    dsjob.cluster.states = [failed()]
    dsjob("up", good, "-d")  # nothing is under way, so nobody is asked
    assert dsjob.helm.calls == ["upgrade hello"] * 3


def test_a_release_that_failed_does_not_end_a_run_without_consent(dsjob: Dsjob, good: Path) -> None:
    dsjob.helm.releases = {"hello": Release("hello", "deepspeed-job-0.1.0", "failed", 2)}
    dsjob.helm.rendered = MANIFEST.replace("1a2b3c4d", "ffffffff")
    dsjob.cluster.states = [healthy()]
    dsjob("up", good, "-d", code=7)
    assert dsjob.helm.calls == []


def test_a_release_that_is_stuck_is_repaired(dsjob: Dsjob, good: Path) -> None:
    stuck = Release("hello", "deepspeed-job-0.1.0", "pending-upgrade", 2, NOW - 300)
    dsjob.helm.releases = {"hello": stuck}
    dsjob.cluster.repaired = lambda: dsjob.helm.releases.update(OURS)
    assert "pending-upgrade" in dsjob("up", good, "-d").stderr
    assert dsjob.cluster.removed == [("hello", 2)]
    assert dsjob.helm.calls == ["upgrade hello"]


def test_a_helm_call_that_still_runs_is_left_alone(dsjob: Dsjob, good: Path) -> None:
    dsjob.helm.releases = {"hello": Release("hello", "deepspeed-job-0.1.0", "pending-install", 1, NOW - 5)}
    dsjob.helm.fails = helm.explain("Error: another operation (install/upgrade/rollback) is in progress")
    assert "in two minutes" in dsjob("up", good, "-d", code=6).stderr
    assert dsjob.cluster.removed == []


def test_ctrl_c_while_helm_works_says_how_to_return(dsjob: Dsjob, good: Path) -> None:
    dsjob.helm.fails = KeyboardInterrupt()
    assert "dsjob down hello -n team" in dsjob("up", good, code=130).stderr


def test_ctrl_c_detaches(dsjob: Dsjob, good: Path) -> None:
    dsjob.cluster.states = [objects(), healthy(), KeyboardInterrupt()]
    result = dsjob("up", good, code=130)
    assert "hello goes on" in result.stderr
    assert "dsjob logs hello -n team -f" in result.stderr
    assert "dsjob down hello -n team" in result.stderr
    assert dsjob.helm.calls == ["upgrade hello"]


def test_ctrl_c_before_anything_is_sent(dsjob: Dsjob, good: Path) -> None:
    dsjob.cluster.states = [KeyboardInterrupt()]
    dsjob("up", good, code=130)
    assert dsjob.helm.calls == []


def test_helm_fails(dsjob: Dsjob, good: Path) -> None:
    dsjob.helm.fails = helm.explain("Error: something odd\nmore of it")
    result = dsjob("up", good, code=6)
    assert "something odd" in result.stderr
    assert "more of it" not in result.stderr
    assert "more of it" in dsjob("up", good, "-v", code=6).stderr


def test_no_cluster(good: Path, tmp_path: Path) -> None:
    dsjob = Dsjob(None, None)  # type: ignore[arg-type]  # the real ones
    assert "no kubeconfig" in dsjob("list", "--kubeconfig", tmp_path / "none", code=6).stderr
    (tmp_path / "odd").write_text("hello")
    dsjob("list", "--kubeconfig", tmp_path / "odd", code=6)
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "users": [{"name": "u", "user": {}}],
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:9"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "team"}}],
    }
    (tmp_path / "config").write_text(json.dumps(kubeconfig))
    assert "cannot be reached" in dsjob("list", "--kubeconfig", tmp_path / "config", code=6).stderr
    result = dsjob("list", "--kubeconfig", tmp_path / "config", "--context", "nope", code=6)
    assert "it has: c" in result.stderr


def test_no_helm(monkeypatch: pytest.MonkeyPatch, good: Path) -> None:
    monkeypatch.setenv("HELM_BIN", "/none/helm")
    assert "HELM_BIN" in Dsjob(None, None)("validate", good, code=6).stderr  # type: ignore[arg-type]
    monkeypatch.delenv("HELM_BIN")
    monkeypatch.setenv("PATH", "/none")
    monkeypatch.setenv("XDG_CACHE_HOME", "/none")
    assert "helm.sh" in Dsjob(None, None)("validate", good, code=6).stderr  # type: ignore[arg-type]


def test_a_mistake_of_dsjob_is_no_traceback(dsjob: Dsjob, monkeypatch: pytest.MonkeyPatch) -> None:
    dsjob.cluster.states = [ZeroDivisionError("oops")]
    result = dsjob("list", code=6)
    assert "ZeroDivisionError: oops" in result.stderr
    assert "Traceback" not in result.output
    assert "Traceback" in dsjob("list", "-v", code=6).stderr


def test_status(dsjob: Dsjob) -> None:
    dsjob.cluster.states = [healthy()]
    text = dsjob("status", "hello").stdout
    assert "hello  Running  2/2 workers ready" in text
    assert "├─ ✓ launcher" in text
    told = json.loads(dsjob("status", "hello", "-o", "json").stdout)
    assert (told["schemaVersion"], told["phase"], told["workersReady"]) == (1, "Running", 2)
    dsjob.cluster.states = [objects()]
    assert "no job `nope` in namespace `team`" in dsjob("status", "nope", code=3).stderr


def test_status_says_why_and_what_helps(dsjob: Dsjob) -> None:
    waits = worker(0, "Pending", node="", conditions=unscheduled("1 Insufficient nvidia.com/gpu"))
    dsjob.cluster.states = [objects(job(), workers_set(1), launcher("Running", running("launcher")), waits)]
    text = dsjob("status", "hello").stdout
    assert "Unschedulable: 1 Insufficient nvidia.com/gpu  (pod/hello-worker-0)" in text
    assert "→ no node has enough free nvidia.com/gpu" in text


def test_list(dsjob: Dsjob) -> None:
    dsjob.cluster.states = [healthy()]
    for arguments in (["list"], ["list", "-A"], ["status"]):
        assert dsjob(*arguments).stdout.splitlines()[1].split()[:3] == ["hello", "team", "Running"]
    told = json.loads(dsjob("list", "-o", "json").stdout)
    assert (told["schemaVersion"], [one["name"] for one in told["jobs"]]) == (1, ["hello"])
    dsjob.cluster.states = [objects()]
    assert dsjob("list").stdout == ""
    assert json.loads(dsjob("list", "-o", "json").stdout)["jobs"] == []


def test_logs(dsjob: Dsjob) -> None:
    dsjob.cluster.states = [healthy()]
    dsjob.cluster.logs = {POD: ["one", "two"], "hello-worker-1": ["sshd"]}
    assert dsjob("logs", "hello").stdout == "one\ntwo\n"
    assert dsjob("logs", "hello", "--tail", "1").stdout == "two\n"
    assert dsjob("logs", "hello", "--worker", "1").stdout == "sshd\n"
    assert "released" in dsjob("logs", "hello", "--worker", "7", code=3).stderr
    assert "no container `nope`" in dsjob("logs", "hello", "-c", "nope", code=3).stderr
    dsjob.cluster.states = [objects(job(), workers_set(0))]
    assert "no launcher pod" in dsjob("logs", "hello", code=3).stderr
    dsjob.cluster.states = [objects()]
    dsjob("logs", "nope", code=3)


def test_logs_followed_end_with_the_job(dsjob: Dsjob) -> None:
    dsjob.cluster.logs = {POD: ["one", "two"]}
    dsjob.cluster.states = [healthy(), healthy(), failed()]
    assert dsjob("logs", "hello", "-f", code=1).stdout == "one\ntwo\n"
    dsjob.cluster.states = [healthy(), KeyboardInterrupt()]
    dsjob("logs", "hello", "-f", code=130)


def test_down(dsjob: Dsjob) -> None:
    dsjob.helm.releases = OURS
    found = healthy()
    found.jobs = [job(claim="training-data")]
    found.claims = [
        claim("hello-ckpt", job="hello"),
        claim("other-ckpt", job="other"),
        claim("training-data"),
    ]
    dsjob.cluster.states = [found, objects(worker(0)), objects()]
    text = dsjob("down", "hello").stdout
    assert dsjob.helm.calls == ["uninstall hello"]
    assert "hello: removed" in text
    assert "kubectl delete pvc -n team hello-ckpt\n" in text
    assert "the claim training-data, which it used, stays" in text
    assert "other-ckpt" not in text


def test_down_of_several_goes_on_after_a_missing_one(dsjob: Dsjob) -> None:
    dsjob.helm.releases = OURS
    result = dsjob("down", "nope", "hello", "gone", code=3)
    assert dsjob.helm.calls == ["uninstall hello"]
    assert "hello: removed" in result.stdout
    assert result.stderr.count("there is no job") == 2


def test_down_that_takes_too_long(dsjob: Dsjob) -> None:
    dsjob.helm.releases, dsjob.cluster.states = OURS, [healthy()]
    assert "pods are left: " in dsjob("down", "hello", "--timeout", "0", code=5).stderr


def test_down_of_what_helm_does_not_have(dsjob: Dsjob) -> None:
    dsjob.cluster.states = [healthy()]
    assert "kubectl delete" in dsjob("down", "hello", code=4).stderr
    dsjob.cluster.states = [objects(worker(0)), objects(worker(0)), objects()]
    dsjob("down", "hello")
    dsjob.helm.releases = {"hello": Release("hello", "mysql-1.0.0", "deployed", 1)}
    dsjob("down", "hello", code=4)
    assert dsjob.helm.calls == []


def test_tensorboard_that_is_not_there(dsjob: Dsjob) -> None:
    dsjob.cluster.states = [healthy()]
    assert "tensorboard.enabled" in dsjob("tensorboard", "hello", code=3).stderr
    dsjob.cluster.states = [objects()]
    assert "no job `hello`" in dsjob("tensorboard", "hello", code=3).stderr


def test_tensorboard_ends_well_with_ctrl_c(dsjob: Dsjob) -> None:
    dsjob.cluster.states = [objects(workers_set(0), board(0)), KeyboardInterrupt()]
    dsjob("tensorboard", "hello")


def test_version(dsjob: Dsjob) -> None:
    assert "v3.22.0" in dsjob("version").stdout
    assert json.loads(dsjob("version", "-o", "json").stdout)["kubernetes"] == "v1.34.4"


def test_version_without_helm_and_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise DsjobError("it is away", ExitCode.CLUSTER)

    monkeypatch.setattr(cluster, "connect", away)
    monkeypatch.setattr(helm, "connect", away)
    assert Dsjob(None, None)("version").stdout.count("(it is away)") == 2  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("hello.yaml", "hello"),
        ("My Job_v2.values.yaml", "my-job-v2-values"),
        ("a" * 60 + ".yaml", "a" * 45),
        ("A-.yml", "a"),
    ],
)
def test_the_name_comes_from_the_file(file: str, name: str) -> None:
    assert up_verb.name_of([Path("/some/where") / file, Path("more.yaml")]) == name


@pytest.mark.parametrize("file", ["1.yaml", "___.yaml", "日本.yaml"])
def test_no_name_can_be_made(file: str) -> None:
    with pytest.raises(DsjobError, match="no job name"):
        up_verb.name_of([Path(file)])


@pytest.mark.parametrize("name", ["Hello", "1a", "a.b", "a-", "a" * 46, "a_b"])
def test_names_that_no_job_can_have(name: str, dsjob: Dsjob, good: Path) -> None:
    assert "cannot be the name of a job" in dsjob("up", good, name, code=2).stderr


def test_nothing_heavy_is_imported_for_help() -> None:
    import subprocess
    import sys

    heavy = {"kubernetes", "pyhelm3", "jsonschema", "yaml", "rich"}
    code = f"import sys, dsjob.cli; print(*{heavy!r} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(cli.__file__).parents[1],
    )
    assert done.stdout.split() == []


def test_good_is_good() -> None:
    assert "image" in GOOD
