"""What `validate` says: each kind of mistake with its place, the nearest key, and the line to write."""

from __future__ import annotations

import subprocess

import pytest
from fakes import GOOD

from dsjob import chart, helm, validate
from dsjob.errors import DsjobError
from dsjob.helmyaml import read
from dsjob.places import dotted, kind_of
from dsjob.schema import check
from dsjob.values import coalesce, load

# name: the text of the file below GOOD (or instead of it), then place, message and hint of the only problem
MISTAKES = {
    "a typo": ("workers: {cout: 3}\n", "3:11", "unknown key `workers.cout`", "did you mean `count`?"),
    "another case": ("workers: {Count: 3}\n", "3:11", "unknown key `workers.Count`", "did you mean `count`?"),
    "a typo at the top": ("worker: {count: 3}\n", "3:1", "unknown key `worker`", "did you mean `workers`?"),
    "a key at the wrong place": (
        "logdir: /x\n",
        "3:1",
        "unknown key `logdir`",
        "did you mean `tensorboard.logdir`?",
    ),
    "a word of other tools": ("gpus: 1\n", "3:1", "unknown key `gpus`", "did you mean `accelerator.count`?"),
    "an unknown key": (
        "ssh: {zzz: 1}\n",
        "3:7",
        "unknown key `ssh.zzz`",
        "known here: `port`, `existingSecret`",
    ),
    "a numeric tag": (
        "image: {repository: r, tag: 1.10}\nrun: {command: x}\n",
        "1:29",
        "`image.tag` must be text, not the number 1.1",
        'write: tag: "1.10"',
    ),
    "a date as a tag": (
        "image: {repository: r, tag: 20161216}\nrun: {command: x}\n",
        "1:29",
        "`image.tag` must be text, not the number 20161216",
        'write: tag: "20161216"',
    ),
    "a tag that is an exponent": (
        "image: {repository: r, tag: 1e3}\nrun: {command: x}\n",
        "1:29",
        "`image.tag` must be text, not the number 1e3",
        'write: tag: "1e3"',
    ),
    "a yes that is text": (
        "run: {command: x, id: yes}\n",
        "2:23",
        "`run.id` must be text, not true (written yes)",
        'write: id: "yes"',
    ),
    "text for a number": (
        'workers: {count: "3"}\n',
        "3:18",
        '`workers.count` must be a whole number, not the text "3"',
        "write: count: 3",
    ),
    "words for a number": (
        "workers: {count: three}\n",
        "3:18",
        '`workers.count` must be a whole number, not the text "three"',
        "",
    ),
    "a fraction": (
        "workers: {count: 1.5}\n",
        "3:18",
        "`workers.count` must be a whole number, not the number 1.5",
        "",
    ),
    "text for a truth": (
        'tensorboard: {enabled: "true", logdir: /x}\n',
        "3:24",
        '`tensorboard.enabled` must be true or false, not the text "true"',
        "write: enabled: true",
    ),
    "text for a list": (
        "run: {script: a, args: --x}\n",
        "2:24",
        '`run.args` must be a list, not the text "--x"',
        'write: args: ["--x"]',
    ),
    "a number in a list of texts": (
        "run: {script: a, args: [--n, 3]}\n",
        "2:30",
        "`run.args[1]` must be text, not the number 3",
        'write: - "3"',
    ),
    "a number for a command": (
        "image: {repository: r}\nrun: {command: 5}\n",
        "2:16",
        "`run.command` must be text or a list, not the number 5",
        'write: command: "5"',
    ),
    "a map for text": (
        "image: {repository: {a: b}}\nrun: {command: x}\n",
        "1:21",
        "`image.repository` must be text, not a map",
        "",
    ),
    "nothing for text": (
        "image:\n  repository:\nrun: {command: x}\n",
        "2:3",
        "`image.repository` is empty, but must be text",
        "give it a value, or remove the line",
    ),
    "too small": (
        "workers: {count: 0}\n",
        "3:18",
        "`workers.count` must be at least 1, not 0",
        "Number of worker pods.",
    ),
    "too large": ("ssh: {port: 99999}\n", "3:13", "`ssh.port` must be at most 65535, not 99999", ""),
    "no choice": (
        "image: {repository: r, pullPolicy: always}\nrun: {command: x}\n",
        "1:36",
        '`image.pullPolicy` must be one of Always, IfNotPresent, Never, not the text "always"',
        "did you mean `Always`?",
    ),
    "a relative path": (
        "data: [{claim: c, mountPath: data}]\n",
        "3:30",
        "`data[0].mountPath` must be an absolute path",
        "Where it is mounted.",
    ),
    "no Kubernetes name": (
        "data: [{claim: My_Claim, mountPath: /d}]\n",
        "3:16",
        "`data[0].claim` must be the name of a Kubernetes object",
        "",
    ),
    "no quantity": ("shm: {size: 2 GB}\n", "3:13", "`shm.size` must be a quantity, such as 2Gi", ""),
    "a part is missing": ("data: [{claim: c}]\n", "3:8", "`data[0].mountPath` is required", ""),
    "the image is missing": (
        "run: {command: x}\n",
        "1:1",
        "`image.repository` is required",
        "write: repository: registry",
    ),
    "a name that YAML eats": (
        'env: {N: "1"}\n',
        "3:7",
        "the name `N` in `env` is false for YAML",
        'write: "N": "1"',
    ),
    "a name with a dash in front": (
        "env: {-a: x}\n",
        "3:7",
        "the name `env.-a` must be a name of letters",
        "",
    ),
    "a number in the environment": (
        "env: {LR: 1e-5}\n",
        "3:11",
        "`env.LR` must be text or a map, not the number 1e-5",
        'write: LR: "1e-5"',
    ),
    "a reference with a typo": (
        "env: {T: {secretKeyref: {name: a, key: b}}}\n",
        "3:11",
        "unknown key `env.T.secretKeyref`",
        "did you mean `secretKeyRef`?",
    ),
    "an empty command": (
        "image: {repository: r}\nrun: {command: ''}\n",
        "2:16",
        "`run.command` must not be empty",
        "",
    ),
}


def problems(file):
    given = load([file])
    defaults = read(chart.path() / "values.yaml").data
    return [*given.problems, *check(chart.schema(), coalesce(defaults, given.data), given)]


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake(name: str, write) -> None:
    text, place, message, hint = MISTAKES[name]
    whole = (
        text
        if "image:" in text or text.startswith("run: {command: x}")
        else GOOD.replace(
            "run: {command: echo hi}\n", "" if text.startswith("run:") else "run: {command: echo hi}\n"
        )
        + text
    )
    file = write(whole)
    found = problems(file)
    assert [problem.message for problem in found if not problem.message.startswith(message)] == []
    assert len(found) == 1
    assert str(found[0].place) == f"{file}:{place}"
    assert hint in found[0].hint


@pytest.mark.parametrize("name", MISTAKES)
def test_helm_refuses_the_same(name: str, write) -> None:
    text = MISTAKES[name][0]
    file = write(text if "image:" in text or text.startswith("run: {command: x}") else GOOD + text)
    try:
        done = subprocess.run(
            [helm.find(), "template", "x", str(chart.path()), "-f", str(file)], capture_output=True, text=True
        )
    except DsjobError:
        pytest.skip("no helm here")
    assert done.returncode != 0


VALID = {
    "the least": GOOD,
    "null for a default": GOOD + "shm: {size: null}\n",
    "a whole number with a point": GOOD + "workers: {count: 3.0}\n",
    "global is open": GOOD + "global: {anything: [1]}\n",
    "a list command": "image: {repository: r}\nrun: {command: [deepspeed, train.py]}\n",
    "env by map": GOOD + "env: {A: x, B: {secretKeyRef: {name: hf, key: k}}, C_1: ''}\n",
    "a DeepSpeed configuration": GOOD
    + "deepspeed: {config: {optimizer: {params: {lr: 1e-5}}, fp16: {enabled: true}}}\n",
}


@pytest.mark.parametrize("name", VALID)
def test_valid(name: str, write) -> None:
    assert problems(write(VALID[name])) == []


def test_everything_at_once_and_in_order(write) -> None:
    file = write("image: {repository: r, tag: 1.1}\nworkers: {cout: 3}\nrun: {comand: x}\nshm: {size: x}\n")
    assert [problem.place.line for problem in validate.check([file]).problems[:4]] == [1, 2, 3, 4]


def test_a_key_given_twice_does_not_hide_the_rest(write) -> None:
    file = write("image: {repository: r}\nrun: {command: x, id: a, id: b}\nworkers: {cout: 3}\n")
    assert [one.message.split("`")[1] for one in validate.check([file]).problems] == [
        "run.id",
        "workers.cout",
    ]


def test_a_refused_name_is_said_once_whatever_its_value(write) -> None:
    file = write("image: {repository: r}\nrun: {command: x}\nenv: {n: 1}\n")
    assert ["false for YAML" in one.message for one in validate.check([file]).problems] == [True]


def test_a_broken_file_says_only_that(write) -> None:
    file = write("image: [\n")
    assert [one.message[:14] for one in validate.check([file]).problems] == ["not valid YAML"]


REFUSALS = {
    "two forms": (
        "run: {command: x, script: s}\n",
        "2:16",
        "`run.command` and `run.script` exclude each other",
        "keep one of them",
    ),
    "a logdir outside": (
        "run: {command: x}\ntensorboard: {enabled: true, logdir: /logs}\n",
        "3:38",
        '`tensorboard.logdir` "/logs" is in no mount, so TensorBoard would see nothing',
        "",
    ),
    "more ranks than devices": (
        "run: {command: x}\naccelerator: {count: 1}\nworkers: {slots: 2}\n",
        "4:18",
        "`workers.slots` is 2, but a worker has 1 nvidia.com/gpu",
        "set `accelerator.count` to at least 2",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_templates_refuse_has_its_place(name: str, write) -> None:
    text, place, message, hint = REFUSALS[name]
    file = write("image: {repository: r}\n" + text)
    try:
        found = validate.check([file]).problems
    except DsjobError:
        pytest.skip("no helm here")
    assert [(str(one.place), one.message) for one in found] == [(f"{file}:{place}", message)]
    assert hint in found[0].hint


def test_schema_and_template_refusals_together(write) -> None:
    file = write("image: {repository: r}\nrun: {command: x, script: s}\nworkers: {cout: 1}\n")
    try:
        helm.find()
    except DsjobError:
        pytest.skip("no helm here")
    assert [one.message.split("`")[1] for one in validate.check([file]).problems] == [
        "run.command",
        "workers.cout",
    ]


def test_a_refusal_that_follows_from_a_typo_is_not_said(dsjob, write) -> None:
    file = write("image: {repository: r}\nrun: {comand: x}\n")
    dsjob.helm.rendered = helm.ValuesRefused(["`run.command` is missing: give `run.command`"], "")
    assert [one.message for one in validate.check([file]).problems] == ["unknown key `run.comand`"]


def test_only_helm_finds_it(dsjob, good) -> None:
    dsjob.helm.rendered = helm.ValuesRefused(["at '/run/command': got number, want string", "at '': x"], "")
    found = validate.check([good]).problems
    assert [(one.message, one.place.line) for one in found] == [
        ("x", 1),
        ("`run.command`: got number, want string", 2),
    ]


def test_words() -> None:
    assert dotted(("data", 0, "claim")) == "data[0].claim"
    assert [kind_of(one) for one in (None, [], {}, True, 3.0, 1.5, "x" * 99)] == [
        "empty",
        "a list",
        "a map",
        "true",
        "the number 3",
        "the number 1.5",
        "text",
    ]
