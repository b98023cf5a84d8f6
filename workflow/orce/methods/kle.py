"""Kernel language entropy (Nikitin et al., 2024): the von Neumann entropy of the heat kernel on the samples' graph.

The graph's weights are the words that samples share (Jaccard), in both directions as the paper adds them. An entropy H in
nats becomes the confidence 1 - H / ln K: 0 if no two samples share a word, below 1 where all agree, as heat needs time.
"""

import math

import numpy as np
from numpy.typing import NDArray

from orce.answers import similarity
from orce.records import Example, Seen
from orce.tasks import Task

LABEL, KIND = "Kernel language entropy", "measured"
TIME = 0.3  # of the heat kernel; the paper's


def uncertainty(weights: NDArray) -> float:
    """H of a similarity [K, K]: exp(-TIME L) scaled to a diagonal of 1 / K, L = D - W, W twice the similarity."""
    both = 2 * weights
    values, vectors = np.linalg.eigh(np.diag(both.sum(1)) - both)
    kernel = (vectors * np.exp(-TIME * values)) @ vectors.T
    scale = 1 / np.sqrt(np.diag(kernel))
    shares = np.linalg.eigvalsh(scale[:, None] * kernel * scale / len(kernel))
    kept = shares[shares > 0]
    return float(-(kept * np.log(kept)).sum())


def measure(seen: Seen, example: Example, task: Task) -> float | None:
    weights = similarity.shared_words(seen, example, task, "kle")
    return similarity.confidence(uncertainty(weights), 0, math.log(len(weights)))
