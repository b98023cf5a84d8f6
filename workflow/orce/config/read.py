"""The configuration's files as they are on disk: one mapping each, with errors that name the file and the line."""

import copy
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from orce.errors import BadInput

PRESETS = Path("config")  # folder of the files that come with the project, in it


class _Strict(yaml.SafeLoader):
    """Refuses a key that stands twice in one mapping; other readers take the last."""

    def compose_mapping_node(self, anchor):
        node = super().compose_mapping_node(anchor)
        seen: dict = {}
        for key, _ in node.value:
            name = (key.tag, key.value) if isinstance(key, yaml.ScalarNode) else key
            if name in seen and key.tag != "tag:yaml.org,2002:merge":
                line = seen[name].start_mark.line + 1
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value!r} stands in line {line} already", problem_mark=key.start_mark
                )
            seen[name] = key
        return node


def mapping(path: str | Path) -> dict[str, Any]:
    """Keys and values of a YAML file. Raises BadInput naming the file, and the line where YAML goes wrong."""
    try:
        config = copy.deepcopy(_parsed(Path(path).read_text(encoding="utf-8")))
    except yaml.MarkedYAMLError as error:
        raise BadInput(f"{path}{_line(error.problem_mark)}: not valid YAML: {_reason(error)}") from None
    except OSError as error:
        raise BadInput(f"{path}: not a readable YAML file ({error.strerror})") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadInput(f"{path}: not a readable YAML file ({' '.join(str(error).split())})") from None
    if not isinstance(config, dict):
        what = "nothing" if config is None else type(config).__name__
        raise BadInput(f"{path}: expected keys and values, found {what}")
    return config


@functools.lru_cache
def _parsed(text: str) -> Any:
    return yaml.load(text, _Strict)


def _line(mark: yaml.Mark | None) -> str:
    return "" if mark is None else f", line {mark.line + 1}"


def _reason(error: yaml.MarkedYAMLError) -> str:
    if error.context is None or error.context_mark is None:
        return error.problem or "unknown error"
    return f"{error.problem} ({error.context} that begins in line {error.context_mark.line + 1})"


def incomplete(config: dict[str, Any], needed: Sequence[str], folder: Path) -> str | None:
    """What to say where `folder` has no config.yaml and the files named on the command line do not replace it."""
    missing = [key for key in needed if key not in config]
    if not missing or (folder / "config.yaml").exists():
        return None
    shown = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
    return (
        f"no config.yaml in {folder}, and no other file sets {shown}; "
        "copy it there, or name it first: --configfile config.yaml mine.yaml"
    )


def on_path(folder: str | Path) -> str:
    """The folder as an entry of PATH or PYTHONPATH. Raises BadInput if it cannot stand there."""
    name = str(folder)
    # Snakemake's log would print half a page for each name that is not UTF-8.
    if any(sign in name for sign in ":\n\r") or name.encode(errors="replace").decode() != name:
        raise BadInput(
            f"{name!r}: a colon or a line break cannot stand in the name of a folder of the checkout or of Python, "
            "as PATH separates folders by it, nor can what is not UTF-8; move it to another folder"
        )
    return name


def presets_given_late(paths: Sequence[Path], project: Path) -> list[str]:
    """A line for each of the project's own presets that overrides a file given before it.

    paths: the files of --configfile in their order. A preset such as config/demo.yaml sets the tables to be made, so
    after a user's file it silently takes that file's tables away.
    """
    notes = []
    for number, path in enumerate(paths):
        for earlier in paths[:number] if _preset(path, project) else []:
            keys = shared_keys(mapping(earlier), mapping(path))
            if keys and not _preset(earlier, project):
                shown = ", ".join(keys[:3]) + (", ..." if len(keys) > 3 else "")
                notes.append(
                    f"config: {path.name} comes after {earlier.name} and overrides its {shown}; "
                    f"the last file wins: write --configfile {PRESETS / path.name} {earlier.name} to keep yours"
                )
    return notes


def _preset(path: Path, project: Path) -> bool:
    return path.resolve().parent == (project / PRESETS).resolve()


def shared_keys(one: dict[str, Any], other: dict[str, Any], place: str = "") -> list[str]:
    """Keys, dotted, that both set to different values."""
    keys = []
    for key in one.keys() & other.keys():
        if isinstance(one[key], dict) and isinstance(other[key], dict):
            keys += shared_keys(one[key], other[key], f"{place}{key}.")
        elif one[key] != other[key]:
            keys.append(f"{place}{key}")
    return sorted(keys)
