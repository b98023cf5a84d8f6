"""Confidences that are computed from the K samples of a question, and from the probabilities of
tokens.

A measure gets what a method sees (orce.artefacts.records.Seen), the example and its task, and
returns a confidence in [0, 1], or None. Samples mean the same if the task gives them the same key;
an unreadable sample is its own meaning, similar only to itself. Uncertainties map linearly to
confidence: minimum -> 1, maximum -> 0.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import wraps

import numpy as np
from numpy.typing import NDArray

from orce.artefacts.records import Example, Seen
from orce.errors import BadInput
from orce.methods.method import Method
from orce.tasks import Task

DIGITS = 9  # of a confidence: rounded so that equal samples in another order stay tied
# The methods that ask which samples mean the same.
BY_MEANING = {
    "consistency",
    "agreement",
    "semantic_entropy",
    "weighted_semantic_entropy",
    "num_sets",
}
# What is said where no two samples do.
APART = (
    "no two samples of a question are equal as texts; orce measure --group-by MODEL"
    " (in Python group_by=, in a configuration grading.group) asks a model which mean the same"
)
Measure = Callable[[Seen, Example, Task], float | None]
Matrix = NDArray[np.float64]  # [K, K]


# The samples as meanings and as texts


def meaning_keys(answers: Sequence[str | None], example: Example, task: Task) -> list[Hashable]:
    """A key for each of the K samples, equal for the same meaning; an unreadable one has its own."""
    return [object() if answer is None else task.key(answer, example) for answer in answers]


def needs_two_samples(measure: Measure) -> Measure:
    """The measure, which raises BadInput with its name for fewer than two samples."""

    @wraps(measure)
    def checked(seen: Seen, example: Example, task: Task) -> float | None:
        if len(seen["answers"]) < 2:
            few = f"{measure.__name__} needs at least two samples of each prompt"
            raise BadInput(f"{few}; raise answers.samples, or --samples")
        return measure(seen, example, task)

    return checked


def texts(seen: Seen, example: Example, task: Task) -> list[str | None]:
    """The samples as the task shows them, None for an unreadable one; sorted, so that their order
    does not matter.
    """
    shown = []
    for answer in seen["answers"]:
        shown.append(None if answer is None else task.display(answer, example))
    return sorted(shown, key=lambda text: (text is None, text or ""))


def scaled(uncertainty: float, least: float, most: float) -> float:
    """The confidence of an uncertainty between `least`, which becomes 1, and `most`, 0."""
    return round(min(1.0, max(0.0, (most - uncertainty) / (most - least))), DIGITS)


# Methods on the meanings of the samples


def consistency(
    answers: list[str | None], example: Example, task: Task
) -> tuple[str | None, float]:
    """Wang et al. (2023), Xiong et al. (2024): the most frequent answer and its share of all
    samples, unread ones included.

    The first answer seen wins a tie; no readable answer gives (None, 0.0).
    """
    keys = [None if answer is None else task.key(answer, example) for answer in answers]
    counts = Counter(key for key in keys if key is not None)
    if not counts:
        return None, 0.0
    [(winner, count)] = counts.most_common(1)
    return answers[keys.index(winner)], count / len(answers)


def agreement(seen: Seen, example: Example, task: Task) -> float:
    """The share of samples that mean the same as the greedy answer; unread samples stay in the
    denominator.
    """
    greedy = seen["greedy"]["answer"]
    if greedy is None:
        return 0.0
    keys = meaning_keys(seen["answers"], example, task)
    return keys.count(task.key(greedy, example)) / len(keys)


@needs_two_samples
def semantic_entropy(seen: Seen, example: Example, task: Task) -> float:
    """Discrete semantic entropy (Farquhar et al., 2024): 1 - H / ln K, H = -sum_m n_m / K ln(n_m /
    K) in nats.

    n_m of the K samples have meaning m: 1 where all mean the same, 0 where no two do.
    """
    keys = meaning_keys(seen["answers"], example, task)
    k = len(keys)
    # ln K - H = ln(prod_m n_m^n_m) / K, the logarithm of an integer over K: equal entropies are
    # equal floats, in any order of the samples.
    product = math.prod(count**count for count in Counter(keys).values())
    return min(1.0, math.log(product) / (k * math.log(k)))


def weighted_entropy(logprobs: Sequence[float], keys: Sequence[Hashable]) -> float:
    """H in nats of the meanings `keys` [K] of samples with the log-probabilities `logprobs` [K], of
    any common scale.
    """
    top = max(logprobs)
    weights: dict[Hashable, list[float]] = {}
    for logprob, key in zip(logprobs, keys, strict=True):
        weights.setdefault(key, []).append(math.exp(logprob - top))
    # fsum is exact, so the order of the samples does not matter.
    mass = [math.fsum(of_meaning) for of_meaning in weights.values()]
    total = math.fsum(mass)
    return math.fsum(-weight / total * math.log(weight / total) for weight in mass if weight)


@needs_two_samples
def weighted_semantic_entropy(seen: Seen, example: Example, task: Task) -> float | None:
    """Semantic entropy (Farquhar et al., 2024) with each sample's length-normalised probability in
    place of 1 / K; None if a sample is empty. H is from 0 to ln K.
    """
    keys = meaning_keys(seen["answers"], example, task)
    if not all(seen["sample_logprobs"]):
        return None
    means = [math.fsum(tokens) / len(tokens) for tokens in seen["sample_logprobs"]]
    return scaled(weighted_entropy(means, keys), 0, math.log(len(keys)))


@needs_two_samples
def num_sets(seen: Seen, example: Example, task: Task) -> float:
    """Number of semantic sets (Lin et al., 2024): m meanings of K samples, from 1 to K, become (K -
    m) / (K - 1).
    """
    keys = meaning_keys(seen["answers"], example, task)
    return scaled(len(set(keys)), 1, len(keys))


def all_apart(samples: Iterable[tuple[Sequence[str | None], Example]], task: Task) -> bool:
    """Whether no two samples of a question mean the same to the task, though some question has two
    that could be read.
    """
    several = False
    for answers, example in samples:
        read = [answer for answer in answers if answer is not None]
        if len({*meaning_keys(read, example, task)}) < len(read):
            return False
        several = several or len(read) > 1
    return several


# How alike two samples are


def similarity_matrix(
    texts: Sequence[str | None], similarity: Callable[[str, str], float]
) -> Matrix:
    """The symmetric matrix of `similarity`, with a diagonal of 1, and 0 between an unreadable
    sample and any other.
    """
    matrix = np.eye(len(texts))
    for (i, first), (j, second) in itertools.combinations(enumerate(texts), 2):
        if first is not None and second is not None:
            matrix[i, j] = matrix[j, i] = similarity(first, second)
    return matrix


def jaccard(first: str, second: str) -> float:
    """Words that two texts share over words that either has, without regard to case (Lin et al.,
    2024).
    """
    a = set(first.lower().split())
    b = set(second.lower().split())
    return len(a & b) / max(1, len(a | b))


def rouge_l(first: str, second: str) -> float:
    """ROUGE-L, F1 (Lin, 2004): twice the length of the longest common subsequence over the length
    of both texts, in the words that rouge-score takes without a stemmer.
    """
    a = rouge_words(first)
    b = rouge_words(second)
    # Of the tokens of a so far and each prefix of b: the length of the common subsequence.
    row = [0] * (len(b) + 1)
    for token in a:
        diagonal = 0
        for j, other in enumerate(b, 1):
            longest = diagonal + 1 if token == other else max(row[j], row[j - 1])
            diagonal = row[j]
            row[j] = longest
    return 2 * row[-1] / max(1, len(a) + len(b))


def rouge_words(text: str) -> list[str]:
    """Runs of a-z and 0-9; the characters of a text without such runs."""
    return re.findall("[a-z0-9]+", text.lower()) or [*text.strip()]


@needs_two_samples
def lexical_similarity(seen: Seen, example: Example, task: Task) -> float:
    """Lexical similarity (Kuhn et al., 2023): the mean ROUGE-L of all pairs of samples, from 0 to
    1.
    """
    similarity = similarity_matrix(texts(seen, example, task), rouge_l)
    pairs = similarity[np.triu_indices(len(similarity), 1)]
    return round(float(pairs.mean()), DIGITS)


# Uncertainties of W, the Jaccard similarities [K, K] of the samples' words


def of_shared_words(confidence: Callable[[Matrix], float]) -> Measure:
    """The measure of a confidence that is a function of W."""

    @needs_two_samples
    @wraps(confidence)
    def measure(seen: Seen, example: Example, task: Task) -> float:
        return confidence(similarity_matrix(texts(seen, example, task), jaccard))

    return measure


def laplacian(weights: Matrix) -> Matrix:
    """I - D^-1/2 W D^-1/2 for W [K, K], D its row sums."""
    scale = 1 / np.sqrt(weights.sum(1))
    return np.eye(len(weights)) - scale[:, None] * weights * scale


def degree_uncertainty(weights: Matrix) -> float:
    """trace(K I - D) / K^2, D the row sums of W."""
    return float(1 - weights.mean())


@of_shared_words
def degree(weights: Matrix) -> float:
    """Degree (Lin et al., 2024): `degree_uncertainty`, from 0 to 1 - 1 / K."""
    return scaled(degree_uncertainty(weights), 0, 1 - 1 / len(weights))


def eigv_uncertainty(weights: Matrix) -> float:
    """The sum of max(0, 1 - eigenvalue) of the Laplacian, a continuous number of meanings."""
    return float(np.maximum(0, 1 - np.linalg.eigvalsh(laplacian(weights))).sum())


@of_shared_words
def eigv(weights: Matrix) -> float:
    """EigV (Lin et al., 2024): `eigv_uncertainty`, from 1 to K."""
    return scaled(eigv_uncertainty(weights), 1, len(weights))


def eccentricity_uncertainty(weights: Matrix) -> float:
    """How far the samples lie from their centre in the eigenvectors of the Laplacian with
    eigenvalues below 0.9.
    """
    values, vectors = np.linalg.eigh(laplacian(weights))
    small = vectors[:, values < 0.9 - 1e-9]  # leaves out 0.9 itself on every processor
    return float(np.linalg.norm(small - small.mean(0)))


@of_shared_words
def eccentricity(weights: Matrix) -> float:
    """Eccentricity (Lin et al., 2024): `eccentricity_uncertainty`, from 0 to sqrt(K - 1)."""
    return scaled(eccentricity_uncertainty(weights), 0, math.sqrt(len(weights) - 1))


def kle_uncertainty(weights: Matrix) -> float:
    """The von Neumann entropy of the heat kernel exp(-0.3 L), scaled to a diagonal of 1 / K.
    L = D - W for W twice the similarity, as the paper adds both directions.
    """
    both = 2 * weights
    values, vectors = np.linalg.eigh(np.diag(both.sum(1)) - both)
    kernel = (vectors * np.exp(-0.3 * values)) @ vectors.T
    scale = 1 / np.sqrt(np.diag(kernel))
    shares = np.linalg.eigvalsh(scale[:, None] * kernel * scale / len(kernel))
    shares = shares[shares > 0]
    return float(-(shares * np.log(shares)).sum())


@of_shared_words
def kle(weights: Matrix) -> float:
    """Kernel language entropy (Nikitin et al., 2024): `kle_uncertainty`, from 0 to ln K."""
    return scaled(kle_uncertainty(weights), 0, math.log(len(weights)))


# Methods on the log-probabilities of the greedy answer's tokens, the end of the turn left out; None
# for an empty answer


def likelihood(seen: Seen, example: Example, task: Task) -> float | None:
    """The geometric mean of the tokens' probabilities (Malinin and Gales, 2021)."""
    logprobs = seen["logprobs"]
    return math.exp(sum(logprobs) / len(logprobs)) if logprobs else None


def sequence_probability(seen: Seen, example: Example, task: Task) -> float | None:
    """The probability of the answer, the product over its tokens."""
    return math.exp(sum(seen["logprobs"])) if seen["logprobs"] else None


def min_likelihood(seen: Seen, example: Example, task: Task) -> float | None:
    """The least probable token's probability (Manakul et al., 2023)."""
    return math.exp(min(seen["logprobs"])) if seen["logprobs"] else None


def p_true(seen: Seen, example: Example, task: Task) -> float:
    """P(True), zero-shot (Kadavath et al., 2022): p("A") / (p("A") + p("B")), A for True;
    orce.stages.likelihoods has the prompt.
    """
    return seen["p_true"]


def _measured(label: str, measure: Callable, *reads: str) -> Method:
    return Method(label, "measured", reads, measure=measure)


METHODS = {
    "consistency": Method("Consistency", "measured", state=consistency),
    "agreement": _measured("Agreement", agreement),
    "semantic_entropy": _measured("Semantic entropy", semantic_entropy),
    "weighted_semantic_entropy": _measured(
        "Weighted semantic entropy", weighted_semantic_entropy, "sample_logprobs"
    ),
    "num_sets": _measured("Number of meanings", num_sets),
    "lexical_similarity": _measured("Lexical similarity", lexical_similarity),
    "degree": _measured("Degree", degree),
    "eigv": _measured("EigV", eigv),
    "eccentricity": _measured("Eccentricity", eccentricity),
    "kle": _measured("Kernel language entropy", kle),
    "likelihood": _measured("Token probability", likelihood, "logprobs"),
    "sequence_probability": _measured("Sequence probability", sequence_probability, "logprobs"),
    "min_likelihood": _measured("Minimum token probability", min_likelihood, "logprobs"),
    "p_true": _measured("P(True)", p_true, "likelihoods"),
}
