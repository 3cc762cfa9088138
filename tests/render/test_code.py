"""Code from Git or by rsync: what fetches it, what it is told, who waits for whom, and what is refused."""

import json
import re

import pytest
from rendering import (
    CHART,
    NASTY,
    RESTRICTED,
    RenderError,
    as_in_the_container,
    env_of,
    merged,
    run_config,
    run_config_map,
    run_hash,
)

GIT = {"code": {"git": {"repository": "https://git.example.com/team/train.git"}}}
RSYNC = {"code": {"rsync": {"source": "rsync://files.example.com/team"}}}
SHA = "0123456789abcdef0123456789abcdef01234567"
DIRECT = {"mode": "direct", "code": {"git": {"ref": SHA}}}


def git(**more):
    return merged(GIT, {"code": {"git": more}})


def pods(objects):
    """The pod specs that run the job, by role."""
    found = {"launcher": "Job", "worker": "StatefulSet"}
    if "StatefulSet" not in objects.kinds():
        found = {"worker": "Job"}
    return {role: objects.get(kind)["spec"]["template"]["spec"] for role, kind in found.items()}


def fetcher(pod):
    return next(one for one in pod["initContainers"] if one["name"] == "code")


def settings(pod):
    return {
        one["name"]: as_in_the_container(one["value"])
        for one in fetcher(pod)["env"]
        if one["name"].startswith("CODE_")
    }


def volume(pod, name):
    return next((one for one in pod["volumes"] if one["name"] == name), None)


def test_a_job_without_code_has_nothing_of_it(render):
    objects = render()
    text = json.dumps([pods(objects), objects.get("Role")])
    for word in ("CODE_", "JOB_UID", "commit", "code", "safe.directory", "fetch"):
        assert word not in text
    assert "initContainers" not in objects.pod("worker")
    assert "passwd" not in run_config_map(objects)["data"]
    assert "workingDir" not in objects.container("worker")


@pytest.mark.parametrize("values", [GIT, RSYNC, merged(GIT, DIRECT), {**RSYNC, "mode": "direct"}])
def test_every_pod_fetches_the_code_before_the_job_starts_there(render, values):
    for pod in pods(render(values)).values():
        one = fetcher(pod)
        assert pod["initContainers"][-1] == one, "the sidecar that frees the workers runs already"
        assert one["command"] == ["sh", "/opt/deepspeed-job/fetch-code"]
        assert one["image"] == "example/image:v1"
        assert one["securityContext"] == RESTRICTED
        assert one["resources"]["requests"]
        assert {"name": "code", "mountPath": "/code"} in one["volumeMounts"]
        main = pod["containers"][0]
        assert {"name": "code", "mountPath": "/code"} in main["volumeMounts"]
        assert main["workingDir"] == "/code"
        assert volume(pod, "code") == {"name": "code", "emptyDir": {}}


@pytest.mark.parametrize("mode", [{}, DIRECT])
def test_init_containers_of_the_user_find_the_code(render, mode):
    own = {"name": "own", "image": "x", "volumeMounts": [{"name": "code", "mountPath": "/code"}]}
    values = merged(merged(GIT, mode), {role: {"initContainers": [own]} for role in ("launcher", "workers")})
    for role, pod in pods(render(values)).items():
        names = ["workers", "code", "own"] if role == "launcher" else ["code", "own"]
        assert [one["name"] for one in pod["initContainers"]] == names
        assert pod["initContainers"][-1] == own


def test_what_git_is_told(render):
    known = {
        "CODE_PATH": "/code",
        "CODE_SECRET": "",
        "CODE_GIT": "https://git.example.com/team/train.git",
        "CODE_REF": "HEAD",
        "CODE_DEPTH": "1",
        "CODE_SUBMODULES": "false",
        "CODE_SUBPATH": "",
    }
    cases = [
        ({}, {}),
        ({"repository": "file:///x"}, {"CODE_GIT": "file:///x"}),
        ({"ref": "v1.0"}, {"CODE_REF": "v1.0"}),
        ({"ref": "$(HOME)$$"}, {"CODE_REF": "$(HOME)$$"}),
        ({"depth": 0}, {"CODE_DEPTH": "0"}),
        ({"depth": 1000000}, {"CODE_DEPTH": "1000000"}),
        ({"submodules": True}, {"CODE_SUBMODULES": "true"}),
        ({"subPath": "a b/c"}, {"CODE_SUBPATH": "a b/c"}),
        ({"secret": "opener"}, {"CODE_SECRET": "opener"}),
    ]
    for values, told in cases:
        base = json.loads(json.dumps(GIT))
        base["code"]["git"].update(values)
        for pod in pods(render(base)).values():
            assert settings(pod) == {**known, **told}


@pytest.mark.parametrize(
    "text", [text for text in NASTY if text and text[0] != "-" and not re.search(r"\s", text)]
)
def test_a_repository_and_a_branch_are_exact(render, text):
    pod = pods(render(git(repository=f"file://{text}", ref=text, subPath=f"x{text}")))["worker"]
    found = settings(pod)
    assert (found["CODE_GIT"], found["CODE_REF"], found["CODE_SUBPATH"]) == (
        f"file://{text}",
        text,
        f"x{text}",
    )


def test_what_rsync_is_told(render):
    values = merged(RSYNC, {"code": {"rsync": {"secret": "opener"}, "mountPath": "/src"}})
    for pod in pods(render(values)).values():
        assert settings(pod) == {
            "CODE_PATH": "/src",
            "CODE_SECRET": "opener",
            "CODE_RSYNC": "rsync://files.example.com/team",
        }
        assert volume(pod, "code-secret")["secret"]["secretName"] == "opener"
        assert "secret" not in json.dumps(volume(pod, "fetch"))


def test_settings_of_what_fetches(render):
    values = {
        "image": {"pullPolicy": "Always"},
        "code": {"image": "alpine/git:v2", "mountPath": "/src", "resources": {"limits": {"memory": "4Gi"}}},
        "run": {"workingDir": "/src/training"},
    }
    for pod in pods(render(merged(git(subPath="x/y"), values))).values():
        one, main = fetcher(pod), pod["containers"][0]
        assert (one["image"], one["imagePullPolicy"]) == ("alpine/git:v2", "Always")
        assert one["resources"] == {"limits": {"memory": "4Gi"}}
        assert {"name": "code", "mountPath": "/src"} in one["volumeMounts"]
        assert {"name": "code", "mountPath": "/src", "subPath": "x/y"} in main["volumeMounts"]
        assert main["workingDir"] == "/src/training"
        assert main["image"] == "example/image:v1"


def test_the_secret_is_seen_by_nothing_but_what_fetches(render):
    for pod in pods(render(git(secret="opener"))).values():
        assert volume(pod, "code-secret")["secret"] == {"secretName": "opener", "defaultMode": 0o444}
        seen = [
            one["name"]
            for one in pod["initContainers"] + pod["containers"]
            if any(mount["name"] == "code-secret" for mount in one["volumeMounts"])
        ]
        assert seen == ["code"]


def test_what_fetches_sees_neither_the_jobs_key_nor_its_token_nor_its_environment(render):
    values = merged(
        GIT,
        {
            "env": {
                "TOKEN": "x",
                "https_proxy": "http://proxy:3128",
                "NO_PROXY": {"configMapKeyRef": {"name": "p", "key": "k"}},
            }
        },
    )
    for pod in pods(render(values)).values():
        one = fetcher(pod)
        assert {mount["name"] for mount in one["volumeMounts"]} == {"fetch", "job", "code"}
        assert "ssh-privatekey" not in json.dumps(volume(pod, "fetch"))
        env = {entry["name"]: entry for entry in one["env"]}
        assert "TOKEN" not in env
        assert env["https_proxy"]["value"] == "http://proxy:3128"
        assert env["NO_PROXY"]["valueFrom"] == {"configMapKeyRef": {"name": "p", "key": "k"}}


def commit_of(pod):
    sources = volume(pod, "fetch")["projected"]["sources"]
    return next((one["secret"] for one in sources if "secret" in one), None)


def test_workers_wait_for_the_commit_and_a_launcher_takes_one_that_its_job_has(render):
    found = pods(render(GIT))
    item = {"name": "job-ssh", "items": [{"key": "commit", "path": "commit", "mode": 0o444}]}
    assert commit_of(found["worker"]) == {**item, "optional": False}
    assert commit_of(found["launcher"]) == {**item, "optional": True}
    uid = {"fieldRef": {"fieldPath": "metadata.labels['batch.kubernetes.io/controller-uid']"}}
    for one in found["launcher"]["initContainers"]:
        assert {"name": "JOB_UID", "valueFrom": uid} in one["env"]
    assert "JOB_UID" not in json.dumps(found["worker"])


def test_in_mode_direct_the_values_say_the_commit(render):
    found = pods(render(merged(GIT, DIRECT)))["worker"]
    assert commit_of(found) is None
    assert settings(found)["CODE_REF"] == SHA


@pytest.mark.parametrize(
    ("pod", "own", "entry"),
    [
        ({}, {}, "job:x:1000:1000:"),
        ({"runAsUser": 4242, "runAsGroup": None}, {}, "job:x:4242:0:"),
        ({"runAsUser": 1000660000, "runAsGroup": 7}, {}, "job:x:1000660000:7:"),
        ({}, {"runAsUser": 5}, "job:x:5:1000:"),
    ],
)
def test_ssh_finds_who_it_runs_as_in_any_image(render, pod, own, entry):
    values = {"podSecurityContext": pod, "securityContext": own}
    objects = render(merged(GIT, values))
    lines = run_config_map(objects)["data"]["passwd"].splitlines()
    assert lines[0].startswith("root:x:0:0:")
    assert lines[1].startswith(entry)
    assert len(lines) == 2
    for one in pods(objects).values():
        mount = {"name": "fetch", "mountPath": "/etc/passwd", "subPath": "passwd", "readOnly": True}
        assert mount in fetcher(one)["volumeMounts"]


def test_a_user_that_the_values_do_not_name_is_the_images(render):
    objects = render(merged(GIT, {"podSecurityContext": {"runAsUser": None}}))
    assert "passwd" not in run_config_map(objects)["data"]
    assert "passwd" not in json.dumps(objects.pod("worker"))


def test_git_works_in_the_folder_for_the_job_too(render):
    env = env_of(render(GIT), "worker")
    assert [env[f"GIT_CONFIG_{name}"]["value"] for name in ("COUNT", "KEY_0", "VALUE_0")] == [
        "1",
        "safe.directory",
        "*",
    ]


def test_another_code_is_another_run(render):
    changes = (
        {},
        {"ref": "v2"},
        {"depth": 2},
        {"submodules": True},
        {"secret": "s"},
        {"repository": "file:///y"},
    )
    hashes = [run_hash(render())] + [run_hash(render(git(**change))) for change in changes]
    hashes.append(run_hash(render(merged(GIT, {"code": {"image": "x"}}))))
    assert len(set(hashes)) == len(hashes)


def test_the_example_is_valid(render):
    found = pods(render((CHART.parents[1] / "values" / "code-from-git.yaml").read_text()))
    assert settings(found["worker"])["CODE_REF"] == "main"


def test_what_programs_read_of_a_run_is_the_same(render):
    assert run_config(render(GIT)) == run_config(render())


@pytest.mark.parametrize("code", [None, {}])
def test_no_code_is_none(render, code):
    assert render({"code": code}).kinds() == render().kinds()
    assert "initContainers" not in render({"code": code}).pod("worker")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (merged(GIT, RSYNC), "`code.git` and `code.rsync` exclude each other"),
        ({"code": {"image": "x"}}, "`code` names no source"),
        (git(repository="https://me:secret@host/x.git"), "`code.git.repository` holds a user or a password"),
        (git(repository="http://token@host/x.git"), "`code.git.repository` holds a user or a password"),
        (git(repository="git@host:x.git"), "`code.git.secret` is missing: git@host:x.git is reached by ssh"),
        (git(repository="host:/srv/x.git"), "`code.git.secret` is missing"),
        (git(repository="ssh://git@host:22/x.git"), "`code.git.secret` is missing"),
        ({"code": {"rsync": {"source": "me@host:/srv"}}}, "`code.rsync.secret` is missing"),
        ({"mode": "direct", **GIT}, '`code.git.ref` is "HEAD": `mode: direct` has no launcher'),
        ({"mode": "direct", **git(ref="main")}, '`code.git.ref` is "main"'),
        ({"mode": "direct", **git(ref=SHA[:12])}, f'`code.git.ref` is "{SHA[:12]}"'),
        (merged(GIT, {"code": {"mountPath": "/job/x"}}), '`code.mountPath` "/job/x" lies in /job'),
        (merged(GIT, {"data": [{"claim": "c", "mountPath": "/code/"}]}), '`code.mountPath` "/code" is a mount of `data`'),
        (git(repository=None), "repository"),
        (git(repository="-x"), "/code/git/repository"),
        (git(repository="a b"), "/code/git/repository"),
        (git(ref="--upload-pack=x"), "/code/git/ref"),
        (git(ref=1.10), "/code/git/ref"),
        (git(depth=-1), "/code/git/depth"),
        (git(subPath="/x"), "/code/git/subPath"),
        (git(secret="No"), "/code/git/secret"),
        (git(branch="x"), "branch"),
        ({"code": {"rsync": {"source": "/local"}}}, "/code/rsync/source"),
        (merged(GIT, {"code": {"mountPath": "code"}}), "/code/mountPath"),
    ],
    ids=lambda one: json.dumps(one) if isinstance(one, dict) else "",
)  # fmt: skip
def test_what_cannot_work_is_refused_by_name(render, values, message):
    with pytest.raises(RenderError, match=re.escape(message)):
        render(values)


@pytest.mark.parametrize(
    "source",
    [
        "https://host/me@x.git",
        "http://host:80/x.git",
        "git://host/x.git",
        "file:///srv/x.git",
        "rsync://me@host/x",
        "host::x",
    ],
)
def test_what_needs_no_secret_is_taken_without(render, source):
    values = (
        {"rsync": {"source": source}}
        if source.startswith(("rsync", "host"))
        else {"git": {"repository": source}}
    )
    assert render({"code": values})
