"""The life of the one-node cluster, in the order in which a user meets it: refusals, start, crashes, stop."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
from throwaway import CACHE, CLUSTER, NAMES, Node, refusal, run, runs, wait_for

GPU = "nvidia.com/gpu"
# A new pod needs these.
POD_MAKERS = ("etcd", "containerd", "kube-apiserver", "kube-scheduler", "kubelet")
COMMANDS = sorted(path.name for path in CLUSTER.iterdir() if path.is_file() and os.access(path, os.X_OK))


@pytest.mark.parametrize(
    "words, hint",
    [
        ("kubeconfig", "`cluster/start` makes one"),
        ("enter true", "`cluster/start` makes one"),
        ("load-image some.tar", "`cluster/start` starts it"),
        ("load-image", "usage: cluster/load-image ARCHIVE"),
        ("logs etcd", "never started"),
        ("logs nonsense", "the parts: etcd, "),
        ("stop now", "usage: cluster/stop [--delete]"),
        ("build nonsense", "no program is called nonsense"),
    ],
)
def test_without_a_node_each_command_says_what_to_do(node, words, hint):
    name, *args = words.split()
    assert hint in refusal(CLUSTER / name, *args, env=node.env)


def test_without_a_node_all_is_down(node):
    assert {part: state for part, (_, state) in node.status(code=1).items()} == dict.fromkeys(NAMES, "down")
    assert node("stop") == "there is no node\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_who_is_not_root_gets_one_sentence(node, checkout, name):
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    args = ["etcd"] * (name in ("logs", "load-image"))
    # The state and the cache are root's.
    env = {**node.env, "XDG_CACHE_HOME": str(node.home)}
    said = refusal(*nobody, checkout / "cluster" / name, *args, env=env)
    if name in ("start", "stop", "status"):
        assert "needs root" in said
        assert "kind or k3d" in said


@pytest.mark.parametrize("version, complaint", [(None, "no `go` on PATH"), ("go1.20.1", "this is go1.20.1")])
def test_a_build_without_a_fitting_go(node, tmp_path, version, complaint):
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python3").symlink_to(Path(sys.executable).resolve())
    if version:
        (programs / "go").write_text(f"#!/bin/sh\necho {version}\n")
        (programs / "go").chmod(0o755)
    env = {**node.env, "PATH": str(programs), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    said = refusal(CLUSTER / "build", env=env)
    assert complaint in said
    assert "kind or k3d" in said


@pytest.mark.parametrize(
    "file, key",
    [
        ("node", "KUBERNETES_VERSION"),
        ("node", "ETCD_VERSION"),
        ("node", "COREDNS_VERSION"),
        ("node", "LOCAL_PATH_PROVISIONER_VERSION"),
        ("node", "METRICS_SERVER_VERSION"),
        ("helm", "HELM_VERSION"),
        ("helm", "HELM4_VERSION"),
    ],
)
def test_versions_that_differ(checkout, file, key):
    run(checkout / "cluster/build", "--check")
    versions = checkout / "versions.env"
    old = re.search(rf"^{key}=(.*)$", versions.read_text(), re.MULTILINE)[1]
    versions.write_text(versions.read_text().replace(f"{key}={old}", f"{key}=1.2.3"))
    said = refusal(checkout / "cluster/build", "--check")
    assert f"{key}=1.2.3" in said
    assert f"cluster/go/{file}/go.mod" in said
    assert old in said


def test_a_staging_module_of_another_kubernetes(checkout):
    path = checkout / "cluster/go/node/go.mod"
    path.write_text(re.sub(r"(=> k8s.io/api) v\S+", r"\1 v0.33.0", path.read_text()))
    assert "replace block" in refusal(checkout / "cluster/build", "--check")


def patience(seconds):
    """What a promise in seconds is on a machine that others use too."""
    return seconds * max(1, os.getloadavg()[0] / os.cpu_count())


def test_start_makes_a_cluster(node):
    limit = patience(20)
    begin = time.monotonic()
    said = node("start")
    took = time.monotonic() - begin
    kubeconfig = str(node.state / "kubeconfig")
    promised = re.search(r"^the node is up after ([0-9.]+) s: KUBECONFIG=(.*)$", said, re.MULTILINE)
    assert promised[2] == kubeconfig
    assert float(promised[1]) <= min(took, limit)
    assert node("kubeconfig") == kubeconfig + "\n"
    assert Path(kubeconfig).stat().st_mode & 0o077 == 0
    assert re.match(r"dsjob-local +Ready ", node.kubectl("get", "nodes", "--no-headers"))
    assert node.kubectl("config", "current-context") == "dsjob-local\n"
    assert {part: state for part, (_, state) in node.status().items()} == dict.fromkeys(NAMES, "up")


def test_start_again_changes_nothing(node):
    before = node.status()
    begin = time.monotonic()
    said = node("start")
    assert time.monotonic() - begin < patience(2)
    assert said == f"the node is up: KUBECONFIG={node.state / 'kubeconfig'}\n"
    assert node.status() == before


def pod(name, gpus):
    container = {"name": "main", "image": "localhost/pause:1", "resources": {"limits": {GPU: str(gpus)}}}
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def run_pod(node, name, gpus=0):
    """Make a pod and wait until it runs."""
    node.kubectl("create", "-f", "-", stdin=json.dumps(pod(name, gpus)))
    node.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")


@pytest.fixture(scope="module")
def container(node):
    """What the tests after this one must still find: a ConfigMap, a claim, a container with two GPUs, whose id this is."""
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}}
    kept = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}, "data": {"key": "value"}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "kept"}, "spec": claim},
    ]
    node.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": kept}))
    run_pod(node, "kept", gpus=2)
    node.kubectl("wait", "--for=jsonpath={.status.phase}=Bound", "pvc/kept", "--timeout=60s")
    return container_of_kept(node)


def container_of_kept(node):
    """The id of the container; what was made with it must be there too."""
    names = ("configmap/kept", "pvc/kept", "pod/kept", "node/dsjob-local")
    data, claim, kept, machine = node.get(*names)["items"]
    assert data["data"] == {"key": "value"}
    assert claim["status"]["phase"] == "Bound"
    for offer in ("capacity", "allocatable"):
        assert machine["status"][offer][GPU] == "8"
    return kept["status"]["containerStatuses"][0]["containerID"]


@pytest.mark.parametrize("part", NAMES)
def test_a_killed_part_is_seen_and_healed(node, container, part):
    before = node.status()
    pid = int(before[part][0])
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not runs(pid), 5, lambda: f"{part} survives its death")
    # The others may say that they miss it.
    assert [name for name, (_, state) in node.status(code=1).items() if state == "down"] == [part]
    node("start")
    after = node.status()
    assert [name for name in NAMES if after[name] != before[name]] == [part]
    if part in POD_MAKERS:
        run_pod(node, f"after-{part}")
    assert container_of_kept(node) == container


def test_a_hung_part_is_seen(node, container):
    pid = int(node.status()["kube-scheduler"][0])
    os.kill(pid, signal.SIGSTOP)
    try:
        assert node.status(code=1)["kube-scheduler"] == (str(pid), "not answering")
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_for(lambda: node.status(code=None)["kube-scheduler"][1] == "up", 10, node.status)


def test_logs_and_a_look_inside(node):
    assert "etcd" in node("logs", "etcd", "-n", "5")
    # A reader that leaves early is no error.
    assert run("sh", "-c", f"'{CLUSTER}/logs' kubelet | head -n 1", env=node.env).count("\n") == 1
    inside = node("enter", "ip", "-brief", "address", "show", "eth0")
    assert re.search(r"^eth0@\S+ +UP +198\.18\.\d+\.2/30", inside)


def test_after_a_power_cut_the_cluster_is_as_it_was(node, container):
    def dead():
        for pid in (left := node.processes()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left

    wait_for(dead, 10, node.processes)
    for name in ("run/mnt", "run/net", "run"):
        run("umount", node.state / name)
    assert {state for _, state in node.status(code=1).values()} == {"down"}
    # Two at once do it once.
    with ThreadPoolExecutor() as pool:
        said = list(pool.map(node, ["start", "start"]))
    assert sorted("the node is up after" in text for text in said) == [False, True]
    node.status()
    run_pod(node, "after-a-power-cut", gpus=6)
    wait_for(
        lambda: container_of_kept(node) != container, 30, lambda: node.kubectl("describe", "pod", "kept")
    )


def test_an_image_is_loaded_once(node, tmp_path):
    archive = tmp_path / "an image.tar"
    archive.write_text("no image")
    assert "must be a docker or OCI archive" in refusal(CLUSTER / "load-image", archive, env=node.env)
    archive.write_bytes((CACHE / "images/pause.tar").read_bytes())
    assert "loaded in" in node("load-image", archive)
    assert "is loaded already" in node("load-image", archive)
    assert "localhost/pause:1" in node("enter", "ctr", "images", "ls", "--quiet").splitlines()


def test_another_folder_with_the_same_name_is_refused(node, tmp_path):
    """There are 250 names; a start or stop from there would end this node."""
    homes = (tmp_path.resolve() / str(number) for number in count())
    env = Node.env_of(next(home for home in homes if Node.name_of(home) == node.name))
    for command in ("start", "stop"):
        assert str(node.state) in refusal(CLUSTER / command, env=env)
    assert {state for _, state in node.status().values()} == {"up"}


def assert_gone(node, before, pids):
    """No process of the node runs, and the machine is as it was before."""
    assert not [pid for pid in pids if runs(pid)]
    # The kernel takes leave of a network namespace in its own time.
    wait_for(lambda: not node.left(before), 10, lambda: "\n".join(node.left(before)))


def test_stop_leaves_nothing(node, before):
    pids = node.processes()
    assert len(pids) > len(NAMES)
    assert "the node is gone" in node("stop")
    assert_gone(node, before, pids)
    assert {path.name for path in node.state.iterdir()} == {"containerd"}
    assert {state for _, state in node.status(code=1).values()} == {"down"}
    node("stop")


def test_an_interrupted_start_and_a_stop_after_crashes(node, before):
    with subprocess.Popen(
        [CLUSTER / "start"], env=node.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as start:
        assert next(line for line in start.stdout if "etcd" in line)
        start.send_signal(signal.SIGINT)
        _, errors = start.communicate(timeout=10)
    assert (start.returncode, errors) == (130, "")
    node.status(code=1)
    node("start")
    assert node.kubectl("get", "configmap", "kept", "--ignore-not-found") == ""
    run_pod(node, "last")
    pids = node.processes()
    for part in ("containerd", "etcd"):
        os.kill(int(node.status(code=None)[part][0]), signal.SIGKILL)
    node("stop", "--delete")
    assert_gone(node, before, pids)
    assert not node.state.exists()
    assert node("stop", "--delete") == "there is no node\n"
