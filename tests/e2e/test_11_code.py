"""Code from Git and by rsync, from servers in the cluster: by HTTP with a password and by ssh, private, and with a branch that moves.

Every pod of a run has the same commit, whatever is pushed and whoever is replaced meanwhile.
"""

import base64
import json

import pytest
from lab import IMAGE, ROOT, Job, on_all, wait_for
from test_5_direct import DirectJob

PASSWORD = "p a$$w'ord"
# The servers run as any pod of a restricted namespace does: not as root, and with ports of their own.
SSHD = """
ssh-keygen -q -t ed25519 -N '' -f /keys/host
ssh-keygen -q -t ed25519 -N '' -f /keys/me
ssh-keygen -q -t ed25519 -N '' -f /keys/stranger
printf '%s\\n' 'Port 2022' 'HostKey /keys/host' 'AuthorizedKeysFile /keys/me.pub' 'StrictModes no' 'PidFile none' >/keys/config
exec /usr/sbin/sshd -D -e -f /keys/config
"""
RSYNCD = """
mkdir -p /srv/files/training
echo 'print("copied")' >/srv/files/training/train.py
echo "me:$PASSWORD" >/keys/secrets
chmod 600 /keys/secrets
printf '%s\\n' '[files]' 'path = /srv/files' 'use chroot = no' 'auth users = me' 'secrets file = /keys/secrets' >/keys/rsyncd.conf
exec rsync --daemon --no-detach --port=8730 --config=/keys/rsyncd.conf
"""
# A repository whose commits have one number, and a submodule.
REPOSITORIES = """
set -e
git config --global user.name me
git config --global user.email me@example.com
git config --global protocol.file.allow always
git config --global init.defaultBranch main
for name in lib train; do
  git init -q --bare /srv/$name.git
  git init -q /srv/$name
  cd /srv/$name
  git remote add origin /srv/$name.git
  mkdir training
  echo 'print("fetched")' >training/train.py
done
cd /srv/lib
git add -A
git commit -qm lib
git push -q origin main
cd /srv/train
git submodule --quiet add /srv/lib.git lib
sed -i 's|/srv/|../|' .gitmodules
git add -A
git commit -qm train
"""
PUSH = "cd /srv/train && echo $0 >version && git add -A && git commit -qm $0 && git push -q origin main && git rev-parse HEAD"


class Servers:
    """A pod `git` with an HTTP, an ssh and an rsync server for /srv, and the Secrets that open them."""

    def __init__(self, space):
        self.space = space
        space.kubectl("create", "configmap", "server", f"--from-file={ROOT / 'tests' / 'git_http.py'}")
        space.kubectl(
            "create",
            "secret",
            "generic",
            "http",
            "--from-literal=username=me",
            f"--from-literal=password={PASSWORD}",
        )
        space.apply(self.pod(), self.service())
        space.kubectl("wait", "--for=condition=Ready", "pod/git", "--timeout=60s")
        self.execute("bash", "-c", REPOSITORIES)
        wait_for(lambda: self.execute("ls", "/keys").count(".pub") == 3, 20, "no keys")
        host = " ".join(self.execute("cat", "/keys/host.pub").split()[:2])
        for name, key, known in (
            ("ssh", "me", f"git {host}"),
            ("stranger", "stranger", f"git {host}"),
            ("lost", "me", f"other {host}"),
        ):
            data = {"ssh-privatekey": self.execute("cat", f"/keys/{key}"), "known_hosts": known}
            encoded = {field: base64.b64encode(text.encode()).decode() for field, text in data.items()}
            space.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": encoded})

    def pod(self):
        own = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        mounts = [
            {"name": "srv", "mountPath": "/srv"},
            {"name": "keys", "mountPath": "/keys"},
            {"name": "server", "mountPath": "/server"},
        ]

        def container(name, command, port):
            return {
                "name": name,
                "image": f"{IMAGE['repository']}:{IMAGE['tag']}",
                "command": command,
                "env": [{"name": "PASSWORD", "value": PASSWORD.replace("$", "$$")}],
                "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 1},
                "securityContext": own,
                "volumeMounts": mounts,
            }

        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "git", "labels": {"app": "git"}},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "fsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
                "containers": [
                    container("http", ["python3", "/server/git_http.py", "/srv", "8080", f"me:{PASSWORD}".replace("$", "$$")], 8080),
                    container("ssh", ["sh", "-c", SSHD.replace("$", "$$")], 2022),
                    container("rsync", ["sh", "-c", RSYNCD.replace("$", "$$")], 8730),
                ],
                "volumes": [
                    {"name": "srv", "emptyDir": {}},
                    {"name": "keys", "emptyDir": {}},
                    {"name": "server", "configMap": {"name": "server"}},
                ],
            },
        }  # fmt: skip

    def service(self):
        ports = [
            {"name": f"p{port}", "port": port, "targetPort": target}
            for port, target in ((80, 8080), (22, 2022), (873, 8730))
        ]
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "git"},
            "spec": {"selector": {"app": "git"}, "ports": ports},
        }

    def execute(self, *command):
        return self.space.kubectl("exec", "git", "-c", "ssh", "--", *command)

    def push(self, version):
        """Move the branch; return its new commit."""
        return self.execute("bash", "-c", PUSH, version).strip()


@pytest.fixture
def servers(namespace):
    return Servers(namespace)


def http(**more):
    return {"git": {"repository": "http://git/train.git", "ref": "main", "secret": "http", **more}}


def ssh(**more):
    return {"git": {"repository": "deepspeed@git:/srv/train.git", "ref": "main", "secret": "ssh", **more}}


SHOW = "cd /code && echo $(hostname) has $(cat version) $(git rev-parse HEAD)"


def test_all_have_one_commit_also_a_worker_that_is_replaced_after_the_branch_has_moved(
    servers, job, tmp_path
):
    first = servers.push("one")
    job.install(
        tmp_path,
        workers={"count": 2},
        code=http(),
        run={"command": on_all(f"{SHOW}; sleep 600"), "maxRestarts": 1},
    )
    for i in range(2):
        job.wait_log(f"job-worker-{i} has one {first}")
    second = servers.push("two")
    job.namespace.kubectl("delete", "pod", "job-worker-1", "--wait=false")
    wait_for(lambda: job.log().count(f"job-worker-1 has one {first}") == 2, 90, job.describe)
    log = job.log()
    assert second not in log
    assert f"[deepspeed-job] code: commit {first}" in log
    # Who looks sees it, while it runs and after.
    wait_for(lambda: job.told().get("commit") == first, 20, lambda: job.told())
    assert f"commit {first} (main)" in job.namespace.dsjob("status", "job")
    job.namespace.kubectl("exec", "job-worker-0", "-c", "worker", "--", "pkill", "-KILL", "sleep")
    assert job.wait_ended(60) == "Failed"
    assert (
        json.loads(job.namespace.kubectl("get", "lease", "job", "-o", "json"))["spec"]["holderIdentity"] == ""
    )
    status = job.namespace.dsjob("status", "job", "-o", "json")
    assert json.loads(status)["commit"] == first
    # And nobody sees the password.
    pod = job.launcher()["metadata"]["name"]
    logs = job.namespace.kubectl("logs", pod, "--all-containers")
    assert PASSWORD not in logs + json.dumps(job.launcher()) + job.namespace.kubectl(
        "get", "configmap", "-o", "json"
    )


def test_a_launcher_that_is_replaced_keeps_the_commit_and_another_run_has_the_newest(servers, job, tmp_path):
    first = servers.push("one")
    command = (
        f"ssh job-worker-0.job '{SHOW}'; echo launcher $(cat version); test $(cat version) = two || sleep 600"
    )
    values = {"code": http(), "run": {"command": command}}
    job.install(tmp_path, **values)
    job.wait_log(f"job-worker-0 has one {first}")
    job.wait_log("launcher one")
    second = servers.push("two")
    before = job.launcher()["metadata"]["name"]
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": before, "namespace": job.namespace.name},
    }
    path = f"/api/v1/namespaces/{job.namespace.name}/pods/{before}/eviction"
    job.namespace.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))

    def is_replaced():
        pod = job.launcher()
        return pod and pod["metadata"]["name"] != before

    wait_for(is_replaced, 60, job.describe)
    job.wait_log(f"job-worker-0 has one {first}", 90)
    job.wait_log("launcher one")
    values["run"]["id"] = "2"
    job.install(tmp_path, **values)
    assert job.wait_ended(90) == "Complete", job.describe()
    assert f"job-worker-0 has two {second}" in job.log()


@pytest.mark.parametrize(("mode", "uid"), [("launcher", 1000), ("direct", 4242)])
def test_a_private_repository_by_ssh_with_its_submodules(servers, namespace, tmp_path, mode, uid):
    """Also for a user that no image knows; mode launcher needs one for its own ssh."""
    commit = servers.push("one")
    job = (Job if mode == "launcher" else DirectJob)(namespace)
    show = "cd /code && id -u && git rev-parse HEAD && python3 lib/training/train.py && ls -a /job/.code"
    job.install(
        tmp_path,
        mode=mode,
        workers={"count": 2},
        podSecurityContext={"runAsUser": uid},
        code=ssh(ref=commit, submodules=True, depth=0),
        run={"command": on_all(f"({show}) 2>&1; true", mode=mode)},
    )
    assert job.wait_ended(90) == "Complete", job.describe()
    log = job.log() if mode == "launcher" else "\n".join(job.logs())
    for text in (str(uid), commit, "fetched", "No such file or directory"):
        assert log.count(f"{text}\n") >= 2, log


def test_one_folder_is_where_the_job_starts(servers, job, tmp_path):
    servers.push("one")
    job.install(
        tmp_path,
        code={**http(subPath="training"), "mountPath": "/src"},
        env={"DS_ACCELERATOR": "cpu"},
        run={"script": "train.py"},
    )
    assert job.wait_ended(120) == "Complete", job.describe()
    assert "job-worker-0: fetched" in job.log()


def test_what_keeps_the_code_away_is_told_and_no_worker_is_held(servers, namespace, tmp_path):
    servers.push("one")
    cases = {
        "password": (http(secret="ssh"), "http://git/train.git asks for a password"),
        "missing": (http(repository="http://git/none.git"), "there is no http://git/none.git"),
        "branch": (http(ref="mian"), "there is no branch or tag mian in http://git/train.git"),
        "commit": (http(ref="1" * 40), f"there is no commit {'1' * 40} in http://git/train.git"),
        "key": (ssh(secret="stranger"), "deepspeed@git:/srv/train.git refuses the key `ssh-privatekey` of the Secret stranger"),
        "host": (ssh(secret="lost"), "the host of deepspeed@git:/srv/train.git is not in `known_hosts` of the Secret lost"),
        "path": (ssh(repository="deepspeed@git:/srv/none.git"), "there is no deepspeed@git:/srv/none.git"),
    }  # fmt: skip
    jobs = {name: Job(namespace, name) for name in cases}
    for name, (code, _) in cases.items():
        jobs[name].install(tmp_path, workers={"count": 2}, code=code, run={"command": "true"})
    for name, (_, words) in cases.items():
        assert jobs[name].wait_ended(120) == "Failed", jobs[name].describe()
        jobs[name].wait_released()
        assert words in namespace.dsjob("status", name)
    values = {"image": IMAGE, "code": cases["branch"][0], "run": {"command": "true"}}
    path = Job(namespace, "seen").values_file(tmp_path, values)
    seen = namespace.dsjob("up", path, "seen", "--yes", code=1)
    assert "seen failed" in seen
    assert "there is no branch or tag mian" in seen


@pytest.mark.parametrize(
    ("mode", "source", "secret"),
    [("launcher", "rsync://git/files", "http"), ("direct", "deepspeed@git:/srv/files", "ssh")],
)
def test_a_folder_by_rsync(servers, namespace, tmp_path, mode, source, secret):
    job = (Job if mode == "launcher" else DirectJob)(namespace)
    show = "python3 /code/training/train.py"
    job.install(
        tmp_path,
        mode=mode,
        workers={"count": 2},
        code={"rsync": {"source": source, "secret": secret}},
        run={"command": on_all(show, mode=mode)},
    )
    assert job.wait_ended(90) == "Complete", job.describe()
    log = job.log() if mode == "launcher" else "\n".join(job.logs())
    assert log.count("copied") == 2
    assert source in namespace.dsjob("status", "job")
