"""Examples on their way to a prompt: as a task's module loads them, cut into splits, frozen in prompts/{split}.jsonl, and shown as worked ones."""

import itertools
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple, cast

from orce.artefacts import store
from orce.artefacts.files import to_line
from orce.errors import BadInput
from orce.records import Example
from orce.stage_settings import Split
from orce.tasks import Task
from orce.tasks.rows import twice

PROMPT_KEYS = ("id", "question", "context", "choices", "reference")
# Splits on which confidences are stated, in greedy answers. Settings are chosen on the first; tables are of the second.
TESTED = ("validation", "test")
SHOWN = "shots"  # worked examples in every prompt of the others; nothing is sampled on them
# Of worked examples, which are all right. The numbers differ so that the model copies the form and not one number.
CONFIDENCES = (90, 60, 100, 40)


def loaded(task: Task, name: str, source: Mapping[str, Any], split: str, seed: int) -> list[Example]:
    """The examples of `task.load`, checked, since every later step relies on them. Raises BadInput naming the module."""
    examples = task.load(dict(source), split, seed)
    place = f"{name}: load(..., {split!r})"
    if not isinstance(examples, list) or not examples:
        raise BadInput(f"{place} gave {_short(examples)}; expected a list of examples")
    for i, example in enumerate(examples):
        _check(f"{place}, example {i}", example)
    if found := twice(examples):
        first, again = found
        name = examples[again]["id"]
        raise BadInput(f"{place}, example {again}: id {name!r} is also the id of example {first}; ids must differ")
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
        first, again = found
        raise BadInput(f"{path}, line {again + 1}: id {examples[again]['id']!r} stands in line {first + 1} already")
    return examples


def cut(splits: Mapping[str, Split], origin: str, total: int) -> dict[str, slice]:
    """Where each split of some splits lies among the `total` examples of the source split `origin`.

    A size is a number, a share of the source split ("1/3", rounded down), or None for the rest. In order of names, those with a
    size first. Raises BadInput naming a split for which too little, or nothing, is left.
    """
    sizes = {name: spec.share for name, spec in splits.items() if spec.origin == origin}
    places, start = {}, 0
    for name in sorted(sizes, key=lambda name: (sizes[name] is None, name)):
        asked = sizes[name]
        whole = int(total * Fraction(asked)) if isinstance(asked, str) else asked
        size = total - start if whole is None else whole
        if not 0 < size <= total - start:
            raise BadInput(
                f"splits.{name}: size {asked or size} after {start} examples taken by other splits, but the source "
                f"split {origin!r} has {total}"
            )
        places[name] = slice(start, start + size)
        start += size
    return places


class Worked(NamedTuple):
    """A worked example: question, the reply as a model should write it, the answer in it, confidence in percent."""

    question: str
    reply: str
    answer: str
    confidence: int


def worked(task: Task, shots: int | None) -> list[Worked]:
    """The first `shots` worked examples of a task, or all if None; none for a zero-shot task."""
    found = getattr(task, "worked", list)()
    return [
        Worked(*one, confidence=percent)
        for one, percent in zip(found[:shots], itertools.cycle(CONFIDENCES), strict=False)
    ]


def conversation(instruction: str, shown: list[Worked], replies: list[str], question: str) -> list[dict]:
    """Chat turns: `instruction`, which contains the first question; then replies and further questions in turn.

    The last question is the one to answer.
    """
    later = [*(one.question for one in shown[1:]), *([question] if shown else [])]
    turns = [{"role": "user", "content": instruction}]
    for reply, text in zip(replies, later, strict=True):
        turns += [{"role": "assistant", "content": reply}, {"role": "user", "content": f"Question: {text}"}]
    return turns
