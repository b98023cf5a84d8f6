"""Cutting one split of the source into several splits.

A split's size is a number of examples, a share of the source split ("1/3"), or None for the rest.
"""

from collections.abc import Mapping
from fractions import Fraction

from orce.errors import BadInput
from orce.stage_settings import Split

# Splits on which confidences are stated, in greedy answers. Settings are chosen on the first; tables are of the second.
TESTED = ("validation", "test")
SHOWN = "shots"  # worked examples in every prompt of the others; nothing is sampled on them


def cut(splits: Mapping[str, Split], origin: str, total: int) -> dict[str, slice]:
    """Where each split of some splits lies among the `total` examples of the source split `origin`.

    In order of names, those with a size first. Raises BadInput naming a split for which too little, or nothing, is left.
    """
    sizes = {name: spec.share for name, spec in splits.items() if spec.origin == origin}
    places, start = {}, 0
    for name in sorted(sizes, key=lambda name: (sizes[name] is None, name)):
        size = total - start if (asked := sizes[name]) is None else examples(asked, total)
        if not 0 < size <= total - start:
            raise BadInput(
                f"splits.{name}: size {asked or size} after {start} examples taken by other splits, but the source "
                f"split {origin!r} has {total}"
            )
        places[name] = slice(start, start + size)
        start += size
    return places


def examples(size: int | str, total: int) -> int:
    """The number of examples of a size; a share is rounded down."""
    return int(total * Fraction(size)) if isinstance(size, str) else size
