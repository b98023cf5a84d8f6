"""EigV (Lin et al., 2024): the sum of max(0, 1 - eigenvalue) of the samples' graph Laplacian, a continuous number of meanings.

The graph's weights are the words that samples share (Jaccard). The sum U lies between 1 and K and becomes the confidence
(K - U) / (K - 1).
"""

import numpy as np
from numpy.typing import NDArray

from orce.answers import similarity
from orce.records import Example, Seen
from orce.tasks import Task

LABEL, KIND = "EigV", "measured"


def uncertainty(weights: NDArray) -> float:
    """U of a similarity [K, K]."""
    return float(np.maximum(0, 1 - np.linalg.eigvalsh(similarity.laplacian(weights))).sum())


def measure(seen: Seen, example: Example, task: Task) -> float | None:
    weights = similarity.shared_words(seen, example, task, "eigv")
    return similarity.confidence(uncertainty(weights), 1, len(weights))
