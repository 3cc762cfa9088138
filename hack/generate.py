"""Write what follows from charts/deepspeed-job/values.schema.yaml: values.schema.json and the table in the chart's README.md.

`python hack/generate.py` writes, `python hack/generate.py --check` changes nothing and fails where a file is stale.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parent.parent / "charts" / "deepspeed-job"
BEGIN, END = "<!-- generated: values -->", "<!-- end -->"


def resolve(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with a local `$ref` replaced by what it points to."""
    ref = schema.get("$ref")
    return schema if ref is None else resolve(root["definitions"][ref.rsplit("/", 1)[1]], root)


def rows(
    schema: dict[str, Any], root: dict[str, Any], path: str = ""
) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Yield path, schema and whether it is required, of every key, in the schema's order."""
    for name, child in schema.get("properties", {}).items():
        if child is False:  # a name that is refused
            continue
        here = resolve(child, root)
        where = f"{path}.{name}" if path else name
        yield where, here, name in schema.get("required", [])
        yield from rows(here, root, where)
        if "items" in here:
            yield from rows(resolve(here["items"], root), root, where + "[]")
        for items in here.get("patternProperties", {}).values():
            yield from rows(resolve(items, root), root, where + ".NAME")


def type_of(schema: dict[str, Any]) -> str:
    """Return the JSON types that the schema allows, for a reader."""
    kinds = schema.get("type", [one.get("type") for one in schema.get("oneOf", [])])
    return " or ".join([kinds] if isinstance(kinds, str) else [kind for kind in kinds if kind])


def table(root: dict[str, Any]) -> str:
    """Return the Markdown table of all keys."""
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for path, schema, required in rows(root, root):
        default = (
            "**required**"
            if required
            else f"`{json.dumps(schema['default'])}`"
            if "default" in schema
            else ""
        )
        meaning = schema.get("description", "")
        if schema.get("enum"):
            meaning += " One of " + ", ".join(f"`{value}`" for value in schema["enum"]) + "."
        if schema.get("examples"):
            meaning += f" Example: `{json.dumps(schema['examples'][0])}`"
        lines.append(f"| `{path}` | {type_of(schema)} | {default} | {meaning.replace('|', chr(92) + '|')} |")
    return "\n".join(lines)


def main() -> int:
    """Write or check the generated files; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say what is stale")
    check = parser.parse_args().check
    root = yaml.safe_load((CHART / "values.schema.yaml").read_text())
    readme = (CHART / "README.md").read_text()
    before, _, rest = readme.partition(BEGIN)
    after = rest.partition(END)[2]
    wanted = {
        CHART / "values.schema.json": json.dumps(root, indent=2) + "\n",
        CHART / "README.md": f"{before}{BEGIN}\n{table(root)}\n{END}{after}",
    }
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if check:
            print(f"{path}: stale, run `make generate`", file=sys.stderr)
        else:
            path.write_text(wanted[path])
            print(f"wrote {path}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
