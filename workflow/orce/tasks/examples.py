"""How splits are cut, and which training questions also occur, exactly or nearly, in a test set."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from fractions import Fraction
from itertools import chain
from typing import NamedTuple

from orce.artefacts.records import Example
from orce.errors import BadInput
from orce.settings.schema import Split
from orce.tasks import Task

# Splits on which confidences are stated, in greedy answers. Settings are chosen on the first;
# tables are of the second.
TESTED = ("validation", "test")
SHOWN = "shots"  # worked examples in every prompt of the other splits; nothing is sampled on these
SHINGLE = 5  # words that are compared together
NEAR = 0.8  # share of them from which on two questions are nearly the same


def split_slices(splits: Mapping[str, Split], origin: str, total: int) -> dict[str, slice]:
    """The slice of each split among the `total` examples of the source split `origin`.

    A size is a number, a share of the source split ("1/3", rounded down), or None for the rest. In
    order of names, those with a size first. Raises BadInput naming a split for which too little, or
    nothing, is left.
    """
    sizes = {name: spec.share for name, spec in splits.items() if spec.origin == origin}
    slices = {}
    start = 0
    for name in sorted(sizes, key=lambda name: (sizes[name] is None, name)):
        asked = sizes[name]
        whole = int(total * Fraction(asked)) if isinstance(asked, str) else asked
        size = total - start if whole is None else whole
        if not 0 < size <= total - start:
            raise BadInput(
                f"splits.{name}: size {asked or size} after {start} examples taken by other splits, but the source "
                f"split {origin!r} has {total}"
            )
        slices[name] = slice(start, start + size)
        start += size
    return slices


def normalised_text(example: Example) -> str:
    """Context, question and options as lower-case words and arithmetic signs; the order of the
    options does not matter.
    """
    parts = [
        example.get("context") or "",
        example["question"],
        *sorted(map(str, example.get("choices") or [])),
    ]
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


def find_overlaps(train: list[Example], test: list[Example], task: Task = None) -> list[Match]:
    """Every training example that matches a test example, with its best match.

    exact: the same normalised text. near: the share of the smaller set of word 5-grams that the
    larger set contains is at least NEAR; an inverted index finds the candidates, so the work
    grows with the matches. twin: a `task` with a function `twin` gives both the same value, such as
    for 3 + 5 and 5 + 3.
    """
    twin = getattr(task, "twin", None)
    exact = dict[str, str]()
    twins = {}
    index = defaultdict(list)
    texts = [normalised_text(example) for example in test]
    sets = [shingles(text) for text in texts]
    for i, example in enumerate(test):
        exact.setdefault(texts[i], example["id"])
        if twin:
            twins.setdefault(twin(example), example["id"])
        for shingle in sets[i]:
            index[shingle].append(i)
    matches = []
    for example in train:
        name = example["id"]
        text = normalised_text(example)
        if text in exact:
            matches.append(Match(name, exact[text], "exact"))
        elif twin and (same := twin(example)) in twins:
            matches.append(Match(name, twins[same], "twin"))
        else:
            own = shingles(text)
            # how many 5-grams each test example shares with this one
            shared = Counter(chain.from_iterable(index.get(shingle, ()) for shingle in own))
            shares = {i: count / min(len(own), len(sets[i])) for i, count in shared.items()}
            best = max(shares, key=lambda i: (shares[i], -i), default=None)
            if best is not None and shares[best] >= NEAR:
                matches.append(Match(name, test[best]["id"], "near", shares[best]))
    return matches
