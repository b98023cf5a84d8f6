"""Train / test hygiene: which training questions also occur, exactly or nearly, in a test set.

Two texts are compared as sets of word 5-grams after case and punctuation are dropped. Exact: the same normalised text.
Near: the share of the smaller set's 5-grams that the other set contains (containment) is at least a threshold. An
inverted index finds the candidates, so the work grows with the matches and not with the product of the sizes.

Twin: a task that knows when two questions ask the same (3 + 5 and 5 + 3; the capital of X, and the country whose capital
is Y) has a function `twin`, whose value is then equal.
"""

import re
from collections import Counter, defaultdict
from typing import NamedTuple

from orce.records import Example
from orce.tasks import Task

SHINGLE = 5


def normalise(example: Example) -> str:
    """Context, question and options as lower-case words and arithmetic signs; the order of the options does not matter."""
    parts = [example.get("context") or "", example["question"], *sorted(map(str, example.get("choices") or []))]
    return " ".join(re.findall(r"\w+|[-+*/=<>%^]", " ".join(parts).casefold()))


def shingles(text: str) -> frozenset:
    """Word 5-grams of a normalised text; a shorter text is one shingle."""
    words = text.split()
    return frozenset(tuple(words[i : i + SHINGLE]) for i in range(max(1, len(words) - SHINGLE + 1)))


class Match(NamedTuple):
    """The ids of a training and a test example that are alike; kind: exact, twin or near."""

    train: str
    test: str
    kind: str
    containment: float = 1.0


def matches(train: list[Example], test: list[Example], threshold: float = 0.8, task: Task = None) -> list[Match]:
    """Every training example that matches a test example, with its best match; twins are of a `task` that has them."""
    twin = getattr(task, "twin", None)
    texts, ids = [normalise(example) for example in test], [example["id"] for example in test]
    twins = {twin(example): name for example, name in zip(reversed(test), reversed(ids), strict=True)} if twin else {}
    exact = {text: i for i, text in reversed(list(enumerate(texts)))}
    sets = [shingles(text) for text in texts]
    index = defaultdict(list)
    for i, one in enumerate(sets):
        for shingle in one:
            index[shingle].append(i)
    found = []
    for example in train:
        text = normalise(example)
        if text in exact:
            found.append(Match(example["id"], ids[exact[text]], "exact"))
            continue
        if twin and twin(example) in twins:
            found.append(Match(example["id"], twins[twin(example)], "twin"))
            continue
        own = shingles(text)
        shared = Counter(i for shingle in own for i in index.get(shingle, ()))
        best = max(shared, key=lambda i: (shared[i] / min(len(own), len(sets[i])), -i), default=None)
        if best is not None and (share := shared[best] / min(len(own), len(sets[best]))) >= threshold:
            found.append(Match(example["id"], ids[best], "near", share))
    return found
