"""Semantic entropy weighted by probabilities, and scores of how alike the K samples are, beside lm-polygraph's own functions and at their bounds."""

import importlib
import itertools
import math
import sys

import numpy as np
import pytest
import wheels

from orce import methods, tasks
from orce.errors import BadInput
from orce.methods import samples

REGISTRY = methods.Registry()
TASK = tasks.get("qa")
EXAMPLE = {"id": "1", "question": "?", "context": None, "choices": None, "reference": ["x"], "equality": "normalised"}
SCORES = ["lexical_similarity", "num_sets", "eigv", "degree", "eccentricity", "kle"]
WHEELS = {
    "lm-polygraph==0.7.0": ["estimators/common.py", "estimators/estimator.py", "estimators/eig_val_laplacian.py",
     "estimators/deg_mat.py", "estimators/eccentricity.py", "estimators/kernel_language_entropy.py",
     "estimators/num_sem_sets.py", "estimators/semantic_entropy.py", "utils/common.py"],
}  # fmt: skip


def score(name, answers):
    return REGISTRY.get(name).measure({"answers": list(answers), "greedy": {"answer": answers[0]}}, EXAMPLE, TASK)


@pytest.mark.parametrize("name", SCORES)
def test_a_score_is_highest_where_all_samples_agree_and_0_where_none_do(name):
    agreed, apart = score(name, ["red"] * 5), score(name, ["red", "blue", "green", "grey", "brown"])
    assert apart == 0 and (agreed == 1 or name == "kle")
    drawn = itertools.product(["red", "dark red", "blue", "dark blue sea"], repeat=4)
    found = [score(name, answers) for answers in drawn]
    assert 0 <= min(found) and max(found) <= score(name, ["red"] * 4) and len(set(found)) > 2


@pytest.mark.parametrize("name", SCORES)
def test_the_order_of_the_samples_changes_no_bit(name):
    answers = ["dark red", "red", None, "dark blue", "blue sea"]
    assert len({score(name, order) for order in itertools.permutations(answers)}) == 1


@pytest.mark.parametrize("name", SCORES)
def test_unreadable_samples_are_like_no_other(name):
    assert score(name, ["red", None, None]) == score(name, ["red", "blue", "green"]) == 0
    assert score(name, [None, None]) == 0


@pytest.mark.parametrize("name", SCORES)
def test_one_sample_cannot_be_compared(name):
    with pytest.raises(BadInput, match=rf"{name} needs at least two samples of each prompt; raise answers\.samples"):
        score(name, ["red"])


def test_meanings_are_counted_by_the_tasks_keys():
    assert score("num_sets", ["The Bears", "bears.", "Lions", "lions", "Tigers"]) == pytest.approx((5 - 3) / (5 - 1))
    seen = {"answers": ["The Bears", None, "Lions", "bears"], "greedy": {"answer": "bears"}}
    measure = REGISTRY.get("agreement").measure
    assert measure(seen, EXAMPLE, TASK) == 0.5
    assert measure(seen | {"greedy": {"answer": None}}, EXAMPLE, TASK) == 0


@pytest.fixture(scope="module")
def estimator(tmp_path_factory, request):
    """estimator(module, name, ...): one of lm-polygraph's estimators, from its wheel."""
    cache, unpacked = request.config.cache.mkdir("aurc-peers"), tmp_path_factory.mktemp("polygraph")
    path = wheels.unpack(WHEELS, cache, unpacked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*path, *sys.path])
        importlib.invalidate_caches()
        yield lambda module, name, *given: getattr(importlib.import_module(f"lm_polygraph.estimators.{module}"), name)(
            *given
        )
    for name in [name for name in sys.modules if name.startswith("lm_polygraph")]:
        del sys.modules[name]


def drawn(n):
    """n matrices: half of any similarities, half of the shared words of short texts, which have zeros and ties."""
    rng = np.random.default_rng(0)
    for i in range(n):
        size = rng.integers(2, 13)
        if i % 2:
            upper = np.triu(rng.random((size, size)), 1)
            yield None, upper + upper.T + np.eye(size)
        else:
            texts = [" ".join(rng.choice([*"abcdE"], rng.integers(1, 5))) for _ in range(size)]
            yield texts, samples.matrix(texts, samples.jaccard)


@pytest.mark.slow
def test_the_graphs_scores_are_lm_polygraphs_on_500_matrices(estimator):
    theirs = {
        "eigv": estimator("eig_val_laplacian", "EigValLaplacian"),
        "degree": estimator("deg_mat", "DegMat"),
        "eccentricity": estimator("eccentricity", "Eccentricity"),
        "kle": estimator("kernel_language_entropy", "KernelLanguageEntropy"),
    }
    by_words = estimator("eig_val_laplacian", "EigValLaplacian", "Jaccard_score")
    for texts, weights in drawn(500):
        stats = {
            "sample_texts": [texts or [""] * len(weights)],
            "semantic_matrix_entail": weights[None],
            "semantic_matrix_contra": 1 - weights[None],
        }
        for name, made in theirs.items():
            scale = np.log(len(weights)) if name == "kle" else 1  # theirs is over ln K
            found = getattr(samples, f"{name}_uncertainty")(weights)
            assert found == pytest.approx(made(stats)[0] * scale, abs=1e-9), (name, weights)
        if texts:
            assert samples.eigv_uncertainty(weights) == pytest.approx(by_words(stats)[0], abs=1e-9)


@pytest.mark.slow
def test_the_number_of_meanings_is_lm_polygraphs_of_the_same_equality(estimator):
    count, rng = estimator("num_sem_sets", "NumSemSets"), np.random.default_rng(1)
    for _ in range(500):
        answers = rng.choice([*"abcde"], rng.integers(2, 13)).tolist()
        same = np.equal.outer(answers, answers).astype(float)
        stats = {
            "sample_texts": [answers],
            "semantic_matrix_entail": same[None],
            "semantic_matrix_contra": 1 - same[None],
        }
        found = len(answers) - score("num_sets", answers) * (len(answers) - 1)
        assert found == pytest.approx(count(stats)[0], abs=1e-6)


def measured(answers, logprobs):
    return REGISTRY.get("weighted_semantic_entropy").measure(
        {"answers": answers, "sample_logprobs": logprobs}, EXAMPLE, TASK
    )


def logs(*probabilities):
    return [math.log(one) for one in probabilities]


def test_meanings_count_with_the_probabilities_of_their_samples():
    # Geometric means .4, .2 and .2: the two samples of Rome have 3/4 of the mass.
    found = measured(["Rome", "rome.", "Oslo"], [logs(0.8, 0.2), logs(0.2), logs(0.1, 0.4)])
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert found == pytest.approx(1 - entropy / math.log(3), abs=1e-9)
    discrete = REGISTRY.get("semantic_entropy")
    for answers in itertools.product(["Rome", "Oslo", None], repeat=4):
        found = measured([*answers], [logs(0.3, 0.3), *[logs(0.3)] * 3])
        assert found == pytest.approx(discrete.measure({"answers": [*answers]}, EXAMPLE, TASK), abs=1e-9)
    slip, doubt = (measured(["Rome", "Rome", "Oslo"], [logs(0.9), logs(0.9), logs(p)]) for p in (0.01, 0.9))
    assert 0 < doubt < slip < 1
    assert measured(["Rome", "Oslo"], [[-1e5], [-1e5]]) == 0 and measured(["Rome", "Rome"], [[-1e5], [-2e5]]) == 1
    assert measured(["Rome", None], [logs(0.5), []]) is None
    with pytest.raises(BadInput, match="weighted_semantic_entropy needs at least two samples"):
        measured(["Rome"], [logs(0.5)])


def weighted_drawn(n):
    rng = np.random.default_rng(0)
    for _ in range(n):
        size = rng.integers(2, 13)
        yield (
            rng.choice([*"abcde"], size).tolist(),
            [(-rng.exponential(1, rng.integers(1, 9))).tolist() for _ in range(size)],
        )


def test_another_implementation_agrees_on_500_random_questions():
    for answers, logprobs in weighted_drawn(500):
        weights = np.exp([np.mean(one) for one in logprobs])
        masses = (
            np.array([weights[[one == meaning for one in answers]].sum() for meaning in set(answers)]) / weights.sum()
        )
        entropy = -(masses * np.log(masses)).sum()
        assert measured(answers, logprobs) == pytest.approx(1 - entropy / np.log(len(answers)), abs=2e-9)


@pytest.mark.slow
def test_lm_polygraphs_estimates_are_those_of_the_same_masses(estimator):
    """Its "direct" estimate adds each sample's term, so it is given a sample for each meaning; its "mean" is over all."""
    direct, mean = (estimator("semantic_entropy", "SemanticEntropy", False, "sum", how) for how in ("direct", "mean"))
    for answers, logprobs in weighted_drawn(500):
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
