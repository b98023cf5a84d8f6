"""Semantic entropy (Kuhn et al., 2023; Farquhar et al., 2024), weighted: each sample counts with its own probability.

p(meaning) is the sum of its samples' probabilities over the sum of all samples', repeated ones included; a sample's
probability is length-normalised, the geometric mean of its tokens', as in Farquhar et al. The entropy H in nats becomes
1 - H / ln K, as in `semantic_entropy`. Kuhn et al.'s own estimate is the mean of -log p(meaning) over the meanings;
lm-polygraph's is that over the samples, with products of the tokens' probabilities that are not normalised.
"""

import math
from collections.abc import Hashable, Sequence

from orce.answers import similarity
from orce.methods.semantic_entropy import meanings
from orce.records import Example, Seen
from orce.tasks import Task

LABEL, KIND, READS = "Weighted semantic entropy", "measured", ("sample_logprobs",)


def uncertainty(logprobs: Sequence[float], keys: Sequence[Hashable]) -> float:
    """H in nats of the meanings `keys` [K] of samples with the log-probabilities `logprobs` [K], of any common scale."""
    top = max(logprobs)
    mass: dict[Hashable, float] = {}
    for logprob, key in zip(logprobs, keys, strict=True):
        mass[key] = mass.get(key, 0.0) + math.exp(logprob - top)
    whole = math.fsum(mass.values())
    return math.fsum(-part / whole * math.log(part / whole) for part in mass.values() if part)


def measure(seen: Seen, example: Example, task: Task) -> float | None:
    """1 - H / ln K in [0, 1]; None if a sample is empty, as no token of it has a probability."""
    keys = meanings(seen, example, task, "weighted_semantic_entropy")
    if not all(seen["sample_logprobs"]):
        return None
    means = [math.fsum(tokens) / len(tokens) for tokens in seen["sample_logprobs"]]
    return similarity.confidence(uncertainty(means, keys), 0, math.log(len(keys)))
