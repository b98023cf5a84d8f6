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

# Splits on whose greedy answers confidences are stated. Settings are chosen on the first; tables
# show the second.
TESTED = ("validation", "test")
SHOWN = "shots"  # split of the worked examples in every prompt; no answer to these is sampled
SHINGLE = 5  # words
NEAR = 0.8  # least share of common shingles of two questions that are nearly the same


def split_slices(splits: Mapping[str, Split], origin: str, total: int) -> dict[str, slice]:
    """The slice of each split among the `total` examples of the source split `origin`.

    A size is a number, a share of the source split ("1/3", rounded down), or None for the rest. The
    splits with a size come first, each kind in the order of its names. Raises BadInput naming a
    split for which too little, or nothing, is left.
    """
    sizes = {name: spec.share for name, spec in splits.items() if spec.origin == origin}
    slices = {}
    start = 0
    for name in sorted(sizes, key=lambda name: (sizes[name] is None, name)):
        asked = sizes[name]
        if asked is None:
            size = total - start
        else:
            size = int(total * Fraction(asked)) if isinstance(asked, str) else asked
        if not 0 < size <= total - start:
            taken = f"after {start} examples taken by other splits"
            there = f"but the source split {origin!r} has {total}"
            raise BadInput(f"splits.{name}: size {asked or size} {taken}, {there}")
        slices[name] = slice(start, start + size)
        start += size
    return slices


def normalised_text(example: Example) -> str:
    """Context, question and options as lower-case words and arithmetic signs, the options in the
    order of the alphabet.
    """
    options = sorted(map(str, example.get("choices") or []))
    text = " ".join([example.get("context") or "", example["question"], *options])
    return " ".join(re.findall(r"\w+|[-+*/=<>%^]", text.casefold()))


def shingles(text: str) -> frozenset:
    """Word 5-grams of a normalised text; a shorter text is one shingle."""
    words = text.split()
    starts = range(max(1, len(words) - SHINGLE + 1))
    return frozenset(tuple(words[i : i + SHINGLE]) for i in starts)


class Match(NamedTuple):
    """The ids of a training and a test example that are alike; kind: exact, twin or near.

    containment: the share of the smaller set of shingles that the larger one contains.
    """

    train: str
    test: str
    kind: str
    containment: float = 1.0


def find_overlaps(train: list[Example], test: list[Example], task: Task = None) -> list[Match]:
    """Every training example that matches a test example, with its best match.

    exact: the same normalised text. twin: a `task` with a function `twin` gives both the same value,
    such as for 3 + 5 and 5 + 3. near: a containment of at least NEAR; an inverted index finds the
    candidates, so the work grows with the matches.
    """
    twin = getattr(task, "twin", None)
    exact = dict[str, str]()
    twins = {}
    sets = []
    index = defaultdict(list)  # {shingle: numbers of the test examples that have it}
    for i, example in enumerate(test):
        text = normalised_text(example)
        exact.setdefault(text, example["id"])
        if twin:
            twins.setdefault(twin(example), example["id"])
        sets.append(shingles(text))
        for shingle in sets[i]:
            index[shingle].append(i)
    matches = []
    for example in train:
        name = example["id"]
        text = normalised_text(example)
        if text in exact:
            matches.append(Match(name, exact[text], "exact"))
            continue
        if twin and (value := twin(example)) in twins:
            matches.append(Match(name, twins[value], "twin"))
            continue
        own = shingles(text)
        # {number of a test example: how many shingles it shares with this one}
        shared = Counter(chain.from_iterable(index.get(shingle, ()) for shingle in own))
        shares = {}
        for i, count in shared.items():
            shares[i] = count / min(len(own), len(sets[i]))
        best = max(shares, key=lambda i: (shares[i], -i), default=None)
        if best is not None and shares[best] >= NEAR:
            matches.append(Match(name, test[best]["id"], "near", shares[best]))
    return matches
