"""What the cluster itself must do before a job can: volumes for many, refusals, metrics, GPUs, names, and a way in."""

import json
import re
import subprocess
import urllib.request
from contextlib import contextmanager

import pytest
from lab import ENVIRONMENT, IMAGE, wait_for

GPU = "nvidia.com/gpu"


def pod(name, script="", resources=None, volumes=None, **container):
    """A pod that Pod Security `restricted` takes, as user 1000, and that runs a Python script."""
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 1000,
                "fsGroup": 1000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "main",
                    "image": f"{IMAGE['repository']}:{IMAGE['tag']}",
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["python3", "-uc", script],
                    "resources": resources or {},
                    "securityContext": security,
                    "volumeMounts": [{"name": one, "mountPath": f"/{one}"} for one in volumes or {}],
                    **container,
                }
            ],
            "volumes": [
                {"name": one, "persistentVolumeClaim": {"claimName": claim}}
                for one, claim in (volumes or {}).items()
            ],
        },
    }


def wait_phase(namespace, name, *phases, seconds=60):
    """Wait until the pod has one of the phases, and return it."""

    def describe():
        return namespace.kubectl("describe", "pod", name) + namespace.kubectl("logs", name, code=None).stdout

    return wait_for(lambda: phase(namespace, name) in phases and phase(namespace, name), seconds, describe)


def phase(namespace, name):
    return namespace.get("pod", name)["status"].get("phase")


def output(namespace, name):
    """The output of a pod, when it has ended with success."""
    assert wait_phase(namespace, name, "Succeeded", "Failed") == "Succeeded", namespace.kubectl("logs", name)
    return namespace.kubectl("logs", name)


MEET = """
import os, pathlib, time
mine, others = pathlib.Path("/data/%s"), pathlib.Path("/data/%s")
mine.with_suffix(".new").write_text("hello from " + mine.name)
mine.with_suffix(".new").rename(mine)
while not others.exists():
    time.sleep(0.05)
print(os.getuid(), others.stat().st_uid, others.read_text())
"""


def test_two_pods_share_a_claim(namespace):
    namespace.claim()
    claim = {"data": "training-data"}
    namespace.apply(
        pod("anna", MEET % ("anna", "bert"), volumes=claim),
        pod("bert", MEET % ("bert", "anna"), volumes=claim),
    )
    assert output(namespace, "anna") == "1000 1000 hello from bert\n"
    assert output(namespace, "bert") == "1000 1000 hello from anna\n"
    assert namespace.get("pvc", "training-data")["status"]["phase"] == "Bound"


def test_a_privileged_pod_is_refused(namespace):
    privileged = pod("root", securityContext={"privileged": True})
    refused = namespace.kubectl("apply", "-f", "-", stdin=json.dumps(privileged), code=None)
    assert refused.returncode != 0
    assert 'violates PodSecurity "restricted' in refused.stderr
    assert "privileged" in refused.stderr
    assert namespace.get("pod", "root") is None


@pytest.mark.parametrize("namespace", ["privileged"], indirect=True)
def test_a_namespace_may_allow_it(namespace):
    namespace.apply(pod("root", "print('in')", securityContext={"privileged": True}))
    assert output(namespace, "root") == "in\n"


def test_gpus_are_counted(namespace):
    def wants(number):
        return {"limits": {GPU: number}}

    namespace.apply(pod("two", resources=wants(2)), pod("nine", resources=wants(9)))
    output(namespace, "two")

    def refusal():
        conditions = namespace.get("pod", "nine")["status"].get("conditions", [])
        return [one["message"] for one in conditions if one.get("reason") == "Unschedulable"]

    (message,) = wait_for(refusal, 30, lambda: namespace.kubectl("describe", "pod", "nine"))
    assert f"Insufficient {GPU}" in message
    assert phase(namespace, "nine") == "Pending"


RESOLVE = """
import json, socket, time
def resolve(name):
    begin = time.monotonic()
    try:
        found = socket.getaddrinfo(name, 443, socket.AF_INET, socket.SOCK_STREAM)[0][4][0]
    except socket.gaierror as error:
        # EAI_NONAME is a server's word; a silent server would be EAI_AGAIN.
        found = "no such name" if error.errno == socket.EAI_NONAME else str(error)
    return found, time.monotonic() - begin
print(json.dumps([resolve("kubernetes.default"), resolve("nowhere.invalid")]))
"""


def test_names_resolve(namespace):
    namespace.apply(pod("asks", RESOLVE))
    (inside, _), (outside, seconds) = json.loads(output(namespace, "asks"))
    service = json.loads(namespace.kubectl("get", "service", "kubernetes", "-n", "default", "-o", "json"))
    assert inside == service["spec"]["clusterIP"]
    assert outside == "no such name"
    # A resolver that gets no answer waits 5 s before it asks again.
    assert seconds < 2


SERVE = """
import http.server
print("serving")
http.server.test(http.server.SimpleHTTPRequestHandler, port=8000, bind="0.0.0.0")
"""


@contextmanager
def forwarded(namespace, target, port):
    """The address by which the port of a pod is reached from here."""
    argv = ["kubectl", "-n", namespace.name, "port-forward", target, f":{port}"]
    with subprocess.Popen(argv, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as forwarder:
        try:
            line = forwarder.stdout.readline()
            yield f"http://{re.search(r'127.0.0.1:[0-9]+', line)[0]}/"
        finally:
            forwarder.terminate()


def test_exec_logs_and_port_forward(namespace):
    probe = {"httpGet": {"port": 8000}, "periodSeconds": 1}
    namespace.apply(pod("server", SERVE, workingDir="/etc", readinessProbe=probe))
    namespace.kubectl("wait", "--for=condition=Ready", "pod/server", "--timeout=60s")
    assert namespace.kubectl("exec", "server", "--", "id", "-u") == "1000\n"
    assert namespace.kubectl("exec", "-i", "server", "--", "cat", stdin="to and fro") == "to and fro"
    namespace.kubectl("exec", "server", "--", "sh", "-c", "exit 7", code=7)
    assert "serving" in namespace.kubectl("logs", "server").splitlines()
    with (
        forwarded(namespace, "pod/server", 8000) as address,
        urllib.request.urlopen(f"{address}passwd", timeout=10) as page,
    ):
        assert b":1000:" in page.read()


def test_top_shows_the_node(namespace):
    """Late in this file: metrics-server knows nothing in the first 15 s or so of a cluster."""

    def rows():
        done = namespace.kubectl("top", "nodes", "--no-headers", code=None)
        return done.stdout.splitlines() if done.returncode == 0 else []

    row, *_ = wait_for(rows, 60, "kubectl top nodes does not answer")
    assert re.search(r" \d+m .* \d+Mi ", row), row
