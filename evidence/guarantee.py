"""Does the bound on the error rate hold on answers that it was not chosen on (orce.evaluation.selective)?

The questions of a dataset are cut in half at random, again and again: the threshold is chosen on the answers to one half,
and the error rate of the answers that it keeps is counted on the other. All seeds' answers to a question are in one half.
"""

from typing import NamedTuple

import numpy as np

from evidence.cells import Cell
from orce.evaluation.selective import threshold_for_risk

RISKS = (0.2, 0.3, 0.4)
# The promise is on the true error rate, about which both halves scatter: a difference of two such has sqrt(2) times the
# standard deviation of one, and 1.645 sqrt(2) = 2.33, so that what is promised with 0.99 holds on halves with some 0.95.
DELTAS = (0.05, 0.01)
SPLITS = 100


class Kept(NamedTuple):
    """Of `SPLITS` splits: under the bound on the other half, with any threshold; mean share of answers kept there."""

    under: int
    answered: int
    coverage: float


def pooled(cells: dict[int, Cell], reading: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """confidence [n], correct [n] and question [n], the same number for the same id, of all seeds' items."""
    found = [cell for cell in cells.values() if reading in cell.confidence]
    ids = [name for cell in found for name in cell.ids]
    confidence, correct = [cell.confidence[reading] for cell in found], [cell.correct for cell in found]
    question = np.unique(np.array(ids, dtype=str), return_inverse=True)[1]
    return np.concatenate(confidence or [[]]), np.concatenate(correct or [[]]), question


def on_halves(confidence: np.ndarray, correct: np.ndarray, question: np.ndarray, risk: float, delta: float) -> Kept:
    """What becomes of the bound `risk` on random halves of the questions; nothing kept is an error rate of 0.

    confidence [n] and correct [n] of the items, question [n]: which of the questions 0, 1, ... each is about.
    """
    under, coverage, answered = 0, [], 0
    n = int(question.max()) + 1
    for seed in range(SPLITS):
        first = np.isin(question, np.random.default_rng(seed).permutation(n)[: n // 2])
        half, other = np.flatnonzero(first), np.flatnonzero(~first)
        selection = threshold_for_risk(confidence[half], correct[half], risk, delta)
        kept = np.array([selection.keeps(one) for one in confidence[other]], dtype=bool)
        errors = int((correct[other][kept] == 0).sum())
        under += errors <= risk * kept.sum()
        answered += selection.threshold is not None
        coverage.append(kept.mean())
    return Kept(under, answered, float(np.mean(coverage)))
