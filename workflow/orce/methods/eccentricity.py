"""Ecc (Lin et al., 2024): how far the K samples lie from their centre in the Laplacian's leading eigenvectors.

The graph's weights are the words that samples share (Jaccard). U lies between 0 and sqrt(K - 1) and becomes the confidence
1 - U / sqrt(K - 1).
"""

import math

import numpy as np
from numpy.typing import NDArray

from orce.answers import similarity
from orce.records import Example, Seen
from orce.tasks import Task

LABEL, KIND = "Eccentricity", "measured"
THRESHOLD = 0.9  # eigenvectors of smaller eigenvalues count; the paper's and lm-polygraph's


def uncertainty(weights: NDArray) -> float:
    """The norm of the kept eigenvectors, each minus its mean, of a similarity [K, K]."""
    values, vectors = np.linalg.eigh(similarity.laplacian(weights))
    kept = vectors[:, values < THRESHOLD - 1e-9]  # the same on every processor for an eigenvalue of 0.9
    return float(np.linalg.norm(kept - kept.mean(0)))


def measure(seen: Seen, example: Example, task: Task) -> float | None:
    weights = similarity.shared_words(seen, example, task, "eccentricity")
    return similarity.confidence(uncertainty(weights), 0, math.sqrt(len(weights) - 1))
