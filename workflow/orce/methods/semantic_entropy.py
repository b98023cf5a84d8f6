"""Semantic entropy (Farquhar et al., 2024), discrete: the entropy of the K samples' meanings.

Samples mean the same if the task gives their answers the same key; a sample that could not be read agrees with no
other. An entropy H in nats becomes the confidence 1 - H / ln K, which is 1 if all samples agree and 0 if no two do: the
map is decreasing, so every ranking metric is the same as for -H. The confidence is in the greedy answer.
"""

import math
from collections import Counter

from orce.answers import similarity
from orce.records import Example, Seen
from orce.tasks import Task

LABEL, KIND = "Semantic entropy", "measured"


def meanings(seen: Seen, example: Example, task: Task, method: str) -> list:
    """A key for each of the K samples, equal for the same meaning. Raises BadInput for K = 1, naming the method."""
    answers = enumerate(similarity.answers(seen, method))
    return [(i,) if answer is None else task.key(answer, example) for i, answer in answers]


def measure(seen: Seen, example: Example, task: Task) -> float | None:
    """1 - H / ln K in [0, 1]."""
    keys = meanings(seen, example, task, "semantic_entropy")
    shares = [count / len(keys) for count in Counter(keys).values()]
    entropy = -sum(share * math.log(share) for share in shares)
    return min(1.0, max(0.0, 1 - entropy / math.log(len(keys))))
