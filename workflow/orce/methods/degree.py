"""Deg (Lin et al., 2024): one minus the mean similarity of the K samples, each with itself too.

Similarity compares words (Jaccard). U lies between 0 and 1 - 1 / K and becomes the confidence 1 - U K / (K - 1), which
is the mean similarity of two samples.
"""

from numpy.typing import NDArray

from orce.answers import similarity
from orce.records import Example, Seen
from orce.tasks import Task

LABEL, KIND = "Degree", "measured"


def uncertainty(weights: NDArray) -> float:
    """trace(K I - D) / K^2 of a similarity [K, K], D its row sums."""
    return float(1 - weights.mean())


def measure(seen: Seen, example: Example, task: Task) -> float | None:
    weights = similarity.shared_words(seen, example, task, "degree")
    return similarity.confidence(uncertainty(weights), 0, 1 - 1 / len(weights))
