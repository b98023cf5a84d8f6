"""What the generated tasks share: a fixed space of questions cut into splits, and worked examples as earlier turns of the conversation."""

import random
from collections.abc import Mapping
from typing import Any

from orce.errors import BadInput
from orce.records import Example
from orce.text.prompting import render

SHARES = {"train": 7, "validation": 2, "test": 3}  # twelfths of the space
EVERY = "all"  # the three in one, for a long test set; what it trains on is cut from it too
Shot = tuple[str, str]  # a question and its answer as the model should write it


def draw(space: list[Example], source: Mapping[str, Any], split: str, seed: int) -> list[Example]:
    """`source["size"]` examples of a split, or all if there is no size, in an order set by `seed`.

    The cut does not depend on the seed, so train, validation and test never share an example, whatever their seeds. The
    split `all` has all three.
    """
    if split not in (*SHARES, EVERY):
        raise BadInput(f"no split {split!r}; a generated task has the splits {', '.join(SHARES)}, and {EVERY}")
    if set(source) - {"size"}:
        raise BadInput(f"source: {dict(source)}; a generated task takes no files, only {{}} or {{size: N}}")
    part = space if split == EVERY else _share(space, split)
    size = source.get("size", len(part))
    if not isinstance(size, int) or not 0 < size <= len(part):
        raise BadInput(f"size is {size!r}; expected a number from 1 to {len(part)}, all of split {split!r}")
    return random.Random(seed).sample(part, size)


def _share(space: list[Example], split: str) -> list[Example]:
    mixed = random.Random("splits").sample(space, len(space))
    before = sum(SHARES[name] for name in list(SHARES)[: list(SHARES).index(split)])
    first, last = (len(space) * part // sum(SHARES.values()) for part in (before, before + SHARES[split]))
    return mixed[first:last]


def prompt(template: str, question: str, worked: list[Shot], shots: int | None, **values) -> list[dict]:
    """The instruction and the worked examples, as turns that every prompt shares; then the question as the last turn."""
    count = len(worked) if shots is None else shots
    if not 0 <= count <= len(worked):
        raise BadInput(f"shots is {shots!r}; expected a number from 0 to {len(worked)}, the worked examples there are")
    questions = [*(shown for shown, _ in worked[:count]), question]
    questions[0] = render(template, question=questions[0], **values)
    turns = [{"role": "user", "content": text} for text in questions]
    replies = [{"role": "assistant", "content": answer} for _, answer in worked[:count]]
    return [turn for pair in zip(turns, replies, strict=False) for turn in pair] + turns[-1:]
