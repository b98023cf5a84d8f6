"""Confidences that are computed from the K samples of a question, and from the probabilities of tokens.

A measure gets what a method sees (orce.artefacts.records.Seen), the example and its task, and returns a confidence in [0, 1], or None. Samples
mean the same if the task gives them the same key; a sample that could not be read means what no other does, and is like itself
alone. An uncertainty becomes 1 at the least value that it can have and 0 at the most, linear between: its ranking stays.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from orce.artefacts.records import Example, Seen
from orce.errors import BadInput
from orce.methods.method import Method
from orce.tasks import Task

DIGITS = 9  # of a confidence: rounded so that equal samples in another order stay tied
# The methods that ask which samples mean the same, and what is said where no two do.
BY_MEANING = {
    "consistency",
    "agreement",
    "semantic_entropy",
    "weighted_semantic_entropy",
    "num_sets",
}
APART = (
    "no two samples of a question are equal as texts; "
    "orce measure --group-by MODEL (in Python group_by=, in a configuration grading.group) asks a model which mean the same"
)
Matrix = NDArray[np.float64]  # [K, K]


def keys(answers: Sequence[str | None], example: Example, task: Task) -> list[Hashable]:
    """A key for each of the K samples, equal for the same meaning."""
    return [
        (i,) if answer is None else task.key(answer, example) for i, answer in enumerate(answers)
    ]


def all_apart(samples: Iterable[tuple[Sequence[str | None], Example]], task: Task) -> bool:
    """Whether some questions have two samples that could be read, and no two of a question mean the same to the task."""
    several = False
    for answers, example in samples:
        read = [answer for answer in answers if answer is not None]
        if len({*keys(read, example, task)}) < len(read):
            return False
        several = several or len(read) > 1
    return several


def texts(answers: Sequence[str | None], example: Example, task: Task) -> list[str | None]:
    """The K answers as the task shows them, sorted, as no measure depends on their order; None for one that could not be read."""
    shown = [None if answer is None else task.display(answer, example) for answer in answers]
    return sorted(shown, key=lambda text: (text is None, text or ""))


def scaled(uncertainty: float, least: float, most: float) -> float:
    return round(min(1.0, max(0.0, (most - uncertainty) / (most - least))), DIGITS)


# Methods on the samples


def consistency(
    answers: list[str | None], example: Example, task: Task
) -> tuple[str | None, float]:
    """Wang et al. (2023), Xiong et al. (2024): the most frequent answer and its share of all samples, unread ones included.

    The first answer seen wins a tie; no readable answer gives (None, 0.0).
    """
    keyed = [None if answer is None else task.key(answer, example) for answer in answers]
    counts = Counter(key for key in keyed if key is not None)
    if not counts:
        return None, 0.0
    winner = max(counts, key=lambda key: counts[key])
    return answers[keyed.index(winner)], counts[winner] / len(answers)


def agreement(seen: Seen, example: Example, task: Task) -> float:
    """The share of samples that mean the same as the greedy answer; unread samples stay in the denominator."""
    greedy, answers = seen["greedy"]["answer"], seen["answers"]
    if greedy is None:
        return 0.0
    key = task.key(greedy, example)
    return sum(answer is not None and task.key(answer, example) == key for answer in answers) / len(
        answers
    )


def semantic_entropy(meanings: list[Hashable], _) -> float:
    """Farquhar et al. (2024), discrete: 1 - H / ln K, H the entropy of the samples' meanings in nats."""
    k, counts = len(meanings), Counter(meanings).values()
    # ln K - H is the logarithm of an integer over K: equal entropies are equal floats, in any order of the samples.
    return min(1.0, math.log(math.prod(count**count for count in counts)) / (k * math.log(k)))


def weighted_entropy(logprobs: Sequence[float], keys: Sequence[Hashable]) -> float:
    """H in nats of the meanings `keys` [K] of samples with the log-probabilities `logprobs` [K], of any common scale."""
    top = max(logprobs)
    weights: dict[Hashable, list[float]] = {}
    for logprob, key in zip(logprobs, keys, strict=True):
        weights.setdefault(key, []).append(math.exp(logprob - top))
    mass = [math.fsum(own) for own in weights.values()]
    whole = math.fsum(mass)
    return math.fsum(-weight / whole * math.log(weight / whole) for weight in mass if weight)


def weighted_semantic_entropy(meanings: list[Hashable], seen: Seen) -> float | None:
    """The same, each sample with its length-normalised probability, as Farquhar et al.; None if a sample is empty."""
    if not all(seen["sample_logprobs"]):
        return None
    means = [math.fsum(tokens) / len(tokens) for tokens in seen["sample_logprobs"]]
    return scaled(weighted_entropy(means, meanings), 0, math.log(len(meanings)))


def num_sets(meanings: list[Hashable], _) -> float:
    """Lin et al. (2024): m meanings become (K - m) / (K - 1)."""
    return scaled(len(set(meanings)), 1, len(meanings))


# How alike two samples are


def matrix(texts: Sequence[str | None], alike: Callable[[str, str], float]) -> Matrix:
    """The symmetric matrix of `alike`, with a diagonal of 1."""
    similarity = np.eye(len(texts))
    for (i, first), (j, second) in itertools.combinations(enumerate(texts), 2):
        if first is not None and second is not None:
            similarity[i, j] = similarity[j, i] = alike(first, second)
    return similarity


def jaccard(first: str, second: str) -> float:
    """Words that two texts share over words that either has, without regard to case (Lin et al., 2024)."""
    a, b = set(first.lower().split()), set(second.lower().split())
    return len(a & b) / max(1, len(a | b))


def rouge_l(first: str, second: str) -> float:
    """ROUGE-L, F1 (Lin, 2004) on runs of a-z and 0-9 as rouge-score takes them without a stemmer; on characters for a
    text without such runs."""
    a, b = (re.findall("[a-z0-9]+", text.lower()) or [*text.strip()] for text in (first, second))
    row = [0] * (len(b) + 1)  # of longest common subsequences
    for token in a:
        before = 0
        for j, same in enumerate(b, 1):
            before, row[j] = row[j], before + 1 if token == same else max(row[j], row[j - 1])
    return 2 * row[-1] / max(1, len(a) + len(b))


def lexical_similarity(shown: list[str | None], _) -> float:
    """Kuhn et al. (2023): the mean ROUGE-L of all pairs."""
    similarity = matrix(shown, rouge_l)
    return round(float(similarity[np.triu_indices(len(similarity), 1)].mean()), DIGITS)


def laplacian(weights: Matrix) -> Matrix:
    """I - D^-1/2 W D^-1/2 for W [K, K], D its row sums."""
    scale = 1 / np.sqrt(weights.sum(1))
    return np.eye(len(weights)) - scale[:, None] * weights * scale


def degree_uncertainty(weights: Matrix) -> float:
    """Lin et al. (2024): trace(K I - D) / K^2, D the row sums."""
    return float(1 - weights.mean())


def eigv_uncertainty(weights: Matrix) -> float:
    """Lin et al. (2024): the sum of max(0, 1 - eigenvalue) of the Laplacian, a continuous number of meanings, 1 to K."""
    return float(np.maximum(0, 1 - np.linalg.eigvalsh(laplacian(weights))).sum())


def eccentricity_uncertainty(weights: Matrix) -> float:
    """Lin et al. (2024): how far the samples lie from their centre in the eigenvectors of eigenvalues below 0.9."""
    values, vectors = np.linalg.eigh(laplacian(weights))
    kept = vectors[:, values < 0.9 - 1e-9]  # the same on every processor for an eigenvalue of 0.9
    return float(np.linalg.norm(kept - kept.mean(0)))


def kle_uncertainty(weights: Matrix) -> float:
    """Nikitin et al. (2024): the von Neumann entropy of the heat kernel exp(-0.3 L), scaled to a diagonal of 1 / K.

    L = D - W for W twice the similarity, as the paper adds both directions.
    """
    both = 2 * weights
    values, vectors = np.linalg.eigh(np.diag(both.sum(1)) - both)
    kernel = (vectors * np.exp(-0.3 * values)) @ vectors.T
    scale = 1 / np.sqrt(np.diag(kernel))
    shares = np.linalg.eigvalsh(scale[:, None] * kernel * scale / len(kernel))
    return float(-(shares[shares > 0] * np.log(shares[shares > 0])).sum())


# The methods


def _measured(label: str, measure, *reads: str) -> Method:
    return Method(label, "measured", reads, measure=measure)


def _compared(name: str, label: str, form: Callable, score: Callable, *reads: str) -> Method:
    """A method that needs at least two samples, and their meanings (`keys`) or their `texts`: score(form of them, seen)."""

    def measure(seen: Seen, example: Example, task: Task) -> float | None:
        if len(seen["answers"]) < 2:
            raise BadInput(
                f"{name} needs at least two samples of each prompt; raise answers.samples"
            )
        return score(form(seen["answers"], example, task), seen)

    return _measured(label, measure, *reads)


def _on_words(
    name: str,
    label: str,
    uncertainty: Callable[[Matrix], float],
    least: float,
    most: Callable[[int], float],
):
    """An uncertainty of the samples' shared words, between `least` and `most` of K."""
    return _compared(
        name,
        label,
        texts,
        lambda shown, _: scaled(uncertainty(matrix(shown, jaccard)), least, most(len(shown))),
    )


def _of_tokens(label: str, combined: Callable[[list[float]], float]) -> Method:
    """exp(`combined`) of the log-probabilities of the greedy answer's tokens, without the one that ends the turn; None without any."""
    return _measured(
        label,
        lambda seen, *_: math.exp(combined(seen["logprobs"])) if seen["logprobs"] else None,
        "logprobs",
    )


METHODS = {
    "consistency": Method("Consistency", "measured", state=consistency),
    "agreement": _measured("Agreement", agreement),
    "semantic_entropy": _compared("semantic_entropy", "Semantic entropy", keys, semantic_entropy),
    "weighted_semantic_entropy": _compared(
        "weighted_semantic_entropy",
        "Weighted semantic entropy",
        keys,
        weighted_semantic_entropy,
        "sample_logprobs",
    ),
    "num_sets": _compared("num_sets", "Number of meanings", keys, num_sets),
    "lexical_similarity": _compared(
        "lexical_similarity", "Lexical similarity", texts, lexical_similarity
    ),
    "degree": _on_words("degree", "Degree", degree_uncertainty, 0, lambda k: 1 - 1 / k),
    "eigv": _on_words("eigv", "EigV", eigv_uncertainty, 1, lambda k: k),
    "eccentricity": _on_words(
        "eccentricity", "Eccentricity", eccentricity_uncertainty, 0, lambda k: math.sqrt(k - 1)
    ),
    "kle": _on_words("kle", "Kernel language entropy", kle_uncertainty, 0, math.log),
    # The geometric mean of the tokens' probabilities (Malinin and Gales, 2021).
    "likelihood": _of_tokens("Token probability", lambda logprobs: sum(logprobs) / len(logprobs)),
    "sequence_probability": _of_tokens("Sequence probability", sum),
    "min_likelihood": _of_tokens("Minimum token probability", min),  # Manakul et al. (2023)
    # Kadavath et al. (2022), zero-shot: p("A") / (p("A") + p("B")), A for True; orce.stages.likelihoods has the prompt.
    "p_true": _measured("P(True)", lambda seen, example, task: seen["p_true"], "likelihoods"),
}
