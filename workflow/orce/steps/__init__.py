"""The steps of the workflow: thin, from files to files; what they compute stands in the library."""

import hashlib
import json
from pathlib import Path

from orce.files import BadInput, read_jsonl

PROMPT_KEYS = ("id", "question", "context", "choices", "reference")


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


def read_prompts(path) -> list[dict]:
    """Frozen examples of one split, ids unique."""
    examples = read_jsonl(path, PROMPT_KEYS)
    seen: dict = {}
    for line, example in enumerate(examples, 1):
        if example["id"] in seen:
            raise BadInput(f"{path}, line {line}: id {example['id']!r} stands in line {seen[example['id']]} already")
        seen[example["id"]] = line
    return examples


def seed_of(base: int, *names: str) -> int:
    """A seed that depends on what is drawn and on nothing else, so that order and neighbours do not matter."""
    text = "\x1f".join([str(base), *names])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
