"""From the files of a configuration to its struct (orce.settings.schema): YAML, the merge of several
files, and the type of each key. orce.config.check says whether the values go together.
"""

import contextlib
import functools
import inspect
import itertools
import json
import os
import re
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec
import yaml
from msgspec import Struct, UnsetType

from orce.errors import BadInput, did_you_mean, public
from orce.settings.schema import Config, Source

HUB = ("hub", "config", "revision")
# the keys that a source of each section has together; those of OPTIONAL may be left out
FORMS: dict[str, list[tuple[str, ...]]] = {
    "datasets": [HUB, ("path",), ("size",)],
    "models": [
        ("hub", "revision"),
        ("path",),
        ("model",),
        ("package", "file"),
        ("server", "model"),
    ],
}
OPTIONAL = {"config", "revision", "size"}
REPLACING = ("path", "server", "package", "model")  # keys of a source that replace a hub
NAMES = {
    int: "integer",
    float: "number",
    str: "text",
    bool: "true or false",
    type(None): "null",
}
SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
# Numbers of YAML 1.1 that people read as others, or as texts: 010 is 8, 0x10 is 16, 0b11 is 3, 1:40
# is 100, and 1_0 is 10.
OTHER_FORMS = {
    re.compile(r"[-+]?[0-9_]+:.*"): "a number of base 60 to YAML",
    re.compile(r"[-+]?0[0-7_]+"): "a number of base 8 to YAML",
    re.compile(r"[-+]?0x.*"): "a number of base 16 to YAML",
    re.compile(r"[-+]?0b.*"): "a number of base 2 to YAML",
    re.compile(r".*_.*"): "a number with signs between its digits to YAML",
}
LARGEST = 1e300  # magnitude of a number, which can then still be multiplied
# YAML 1.1 reads 1e-4 as text: it wants a dot, and a sign in the exponent.
POWER = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")


class _Strict(yaml.SafeLoader):
    """Refuses a key that stands twice in one mapping, of which other readers take the last, and a
    number that YAML reads as another.
    """

    def compose_mapping_node(self, anchor):
        node = super().compose_mapping_node(anchor)
        seen = {}
        for key, _ in node.value:
            first = seen.setdefault((key.tag, str(key.value)), key)
            if first is not key and key.tag != "tag:yaml.org,2002:merge":
                line = first.start_mark.line + 1
                problem = f"the key {key.value!r} stands in line {line} already"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
        return node

    def compose_scalar_node(self, anchor):
        node = super().compose_scalar_node(anchor)
        if node.tag.endswith((":int", ":float")):
            for form, meaning in OTHER_FORMS.items():
                if form.fullmatch(node.value):
                    problem = f"{node.value} is {meaning}; write it in decimal digits, or in quotes"
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        return node


def read_mapping(path: str | Path) -> dict[str, Any]:
    """Keys and values of a YAML file. Raises BadInput naming the file, and the line where YAML goes
    wrong.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        if Path(path).suffix == ".json":  # tabs may indent it, and are in none of its texts
            text = text.replace("\t", " ")
        config = yaml.load(text, _Strict)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        begins = error.context and error.context_mark
        within = f" ({error.context} that begins in line {begins.line + 1})" if begins else ""
        raise BadInput(f"{path}{line}: not valid YAML: {error.problem}{within}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
        raise BadInput(f"{path}: not a readable YAML file ({reason})") from None
    if not isinstance(config, dict):
        kind = "nothing" if config is None else type(config).__name__
        raise BadInput(f"{path}: expected keys and values, found {kind}")
    return config


def as_in_a_file(value: Any) -> Any:
    """A value of --config as YAML has it in a file: Snakemake leaves what stands inside a mapping
    or a list as text. Words such as yes stay text: they are options of questions.
    """
    return _map_texts(_number_or_text, value)


def _number_or_text(text: str) -> Any:
    if re.match(r"[-+.\d]|(true|false|null|~)$", text, re.IGNORECASE):
        with contextlib.suppress(yaml.YAMLError):
            value = yaml.load(text, _Strict)
            if value is None or isinstance(value, int | float):
                return value
    return text


def _map_texts(change: Callable[[str], Any], value: Any) -> Any:
    """The value with each text in it changed, in mappings and lists too."""
    if isinstance(value, dict):
        return {name: _map_texts(change, item) for name, item in value.items()}
    if isinstance(value, list):
        return [_map_texts(change, item) for item in value]
    return change(value) if isinstance(value, str) else value


def missing_keys_message(config: dict[str, Any], folder: Path) -> str | None:
    """What to say where `folder` has no config.yaml and the files named on the command line do not
    replace it.
    """
    required = [field.name for field in msgspec.structs.fields(Config) if field.required]
    missing = [name for name in required if name not in config]
    if not missing or (folder / "config.yaml").exists():
        return None
    remedy = "copy it there, or name it first: --configfile config.yaml mine.yaml"
    return f"no config.yaml in {folder}, and no other file sets {_first_keys(missing)}; {remedy}"


def read_in_order(paths: Sequence[str | Path]) -> list[dict[str, Any]]:
    """The mappings of some files. Raises BadInput for a hub after another source of the same model
    or data, which would stay.
    """
    mappings = [*map(read_mapping, paths)]
    sources: dict[str, dict[str, Any]] = {}
    for path, given in zip(paths, mappings, strict=True):
        for key, source in dotted_keys(given):
            if not key.endswith(".source") or not isinstance(source, dict):
                continue
            sources[key] = sources.get(key, {}) | source
            stays = [name for name in REPLACING if sources[key].get(name) is not None]
            if source.get("hub") and stays:
                over = f"{path} names a hub over {stays[0]}"
                raise BadInput(f"config: {key}: {over}; give one, and set the others to null")
    return mappings


def merge(base: Any, over: Any) -> Any:
    """A configuration with the keys of another one over it."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    return base | {key: merge(base.get(key), value) for key, value in over.items()}


def name_file(
    message: str, paths: Iterable[str | Path], typed: dict[str, Any] | None = None
) -> str:
    """A message `config: KEY: ...` with the file that sets the key in place of `config`: the last of
    those that set the key, or the longest beginning of it. typed: what --config sets after them.
    """
    origin, _, rest = message.partition(": ")
    if origin != "config":
        return message
    key, _, problem = rest.partition(": ")
    unknown = re.match("unknown key '(.+?)'", problem)
    if unknown:
        key = f"{key}.{unknown[1]}".removeprefix("top level.")
    files = {os.path.relpath(path): read_mapping(path) for path in paths}
    files["--config"] = typed or {}
    longest = 1
    for file, given in files.items():
        names = [name for name, _ in dotted_keys(given) if f"{key}.".startswith(f"{name}.")]
        length = max(map(len, names), default=0)
        if length >= longest:
            longest = length
            origin = file
    return f"{origin}: {rest}"


def late_preset_lines(paths: Sequence[Path], presets: Path) -> Iterator[str]:
    """A line for each of the project's presets, such as config/demo.yaml, that overrides a user's
    file before it in --configfile.

    It would silently take that file's tables away.
    """
    folder = presets.resolve()
    for mine, preset in itertools.combinations(paths, 2):
        ours = mine.resolve().parent == folder or mine.resolve() == folder.with_name("config.yaml")
        if ours or preset.resolve().parent != folder:
            continue
        before = dict(dotted_keys(read_mapping(mine)))
        after = dict(dotted_keys(read_mapping(preset)))
        keys = []
        for key in sorted(before.keys() & after.keys()):
            if before[key] != after[key] and not isinstance(before[key], dict):
                keys.append(key)
        if keys:
            yield (
                f"config: {preset.name} comes after {mine.name} and overrides its {_first_keys(keys)}; "
                f"the last file wins: write --configfile {presets.name}/{preset.name} {mine.name} to keep yours"
            )


def dotted_keys(config: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Each key of a configuration, dotted, with its value."""
    for name, value in config.items():
        yield f"{above}{name}", value
        if isinstance(value, dict):
            yield from dotted_keys(value, f"{above}{name}.")


def _first_keys(keys: list[str]) -> str:
    return ", ".join(keys[:3]) + (", ..." if len(keys) > 3 else "")


def to_config(config: dict[str, Any]) -> Config:
    """The configuration with every type checked. Raises BadInput naming the key."""
    checked = convert(config, Config)
    for section, forms in FORMS.items():
        for name, spec in getattr(checked, section).items():
            key = f"{section}.{name}.source"
            spec.source = convert(_merged_source(spec.source, forms, key), Source, key, type(spec))
    return checked


def _merged_source(
    source: dict[str, Any], forms: list[tuple[str, ...]], key: str
) -> dict[str, Any]:
    """The source that several files mean together: {path: FOLDER} over {hub, config, revision} is
    the folder, null removes a key.
    """
    left = {name: value for name, value in source.items() if value is not None}
    replaced: set[str] = set()
    if "hub" not in left or left.keys() & {*REPLACING}:
        replaced |= {*HUB}
    if "path" in left:
        replaced |= {"package", "file"}
    left = {name: value for name, value in left.items() if name not in replaced}
    if left and not any({*form} - OPTIONAL <= left.keys() <= {*form} for form in forms):
        named = [name for name in left if name not in (*OPTIONAL, "file")] or left
        expected = " or ".join(f"{{{', '.join(form)}}}" for form in forms)
        raise BadInput(
            f"config: {key}: names {' and '.join(named)}; give one of {expected}, and set other keys to null"
        )
    return left


def convert(value: Any, kind: Any, key: str = "", owner: type[Struct] | None = None) -> Any:
    """The value as `kind`. Raises BadInput naming the key, what was found and what would be right.
    owner: the struct with the key.

    Numbers stay as they were written: 3 does not become 3.0, which would run everything again.
    """
    if is_typeddict(kind) and isinstance(value, dict):
        kinds = get_type_hints(kind, include_extras=True)
        for name in value:
            if name not in kinds:
                raise unknown_key(key, name, [*kinds])
        return {name: convert(cell, kinds[name], f"{key}.{name}") for name, cell in value.items()}
    options = alternatives(kind)
    mappings = [option for option in options if is_struct(option) or is_named_mapping(option)]
    if not mappings or not isinstance(value, dict):  # answer_is is a text or a mapping
        return _leaf(value, kind, key, owner)
    inner = mappings[0]
    if not is_struct(inner):
        names, entries = get_args(inner)
        return {
            _name(name, names, key): convert(entry, entries, f"{key}.{name}")
            for name, entry in value.items()
        }
    fields = {field.encode_name: field for field in msgspec.structs.fields(inner)}
    for name in value:
        if name not in fields:
            raise unknown_key(key, name, [*fields])
    for name, field in fields.items():
        if field.required and name not in value:
            raise BadInput(
                f"config: {key or 'top level'}: no key {name!r} ({key_meanings(inner).get(name, '')})"
            )
    given = {
        fields[name].name: convert(entry, fields[name].type, f"{key}.{name}".lstrip("."), inner)
        for name, entry in value.items()
    }
    return inner(**given)


def _leaf(value: Any, kind: Any, key: str, owner: type[Struct] | None) -> Any:
    readings = [value]
    if isinstance(value, str) and POWER.fullmatch(value):
        readings.append(float(value))
    for reading in readings:
        _require_finite(reading, key, value)
        try:
            return msgspec.convert(reading, kind)
        except msgspec.ValidationError:
            continue
        except TypeError as error:  # of the schema, not of the value
            allowed = "an integer's limit is an integer, and a text has a pattern or a length"
            problem = f"its type in orce/settings/schema.py cannot have such a limit ({error})"
            raise BadInput(f"config: {key}: {problem}; {allowed}") from None
    shown = "a value that is not printed" if key.endswith(".api.key") else _for_message(value)
    meaning = key_meanings(owner).get(key.rpartition(".")[2]) if owner else None
    raise BadInput(
        f"config: {key}: {shown}; expected {type_in_words(kind)}{f' ({meaning})' if meaning else ''}"
    )


def _require_finite(value: Any, key: str, written: Any) -> None:
    """Raises BadInput for a number that is infinite, none, or too large to be computed with, in
    whatever holds it.
    """
    try:
        json.dumps(value, allow_nan=False, skipkeys=True, default=str)
        fits = not isinstance(value, int | float) or abs(value) < LARGEST
    except ValueError:
        fits = False
    if not fits:
        raise BadInput(
            f"config: {key}: {_for_message(written)} is not a finite number below {LARGEST:g}"
        )


def _for_message(value: Any) -> str:
    """A value for a message, without what may be secret in addresses."""
    shown = repr(_map_texts(public, value))
    return shown if len(shown) < 100 else f"{shown[:100]}..."


def _name(name: Any, kind: Any, key: str) -> str:
    try:
        return msgspec.convert(name, kind)
    except msgspec.ValidationError:
        remedy = ""
        if not isinstance(name, str):
            remedy = "; YAML does not read this as text: put it in quotes"
        raise BadInput(
            f"config: {key}: {name!r} cannot be a name here; expected {type_in_words(kind)}{remedy}"
        ) from None


def unknown_key(key: str, name: Any, known: list[str]) -> BadInput:
    hint = did_you_mean(str(name), known).strip() or f"keys are {', '.join(known)}"
    return BadInput(f"config: {key or 'top level'}: unknown key {name!r}; {hint}")


def alternatives(kind: Any) -> list[Any]:
    options = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else [kind]
    return [option for option in options if option is not UnsetType]


def is_struct(kind: Any) -> bool:
    return inspect.isclass(kind) and issubclass(kind, Struct)


def is_named_mapping(kind: Any) -> bool:
    """Whether it is a mapping of names, which have a type of their own, or of structs."""
    if get_origin(kind) is not dict:
        return False
    names, entries = get_args(kind)
    return names is not str or is_struct(entries)


def type_in_words(kind: Any) -> str:
    """A type as docs/configuration.md and the errors have it: `integer ≥ 1`, `main or ablation`,
    `text or null`.
    """
    if get_origin(kind) is Annotated:
        meta = kind.__metadata__[0]
        if meta.description:
            return meta.description
        limits = []
        for name, sign in SIGNS.items():
            if getattr(meta, name) is not None:
                limits.append(f"{sign} {getattr(meta, name)}")
        return f"{type_in_words(kind.__origin__)} {', '.join(limits)}".strip()
    if get_origin(kind) is Literal:
        return " or ".join(map(str, get_args(kind)))
    if get_origin(kind) is list:
        item = type_in_words(get_args(kind)[0])
        return f"list of {item}" if " or " in item else f"list of {item}s"
    options = alternatives(kind)
    if options == [kind]:
        return NAMES.get(get_origin(kind) or kind, "mapping")
    words = dict.fromkeys(map(type_in_words, options))
    for word in [*words]:  # "number > 0" includes "integer > 0"
        wider = word.replace("integer", "number", 1)
        if wider != word and wider in words:
            del words[word]
    return " or ".join(words)


@functools.cache
def key_meanings(kind: type[Struct]) -> dict[str, str]:
    """What each key of a struct means: the comment beside it in the source, or above it."""
    bases = [base for base in reversed(kind.__mro__) if is_struct(base) and base is not Struct]
    comments = key_comments("".join(map(inspect.getsource, bases)), r"    (\w+): ")
    return {
        field.encode_name: comments[field.name]
        for field in msgspec.structs.fields(kind)
        if field.name in comments
    }


def key_comments(source: str, key: str) -> dict[str, str]:
    """{key: the comment at the end of its line, or in the lines above it}."""
    comments = {}
    above = []
    for line in source.splitlines():
        if match := re.match(key, line):
            comments[match[1]] = " ".join(above) or line.partition("  # ")[2]
        above = [*above, line.strip()[2:]] if line.strip().startswith("# ") else []
    return comments
