"""dsjob reads YAML as Helm does: the table of differences, then the same table through the real helm."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from dsjob import helm
from dsjob.errors import DsjobError
from dsjob.helmyaml import parse_scalar, read
from dsjob.values import coalesce, load

SCALARS = {
    "1e-5": 0.00001,
    "1e3": 1000.0,
    "1E5": 100000.0,
    "1.5e+3": 1500.0,
    "1e": "1e",
    "1e999": "1e999",
    ".5": 0.5,
    "5.": 5.0,
    "-.5": -0.5,
    "1.10": 1.1,
    "1.10.0": "1.10.0",
    "20161216": 20161216,
    "1_000": 1000,
    "1_0.5": 10.5,
    "0o17": 15,
    "017": 15,
    "072": 58,
    "08": 8.0,
    "0x1F": 31,
    "0b11": 3,
    "-0x10": -16,
    "+7": 7,
    "0": 0,
    "-0": 0,
    "22:22": "22:22",
    "2024-01-01": "2024-01-01",
    "2024-01-01T00:00:00Z": "2024-01-01T00:00:00Z",
    "y": True,
    "Y": True,
    "yes": True,
    "Yes": True,
    "on": True,
    "ON": True,
    "True": True,
    "yEs": "yEs",
    "n": False,
    "N": False,
    "no": False,
    "off": False,
    "Off": False,
    "FALSE": False,
    "null": None,
    "Null": None,
    "~": None,
    "": None,
    "nULL": "nULL",
    "18446744073709551615": 18446744073709551615,
    "9223372036854775808": 9223372036854775808,
    "100000000000000000000": 1e20,
    "-": "-",
    "+": "+",
    "e5": "e5",
    "1-2": "1-2",
    "0xZZ": "0xZZ",
    "09e1": 90.0,
    "=": "=",
    "1,000": "1,000",
    "1 000": "1 000",
    "inf": "inf",
    "nan": "nan",
    "0o8": "0o8",
    "12e03": 12000.0,
}

DOCUMENTS = {
    "quoted": 'a: "1e-5"\nb: \'1.10\'\nc: !!str 5\nd: !!float 3\ne: !!int "3"\nf: !custom 7\n',
    "keys": 'n: 1\ny: 2\n"on": 3\n1: a\n1.5: b\n0x10: c\nnull_: d\n',
    "merge keys": "base: &b {x: 1, y_: 2}\nuse:\n  <<: *b\n  x: 3\nlist:\n  <<: [*b, {z: 4, x: 9}]\n",
    "aliases": "a: &l [1, two, {three: 3}]\nb: *l\nc: &s text\nd: *s\n",
    "blocks": "a: |\n  one\n    two\nb: >-\n  folded\n  text\nc: |+\n  kept\n\n",
    "comments": "# head\na: 1 # one\nb: x#y\n",
    "nulls": "a:\nb: ~\nc: {d: null}\ne: [null, ~]\n",
    "one document with its marker": "---\na: 1\n...\n",
    "byte order mark": "\ufeffa: 1\n",
    "windows line ends": "a: 1\r\nb: |\r\n  x\r\n  y\r\n",
    "empty": "",
    "only comments": "# nothing\n",
}


@pytest.mark.parametrize(("text", "value"), SCALARS.items(), ids=SCALARS.keys())
def test_scalar(text: str, value: object) -> None:
    got = parse_scalar(text)
    assert got == value
    assert type(got) is type(value)


@pytest.fixture(scope="module")
def through_helm(tmp_path_factory: pytest.TempPathFactory):
    """What helm itself makes of values files: a chart that prints its values, with defaults if asked."""
    try:
        program = helm.find()
    except DsjobError:
        pytest.skip("no helm here")
    chart = tmp_path_factory.mktemp("echo")
    (chart / "templates").mkdir()
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: echo\nversion: 1.0.0\n")
    (chart / "templates" / "values.yaml").write_text('values: {{ omit .Values "global" | toJson | quote }}\n')

    def _through(*files: Path, defaults: str = "") -> object:
        (chart / "values.yaml").write_text(defaults)
        more = [word for file in files for word in ("-f", str(file))]
        done = subprocess.run(
            [program, "template", "x", str(chart), *more], capture_output=True, text=True, check=True
        )
        line = next(line for line in done.stdout.splitlines() if line.startswith("values: "))
        return json.loads(json.loads(line.removeprefix("values: ")))

    return _through


def test_every_scalar_is_the_same_for_helm(write, through_helm) -> None:
    texts = [text for text in SCALARS if text not in ("", "-", "=")]
    file = write("".join(f"k{number}: {text}\n" for number, text in enumerate(texts)))
    expected = {f"k{number}": SCALARS[text] for number, text in enumerate(texts) if SCALARS[text] is not None}
    assert {k: v for k, v in read(file).data.items() if v is not None} == expected
    got = through_helm(file)
    assert _floats(got) == _floats(expected)


def _floats(values: dict[str, object]) -> dict[str, object]:
    """Helm's numbers are float64, and a null may be left out."""
    kept = {key: value for key, value in values.items() if value is not None}
    return {key: float(value) if type(value) is int else value for key, value in kept.items()}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_document_is_the_same_for_helm(name: str, write, through_helm) -> None:
    file = write(DOCUMENTS[name])
    document = read(file)
    assert not document.problems
    assert coalesce({}, document.data) == through_helm(file)


COALESCE = {
    "fill up": ("a: {b: 1, c: 2}\nd: 3\n", ["a: {b: 9}\n"]),
    "null removes a default": ("a: {b: 1, c: 2}\nd: 3\n", ["a: {b: null}\nd: ~\n"]),
    "null removes a map": ("a: {b: 1}\n", ["a: null\n"]),
    "null without a default": ("a: {b: 1}\n", ["a: {x: null}\ny: {z: null}\n"]),
    "a list is taken whole": ("a: [1, 2, 3]\n", ["a: [4]\n"]),
    "text instead of a map": ("a: {b: 1}\n", ["a: text\n"]),
    "a map instead of text": ("a: text\n", ["a: {b: 1}\n"]),
    "later file wins": ("a: {b: 1}\n", ["a: {b: 2, c: [1]}\n", "a: {c: [2], d: 4}\n"]),
    "later null wins": ("a: {b: 1}\n", ["a: {b: 2}\n", "a: {b: null}\n"]),
    "value after null": ("a: {b: 1, c: 1}\n", ["a: null\n", "a: {b: 5}\n"]),
}


@pytest.mark.parametrize("name", COALESCE)
def test_files_merge_as_in_helm(name: str, write, through_helm) -> None:
    defaults, texts = COALESCE[name]
    files = [write(text, f"{number}.yaml") for number, text in enumerate(texts)]
    default = read(write(defaults, "defaults.yaml")).data
    assert coalesce(default, load(files).data) == through_helm(*files, defaults=defaults)


BROKEN = {
    "a key given twice": ("a: 1\nb: 2\na: 3\n", 3, 1, "`a` is given twice; the first is in line 1"),
    "a nested key given twice": ("run:\n  id: x\n  id: y\n", 3, 3, "`run.id` is given twice"),
    "two keys that YAML makes equal": ("env:\n  n: a\n  no: b\n", 3, 3, "`env.false` is given twice"),
    "a second document": ("a: 1\n---\nb: 2\n", 3, 1, "a second YAML document"),
    "tab": ("a:\n\tb: 1\n", 2, 1, "not valid YAML"),
    "unclosed": ("a: [1, 2\nb: 3\n", 2, 2, "not valid YAML"),
    "a list at the top": ("- a\n", 1, 1, "a values file holds keys"),
    "text at the top": ("hello\n", 1, 1, "a values file holds keys"),
    "no number": ("a: .nan\n", 1, 4, ".nan is no number that JSON knows"),
    "an alias in itself": ("a: &x [1, *x]\n", 1, 4, "an alias stands inside its own anchor"),
    "a null key": ("~: 1\n", 1, 1, "a key must be text"),
    "a list as a key": ("[a]: 1\n", 1, 1, "a key must be text"),
    "a wrong tag": ("a: !!int x\n", 1, 4, "`x` is no int"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_helm_would_hide_is_refused_with_its_place(name: str, write) -> None:
    text, line, column, message = BROKEN[name]
    problem = read(write(text)).problems[0]
    assert problem.message.startswith(message)
    assert (problem.place.line, problem.place.column) == (line, column)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    assert "No such file" in read(tmp_path / "none.yaml").problems[0].message
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe4\n")
    assert "is not UTF-8 text" in read(tmp_path / "latin.yaml").problems[0].message
    assert "Is a directory" in read(tmp_path).problems[0].message


def test_places_of_the_last_file_that_says_it(write) -> None:
    one = write("a: {b: 1, c: 2}\nl: [1, 2]\n", "one.yaml")
    two = write("\na: {b: 3}\nl: [9]\n", "two.yaml")
    values = load([one, two])
    assert str(values.value_place(("a", "b"))) == f"{two}:2:8"
    assert str(values.value_place(("a", "c"))) == f"{one}:1:14"
    assert values.value_place(("l", 1)).file == str(two)
    assert str(values.key_place(("a", "unknown"))) == f"{two}:2:1"


def test_helm_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HELM_BIN", str(tmp_path / "none"))
    with pytest.raises(DsjobError, match="HELM_BIN"):
        helm.find()
    monkeypatch.setenv("HELM_BIN", shutil.which("sh"))
    assert helm.find() == shutil.which("sh")
