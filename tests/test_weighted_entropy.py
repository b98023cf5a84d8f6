"""Semantic entropy weighted by the samples' own probabilities: by hand, beside another implementation, and end to end."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from test_similarity import EXAMPLE, TASK, estimator  # noqa: F401

from orce import methods
from orce.errors import BadInput
from orce.methods import samples

REGISTRY = methods.Registry()
METHOD: Any = REGISTRY.get("weighted_semantic_entropy")


def measured(answers, logprobs):
    return METHOD.measure({"answers": answers, "sample_logprobs": logprobs}, EXAMPLE, TASK)


def logs(*probabilities):
    return [math.log(one) for one in probabilities]


def test_meanings_count_with_the_probabilities_of_their_samples():
    # Geometric means .4, .2 and .2: the two samples of Rome have 3/4 of the mass.
    found = measured(["Rome", "rome.", "Oslo"], [logs(0.8, 0.2), logs(0.2), logs(0.1, 0.4)])
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert found == pytest.approx(1 - entropy / math.log(3), abs=1e-9)


def test_with_equal_probabilities_it_is_the_discrete_entropy():
    discrete: Any = REGISTRY.get("semantic_entropy")
    for answers in itertools.product(["Rome", "Oslo", None], repeat=4):
        found = measured([*answers], [logs(0.3, 0.3), *[logs(0.3)] * 3])
        assert found == pytest.approx(discrete.measure({"answers": [*answers]}, EXAMPLE, TASK), abs=1e-9)


def test_an_improbable_slip_lowers_it_less_than_a_probable_one():
    slip, doubt = (measured(["Rome", "Rome", "Oslo"], [logs(0.9), logs(0.9), logs(p)]) for p in (0.01, 0.9))
    assert 0 < doubt < slip < 1
    assert measured(["Rome", "Oslo"], [[-1e5], [-1e5]]) == 0 and measured(["Rome", "Rome"], [[-1e5], [-2e5]]) == 1


def test_a_sample_without_tokens_has_no_probability_and_one_sample_no_entropy():
    assert measured(["Rome", None], [logs(0.5), []]) is None
    with pytest.raises(BadInput, match="weighted_semantic_entropy needs at least two samples"):
        measured(["Rome"], [logs(0.5)])


def drawn(n):
    rng = np.random.default_rng(0)
    for _ in range(n):
        size = rng.integers(2, 13)
        yield (
            rng.choice([*"abcde"], size).tolist(),
            [(-rng.exponential(1, rng.integers(1, 9))).tolist() for _ in range(size)],
        )


def test_another_implementation_agrees_on_500_random_questions():
    for answers, logprobs in drawn(500):
        weights = np.exp([np.mean(one) for one in logprobs])
        masses = (
            np.array([weights[[one == meaning for one in answers]].sum() for meaning in set(answers)]) / weights.sum()
        )
        entropy = -(masses * np.log(masses)).sum()
        assert measured(answers, logprobs) == pytest.approx(1 - entropy / np.log(len(answers)), abs=2e-9)


@pytest.mark.slow
def test_lm_polygraphs_estimates_are_those_of_the_same_masses(estimator):  # noqa: F811
    """Its "direct" estimate adds each sample's term, so it is given a sample for each meaning; its "mean" is over all."""
    direct, mean = (estimator("semantic_entropy", "SemanticEntropy", False, "sum", how) for how in ("direct", "mean"))
    for answers, logprobs in drawn(500):
        means = np.array([np.mean(one) for one in logprobs])
        means -= np.logaddexp.reduce(means)
        kinds = sorted(set(answers))
        masses = [np.logaddexp.reduce(means[[one == kind for one in answers]]) for kind in kinds]
        assert samples.weighted_entropy(means, answers) == pytest.approx(direct(stats(kinds, masses))[0], abs=1e-9)
        over_samples = -np.mean([masses[kinds.index(one)] for one in answers])
        assert over_samples == pytest.approx(mean(stats(answers, means))[0], abs=1e-9)


def stats(answers, logprobs):
    kinds = sorted(set(answers))
    members = [[i for i, one in enumerate(answers) if one == kind] for kind in kinds]
    of = [kinds.index(one) for one in answers]
    classes = {"class_to_sample": [members], "sample_to_class": [of]}
    return {"sample_texts": [answers], "sample_log_probs": [logprobs], "semantic_classes_entail": classes}
