"""The steps of the workflow: thin, from files to files; what they compute stands in the library."""

import json
from pathlib import Path

from orce.runtime.files import BadInput


class Settings(dict):
    """A JSON object in which a missing key is bad input."""

    def __missing__(self, key):
        raise BadInput(f"--settings: no key {key!r} beside {', '.join(self) or 'nothing'}")


def settings(text: str) -> Settings:
    """The --settings argument: a JSON object, or @FILE with one."""
    place = "--settings"
    if text.startswith("@"):
        place, text = text[1:], Path(text[1:]).read_text()
    try:
        value = json.loads(text, object_hook=Settings)
    except json.JSONDecodeError as error:
        raise BadInput(f"{place}: not a JSON object ({error})") from None
    if not isinstance(value, dict):
        raise BadInput(f"{place}: expected a JSON object, found {type(value).__name__}")
    return value


def add_settings(parser) -> None:
    parser.add_argument("--settings", required=True, help="a JSON object (or @FILE): the part of the config it needs")
