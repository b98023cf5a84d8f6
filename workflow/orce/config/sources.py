"""Reduce a source that was merged key by key from two configuration files to the one that is meant.

`--configfile mine.yaml` merges mappings, so `source: {path: FOLDER}` over config.yaml's `{hub, config, revision}` arrives
here as all four. A folder wins over the hub and over a package; a server or another model's weights win over the
hub. `null` removes a key.

Also the digests of local sources, by which Snakemake sees that one was replaced under the same path.
"""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from msgspec import structs

from orce.artefacts import digests
from orce.stage_settings import Settings, plain

# The keys of each kind of source, each kind with those that it replaces.
KINDS = {
    "path": ({"path"}, ("hub", "package")),
    "server": ({"server", "model"}, ("hub",)),
    "package": ({"package", "file"}, ("hub",)),
    "model": ({"model"}, ("hub",)),
    "hub": ({"hub", "config", "revision"}, ()),
}


def clean(config: dict[str, Any]) -> None:
    """Reduce every source of `datasets` and `models` to the one that is meant, in place."""
    for part in ("datasets", "models"):
        for entry in (config.get(part) or {}).values() if isinstance(config.get(part), dict) else ():
            if isinstance(entry, dict) and isinstance(entry.get("source"), dict):
                entry["source"] = meant(entry["source"])


def meant(source: dict[str, Any]) -> dict[str, Any]:
    """The source without null keys and without the kinds that another of its keys replaces."""
    left = {key: value for key, value in source.items() if value is not None}
    for kind, (_, replaced) in KINDS.items():
        if kind in left:
            gone = set().union(*(KINDS[other][0] for other in replaced))
            left = {key: value for key, value in left.items() if key not in gone}
    if "hub" not in left:  # config and revision of a hub set to null
        left = {key: value for key, value in left.items() if key not in ("config", "revision")}
    return left


FORMS = {  # the keys that a source of each part has, and those that it may have
    "datasets": [("hub", "config", "revision"), ("path",), ("size",)],
    "models": [("hub", "revision"), ("path",), ("model",), ("package", "file"), ("server", "model")],
}
OPTIONAL = {"config", "revision", "size"}


def problem(part: str, source: dict[str, Any]) -> str | None:
    """What is wrong with a source whose keys do not go together."""
    kinds = [kind for kind in KINDS if kind in source]
    if len(kinds) > 1 and {*kinds} != {"server", "model"}:
        return f"names {' and '.join(kinds)}; give one, and set the other to null if it comes from another file"
    if not source or any({*form} - OPTIONAL <= {*source} <= {*form} for form in FORMS[part]):
        return None
    forms = " or ".join(f"{{{', '.join(form)}}}" for form in FORMS[part])
    return f"{{{', '.join(source)}}}; expected {forms}"


# Files of a model's folder that it is loaded from; for data and modules every file counts.
WEIGHTS = ("*.safetensors", "*.bin", "*.json", "*.jinja", "*.model", "*.txt")
ALL = ("*",)


def pinned(settings: Settings, made: Collection[str] = ()) -> Settings:
    """A step's settings with `contents`, {path: digest} of the local data, weights and modules that they name.

    Settings that name none, such as those with ids of the hub, stay as they are. made: folders that a rule makes, which
    have a manifest for this.
    """
    found = {}
    for path, patterns in _local(plain(settings)):
        if path not in made and Path(path).exists():
            found[path] = digests.fingerprint(path, patterns)
    return structs.replace(settings, contents=found) if found else settings


def _local(value, key: str = "") -> Iterator[tuple[str, tuple[str, ...]]]:
    """(path, patterns of its files that count) of each local source, module and template in some settings."""
    if isinstance(value, str) and value.endswith((".py", ".j2")):
        yield value, ALL
    elif isinstance(value, list):
        for part in value:
            yield from _local(part, key)
    elif isinstance(value, dict):
        source = value.get("source")
        if isinstance(source, dict) and "path" in source:
            yield source["path"], WEIGHTS if key in ("model", "nli") else ALL
        for name, part in value.items():
            yield from _local(part, name)
