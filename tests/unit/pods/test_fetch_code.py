"""The init container `code`, run as it is against repositories made here: by file, by HTTP, by a server that gives no single commit."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

FETCH = Path(__file__).parents[3] / "charts" / "deepspeed-job" / "files" / "fetch-code"
SERVER = Path(__file__).parents[2] / "git_http.py"
LOGIN = "me:p a$$w'ord"
ME = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "me"), ("EMAIL", "me@example.com"))
}


def git(folder, *args):
    argv = ["git", "-C", str(folder), "-c", "protocol.file.allow=always", *args]
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **ME}
    return subprocess.run(argv, env=environment, check=True, capture_output=True, text=True).stdout.strip()


class Repository:
    """A repository NAME.git with a working copy, whose commits have one number in the file `version`."""

    def __init__(self, folder, name="train"):
        self.bare, self.work = folder / f"{name}.git", folder / f"{name}-work"
        git(folder, "init", "-q", "--bare", "-b", "main", self.bare.name)
        git(folder, "init", "-q", "-b", "main", self.work.name)
        git(self.work, "remote", "add", "origin", str(self.bare))
        self.commits = []
        self.commit()

    def commit(self):
        number = len(self.commits) + 1
        (self.work / "version").write_text(f"{number}\n")
        (self.work / "training").mkdir(exist_ok=True)
        (self.work / "training" / "train.py").write_text(f"print({number})\n")
        return self.save()

    def save(self):
        git(self.work, "add", "-A")
        git(self.work, "commit", "-qm", "more")
        git(self.work, "push", "-qf", "origin", "HEAD:main")
        git(self.bare, "update-server-info")
        self.commits.append(git(self.work, "rev-parse", "HEAD"))
        return self.commits[-1]


class Pod:
    """A pod of its own for each start of the init container, with the same Secret."""

    def __init__(self, folder, shell=("sh",)):
        self.root = folder / "pod"
        self.shell = shell
        self.secret = {}
        self.environment = {}
        self.reset()

    def reset(self):
        """Another pod: nothing is left but the Secret."""
        shutil.rmtree(self.root, ignore_errors=True)
        for name in ("job", "dev", "code", "opt/deepspeed-job", "opt/code-secret", "bin"):
            (self.root / name).mkdir(parents=True)
        shutil.copy(FETCH, self.root / "opt/deepspeed-job/fetch-code")
        # The pauses between two tries are told, and not taken.
        sleep = self.root / "bin/sleep"
        sleep.write_text(f'#!/bin/sh\necho "$1" >>{self.root}/slept\n')
        sleep.chmod(0o755)
        for name, text in self.secret.items():
            (self.root / "opt/code-secret" / name).write_text(text)

    def decide(self, text):
        (self.root / "opt/deepspeed-job/commit").write_text(text)

    def fetch(self, repository="", code=0, **settings):
        """Run it; return its log."""
        known = {"CODE_GIT": repository, "CODE_REF": "HEAD", "CODE_DEPTH": "1", "CODE_SUBMODULES": "false"}
        environment = {
            "PATH": f"{self.root}/bin:{os.environ['PATH']}",
            "FETCH_ROOT": str(self.root),
            "CODE_PATH": str(self.root / "code"),
            "CODE_SECRET": "opener" if self.secret else "",
            "CODE_SUBPATH": "",
            **known,
            **self.environment,
            **settings,
        }
        argv = [*self.shell, str(self.root / "opt/deepspeed-job/fetch-code")]
        done = subprocess.run(
            argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60
        )
        assert done.returncode == code, done.stdout
        assert not (self.root / "job/.code").exists(), "a key or a password is left"
        return done.stdout

    def told(self):
        return (self.root / "dev/termination-log").read_text()

    def commit(self):
        return (self.root / "job/commit").read_text()

    def has(self, path):
        return (self.root / "code" / path).read_text().strip()

    def git(self, *args):
        return git(self.root / "code", "-c", "safe.directory=*", *args)


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path)


@pytest.fixture
def pod(tmp_path):
    return Pod(tmp_path)


@pytest.fixture
def serve(tmp_path):
    """Serve tmp_path over HTTP; return the address."""
    servers = []

    def start(*args):
        argv = [sys.executable, str(SERVER), str(tmp_path), "0", *args]
        server = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        servers.append(server)
        return f"http://127.0.0.1:{server.stdout.readline().strip()}"

    yield start
    for server in servers:
        server.kill()
        server.wait()
        server.stdout.close()


def test_the_default_is_the_newest_commit_alone(repository, pod):
    repository.commit()
    log = pod.fetch(f"file://{repository.bare}")
    assert pod.commit() == pod.told() == repository.commits[1]
    assert f"code: commit {repository.commits[1]} of file://{repository.bare} (HEAD)" in log
    assert pod.has("version") == "2"
    assert pod.git("rev-list", "--count", "HEAD") == "1"


@pytest.mark.parametrize(("depth", "count"), [("0", "3"), ("2", "2")])
def test_depth(repository, pod, depth, count):
    repository.commit()
    repository.commit()
    pod.fetch(f"file://{repository.bare}", CODE_DEPTH=depth)
    assert pod.git("rev-list", "--count", "HEAD") == count


def test_branches_tags_and_commits(repository, pod):
    git(repository.work, "tag", "-a", "v1", "-m", "one")
    git(repository.work, "push", "-q", "origin", "v1", "HEAD:refs/heads/feature/x")
    first, second = repository.commits[0], repository.commit()
    for ref, commit in (("v1", first), ("feature/x", first), ("refs/heads/main", second), (first, first)):
        pod.reset()
        pod.fetch(f"file://{repository.bare}", CODE_REF=ref)
        assert pod.commit() == commit, ref


@pytest.mark.parametrize("decided", ["worker", "replaced launcher", "earlier life"])
def test_a_commit_that_is_decided_holds_also_when_the_branch_has_moved(repository, pod, decided):
    first = repository.commits[0]
    repository.commit()
    if decided == "earlier life":
        (pod.root / "job/commit").write_text(first)
        (pod.root / "code/.git").mkdir()
        (pod.root / "code/.git/index.lock").write_text("")
        (pod.root / "code/left-over").write_text("")
    else:
        pod.decide(f"{first} uid-1\n")
    pod.fetch(
        f"file://{repository.bare}",
        CODE_REF="main",
        **({"JOB_UID": "uid-1"} if decided == "replaced launcher" else {}),
    )
    assert pod.commit() == first
    assert pod.has("version") == "1"
    assert not (pod.root / "code/left-over").exists()


def test_the_commit_of_an_earlier_job_is_not_this_ones(repository, pod):
    pod.decide(f"{repository.commits[0]} uid-1\n")
    second = repository.commit()
    pod.fetch(f"file://{repository.bare}", JOB_UID="uid-2", CODE_REF="main")
    assert pod.commit() == second


def old_protocol(pod):
    """A client that speaks as servers did which give no other commit than the newest of a branch."""
    pod.environment = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "protocol.version",
        "GIT_CONFIG_VALUE_0": "0",
    }


def test_a_server_that_gives_no_single_commit_gives_all(repository, pod):
    old_protocol(pod)
    first = repository.commits[0]
    repository.commit()
    assert "all of the repository" in pod.fetch(f"file://{repository.bare}", CODE_REF=first)
    assert pod.has("version") == "1"


@pytest.mark.parametrize("old", [True, False])
def test_a_commit_that_is_not_there(repository, pod, old):
    if old:
        old_protocol(pod)
    pod.fetch(f"file://{repository.bare}", CODE_REF="0" * 39 + "1", code=1)
    assert f"there is no commit {'0' * 39}1 in file://{repository.bare}" in pod.told()


def test_the_commit_of_a_branch_that_was_rewritten(repository, pod):
    """Where the server still has it, as the large ones do."""
    old = repository.commit()
    git(repository.work, "reset", "-q", "--hard", "HEAD^")
    repository.commit()
    pod.fetch(f"file://{repository.bare}", CODE_REF=old)
    assert pod.commit() == old


@pytest.fixture
def nested(tmp_path, serve):
    """A server whose repository `train` has a submodule, which has one too."""
    repositories = {name: Repository(tmp_path, name) for name in ("deep", "lib", "train")}
    for inner, outer in (("deep", "lib"), ("lib", "train")):
        git(repositories[outer].work, "submodule", "--quiet", "add", str(repositories[inner].bare), inner)
        modules = repositories[outer].work / ".gitmodules"
        modules.write_text(modules.read_text().replace(str(tmp_path), ".."))
        repositories[outer].save()
    repositories["lib"].commit()  # not what `train` names
    return serve(LOGIN)


def test_submodules_only_where_they_are_asked_for(nested, pod):
    pod.secret = dict(zip(("username", "password"), LOGIN.split(":"), strict=True))
    pod.reset()
    pod.fetch(f"{nested}/train.git")
    assert not (pod.root / "code/lib/version").exists()
    pod.reset()
    pod.fetch(f"{nested}/train.git", CODE_SUBMODULES="true")
    assert (pod.has("lib/version"), pod.has("lib/deep/version")) == ("1", "1")


def test_a_folder_is_there_or_is_missed_by_name(repository, pod):
    pod.fetch(f"file://{repository.bare}", CODE_SUBPATH="training")
    pod.reset()
    pod.fetch(f"file://{repository.bare}", CODE_SUBPATH="no/such", code=1)
    assert "there is no folder no/such in commit" in pod.told()


@pytest.mark.parametrize("key", ["password", "token"])
def test_a_password_opens_a_private_repository_and_is_told_to_nobody(repository, pod, serve, key):
    user, password = LOGIN.split(":")
    pod.secret = {"username": user, key: password + "\n"}
    pod.reset()
    log = pod.fetch(f"{serve(LOGIN)}/train.git")
    assert pod.commit() == repository.commits[0]
    left = "".join(
        path.read_text(errors="replace") for path in (pod.root / "code/.git").rglob("*") if path.is_file()
    )
    assert password not in log + left


def test_a_token_needs_no_user(repository, pod, serve):
    pod.secret = {"token": "t0ken"}
    pod.reset()
    pod.fetch(f"{serve('git:t0ken')}/train.git")


def test_a_password_is_for_its_own_server_alone(tmp_path, pod, serve):
    """Not for that of a submodule, whoever may have written its address."""
    main, other = serve(LOGIN), serve("git:other")
    outer, inner = Repository(tmp_path), Repository(tmp_path, "lib")
    git(outer.work, "submodule", "--quiet", "add", str(inner.bare), "lib")
    modules = outer.work / ".gitmodules"
    modules.write_text(modules.read_text().replace(str(tmp_path), other))
    outer.save()
    pod.secret = dict(zip(("username", "password"), ("git", "other"), strict=True))
    pod.reset()
    pod.fetch(f"{main}/train.git", code=1)
    pod.secret = dict(zip(("username", "password"), LOGIN.split(":"), strict=True))
    pod.reset()
    pod.fetch(f"{main}/train.git", code=1, CODE_SUBMODULES="true")
    assert pod.told().startswith("a submodule of ")


def test_a_web_server_that_knows_no_git(repository, pod, serve):
    address = f"{serve('--dumb')}/train.git"
    first = repository.commits[0]
    repository.commit()
    pod.fetch(address, CODE_REF="main")
    assert pod.commit() == repository.commits[1]
    pod.reset()
    pod.fetch(address, CODE_REF=first)
    assert pod.commit() == first


def test_a_certificate_of_ones_own(repository, pod, serve, tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "ca.crt"
    subject = ["-subj", "/CN=git", "-addext", "subjectAltName=IP:127.0.0.1"]
    argv = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject]
    subprocess.run([*argv, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    (tmp_path / "both.pem").write_text(key.read_text() + certificate.read_text())
    address = serve(LOGIN, f"--tls={tmp_path}/both.pem").replace("http:", "https:") + "/train.git"
    login = dict(zip(("username", "password"), LOGIN.split(":"), strict=True))
    pod.secret = login
    pod.reset()
    pod.fetch(address, code=1)
    assert "certificate" in pod.told()
    assert "`ca.crt`" in pod.told()
    pod.secret = {**login, "ca.crt": certificate.read_text()}
    pod.reset()
    pod.fetch(address)
    assert pod.commit() == repository.commits[0]


def test_what_a_repository_refuses_is_said_in_one_line(repository, pod, serve):
    address = serve(LOGIN)
    cases = (
        ({}, f"{address}/train.git", {}, "asks for a password: put `username` and `password` into a Secret, and name it"),
        ({"password": "no"}, f"{address}/train.git", {}, "refuses the user and the password of the Secret opener"),
        ({}, f"{serve()}/nobody.git", {}, "there is no http://"),
        ({}, f"file://{repository.bare}x", {}, "there is no file://"),
        ({}, f"file://{repository.bare}", {"CODE_REF": "mian"}, "there is no branch or tag mian in file://"),
        ({}, f"file://{repository.bare}", {"CODE_REF": "abc1234"}, "a commit needs all of its 40 digits"),
        ({"password": "x"}, "git@host:x.git", {}, "the Secret opener has no `ssh-privatekey`"),
        ({"ssh-privatekey": "x"}, "ssh://host/x.git", {}, "the Secret opener has no `known_hosts`"),
    )  # fmt: skip
    for secret, url, settings, told in cases:
        pod.secret = secret
        pod.reset()
        log = pod.fetch(url, code=1, **settings)
        assert told in pod.told()
        assert "\n" not in pod.told()
        assert f"[deepspeed-job] Failed: {pod.told()}\n" in log
        assert not (pod.root / "slept").exists(), "it would not pass"
        assert not (pod.root / "job/commit").exists()


def test_what_may_pass_is_tried_for_half_a_minute(pod):
    pod.fetch("http://127.0.0.1:9/x.git", code=1)
    assert "http://127.0.0.1:9/x.git cannot be fetched: fatal: unable to access" in pod.told()
    assert (pod.root / "slept").read_text().split() == ["1", "2", "4", "8", "16"]


@pytest.mark.parametrize(("missing", "source"), [("git", "file:///x"), ("ssh", "me@host:x"), ("rsync", "")])
def test_an_image_that_lacks_a_program(pod, missing, source):
    pod.secret = {"ssh-privatekey": "x", "known_hosts": "x"}
    pod.reset()
    for name in ("cat", "rm", "mkdir", "git"):
        if name != missing:
            (pod.root / "bin" / name).symlink_to(shutil.which(name))
    shell = shutil.which("sh")
    pod.shell = (shell,)
    more = {} if source else {"CODE_RSYNC": "rsync://host/x"}
    pod.fetch(source, code=1, PATH=str(pod.root / "bin"), **more)
    assert f"the image that fetches the code lacks {missing}" in pod.told()


def test_told_to_end_it_does_so_at_once(pod, tmp_path):
    hang = pod.root / "bin/git"
    hang.write_text(
        f'#!/bin/sh\ncase "$*" in *fetch*) echo >{tmp_path}/there; exec tail -f /dev/null ;; esac\n'
    )
    hang.chmod(0o755)
    environment = {
        "PATH": f"{pod.root}/bin:{os.environ['PATH']}",
        "FETCH_ROOT": str(pod.root),
        "CODE_PATH": str(pod.root / "code"),
        "CODE_GIT": "file:///x",
        "CODE_REF": "HEAD",
        "CODE_DEPTH": "1",
        **dict.fromkeys(("CODE_SUBPATH", "CODE_SECRET", "CODE_SUBMODULES"), ""),
    }
    argv = ["sh", str(pod.root / "opt/deepspeed-job/fetch-code")]
    with subprocess.Popen(argv, env=environment, start_new_session=True) as process:
        until = time.monotonic() + 20
        while not (tmp_path / "there").exists():
            assert time.monotonic() < until
            time.sleep(0.02)
        process.terminate()
        assert process.wait(10) == 143
        os.killpg(process.pid, 9)


# rsync


@pytest.fixture
def daemon(tmp_path):
    """An rsync server with a module `team` that wants a password, and `open` that does not."""
    (tmp_path / "files/training").mkdir(parents=True)
    (tmp_path / "files/training/train.py").write_text("print(1)\n")
    (tmp_path / "files/run").write_text("#!/bin/sh\n")
    (tmp_path / "files/run").chmod(0o755)
    secrets = tmp_path / "rsyncd.secrets"
    secrets.write_text("me:secret\n")
    secrets.chmod(0o600)
    settings = tmp_path / "rsyncd.conf"
    modules = f"[open]\npath = {tmp_path}/files\n[team]\npath = {tmp_path}/files\nauth users = me\nsecrets file = {secrets}\n"
    settings.write_text(f"use chroot = no\n{modules}")

    with subprocess.Popen(
        [sys.executable, "-c", LISTEN, str(settings)], stdout=subprocess.PIPE, text=True
    ) as server:
        yield f"rsync://127.0.0.1:{server.stdout.readline().strip()}"
        server.kill()


# One rsync for each connection, as inetd does it, so that its port is a free one.
LISTEN = """
import socket, subprocess, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    link = server.accept()[0]
    subprocess.run(["rsync", "--daemon", f"--config={sys.argv[1]}"], stdin=link, stdout=link)
    link.close()
"""


def test_a_folder_by_rsync(daemon, pod):
    log = pod.fetch(CODE_RSYNC=f"{daemon}/open")
    assert pod.has("training/train.py") == "print(1)"
    assert os.access(pod.root / "code/run", os.X_OK)
    assert pod.commit() == ""
    assert f"code: {daemon}/open" in log


@pytest.mark.parametrize(
    ("secret", "module", "told"),
    [
        ({"username": "me", "password": "secret"}, "team", ""),
        ({"username": "me", "password": "wrong"}, "team", "refuses the user and the password of the Secret opener"),
        ({}, "team", "asks for a password: put `username` and `password` into a Secret, and name it in `code.rsync.secret`"),
        ({}, "none", "there is no rsync://"),
        ({}, "open/none", "there is no rsync://"),
    ],
)  # fmt: skip
def test_what_rsync_opens_and_refuses(daemon, pod, secret, module, told):
    pod.secret = secret
    pod.reset()
    pod.fetch(CODE_RSYNC=f"{daemon}/{module}/", code=1 if told else 0)
    assert told in pod.told() if told else pod.has("training/train.py")
