"""YAML as Helm reads it, with the place of every key.

Helm parses YAML with a go-yaml of the YAML 1.1 family, PyYAML is another member of it, and they differ where
it hurts: `1e-5` is a number only for Helm, `22:22` and `2024-01-01` only for PyYAML. This reader takes
PyYAML's scanner and parser and decides about scalars by go-yaml's rules (its resolve.go). What Helm accepts
silently and then forgets, a second document or a key given twice, is refused here.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from dsjob.places import KeyPath, Place, Problem, dotted, kind_of

_TAG = "tag:yaml.org,2002:"
_WORDS: dict[str, bool | float | None] = {
    **{
        word: value
        for words, value in (("y yes true on", True), ("n no false off", False), ("null", None))
        for base in words.split()
        for word in (base, base.capitalize(), base.upper())
    },
    "": None,
    "~": None,
    **{
        sign + word: math.inf if sign != "-" else -math.inf
        for sign in ("", "+", "-")
        for word in (".inf", ".Inf", ".INF")
    },
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}
_TYPES: dict[str, set[type]] = {"int": {int}, "float": {int, float}, "bool": {bool}, "null": {type(None)}}
_INT = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|0[oO]?[0-7]+|0[bB][01]+|0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


@dataclass
class Document:
    """One file: its data, where its keys and values stand, and what is wrong with it.

    `broken` says that the data is not all of it.
    """

    data: dict[str, Any] = field(default_factory=dict)
    keys: dict[KeyPath, Place] = field(default_factory=dict)
    places: dict[KeyPath, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    broken: bool = False


def read(file: Path) -> Document:
    """Read one values file."""
    return _Reading(file).document


def parse_scalar(text: str) -> Any:
    """The value of a plain scalar by go-yaml's rules."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] in "+-0123456789":
        plain = text.replace("_", "")
        if _INT.fullmatch(plain):
            sign, digits = (-1 if plain[0] == "-" else 1), plain.lstrip("+-").lower()
            octal = re.fullmatch(r"0[0-7]+", digits)
            number = sign * (int(digits, 8) if octal else int(digits, 0))
            return number if -(2**63) <= number < 2**64 else float(number)
        if _FLOAT.fullmatch(plain) and math.isfinite(float(plain)):
            return float(plain)
    elif text[0] == "." and _FLOAT.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    return text


class _Loader(Reader, Scanner, Parser, Composer, BaseResolver):
    """PyYAML up to the node graph, with plain and quoted scalars told apart."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)

    def resolve(self, kind: type[Node], value: Any, implicit: Any) -> str:
        """Name the tag of a node that has none: only a plain scalar may be more than text."""
        if kind is ScalarNode:
            return "plain" if implicit[0] else f"{_TAG}str"
        return f"{_TAG}map" if kind is MappingNode else f"{_TAG}seq"


class _Reading:
    """One file on its way from text to Document."""

    def __init__(self, file: Path) -> None:
        self.file = str(file)
        self.document = Document()
        self.open: list[Node] = []  # the nodes that are being built, against an alias inside its own anchor
        try:
            text = file.read_bytes().decode("utf-8-sig")
        except OSError as error:
            self._broken(f"cannot read {file}: {error.strerror}")
        except UnicodeDecodeError as error:
            self._broken(f"{file} is not UTF-8 text: byte {error.start} is 0x{error.object[error.start]:02x}")
        else:
            self._read(text)

    def _read(self, text: str) -> None:
        loader = _Loader(text)
        try:
            loader.get_event()  # type: ignore[no-untyped-call]  # the start of the stream
            documents = 0
            while not loader.check_event(yaml.StreamEndEvent):
                node = loader.compose_document()
                documents += 1
                if node is None:
                    continue
                if documents == 1:
                    self._top(node)
                elif not (isinstance(node, ScalarNode) and node.value == ""):
                    mark = node.start_mark
                    hint = "remove the line `---` above, or put it into a file of its own and give both files"
                    self._problem("a second YAML document: Helm would ignore it", mark, hint=hint)
                    return
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            what = ", ".join(part for part in (error.context, error.problem) if part)
            self._broken(f"not valid YAML: {what}", mark, hint=_yaml_hint(what))
        except yaml.YAMLError as error:
            self._broken(f"not valid YAML: {str(error).splitlines()[0]}")

    def _top(self, node: Node) -> None:
        self.document.places[()] = self._place(node.start_mark)
        data = self._build(node, ())
        if isinstance(data, dict):
            self.document.data = data
        elif data is not None:
            self._broken(
                "a values file holds keys, as in `image: …`, but this is " + kind_of(data), node.start_mark
            )

    def _build(self, node: Node, path: KeyPath) -> Any:
        if any(node is other for other in self.open):
            self._problem("an alias stands inside its own anchor", node.start_mark)
            return None
        self.open.append(node)
        try:
            if isinstance(node, MappingNode):
                return self._mapping(node, path)
            if isinstance(node, SequenceNode):
                items = []
                for index, child in enumerate(node.value):
                    here = (*path, index)
                    self.document.keys[here] = self.document.places[here] = self._place(
                        child.start_mark, child
                    )
                    items.append(self._build(child, here))
                return items
            return self._scalar(node) if isinstance(node, ScalarNode) else None
        finally:
            self.open.pop()

    def _mapping(self, node: MappingNode, path: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        first: dict[str, Place] = {}
        for key_node, value_node in node.value:
            if isinstance(key_node, ScalarNode) and key_node.tag == "plain" and key_node.value == "<<":
                sources = value_node.value if isinstance(value_node, SequenceNode) else [value_node]
                for source in reversed(sources):
                    merged |= self._build(source, path) or {}
                continue
            key = self._key(key_node)
            place = self._place(key_node.start_mark, key_node)
            if key in first:
                text = f"`{dotted((*path, key))}` is given twice; the first is in line {first[key].line}"
                self._problem(text, key_node.start_mark, hint="remove one of them: Helm would take the last")
            first[key] = place
            here = (*path, key)
            self.document.keys[here] = place
            self.document.places[here] = self._place(value_node.start_mark, value_node)
            result[key] = self._build(value_node, here)
        return {key: value for key, value in merged.items() if key not in result} | result

    def _key(self, node: Node) -> str:
        value = self._scalar(node) if isinstance(node, ScalarNode) else None
        if value is None:
            self._problem("a key must be text", node.start_mark)
            return "null"
        if isinstance(value, bool):
            return "true" if value else "false"
        return f"{value:g}" if isinstance(value, float) else str(value)

    def _scalar(self, node: ScalarNode) -> Any:
        text = str(node.value)
        if node.tag == "plain":
            value = parse_scalar(text)
            if isinstance(value, float) and not math.isfinite(value):
                self._problem(
                    f"{text} is no number that JSON knows", node.start_mark, hint=f'write: "{text}"'
                )
            return value
        wanted = node.tag.removeprefix(_TAG)
        if wanted not in _TYPES:
            return text  # !!str, and tags that go-yaml does not know
        value = parse_scalar(text)
        if type(value) not in _TYPES[wanted]:
            self._problem(f"`{text}` is no {wanted}", node.start_mark)
        return value

    def _place(self, mark: Any, node: Node | None = None) -> Place:
        text = node.value if isinstance(node, ScalarNode) else ""
        return Place(self.file, mark.line + 1, mark.column + 1, text)

    def _broken(self, message: str, mark: Any = None, hint: str = "") -> None:
        self.document.broken = True
        self._problem(message, mark, hint)

    def _problem(self, message: str, mark: Any = None, hint: str = "") -> None:
        place = self._place(mark) if mark else None
        self.document.problems.append(Problem(message, place, hint))


def _yaml_hint(what: str) -> str:
    if r"'\t'" in what:
        return "indent with spaces: YAML does not allow tabs"
    if "mapping values are not allowed" in what:
        return "a text with `: ` in it needs quotes; or the line above is indented otherwise"
    return ""
