"""Examples as a task's module returns them, and as frozen in prompts/{split}.jsonl."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from orce.artefacts import store
from orce.artefacts.files import to_line
from orce.errors import BadInput
from orce.records import Example
from orce.tasks import Task
from orce.tasks.parts.source import twice

PROMPT_KEYS = ("id", "question", "context", "choices", "reference")


def loaded(task: Task, name: str, source: Mapping[str, Any], split: str, seed: int) -> list[Example]:
    """The examples of `task.load`, checked, since every later step relies on them. Raises BadInput naming the module."""
    examples = task.load(dict(source), split, seed)
    place = f"{name}: load(..., {split!r})"
    if not isinstance(examples, list) or not examples:
        raise BadInput(f"{place} gave {_short(examples)}; expected a list of examples")
    for i, example in enumerate(examples):
        _check(f"{place}, example {i}", example)
    if found := twice(examples):
        raise BadInput(
            f"{place}, example {found.again}: id {found.id!r} is also the id of example {found.first}; ids must differ"
        )
    return examples


def _check(where: str, example) -> None:
    if not isinstance(example, dict):
        raise BadInput(f"{where}: {_short(example)}; expected a dict with {', '.join(PROMPT_KEYS)}")
    missing = [key for key in PROMPT_KEYS if key not in example]
    if missing:
        raise BadInput(f"{where}: no key {missing[0]!r}; an example has {', '.join(PROMPT_KEYS)}")
    if not isinstance(example["id"], str) or not example["id"]:
        raise BadInput(f"{where}: id is {example['id']!r}; expected a text that is not empty")
    try:
        to_line(example).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"{where}: cannot be written as JSON ({error})") from None


def _short(value) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def by_split(arguments: Iterable[str]) -> dict[str, str]:
    """{split: path} of arguments SPLIT=FILE."""
    return dict(argument.split("=", 1) for argument in arguments)


def read_prompts(path) -> list[Example]:
    """Frozen examples of one split, ids unique."""
    examples = cast(list[Example], store.read(path, PROMPT_KEYS))
    if found := twice(examples):
        raise BadInput(f"{path}, line {found.again + 1}: id {found.id!r} stands in line {found.first + 1} already")
    return examples
