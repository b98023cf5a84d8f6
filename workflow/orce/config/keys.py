"""The JSON schema of the configuration's structs, with the limits, meanings and units that orce.config.schema gives its keys."""

import functools
import types
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

import msgspec
from msgspec import Struct, UnsetType

from orce.config import schema
from orce.config.schema import Key

TYPES = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"}
NAMED = ("Name", "Count", "Positive", "Seed", "Temperature", "Module", "Share", "Optimisation")


@functools.cache
def of_config() -> dict[str, Any]:
    """The schema of a configuration; its $defs are what a method's SETTINGS may refer to."""
    named = {name.lower(): of(getattr(schema, name)) for name in NAMED}
    return of(schema.Config) | {"$defs": named | {"optimisation": named["optimisation"]["properties"]}}


def of(kind: Any) -> dict[str, Any]:
    """The JSON schema of a type."""
    if get_origin(kind) is Annotated:
        return functools.reduce(_described, kind.__metadata__, of(kind.__origin__))
    if get_origin(kind) in (Union, types.UnionType):
        return _either([part for part in get_args(kind) if part is not UnsetType])
    if get_origin(kind) is Literal:
        return {"enum": list(get_args(kind))}
    if get_origin(kind) is list:
        return {"type": "array", "items": of(get_args(kind)[0])}
    if get_origin(kind) is dict:
        return {"type": "object"} | _inside(*get_args(kind))
    if is_typeddict(kind):
        return _typed(kind)
    return _struct(kind) if issubclass(kind, Struct) else {"type": TYPES[kind]}


def _inside(key: Any, value: Any) -> dict[str, Any]:
    names = of(key) if get_origin(key) is Annotated else {}
    named = {"propertyNames": names} if names else {}
    return named | ({} if value is Any else {"additionalProperties": of(value)})


def _described(found: dict[str, Any], key: Key | str) -> dict[str, Any]:
    words = {"description": key} if isinstance(key, str) else dict(key.words)
    if kinds := words.pop("forms", None):
        found = of(kinds[0]) if len(kinds) == 1 else {"anyOf": [of(kind) for kind in kinds]}
    return found | words


def _either(parts: list[Any]) -> dict[str, Any]:
    """One schema that lists the types of all parts; a number is also an integer."""
    if set(parts) == {int, float}:
        return {"type": "number"}
    found = [of(part) for part in parts]
    listed = [part["type"] for part in found if "type" in part]
    merged = {key: value for part in found for key, value in part.items()}
    return merged | {"type": listed[0] if len(listed) == 1 else listed}


def _struct(kind: type[Struct]) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    required = [fields[name].encode_name for name in hints if fields[name].required]
    keys = {fields[name].encode_name: _key(hint, fields[name]) for name, hint in hints.items()}
    return _mapping(kind, keys, required)


def _typed(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    bare = {name: get_args(hint)[0] if get_origin(hint) is NotRequired else hint for name, hint in hints.items()}
    required = [name for name in hints if name in kind.__required_keys__]
    return _mapping(kind, {name: of(hint) for name, hint in bare.items()}, required)


def _mapping(kind: Any, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    described = {"description": kind.__doc__} if kind.__doc__ else {}
    needed = {"required": required} if required else {}
    return {"type": "object"} | described | {"additionalProperties": False} | needed | {"properties": properties}


def _key(hint: Any, field: Any) -> dict[str, Any]:
    """The schema of a key. None or UNSET outside its annotation says that it may be left out, and not that it may be null."""
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    described = [part for part in parts if part not in (UnsetType, type(None))]
    found = of(described[0])
    value = field.default_factory() if field.default is msgspec.NODEFAULT and not field.required else field.default
    shown = value not in (msgspec.NODEFAULT, msgspec.UNSET) and (value is not None or "null" in found.get("type", ()))
    return {"default": value} | found if shown and "default" not in found else found
