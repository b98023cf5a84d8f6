"""The signs of rows that are not ranked, and what earns them: one criterion for tables, pages and
screens.
"""

from collections.abc import Iterable, Mapping
from typing import Any

UNREAD, COLLAPSED = "†", "‡"
# above it, a row's numbers say more about the default confidence than about the method
UNREAD_SHARE = 0.1
FEWEST_VALUES = 3  # a row that states fewer is a verdict, not a ranking
ROUNDING = 1e-12  # of a Brier score


def collapse(distinct: int | None, brier: float | None, accuracy: float | None) -> str | None:
    """Why a row of confidences says no more than one number for every item would; None if it says
    more.

    distinct: how many distinct confidences the row has. brier: its Brier score. accuracy: the share
    of right answers; as the confidence of every item it is the best constant, with a Brier score of
    accuracy (1 - accuracy). A number that is None, not known, decides nothing.

    >>> collapse(distinct=2, brier=0.10, accuracy=0.9)
    'only 2 distinct confidences'
    >>> collapse(distinct=40, brier=0.30, accuracy=0.5)
    'a Brier score of 0.300, above the 0.250 of the best constant'
    """
    if distinct is not None and distinct < FEWEST_VALUES:
        return f"only {distinct} distinct confidence{'s' * (distinct != 1)}"
    if brier is None or accuracy is None:
        return None
    best = accuracy * (1 - accuracy)
    if brier <= best + ROUNDING:
        return None
    return f"a Brier score of {brier:.3f}, above the {best:.3f} of the best constant"


def metrics_line(values: Mapping[str, Any], names: Iterable[str]) -> str:
    """The named metrics of a row for a screen, without undefined ones, and how many of its
    confidences could not be read. values: as `summarise` gives them.
    """
    texts = [f"{name} {values[name]:.4f}" for name in names if values[name] is not None]
    if unread := unread_line(values["n_unparsed"]["confidence"], values["n"]):
        texts.append(unread)
    return ", ".join(texts)


def unread_line(unread: int, n: int) -> str:
    """How many of a row's n confidences could not be read, for a screen; empty if all were."""
    if not unread:
        return ""
    if unread == n:
        return f"{n} of {n} confidences unread: no metrics of confidence"
    mark = f" {UNREAD}" if mostly_unread(unread, n) else ""
    return f"{unread} of {n} confidences unread, which count as the default{mark}"


def mostly_unread(unread: int, n: int) -> bool:
    """Whether more than a tenth of a row's n confidences could not be read and took the default."""
    return unread > UNREAD_SHARE * n
