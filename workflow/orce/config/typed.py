"""What YAML gave as the structs of orce.config.schema: each value checked against its type, or refused with its key."""

import difflib
import functools
import inspect
import math
import re
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Struct, UnsetType

from orce.errors import BadInput

NAMES = {int: "integer", float: "number", str: "text", bool: "true or false", type(None): "null", dict: "mapping"}
SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
# YAML 1.1 reads 1e-4 as text: it wants a dot, and a sign in the exponent.
POWER = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")


def typed(value: Any, kind: Any, key: str = "", meaning: str = "") -> Any:
    """The value as `kind`. Raises BadInput naming the key, what was found and what would be right.

    Numbers stay as they were written: 3 does not become 3.0, which would run everything again.
    """
    parts = [part for part in alternatives(kind) if part is not UnsetType]
    if value is None and type(None) in parts:
        return None
    inner = next((part for part in parts if is_struct(part) or by_name(part)), None)
    if inner is None or not isinstance(value, dict):  # answer_is is a text or a mapping
        return _leaf(value, kind, key, meaning)
    if not is_struct(inner):
        names, entries = get_args(inner)
        return {_name(name, names, key): typed(entry, entries, f"{key}.{name}") for name, entry in value.items()}
    fields = {field.encode_name: field for field in msgspec.structs.fields(inner)}
    for name in value:
        if name not in fields:
            raise unknown(key, name, [*fields])
    missing = [name for name, field in fields.items() if field.required and name not in value]
    if missing:
        raise BadInput(f"config: {key or 'top level'}: no key {missing[0]!r} ({meanings(inner).get(missing[0], '')})")
    return inner(
        **{
            fields[name].name: typed(
                entry, fields[name].type, f"{key}.{name}".strip("."), meanings(inner).get(name, "")
            )
            for name, entry in value.items()
        }
    )


def _leaf(value: Any, kind: Any, key: str, meaning: str) -> Any:
    if isinstance(value, str) and POWER.fullmatch(value) and str not in map(bare, alternatives(kind)):
        value = float(value)
    if not finite(value):
        raise BadInput(f"config: {key}: {value} is not a finite number")
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise refused(value, kind, key, meaning) from None


def finite(value: Any) -> bool:
    """Whether no number in the value is YAML's .nan or .inf."""
    if isinstance(value, dict | list):
        return all(map(finite, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)


def _name(name: Any, kind: Any, key: str) -> str:
    try:
        return msgspec.convert(name, kind)
    except msgspec.ValidationError:
        quoted = "" if isinstance(name, str) else "; YAML does not read this as text: put it in quotes"
        raise BadInput(f"config: {key}: {name!r} cannot be a name here; expected {in_words(kind)}{quoted}") from None


def refused(value: Any, kind: Any, key: str, meaning: str = "") -> BadInput:
    shown = repr(value) if len(repr(value)) < 100 else f"{repr(value)[:100]}..."
    return BadInput(f"config: {key}: {shown}; expected {in_words(kind)}" + (f" ({meaning})" if meaning else ""))


def unknown(key: str, name: Any, known: list[str]) -> BadInput:
    close = difflib.get_close_matches(str(name), known, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"keys are {', '.join(known)}"
    return BadInput(f"config: {key or 'top level'}: unknown key {name!r}; {hint}")


# Types


def alternatives(kind: Any) -> list[Any]:
    return [*get_args(kind)] if get_origin(kind) in (Union, types.UnionType) else [kind]


def bare(kind: Any) -> Any:
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
        if meta.description:
            return meta.description
        limits = [f"{sign} {limit}" for name, sign in SIGNS.items() if (limit := getattr(meta, name)) is not None]
        return f"{in_words(kind.__origin__)} {', '.join(limits)}".strip()
    if get_origin(kind) is Literal:
        return " or ".join(map(str, get_args(kind)))
    if get_origin(kind) is list:
        return f"list of {in_words(get_args(kind)[0])}s"
    parts = [part for part in alternatives(kind) if part is not UnsetType]
    if len(parts) > 1:
        words = dict.fromkeys(map(in_words, parts))
        return " or ".join(
            one for one in words if one.replace("integer", "number", 1) not in words or "integer" not in one
        )
    if parts[0] is not kind:
        return in_words(parts[0])
    return NAMES.get(get_origin(kind) or kind, "mapping")


@functools.cache
def meanings(kind: type[Struct]) -> dict[str, str]:
    """What each key of a struct means: the comment beside it in the source, or above it."""
    found: dict[str, str] = {}
    for base in reversed([one for one in kind.__mro__ if is_struct(one) and one is not Struct]):
        found |= commented(inspect.getsource(base), r"    (\w+): ")
    named = {field.name: field.encode_name for field in msgspec.structs.fields(kind)}
    return {named[name]: text for name, text in found.items() if name in named}


def commented(source: str, key: str) -> dict[str, str]:
    """{key: the comment at the end of its line, or in the lines above it}."""
    found, above = {}, []
    for line in source.splitlines():
        if match := re.match(key, line):
            found[match[1]] = " ".join(above) or line.partition("  # ")[2]
        above = [*above, line.strip()[2:]] if line.strip().startswith("# ") else []
    return found
