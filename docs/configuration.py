"""Write docs/configuration.md from the schema (types, units, meanings) and config.yaml (values, and where they are
from). Run it after a change of either: ``python docs/configuration.py``."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from orce import methods
from orce.config import keys, removed

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "configuration.md"
MARK = re.compile(r"\[(?:paper|predecessor|assumption)")
HEAD = """# Configuration

<!-- Made by docs/configuration.py from workflow/orce/config/schema.py and config.yaml: edit those. -->

`config.yaml` holds the paper's full matrix and is always read. Override keys of it in a file of your own, which needs
only the keys that differ: `--configfile mine.yaml`. Mappings are merged key by key; a list or a single value replaces.
Files merge in their order: `--configfile config/demo.yaml mine.yaml`. A key that does not exist, or a value of the
wrong kind, ends the run with one line before any job ([troubleshooting](troubleshooting.md)).

Every key is below, with its value in `config.yaml`. The last column says where a value comes from: *paper* (its text),
*predecessor* (what the code that the paper builds on or compares with does) or *assumption* (the paper is silent;
[the reasons](choices.md)). Keys without a mark are technical. A changed key reruns what depends on it and nothing else
([which](one-cell.md#change-a-hyperparameter)).
"""
COLUMNS = "| key | type | value | unit | meaning | where the value comes from |\n| --- | --- | --- | --- | --- | --- |"


def page() -> str:
    schema = keys.of_config()
    text = (ROOT / "config.yaml").read_text()
    shipped = Shipped(text)
    sections, single = [], []
    for name, spec in schema["properties"].items():
        found = list(rows(spec, name, schema, shipped))
        if spec.get("type") != "object":
            single += found
            continue
        found += list(method_rows(schema, shipped)) if name == "methods" else []
        sections += [f"## {name}", "", sentence(spec), "", COLUMNS, *found[1:], ""]
        if spec.get("additionalProperties"):
            sections += ["As shipped:", "", "```yaml", shipped.section(name), "```", ""]
    gone = [f"- `{key}`: {instead}" for key, instead in sorted(removed.REMOVED.items())]
    parts = [HEAD, "## Single keys", "", COLUMNS, *single, "", *sections, "## Removed keys and values", "", *gone]
    return "\n".join(parts).rstrip() + "\n"


class Shipped:
    """config.yaml by dotted key: the value as it is written there, and the comment at the end of its line."""

    def __init__(self, text: str):
        self.text, self.values, self.lines, self.places = text, {}, {}, {}
        self._walk(yaml.compose(text), "")

    def _walk(self, node, prefix: str) -> None:
        for key, value in node.value:
            name = f"{prefix}{key.value}"
            self.places[name] = key.start_mark.index, value.end_mark.index
            self.lines[name] = key.start_mark.line
            if isinstance(value, yaml.MappingNode):
                self._walk(value, f"{name}.")
            else:
                self.values[name] = self.text[value.start_mark.index : value.end_mark.index]

    def origin(self, name: str) -> str:
        """The comment on a key's line, where it says what the value comes from."""
        if name not in self.lines:
            return ""
        comment = self.text.splitlines()[self.lines[name]].partition(" # ")[2]
        mark = MARK.search(comment)
        return comment[mark.start() :] if mark else ""

    def section(self, name: str) -> str:
        start, end = self.places[name]
        return self.text[start:end].rstrip()


def resolved(spec: dict, schema: dict) -> dict:
    """A schema with its reference followed; what stands beside the reference wins."""
    if "$ref" not in spec:
        return spec
    return schema["$defs"][spec["$ref"].rsplit("/", 1)[1]] | spec


def rows(spec: dict, name: str, schema: dict, shipped: Shipped, value: str = "") -> Iterator[str]:
    """The table row of a key, then those of the keys inside it."""
    if name in shipped.lines:
        value = f"`{shipped.values[name]}`" if name in shipped.values else ""
    cells = [f"`{name}`", kind(spec, schema), value]
    cells += [spec.get("unit", ""), spec.get("description", ""), shipped.origin(name)]
    yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    for branch in [spec, *spec.get("anyOf", [])]:
        for key, inner in branch.get("properties", {}).items():
            default = "required" if key in branch.get("required", []) else preset(inner)
            yield from rows(inner, f"{name}.{key}", schema, shipped, default)
    if isinstance(spec.get("additionalProperties"), dict):
        inside = list(rows(spec["additionalProperties"], f"{name}.NAME", schema, shipped))
        yield from inside[1:]


def method_rows(schema: dict, shipped: Shipped) -> Iterator[str]:
    """The settings of each method, which its own module declares."""
    registry = methods.Registry()
    for name in registry.names():
        declared = dict(getattr(registry.get(name), "SETTINGS", {}))
        if name in registry.trained():
            declared |= schema["$defs"]["optimisation"]
        for key, spec in declared.items():
            yield from rows(resolved(spec, schema), f"methods.{name}.{key}", schema, shipped)


def preset(spec: dict) -> str:
    """The value of a key that is left out; in words where the schema says it in words."""
    value = spec.get("default", "")
    return value if isinstance(value, str) else f"`{json.dumps(value)}`"


def kind(spec: dict, schema: dict) -> str:
    """A key's type in words."""
    if "enum" in spec:
        return " or ".join(f"`{value}`" for value in spec["enum"])
    if "anyOf" in spec:
        return " or ".join(form(one, schema) for one in spec["anyOf"])
    types: list[str] = spec["type"] if isinstance(spec["type"], list) else [spec["type"]]
    names = {"array": "list of texts", "object": "mapping", "string": "text", "boolean": "`true` or `false`"}
    return " or ".join(names.get(one, one) for one in types) + limits(spec)


def form(spec: dict, schema: dict) -> str:
    """One of several forms that a key may have: the keys of a mapping, or a type."""
    return f"`{{{', '.join(spec['properties'])}}}`" if "properties" in spec else kind(spec, schema)


def limits(spec: dict) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    found = [f"{sign} {spec[key]}" for key, sign in signs.items() if key in spec]
    return " " + ", ".join(found) if found else ""


def sentence(spec: dict) -> str:
    return spec["description"][0].upper() + spec["description"][1:] + "."


if __name__ == "__main__":
    PAGE.write_text(page())
