"""Mistakes, before they cost anything: a clear message with its place, the right exit code, and nothing changed in the cluster."""

import pytest
from lab import CPU_TWIN, ENVIRONMENT, SEED_NAME, run

GOOD = """\
image:
  repository: localhost/deepspeed-hello
  tag: cpu
workers:
  count: 2
run:
  command: "true"
"""


@pytest.fixture
def untouched(namespace):
    """The namespace; it must hold nothing of a job afterwards."""
    yield namespace
    kinds = "pod,job,statefulset,deployment,service,secret,lease,role"
    assert namespace.kubectl("get", kinds, "-o", "name").split() == []


def up(namespace, tmp_path, text, code, *args):
    path = tmp_path / "job.yaml"
    path.write_text(text)
    text = namespace.dsjob("up", path, *args, code=code)
    assert "Traceback" not in text
    return text


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("  count: 2", "  cout: 2", ["job.yaml:5", "cout", "count"]),
        ("tag: cpu", "tag: 1.10", ["job.yaml:3", "image.tag", '"1.10"']),
        ("count: 2", "count: two", ["job.yaml:5", "workers.count", "two"]),
        ('  command: "true"', "  id: x", ["run.command"]),
        ("workers:", "workers: [", ["job.yaml:"]),
        ("count: 2", "count: 2\n  count: 3", ["job.yaml:6", "count"]),
    ],
)
def test_a_mistake_in_the_file(untouched, tmp_path, old, new, told):
    assert old in GOOD
    text = up(untouched, tmp_path, GOOD.replace(old, new), 2)
    for one in told:
        assert one in text, text


def test_a_claim_that_does_not_exist(untouched):
    assert "training-data" in untouched.dsjob("up", CPU_TWIN, SEED_NAME, code=4)


def test_a_file_that_cannot_be_read(untouched, tmp_path):
    assert "nothing.yaml" in untouched.dsjob("up", tmp_path / "nothing.yaml", code=2)


def test_a_name_that_cannot_work(untouched, tmp_path):
    assert "45" in up(untouched, tmp_path, GOOD, 2, "a" * 50)


def test_no_helm(untouched, tmp_path, monkeypatch):
    monkeypatch.setitem(ENVIRONMENT, "HELM_BIN", str(tmp_path / "helm"))
    text = up(untouched, tmp_path, GOOD, 6)
    assert "helm" in text


def test_no_cluster(untouched, tmp_path, monkeypatch):
    (tmp_path / "config").write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: x, user: x}}]\n"
        "clusters: [{name: x, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: x, user: {}}]\n"
    )
    path = tmp_path / "job.yaml"
    path.write_text(GOOD)
    text = untouched.dsjob("up", path, "--kubeconfig", tmp_path / "config", code=6)
    assert "Traceback" not in text
    assert "127.0.0.1:1" in text


def test_something_else_of_that_name_is_not_touched(namespace, tmp_path):
    """A Service that a job of this name would own, made by someone else."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "job"},
        "spec": {"ports": [{"port": 80}]},
    }
    namespace.apply(service)
    before = namespace.get("service", "job")
    assert "Service `job` exists" in up(namespace, tmp_path, GOOD, 4, "job")
    assert (
        namespace.get("service", "job")["metadata"]["resourceVersion"]
        == before["metadata"]["resourceVersion"]
    )
    assert namespace.get("pod", selector="app.kubernetes.io/instance=job") == []


def test_validate_says_the_same_without_a_cluster(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(GOOD.replace("count: 2", "cout: 2"))
    assert "did you mean `count`" in run("dsjob", "validate", path, code=2, merge=True)
    path.write_text(GOOD)
    run("dsjob", "validate", path)
    assert [one.name for one in tmp_path.iterdir()] == ["job.yaml"]
