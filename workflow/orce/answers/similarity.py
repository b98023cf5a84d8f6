"""How alike the K samples of a question are: texts, matrices [K, K] in [0, 1], and the graph Laplacian of such a matrix.

Methods on these are functions of a matrix, whatever made it. A sample that could not be read is like itself alone.
"""

import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from orce.errors import BadInput
from orce.records import Example, Seen
from orce.tasks import Task

Texts = Sequence[str | None]
DIGITS = 9  # of a confidence: a matrix and its permutation have equal eigenvalues to rounding, and shall stay tied


def answers(seen: Seen, method: str) -> list[str | None]:
    """The K answers of a record. Raises BadInput for K = 1, naming the method that compares samples."""
    if len(seen["answers"]) < 2:
        raise BadInput(f"{method} needs at least two samples of each prompt; raise answers.samples")
    return seen["answers"]


def texts(seen: Seen, example: Example, task: Task, method: str) -> list[str | None]:
    """The K answers as the task shows them; None for one that could not be read."""
    return [None if one is None else task.display(one, example) for one in answers(seen, method)]


def matrix(texts: Texts, alike: Callable[[str, str], float]) -> NDArray[np.float64]:
    """The symmetric matrix of `alike`, with a diagonal of 1."""
    found = np.eye(len(texts))
    for i, one in enumerate(texts):
        for j, other in enumerate(texts[:i]):
            if one is not None and other is not None:
                found[i, j] = found[j, i] = alike(one, other)
    return found


def jaccard(texts: Texts) -> NDArray[np.float64]:
    """Words that two texts share over words that either has, without regard to case (Lin et al., 2024)."""

    def alike(one: str, other: str) -> float:
        first, second = set(one.lower().split()), set(other.lower().split())
        return len(first & second) / max(1, len(first | second))

    return matrix(texts, alike)


def shared_words(seen: Seen, example: Example, task: Task, method: str) -> NDArray[np.float64]:
    """`jaccard` of the K samples."""
    return jaccard(texts(seen, example, task, method))


def rouge_l(texts: Texts) -> NDArray[np.float64]:
    """ROUGE-L, F1 (Lin, 2004) on runs of a-z and 0-9 as rouge-score takes them without a stemmer; on characters for a
    text without such runs."""
    return matrix(texts, lambda one, other: _f1(*(_tokens(text) for text in (one, other))))


def laplacian(similarity: NDArray[np.float64]) -> NDArray[np.float64]:
    """I - D^-1/2 W D^-1/2 for W [K, K], D its row sums."""
    scale = 1 / np.sqrt(similarity.sum(1))
    return np.eye(len(similarity)) - scale[:, None] * similarity * scale


def confidence(uncertainty: float, least: float, most: float) -> float:
    """1 at the least uncertainty that a measure can have, 0 at the most, linear between."""
    return round(min(1.0, max(0.0, (most - uncertainty) / (most - least))), DIGITS)


def _tokens(text: str) -> list[str]:
    return re.findall("[a-z0-9]+", text.lower()) or [*text.strip()]


def _f1(one: list[str], other: list[str]) -> float:
    """2 LCS / (m + n): the harmonic mean of LCS / m and LCS / n."""
    row = [0] * (len(other) + 1)
    for token in one:
        before = 0
        for j, same in enumerate(other, 1):
            before, row[j] = row[j], before + 1 if token == same else max(row[j], row[j - 1])
    return 2 * row[-1] / max(1, len(one) + len(other))
