"""Write docs/configuration.md from the schema (types, meanings) and config.yaml (values, and where they are from). Run it after a change of either: ``python docs/configuration.py``."""

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import msgspec
import yaml

from orce import methods
from orce.methods import prompted, trained
from orce.settings import load
from orce.settings.schema import Config, Optimisation

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "configuration.md"
MARK = re.compile(r"\[(?:paper|predecessor|assumption)[^\]]*\]")
HEAD = """# Configuration

<!-- Made by docs/configuration.py from workflow/orce/settings/schema.py and config.yaml: edit those. -->

`config.yaml` holds the paper's full matrix and is always read. Override keys of it in a file of your own, which needs
only the keys that differ: `--configfile mine.yaml`. Mappings are merged key by key; a list or a single value replaces.
Files merge in their order: `--configfile config/demo.yaml mine.yaml`. A key that does not exist, or a value of the
wrong kind, ends the run with one line before any job ([troubleshooting](troubleshooting.md)).

Every key is below, with its value in `config.yaml` and, in brackets, where that comes from: *paper* (its text),
*predecessor* (what the code that the paper builds on or compares with does) or *assumption* (the paper is silent;
[the reasons](choices.md)). Keys without a mark are technical. A changed key reruns what depends on it and nothing else
([which](one-cell.md#change-a-hyperparameter)).
"""
OPTIMISATION = """Each training has these keys under its name: `sft.epochs`, `methods.conftuner.epochs`. A method of yours that trains takes
SFT's values where it gives none. `sft.epochs: 0` leaves the model as it is. config.yaml says where each value comes from."""
TRAINED = ("sft", "dpo", "methods.conftuner")
SHARED = {field.name for field in msgspec.structs.fields(Optimisation)}
COLUMNS = "| key | type | value | meaning |\n| --- | --- | --- | --- |"


GROUPS = {  # {the section of the schema that it begins with: its heading}
    "datasets": "Data",
    "models": "Models and answers",
    "training": "Training",
    "evaluation": "Evaluation and tables",
}


def page() -> str:
    shipped = Shipped((ROOT / "config.yaml").read_text())
    single, grouped = [COLUMNS], []
    for field in msgspec.structs.fields(Config):
        inner, described = struct_of(field.type), row(field, field.name, load.key_meanings(Config), shipped)
        if inner is None and field.name not in ("methods", "rewards"):
            single.append(described)
            continue
        if field.name in GROUPS:
            grouped += ["", f"## {GROUPS[field.name]}", "", COLUMNS]
        if field.name == "sft":
            grouped += ["", OPTIMISATION, "", *optimisation_rows(shipped), "", COLUMNS]
        grouped.append(described)
        grouped += (
            [] if inner is None else rows(inner, f"{field.name}{'.NAME' * load.is_named_mapping(field.type)}", shipped)
        )
        grouped += method_rows(shipped) if field.name == "methods" else []
    return "\n".join([HEAD, "## Single keys", "", *single, *grouped]) + "\n"


class Shipped:
    """config.yaml by dotted key: the value as it is written there, and the comment at the end of its line."""

    def __init__(self, text: str):
        self.text, self.values, self.lines = text, {}, {}
        self._walk(yaml.compose(text), "")

    def _walk(self, node, prefix: str) -> None:
        for key, value in node.value:
            name = f"{prefix}{key.value}"
            self.lines[name] = key.start_mark.line
            if isinstance(value, yaml.MappingNode):
                self._walk(value, f"{name}.")
            else:
                self.values[name] = self.text[value.start_mark.index : value.end_mark.index]

    def origin(self, name: str) -> str:
        """What a key's comment has in brackets: where the value is from. The rest says again what the schema says."""
        if name not in self.lines:
            return ""
        return " ".join(MARK.findall(self.text.splitlines()[self.lines[name]].partition(" # ")[2]))


def struct_of(kind) -> type | None:
    """The struct that a key holds, or holds by name."""
    kinds = [get_args(option)[1] if load.is_named_mapping(option) else option for option in load.alternatives(kind)]
    return next(filter(load.is_struct, kinds), None)


def rows(kind: type, name: str, shipped: Shipped) -> Iterator[str]:
    """A table row for each key of a struct, and for each key inside it."""
    for field in msgspec.structs.fields(kind):
        if issubclass(kind, Optimisation) and field.name in SHARED:
            continue
        key, inner = f"{name}.{field.encode_name}", struct_of(field.type)
        yield row(field, key, load.key_meanings(kind), shipped)
        if inner is not None:
            yield from rows(inner, f"{key}{'.NAME' * load.is_named_mapping(field.type)}", shipped)


def row(field, key: str, meanings: dict[str, str], shipped: Shipped) -> str:
    value = f"`{shipped.values[key]}`" if key in shipped.values else "" if key in shipped.lines else preset(field)
    return line(key, load.type_in_words(field.type), value, meanings[field.encode_name], shipped.origin(key))


def line(key: str, kind: str, value: str, meaning: str, origin: str) -> str:
    key, *others = (cell.replace("|", "\\|") for cell in (key, kind, value, f"{meaning} {origin}".strip()))
    return f"| `{key}` | {' | '.join(others)} |"


def preset(field) -> str:
    """The value of a key that is left out."""
    if field.required:
        return "required"
    value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    return "" if value is msgspec.UNSET else f"`{json.dumps(value)}`"


def method_rows(shipped: Shipped) -> Iterator[str]:
    """The settings of each method, with their defaults."""
    registry = methods.Registry()
    for name in registry.names():
        sources = [inspect.getsource(module) for module in (trained, prompted)]
        declared = "".join(source.partition(f'"{name}": Method(')[2].partition("\n    ),")[0] for source in sources)
        meanings = load.key_comments(declared, r' +"(\w+)": ')
        for key, default in registry.get(name).settings.items():
            where = f"methods.{name}.{key}"
            value = shipped.values.get(where, json.dumps(default))
            yield line(
                where, load.type_in_words(type(default)), f"`{value}`", meanings.get(key, ""), shipped.origin(where)
            )


def optimisation_rows(shipped: Shipped) -> Iterator[str]:
    """A row for each key that every training has, with the values of those that config.yaml has."""
    yield f"| key | type | meaning | {' | '.join(f'`{name}`' for name in TRAINED)} |"
    yield "| --- " * (3 + len(TRAINED)) + "|"
    for field in msgspec.structs.fields(Optimisation):
        values = " | ".join(f"`{shipped.values[f'{name}.{field.name}']}`" for name in TRAINED)
        yield f"| `{field.name}` | {load.type_in_words(field.type)} | {load.key_meanings(Optimisation)[field.name]} | {values} |"


if __name__ == "__main__":
    PAGE.write_text(page())
