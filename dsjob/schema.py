"""Errors of the values schema, said so that a person knows what to write.

Helm decides what is valid; this finds the same errors with jsonschema, all at once and with their places.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dsjob.helmyaml import parse_scalar
from dsjob.places import KeyPath, Problem, dotted, kind_of
from dsjob.values import Values

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

_KINDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a map",
    "null": "empty",
}

# What people who come from other tools write, and where it is here.
_SYNONYMS = {
    "replicas": "workers.count",
    "numworkers": "workers.count",
    "gpus": "accelerator.count",
    "gpu": "accelerator.count",
    "volumes": "data",
    "pvc": "data",
    "entrypoint": "run.command",
    "cmd": "run.command",
    "environment": "env",
    "priority": "scheduling.priorityClassName",
}

# Patterns of the schema in plain words; the pattern itself is said where none fits.
_PATTERNS = (
    ("^(/", "must be an absolute path, which begins with /"),
    ("^/", "must be an absolute path, which begins with / and has no colon"),
    ("^[^/]", "must be a path inside the claim, which does not begin with /"),
    ("^[0-9]+(\\.[0-9]+)?([EPTGMk]", "must be a quantity, such as 2Gi or 500M"),
    ("^[a-z0-9]([-a-z0-9.]*", "must be the name of a Kubernetes object: a-z, 0-9, - and ."),
    ("^[a-z0-9]([-a-z0-9]", "must be a short name: a-z, 0-9 and -, at most 32"),
    ("^[A-Za-z_]", "must be a name of letters, digits and _, and begin with no digit"),
    ("^[A-Za-z0-9_][", "must be an image tag: letters, digits, _, . and -"),
    ("^[a-z0-9]+:[0-9a-f]", "must be a digest, such as sha256:0f1e…"),
    ("^[^\\s]+$", "must not be empty and must hold no spaces"),
)


def check(schema: dict[str, Any], data: dict[str, Any], values: Values) -> list[Problem]:
    """Find everything in `data` (values with defaults) that the schema refuses. `values` gives the places."""
    from jsonschema import Draft7Validator

    problems: list[Problem] = []
    for error in Draft7Validator(schema).iter_errors(data):
        problems += _explain(error, schema, values)
    return list(dict.fromkeys(problems))


def _explain(error: ValidationError, schema: dict[str, Any], values: Values) -> Iterator[Problem]:
    path: KeyPath = tuple(error.absolute_path)
    if path and path[-1] in ("true", "false") and path[:-1] == ("env",):
        return  # what is wrong with the value of a refused name does not matter
    if error.schema is False:
        for name in ("true", "false"):  # jsonschema leaves the refused name out of the path
            if (*path, name) in values.places:
                yield _refused_name((*path, name), values)
        return
    rule = str(error.validator)
    wanted: Any = error.validator_value
    if rule == "additionalProperties" and isinstance(error.instance, dict):
        rules = _rules(error)
        known, patterns = list(rules.get("properties", {})), list(rules.get("patternProperties", {}))
        for key in error.instance:
            if key not in known and not any(re.search(pattern, key) for pattern in patterns):
                yield _unknown_key((*path, key), known, patterns, schema, values)
    elif rule == "required":
        yield _missing(error, path, schema, values)
    elif rule in ("oneOf", "anyOf"):
        yield from _alternatives(error, path, schema, values)
    elif rule == "type":
        kinds = wanted if isinstance(wanted, list) else [wanted]
        yield _wrong_type(path, error.instance, kinds, values)
    else:
        text, hint = _other(rule, wanted, error)
        yield Problem(f"`{dotted(path)}` {text}", values.value_place(path), hint, path)


def _rules(error: ValidationError) -> dict[str, Any]:
    """The part of the schema that the value fails."""
    rules: Any = error.schema
    found: dict[str, Any] = rules
    return found


def _wrong_type(path: KeyPath, value: Any, kinds: list[str], values: Values) -> Problem:
    place = values.value_place(path)
    text = place.text if place and path in values.places else ""
    wanted = " or ".join(_KINDS[kind] for kind in kinds)
    if value is None:
        text = f"`{dotted(path)}` is empty, but must be {wanted}"
        return Problem(text, values.key_place(path), "give it a value, or remove the line", path)
    name = f"{path[-1]}: " if path and isinstance(path[-1], str) else "- "
    hint = ""
    if "string" in kinds and isinstance(value, (bool, int, float)):
        hint = f"write: {name}{json.dumps(text or str(value))}"
    elif isinstance(value, str) and _fits(parse_scalar(value.strip()) if value.strip() else "", kinds):
        hint = f"write: {name}{value.strip()}"
    elif "array" in kinds and isinstance(value, (str, int, float)):
        hint = f"write: {name}[{json.dumps(text or str(value))}]"
    return Problem(f"`{dotted(path)}` must be {wanted}, not {_as_written(value, text)}", place, hint, path)


def _as_written(value: Any, text: str) -> str:
    """The value in plain words; `the number 1e-5` as the user wrote it, not as Python would."""
    if isinstance(value, float) and "e" in text.lower():
        return f"the number {text}"
    said = kind_of(value)
    return f"{said} (written {text})" if isinstance(value, bool) and text and text != said else said


def _fits(value: Any, kinds: list[str]) -> bool:
    if isinstance(value, bool):
        return "boolean" in kinds
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return ("integer" in kinds and whole) or ("number" in kinds and isinstance(value, (int, float)))


def _missing(error: ValidationError, path: KeyPath, schema: dict[str, Any], values: Values) -> Problem:
    key = error.message.split("'")[1]
    here = (*path, key)
    about = _resolve(_rules(error).get("properties", {}).get(key, {}), schema)
    hint = f"write: {key}: {_example(about)}" if about.get("examples") else str(about.get("description", ""))
    return Problem(f"`{dotted(here)}` is required", values.key_place(here), hint, here)


def _alternatives(
    error: ValidationError, path: KeyPath, schema: dict[str, Any], values: Values
) -> Iterator[Problem]:
    branches: dict[int, list[ValidationError]] = {}
    for inner in error.context or []:
        branches.setdefault(int(inner.schema_path[0]), []).append(inner)
    own_kind = [
        b for b in branches.values() if not any(e.validator == "type" and not e.relative_path for e in b)
    ]
    if own_kind:
        for inner in min(own_kind, key=len):
            yield from _explain(inner, schema, values)
    elif branches:
        kinds = []
        options: Any = error.validator_value
        for branch in options:
            kind = _resolve(branch, schema).get("type", "object")
            kinds += kind if isinstance(kind, list) else [kind]
        yield _wrong_type(path, error.instance, kinds, values)
    else:
        about = str(_rules(error).get("description", ""))
        yield Problem(
            f"`{dotted(path)}` fits more than one of its forms", values.value_place(path), about, path
        )


def _unknown_key(
    path: KeyPath, known: list[str], patterns: list[str], schema: dict[str, Any], values: Values
) -> Problem:
    place = values.key_place(path)
    if patterns:  # a map with names of the user's own
        return Problem(f"the name `{dotted(path)}` {_in_words(patterns[0])}", place, "", path)
    return Problem(f"unknown key `{dotted(path)}`", place, _did_you_mean(path, known, schema), path)


def _refused_name(path: KeyPath, values: Values) -> Problem:
    """`n:` in a map with names of the user's own: YAML makes it false, so the name is lost."""
    place = values.key_place(path)
    written = place.text if place and path in values.keys else str(path[-1])
    value = values.places[path].text
    if written == path[-1]:
        return Problem(
            f"the name `{dotted(path)}` is not allowed: YAML makes it of `on` or `no`", place, "", path
        )
    text = f"the name `{written}` in `{dotted(path[:-1])}` is {path[-1]} for YAML"
    return Problem(text, place, f'write: "{written}": "{value}"', path)


def _in_words(pattern: str) -> str:
    """What a pattern asks for."""
    return next((words for start, words in _PATTERNS if pattern.startswith(start)), f"must match {pattern}")


def _other(rule: str, wanted: Any, error: ValidationError) -> tuple[str, str]:
    """Message and hint for the plain rules of JSON Schema."""
    about = str(_rules(error).get("description", ""))
    value: Any = error.instance
    if rule == "pattern":
        return f"{_in_words(wanted)}, but is {json.dumps(value, ensure_ascii=False)}", about
    if rule in ("enum", "const"):
        allowed = [str(item) for item in wanted] if rule == "enum" else [str(wanted)]
        near = difflib.get_close_matches(str(value), allowed, n=1)
        return (
            f"must be one of {', '.join(allowed)}, not {kind_of(value)}",
            f"did you mean `{near[0]}`?" if near else "",
        )
    if rule in ("minimum", "maximum"):
        return f"must be at {'least' if rule == 'minimum' else 'most'} {wanted}, not {value}", about
    if rule in ("minLength", "minItems", "minProperties") and wanted == 1:
        return "must not be empty", about
    if rule in ("maxLength", "maxItems", "maxProperties"):
        unit = "letters" if rule == "maxLength" else "entries"
        return f"has {len(value)} {unit}, but {wanted} at most are allowed", about
    return f"is not right: {error.message}", about


def _did_you_mean(path: KeyPath, known: list[str], schema: dict[str, Any]) -> str:
    key = str(path[-1])
    bare = key.lower().replace("-", "").replace("_", "")
    by_bare = {name.lower(): name for name in known}
    near = difflib.get_close_matches(bare, by_bare, n=1, cutoff=0.7)
    if near:
        return f"did you mean `{by_bare[near[0]]}`?"
    elsewhere = [dotted(place) for place in _places_of(schema, key) if place != path]
    if elsewhere or bare in _SYNONYMS:
        return f"did you mean `{elsewhere[0] if elsewhere else _SYNONYMS[bare]}`?"
    return "known here: " + ", ".join(f"`{name}`" for name in known) if known else ""


def _places_of(schema: dict[str, Any], key: str, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Every place in the schema's maps that has a key of this name."""
    for name, child in schema.get("properties", {}).items():
        if name == key:
            yield (*path, name)
        if isinstance(child, dict):
            yield from _places_of(child, key, (*path, name))


def _example(about: dict[str, Any]) -> str:
    example = about["examples"][0]
    return example if isinstance(example, str) else json.dumps(example)


def _resolve(part: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    reference = part.get("$ref", "")
    found: dict[str, Any] = (
        schema.get("definitions", {}).get(reference.rpartition("/")[2], {}) if reference else part
    )
    return found
