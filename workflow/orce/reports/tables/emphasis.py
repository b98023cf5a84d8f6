"""Bold and underline: the best and the second best value of a column within one model's block."""

import math
from collections.abc import Sequence
from typing import TypeGuard

# Methods with the same answers may differ in accuracy by rounding of their sums: that counts as a tie.
TIE = 1e-12


def marks(values: Sequence[float | None], best: str | None) -> list[str]:
    """'best', 'second' or '' for each value, from unrounded values.

    Equal values share a mark, and the next distinct value is second. None and NaN are never marked, nor is a column in
    which every value is the same. `best` is 'max', 'min', or None for a column without marks.
    """
    if best is None:
        return [""] * len(values)
    sign = -1.0 if best == "max" else 1.0
    distinct: list[float] = []
    for value in sorted(sign * value for value in values if defined(value)):
        if not distinct or value - distinct[-1] > TIE:
            distinct.append(value)
    if len(distinct) < 2:
        return [""] * len(values)
    return [_mark(sign * value, distinct) if defined(value) else "" for value in values]


def defined(value: float | None) -> TypeGuard[float]:
    """Whether a value is a finite number: neither None nor NaN nor infinite."""
    return value is not None and math.isfinite(value)


def _mark(value: float, distinct: list[float]) -> str:
    for name, level in zip(("best", "second"), distinct, strict=False):
        if 0 <= value - level <= TIE:
            return name
    return ""
