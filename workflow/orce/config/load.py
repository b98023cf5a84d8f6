"""The configuration as its files have it, and as the structs of orce.config.schema. orce.config.check says whether it makes sense."""

import copy
import difflib
import functools
import inspect
import math
import re
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
import yaml
from msgspec import Struct, UnsetType

from orce.config.schema import Config
from orce.errors import BadInput

# Files


class _Strict(yaml.SafeLoader):
    """Refuses a key that stands twice in one mapping; other readers take the last."""

    def compose_mapping_node(self, anchor):
        node, seen = super().compose_mapping_node(anchor), {}
        for key, _ in node.value:
            name = (key.tag, key.value) if isinstance(key, yaml.ScalarNode) else key
            if name in seen and key.tag != "tag:yaml.org,2002:merge":
                problem = f"the key {key.value!r} stands in line {seen[name].start_mark.line + 1} already"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            seen[name] = key
        return node


@functools.lru_cache
def _parsed(text: str) -> Any:
    return yaml.load(text, _Strict)


def mapping(path: str | Path) -> dict[str, Any]:
    """Keys and values of a YAML file. Raises BadInput naming the file, and the line where YAML goes wrong."""
    try:
        config = copy.deepcopy(_parsed(Path(path).read_text(encoding="utf-8")))
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f", line {error.problem_mark.line + 1}"
        begins = error.context and error.context_mark
        within = f" ({error.context} that begins in line {begins.line + 1})" if begins else ""
        raise BadInput(f"{path}{line}: not valid YAML: {error.problem}{within}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
        raise BadInput(f"{path}: not a readable YAML file ({reason})") from None
    if not isinstance(config, dict):
        what = "nothing" if config is None else type(config).__name__
        raise BadInput(f"{path}: expected keys and values, found {what}")
    return config


def incomplete(config: dict[str, Any], folder: Path) -> str | None:
    """What to say where `folder` has no config.yaml and the files named on the command line do not replace it."""
    missing = [field.name for field in msgspec.structs.fields(Config) if field.required and field.name not in config]
    if not missing or (folder / "config.yaml").exists():
        return None
    return (
        f"no config.yaml in {folder}, and no other file sets {_some(missing)}; "
        "copy it there, or name it first: --configfile config.yaml mine.yaml"
    )


def presets_given_late(paths: Sequence[Path], presets: Path) -> Iterator[str]:
    """A line for each of the project's own presets that overrides a user's file before it in --configfile: a preset such as
    config/demo.yaml sets the tables to be made, and silently takes that file's tables away."""
    own = [path.resolve().parent == presets.resolve() for path in paths]
    for number, path in enumerate(paths):
        for earlier in [one for at, one in enumerate(paths[:number]) if own[number] and not own[at]]:
            if keys := sorted(_overridden(mapping(earlier), mapping(path))):
                yield (
                    f"config: {path.name} comes after {earlier.name} and overrides its {_some(keys)}; "
                    f"the last file wins: write --configfile {presets.name}/{path.name} {earlier.name} to keep yours"
                )


def _overridden(one: dict[str, Any], other: dict[str, Any], above: str = "") -> Iterator[str]:
    for key in one.keys() & other.keys():
        if isinstance(one[key], dict) and isinstance(other[key], dict):
            yield from _overridden(one[key], other[key], f"{above}{key}.")
        elif one[key] != other[key]:
            yield f"{above}{key}"


def _some(keys: list[str]) -> str:
    return ", ".join(keys[:3]) + (", ..." if len(keys) > 3 else "")


# Sources. `--configfile mine.yaml` merges mappings, so that `source: {path: FOLDER}` over config.yaml's {hub, config, revision}
# arrives here as all four; the one that is meant is left. `null` removes a key.

KINDS = {  # the keys of each kind of source, and the kinds that it replaces
    "path": ({"path"}, ("hub", "package")),
    "server": ({"server", "model"}, ("hub",)),
    "package": ({"package", "file"}, ("hub",)),
    "model": ({"model"}, ("hub",)),
    "hub": ({"hub", "config", "revision"}, ()),
}
FORMS: dict[str, list[tuple[str, ...]]] = {  # the keys that a source of each part has, and those that it may have
    "datasets": [("hub", "config", "revision"), ("path",), ("size",)],
    "models": [("hub", "revision"), ("path",), ("model",), ("package", "file"), ("server", "model")],
}
OPTIONAL = {"config", "revision", "size"}


def sources(config: dict[str, Any]) -> Iterator[str]:
    """Reduce every source of `datasets` and `models` to the one that is meant, in place; a line for each that is none."""
    for part, forms in FORMS.items():
        entries = config.get(part)
        for name, entry in entries.items() if isinstance(entries, dict) else ():
            if isinstance(entry, dict) and isinstance(entry.get("source"), dict):
                entry["source"] = source = meant(entry["source"])
                yield from _no_source(f"{part}.{name}.source", source, forms)


def meant(source: dict[str, Any]) -> dict[str, Any]:
    """The source without null keys and without the kinds that another of its keys replaces."""
    left = {key: value for key, value in source.items() if value is not None}
    for kind, (_, replaced) in KINDS.items():
        gone = set().union(*(KINDS[other][0] for other in replaced)) if kind in left else set()
        left = {key: value for key, value in left.items() if key not in gone}
    return left if "hub" in left else {key: left[key] for key in left if key not in ("config", "revision")}


def _no_source(key: str, source: dict[str, Any], forms: list[tuple[str, ...]]) -> Iterator[str]:
    kinds = [kind for kind in KINDS if kind in source]
    if len(kinds) > 1 and {*kinds} != {"server", "model"}:
        yield f"{key}: names {' and '.join(kinds)}; give one, and set the other to null if it comes from another file"
    if source and not any({*form} - OPTIONAL <= {*source} <= {*form} for form in forms):
        shown = " or ".join(f"{{{', '.join(form)}}}" for form in forms)
        yield f"{key}: {{{', '.join(source)}}}; expected {shown}"


# Keys and values that the configuration once had, and what to do instead. `*` stands for any name.

REMOVED = {
    "engine.batch_size": "set engine.batch_tokens",
    "sft.micro_batch_size": "set training.micro_batch_tokens",
    "dpo.micro_batch_size": "set training.micro_batch_tokens",
    "training.micro_batch_tokens: auto": "give a number; out of memory, a training on one GPU takes half of it",
    "training.shared_prefix": "shared prefixes are always computed once",
    "training.launch": "torchrun reads its options from the environment, such as PET_MAX_RESTARTS=1",
    "dpo.anchor": "the loss is DPO's alone",
    "engine.max_num_seqs": "vllm's own number; engine.gpu_memory_utilization bounds its memory",
    "evaluation.engine": "transformers reads the confidences",
    "datasets.*.grading: judge": "write grader",
    "datasets.*.grading: both": "write grader; disagreements.jsonl lists where the exact grade differs",
    "grading.prefer": "the grader's grade counts; grading: exact takes the task's",
    "grading.group: judge": "write grader",
    "similarity": "eigv, degree, eccentricity and kle compare the words of the samples",
}


def removed(config: dict[str, Any], above: str = "") -> Iterator[str]:
    """A line for each removed key (`a.b`) and each removed value (`a.b: value`, or an item of a list) of a configuration."""
    for name, value in config.items():
        key = f"{above}{name}"
        for one in (key, *(f"{key}: {entry}" for entry in (value if isinstance(value, list) else [value]))):
            for pattern, instead in REMOVED.items():
                if re.fullmatch(re.escape(pattern).replace(r"\*", r"[^.]+"), one):
                    yield f"{one} was removed; {instead}"
        yield from removed(value, f"{key}.") if isinstance(value, dict) else ()


# Types

NAMES = {int: "integer", float: "number", str: "text", bool: "true or false", type(None): "null", dict: "mapping"}
SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
# YAML 1.1 reads 1e-4 as text: it wants a dot, and a sign in the exponent.
POWER = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")


def typed(value: Any, kind: Any, key: str = "", meaning: str = "") -> Any:
    """The value as `kind`. Raises BadInput naming the key, what was found and what would be right.

    Numbers stay as they were written: 3 does not become 3.0, which would run everything again.
    """
    inner = next((part for part in alternatives(kind) if is_struct(part) or by_name(part)), None)
    if inner is None or not isinstance(value, dict):  # answer_is is a text or a mapping
        return _leaf(value, kind, key, meaning)
    if not is_struct(inner):
        names, entries = get_args(inner)
        return {_name(name, names, key): typed(entry, entries, f"{key}.{name}") for name, entry in value.items()}
    fields = {field.encode_name: field for field in msgspec.structs.fields(inner)}
    for name in value:
        if name not in fields:
            raise unknown(key, name, [*fields])
    for name, field in fields.items():
        if field.required and name not in value:
            raise BadInput(f"config: {key or 'top level'}: no key {name!r} ({meanings(inner).get(name, '')})")
    dotted = f"{key}." if key else ""
    return inner(
        **{
            fields[name].name: typed(entry, fields[name].type, f"{dotted}{name}", meanings(inner).get(name, ""))
            for name, entry in value.items()
        }
    )


def _leaf(value: Any, kind: Any, key: str, meaning: str) -> Any:
    if isinstance(value, str) and POWER.fullmatch(value) and str not in map(_bare, alternatives(kind)):
        value = float(value)
    if not _finite(value):
        raise BadInput(f"config: {key}: {value} is not a finite number")
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        shown = repr(value) if len(repr(value)) < 100 else f"{repr(value)[:100]}..."
        means = f" ({meaning})" if meaning else ""
        raise BadInput(f"config: {key}: {shown}; expected {in_words(kind)}{means}") from None


def _finite(value: Any) -> bool:
    """Whether no number in the value is YAML's .nan or .inf."""
    if isinstance(value, dict | list):
        return all(map(_finite, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)


def _name(name: Any, kind: Any, key: str) -> str:
    try:
        return msgspec.convert(name, kind)
    except msgspec.ValidationError:
        quoted = "" if isinstance(name, str) else "; YAML does not read this as text: put it in quotes"
        raise BadInput(f"config: {key}: {name!r} cannot be a name here; expected {in_words(kind)}{quoted}") from None


def unknown(key: str, name: Any, known: list[str]) -> BadInput:
    close = difflib.get_close_matches(str(name), known, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"keys are {', '.join(known)}"
    return BadInput(f"config: {key or 'top level'}: unknown key {name!r}; {hint}")


def alternatives(kind: Any) -> list[Any]:
    parts = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else [kind]
    return [part for part in parts if part is not UnsetType]


def _bare(kind: Any) -> Any:
    """The type without its limits."""
    return kind.__origin__ if get_origin(kind) is Annotated else kind


def is_struct(kind: Any) -> bool:
    return inspect.isclass(kind) and issubclass(kind, Struct)


def by_name(kind: Any) -> bool:
    """Whether it is a mapping of names, which have a type of their own, or of structs."""
    names, entries = get_args(kind) if get_origin(kind) is dict else (str, str)
    return names is not str or is_struct(entries)


def in_words(kind: Any) -> str:
    """A type as docs/configuration.md and the errors have it: `integer ≥ 1`, `main or ablation`, `text or null`."""
    if get_origin(kind) is Annotated:
        meta = kind.__metadata__[0]
        limits = [f"{sign} {limit}" for name, sign in SIGNS.items() if (limit := getattr(meta, name)) is not None]
        return meta.description or f"{in_words(kind.__origin__)} {', '.join(limits)}".strip()
    if get_origin(kind) is Literal:
        return " or ".join(map(str, get_args(kind)))
    if get_origin(kind) is list:
        return f"list of {in_words(get_args(kind)[0])}s"
    parts = alternatives(kind)
    if len(parts) == 1:
        return NAMES.get(get_origin(parts[0]) or parts[0], "mapping") if parts[0] is kind else in_words(parts[0])
    words = dict.fromkeys(map(in_words, parts))
    whole = {one for one in words if "integer" in one and one.replace("integer", "number", 1) in words}
    return " or ".join(one for one in words if one not in whole)


@functools.cache
def meanings(kind: type[Struct]) -> dict[str, str]:
    """What each key of a struct means: the comment beside it in the source, or above it."""
    found: dict[str, str] = {}
    for base in reversed([one for one in kind.__mro__ if is_struct(one) and one is not Struct]):
        found |= commented(inspect.getsource(base), r"    (\w+): ")
    return {field.encode_name: found[field.name] for field in msgspec.structs.fields(kind) if field.name in found}


def commented(source: str, key: str) -> dict[str, str]:
    """{key: the comment at the end of its line, or in the lines above it}."""
    found, above = {}, []
    for line in source.splitlines():
        if match := re.match(key, line):
            found[match[1]] = " ".join(above) or line.partition("  # ")[2]
        above = [*above, line.strip()[2:]] if line.strip().startswith("# ") else []
    return found
