"""What helm's errors become, and how helm is started."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from dsjob.errors import DsjobError, ExitCode
from dsjob.helm import Helm, ValuesRefused, explain
from dsjob.target import Target

TEXTS = {
    'Error: query: secrets is forbidden: User "u" cannot list resource "secrets" in API group ""': (
        ExitCode.CLUSTER,
        "you have no right to list secrets",
    ),
    "Error: uninstall: Release not loaded: x: release: not found": (ExitCode.NOT_FOUND, "no such release"),
    "Error: UPGRADE FAILED: another operation (install/upgrade/rollback) is in progress": (
        ExitCode.CLUSTER,
        "is locked",
    ),
    'Error: Service "fo" in namespace "a" exists and cannot be imported into the current release: x': (
        ExitCode.PREFLIGHT,
        "Service `fo` exists in namespace `a` and is not this release's",
    ),
    'Error: INSTALLATION FAILED: create: failed to create: namespaces "nope" not found': (
        ExitCode.PREFLIGHT,
        "no namespace `nope`",
    ),
    'Error: Kubernetes cluster unreachable: Get "https://x": dial tcp: connect: connection refused': (
        ExitCode.CLUSTER,
        "cannot be reached",
    ),
    "Error: Kubernetes cluster unreachable: the server has asked for the client to provide credentials": (
        ExitCode.CLUSTER,
        "refuses your credentials",
    ),
    'Error: context "x" does not exist': (ExitCode.CLUSTER, "no context `x`"),
    'Error: admission webhook "policy.example" denied the request: no latest tags': (
        ExitCode.CLUSTER,
        "policy.example refuses it: no latest tags",
    ),
    'Error: persistentvolumeclaims "x" is forbidden: exceeded quota: small, requested: 1': (
        ExitCode.CLUSTER,
        "quota refuses it: small",
    ),
    "Error: chart requires kubeVersion: >=1.29.0-0 which is incompatible with Kubernetes v1.28.0": (
        ExitCode.PREFLIGHT,
        "has Kubernetes v1.28.0",
    ),
    'Error: cannot patch "x" with kind Job: Job.batch "x" is invalid: template: field is immutable': (
        ExitCode.CLUSTER,
        "change an object in place",
    ),
    "Error: YAML parse error on x/templates/a.yaml: line 3: oops": (ExitCode.INVALID, "cannot be rendered"),
    "Error: something new": (ExitCode.CLUSTER, "helm failed: something new"),
    "": (ExitCode.CLUSTER, "helm failed: it said nothing"),
}


@pytest.mark.parametrize("text", TEXTS)
def test_error(text: str) -> None:
    code, message = TEXTS[text]
    error = explain("WARNING: Kubernetes configuration file is group-readable.\n" + text, "hello")
    assert error.code is code
    assert message in error.message
    assert error.detail.endswith(text)
    assert "NAME" not in error.hint


def test_refusals_of_templates_and_schema() -> None:
    error = explain(
        "Error: execution error at (deepspeed-job/templates/validate.yaml:57:16): `a.b` is x: do y\n"
        "`c` is z: do w\n\n"
        "Use --debug flag to render out invalid YAML"
    )
    assert isinstance(error, ValuesRefused)
    assert error.messages == ["`a.b` is x: do y", "`c` is z: do w"]
    error = explain(
        "Error: values don't meet the specifications of the schema(s) in the following chart(s):\n"
        "deepspeed-job:\n"
        "- at '/workers': additional properties 'cout' not allowed\n"
        "- at '/run/id': got number, want string\n\n"
    )
    assert isinstance(error, ValuesRefused)
    assert len(error.messages) == 2
    assert error.code is ExitCode.INVALID


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A helm that writes its arguments down and answers what `answer` holds."""
    path = tmp_path / "a helm"
    path.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > "{tmp_path}/arguments"\nps -o sid= -p $$ > "{tmp_path}/session"\n'
        f'cat "{tmp_path}/answer"\n'
    )
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    (tmp_path / "answer").write_text("")
    monkeypatch.setenv("HELM_BIN", str(path))
    return tmp_path


def arguments(program: Path) -> list[str]:
    return (program / "arguments").read_text().splitlines()


def test_files_go_to_helm_by_path(program: Path) -> None:
    (program / "answer").write_text("a plugin's greeting\n" + json.dumps({"version": 3}))
    tool = Helm(Target(context="lab", kubeconfig=Path("/some/where")), "team")
    assert tool.upgrade("hello", Path("/the/chart"), [Path("a b.yaml"), Path("$c.yaml")]) == 3
    assert arguments(program) == [
        "upgrade",
        "--install",
        "hello",
        "/the/chart",
        "--namespace",
        "team",
        "--values",
        "a b.yaml",
        "--values",
        "$c.yaml",
        "--output",
        "json",
        "--kubeconfig",
        "/some/where",
        "--kube-context",
        "lab",
    ]


def test_nothing_that_waits_or_deletes_or_creates_namespaces(program: Path) -> None:
    tool = Helm(Target(), "team")
    tool.upgrade("hello", Path("/c"), [])
    said = arguments(program)
    tool.uninstall("hello")
    said += arguments(program)
    assert not {"--wait", "--atomic", "--create-namespace", "--timeout", "--set", "--reuse-values"} & set(
        said
    )


def test_a_release_is_found_by_its_whole_name(program: Path) -> None:
    updated = "2026-12-01 12:00:00.123456789 +0000 UTC"
    releases = [
        {
            "name": "hello",
            "chart": "deepspeed-job-0.1.0",
            "status": "deployed",
            "revision": "4",
            "updated": updated,
        }
    ]
    (program / "answer").write_text(json.dumps(releases))
    tool = Helm(Target(), "team")
    found = tool.release("hello")
    assert found is not None
    assert (found.chart, found.status, found.revision) == ("deepspeed-job-0.1.0", "deployed", 4)
    assert found.updated == 1796126400
    assert tool.release("hell") is None
    (program / "answer").write_text("")
    assert tool.release("hello") is None


def test_ctrl_c_of_the_terminal_does_not_reach_helm(program: Path) -> None:
    Helm(Target(), "").version()
    assert int((program / "session").read_text()) != os.getsid(0)


def test_an_answer_that_is_no_json(program: Path) -> None:
    (program / "answer").write_text("[ oops")
    with pytest.raises(DsjobError, match="no JSON"):
        Helm(Target(), "").release("x")
