"""The programs of the node, built from Go modules into the cache; what has not changed is not built again."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .base import BIN, CLUSTER_DIR, ELSEWHERE, Problem, locked, run, say, versions

MODULES = CLUSTER_DIR / "go"
# No symbols, no DWARF: a quarter less to write and to link.
FLAGS = ["-trimpath", "-gcflags=all=-dwarf=false"]
GO_ENVIRONMENT = {
    "CGO_ENABLED": "0",
    "GOTOOLCHAIN": "local",
    "GOFLAGS": "-buildvcs=false -mod=readonly",
    # A larger heap for the compiler's own garbage collection trades a little memory for time.
    "GOGC": "400",
}
# (module folder, module path, key in versions.env)
PINS = [
    ("node", "k8s.io/kubernetes", "KUBERNETES_VERSION"),
    ("node", "go.etcd.io/etcd/server/v3", "ETCD_VERSION"),
    ("node", "github.com/coredns/coredns", "COREDNS_VERSION"),
    ("node", "github.com/rancher/local-path-provisioner", "LOCAL_PATH_PROVISIONER_VERSION"),
    ("node", "sigs.k8s.io/metrics-server", "METRICS_SERVER_VERSION"),
    ("helm", "helm.sh/helm/v3", "HELM_VERSION"),
    ("helm", "helm.sh/helm/v4", "HELM4_VERSION"),
]
# What no cluster needs: Helm 4, and the renderer of both Helms.
FOR_TESTS = {"helm4", "render"}


@dataclass(frozen=True)
class Program:
    """One program: the module it is built in, its package, and the variables that tell it its version."""

    name: str
    module: str
    package: str
    variables: tuple[tuple[str, str], ...] = ()


def programs() -> list[Program]:
    """All programs, in the order in which they are built."""
    version = versions()
    major, minor, _ = version["KUBERNETES_VERSION"].split(".")
    release = f"v{version['KUBERNETES_VERSION']}"
    kubernetes = {
        "k8s.io/component-base/version.gitVersion": release,
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        "k8s.io/client-go/pkg/version.gitVersion": release,
    }
    # Without these helm calls itself "v3.22" and renders for a Kubernetes of its own choice.
    helm = {"helm.sh/helm/v3/internal/version.version": f"v{version['HELM_VERSION']}"}
    for package in ("chartutil", "lint/rules"):
        helm[f"helm.sh/helm/v3/pkg/{package}.k8sVersionMajor"] = major
        helm[f"helm.sh/helm/v3/pkg/{package}.k8sVersionMinor"] = minor
    # Of both, for `render` is made of both.
    helm["helm.sh/helm/v4/internal/version.version"] = f"v{version['HELM4_VERSION']}"
    return [
        Program("pause", "node", "./pause"),
        Program("volume", "node", "./volume"),
        Program("etcd", "node", "go.etcd.io/etcd/server/v3"),
        Program("coredns", "node", "./coredns"),
        Program("metrics-server", "node", "sigs.k8s.io/metrics-server/cmd/metrics-server"),
        Program("local-path-provisioner", "node", "github.com/rancher/local-path-provisioner"),
        *(
            Program(name, "node", f"k8s.io/kubernetes/cmd/{name}", tuple(kubernetes.items()))
            for name in (
                "kube-apiserver",
                "kube-scheduler",
                "kube-controller-manager",
                "kube-proxy",
                "kubelet",
                "kubectl",
            )
        ),
        *(
            Program(name, "helm", package, tuple(helm.items()))
            for name, package in (
                ("helm", "helm.sh/helm/v3/cmd/helm"),
                ("helm4", "helm.sh/helm/v4/cmd/helm"),
                ("render", "./render"),
            )
        ),
    ]


def build(names: Sequence[str] = ()) -> None:
    """Build those of the named programs (all by default) that are missing or whose inputs changed, saying what and how long."""
    check_pins()
    if not stale_programs(names):
        return
    need_go()
    with locked(BIN / ".lock"):
        stale = stale_programs(names)
        total = time.monotonic()
        say(f"building {len(stale)} programs with Go into {BIN} (the first time about 10 minutes on 2 cores)")
        for number, (program, stamp) in enumerate(stale.items(), start=1):
            started = time.monotonic()
            print(f"  {number:2}/{len(stale)} {program.name:<24}", end="", flush=True)
            compile_program(program)
            stamp_file(program).write_text(stamp)
            say(f"{time.monotonic() - started:7.1f} s")
        say(f"built in {time.monotonic() - total:.0f} s")


def stale_programs(names: Sequence[str] = ()) -> dict[Program, str]:
    """Those of the named programs (all by default) that are to be built, with the stamps that they get."""
    stale = {}
    for program in programs():
        if names and program.name not in names:
            continue
        stamp, file = stamp_of(program), stamp_file(program)
        if not (BIN / program.name).exists() or not file.exists() or file.read_text() != stamp:
            stale[program] = stamp
    return stale


def stamp_file(program: Program) -> Path:
    """Where the stamp of the program that is in the cache lies."""
    return BIN / f".{program.name}.stamp"


def compile_program(program: Program) -> None:
    """Run `go build` for one program; the old file stays in place until the new one is whole."""
    ldflags = " ".join(["-s -w", *(f"-X {name}={value}" for name, value in program.variables)])
    target = BIN / program.name
    fresh = target.with_name(f".{program.name}.new")
    argv = ["go", "build", "-C", MODULES / program.module, *FLAGS, "-ldflags", ldflags, "-o", fresh]
    run([*argv, program.package], env={**os.environ, **GO_ENVIRONMENT})
    fresh.replace(target)


def stamp_of(program: Program) -> str:
    """A hash of all that a program is built from: its module's versions, its sources, how it is built."""
    module = MODULES / program.module
    sources = sorted((module / program.package).glob("*.go")) if program.package.startswith(".") else []
    digest = hashlib.sha256(f"{FLAGS} {program}".encode())
    for path in (module / "go.mod", module / "go.sum", *sources):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def check_pins() -> None:
    """Refuse to go on when a go.mod and versions.env name different versions."""
    version = versions()
    for module, path, key in PINS:
        text = (MODULES / module / "go.mod").read_text()
        found = re.search(rf"^(?:require )?\s*{re.escape(path)} v(\S+)", text, re.MULTILINE)
        if not found or found[1] != version[key]:
            have = found[1] if found else "nothing"
            raise Problem(
                f"versions.env says {key}={version[key]}, cluster/go/{module}/go.mod has {path} {have}: "
                f"write v{version[key]} there and run `go mod tidy`, or change versions.env"
            )
    staged = set(re.findall(r"=> k8s\.io/\S+ v0\.(\S+)", (MODULES / "node/go.mod").read_text()))
    wanted = version["KUBERNETES_VERSION"].removeprefix("1.")
    if staged != {wanted}:
        raise Problem(
            f"the replace block of cluster/go/node/go.mod must say v0.{wanted} everywhere, not {staged}"
        )


def need_go() -> None:
    """Refuse to build without a Go that is new enough."""
    wanted = minor_of((MODULES / "node/go.mod").read_text())
    what = f"the node is built with Go 1.{wanted} or newer"
    if not shutil.which("go"):
        raise Problem(f"{what}, and there is no `go` on PATH. {ELSEWHERE}")
    version = run(["go", "env", "GOVERSION"], env={**os.environ, **GO_ENVIRONMENT}).strip()
    if minor_of(version) < wanted:
        raise Problem(f"{what}, and this is {version}. {ELSEWHERE}")


def minor_of(text: str) -> int:
    """The x of the first "go 1.x" in a text; a Go that calls itself otherwise is a newer one."""
    found = re.search(r"^go ?1\.(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else 999
