"""The steps of the workflow: thin, from files to files; what they compute stands in the library."""

import hashlib
import json
from pathlib import Path

from orce.files import BadInput, read_jsonl

PROMPT_KEYS = ("id", "question", "context", "choices", "reference")


def settings(text: str) -> dict:
    """The --settings argument: a JSON object, or @FILE with one."""
    if text.startswith("@"):
        text = Path(text[1:]).read_text()
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadInput(f"--settings: not a JSON object ({error})") from None
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
