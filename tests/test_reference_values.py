"""Metrics and baselines beside values that published implementations gave for the same items, and AURC beside two that run from wheels.

Each value says which function of which version gave it. Where another convention is known, the test says which (docs/metrics.md
has the reasons).
"""

import importlib
import itertools
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import wheels
from conftest import ARITHMETIC, ROOT, cases

from orce import methods, tasks
from orce.metrics import augrc, aurc, e_aurc, prr, risk_coverage_curve, spearman
from orce.metrics.definitions import EXTRA, METRICS

# 60 items in thousandths, no two alike; 60 items of ten different percents; and rows of (metric, value for UNTIED, value for TIED,
# function that gave both), with None where its convention is another one.
UNTIED, TIED, VALUES = json.loads((ROOT / "tests" / "data" / "reference_values.json").read_text()).values()


def items(drawn):
    thousandths, right = drawn
    return np.array(thousandths) / 1000, np.array([*map(int, right)])


@pytest.mark.parametrize(("name", "untied", "tied", "source"), VALUES, ids=lambda part: str(part)[:40])
def test_a_metric_has_the_value_of_a_published_implementation(name, untied, tied, source):
    for drawn, value in ((UNTIED, untied), (TIED, tied)):
        if value is not None:
            found = (METRICS | EXTRA)[name](*items(drawn))
            near = 3e-9 if name == "spearman" else 1e-12  # torchmetrics adds a little to the divisor
            assert found == pytest.approx(value, abs=near), source


REGISTRY = methods.Registry()
EXAMPLE = {"id": "1", "question": "?", "context": None, "choices": None, "reference": "20"}


def measured(name, **seen):
    return REGISTRY.get(name).measure(seen, EXAMPLE, tasks.get(ARITHMETIC))


def test_token_probabilities_entropies_and_rouge_are_uqlms_and_lm_polygraphs():
    logprobs = [math.log(p) for p in (0.9, 0.2, 0.75, 0.99)]
    found = [measured(name, logprobs=logprobs) for name in ("likelihood", "min_likelihood", "sequence_probability")]
    # uqlm 0.6.7, SingleLogprobsScorer: sequence_probability (length-normalised) and min_probability
    assert found[:2] == pytest.approx([0.6046335486959172, 0.2], abs=1e-12)
    # lm-polygraph 0.7.0, of -log p: Perplexity (the mean), the largest of MaximumTokenProbability, MaximumSequenceProbability (the sum)
    theirs = [0.5031327090993023, 1.6094379124341003, 2.0125308363972012]
    assert [-math.log(one) for one in found] == pytest.approx(theirs, abs=1e-12)
    # rouge-score 0.1.2, RougeScorer(["rougeL"], use_stemmer=False), as in lm-polygraph 0.7.0 but for its stemmer.
    answers = ["Rudolf Carnap", "the philosopher Rudolf Carnap", "Carnap, Rudolf (1891)", "a logician", "Rudolf Carnap"]
    assert measured("lexical_similarity", answers=answers) == pytest.approx(0.3419047619047618, abs=1e-9)
    # uqlm 0.6.7, compute_semantic_entropy of uniform samples; lm-polygraph 0.7.0, SemanticEntropy by frequency: the same.
    entropies = {"11231211": 0.9002560512685369, "1234": 1.3862943611198906, "1122223": 0.9556998911125343}
    for answers, entropy in entropies.items():
        found = (1 - measured("semantic_entropy", answers=[*answers])) * math.log(len(answers))
        assert found == pytest.approx(entropy, abs=1e-12)


def test_words_are_the_numbers_of_lm_polygraphs_copy_of_tian_et_al():
    """Their CONFIDENCE_EXPRESSIONS with the probabilities, in their order (github.com/IINemo/lm-polygraph)."""
    words = "Almost No Chance|Highly Unlikely|Chances are Slight|Little Chance|Unlikely|Probably Not|About Even|"
    words += "Better than Even|Likely|Probably|Very Good Chance|Highly Likely|Almost Certain"
    numbers = [0.02, 0.05, 0.1, 0.1, 0.2, 0.25, 0.5, 0.6, 0.7, 0.7, 0.8, 0.9, 0.95]
    assert [REGISTRY.get("linguistic").read(one, {}) for one in words.split("|")] == numbers


def test_a_temperature_is_probmetrics_and_torch_uncertaintys():
    """probmetrics 1.3.0, TemperatureScalingCalibrator by bisection; torch-uncertainty 0.13.0, TemperatureScaler by LBFGS."""
    found = REGISTRY.get("temperature").fit(*items(TIED))["temperature"]
    assert found == pytest.approx(1.1745664500104371, rel=1e-6) and found == pytest.approx(1.1745011631759517, rel=1e-4)


def test_a_correlation_of_tensors_is_that_of_their_values():
    values = [0.9, 0.2, 0.4], [1.0, 0.0, 1.0]
    assert spearman(*map(torch.tensor, values)) == pytest.approx(spearman(*values))


# Of the first two only the files named are unpacked; torch-uncertainty's imports the other two.
WHEELS = {
    "lm-polygraph==0.7.0": ["ue_metrics/risk_cov_curve.py", "ue_metrics/pred_rej_area.py", "ue_metrics/ue_metric.py"],
    "torch-uncertainty==0.13.0": ["metrics/classification/risk_coverage.py"],
    "torchmetrics==1.9.0": [],
    "lightning-utilities==0.15.3": [],
}


@pytest.fixture(scope="module")
def peers(tmp_path_factory, request):
    """(confidence, correct) -> AURC of lm_polygraph and torch_uncertainty; the wheels stay in pytest's cache folder."""
    cache, unpacked = request.config.cache.mkdir("aurc-peers"), tmp_path_factory.mktemp("aurc_peers")
    with wheels.importable(WHEELS, cache, unpacked):
        by_prefixes = importlib.import_module("lm_polygraph.ue_metrics.risk_cov_curve").RiskCoverageCurveAUC()
        rejection = importlib.import_module("lm_polygraph.ue_metrics.pred_rej_area").PredictionRejectionArea()
        selective = importlib.import_module("torch_uncertainty.metrics.classification.risk_coverage")

    def torch_uncertainty(confidence, correct, dtype=torch.float64, plain=False, metric="AURC"):
        # It computes in torch's default dtype. Unless plain, the score is the larger of (0, c), the prediction class 1.
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            score = torch.tensor(confidence, dtype=dtype)
            made = getattr(selective, metric)()
            made.update(score if plain else torch.stack([0 * score, score], -1), torch.tensor(correct))
            return float(made.compute())
        finally:
            torch.set_default_dtype(before)

    return SimpleNamespace(
        lm_polygraph=lambda confidence, correct: float(by_prefixes([-c for c in confidence], list(correct))),
        rejection_area=lambda confidence, correct: rejection([-c for c in confidence], correct),
        torch_uncertainty=torch_uncertainty,
    )


def trapezoid(confidence, correct):
    """Our AURC in torch-uncertainty's definition."""
    n, risk = len(correct), risk_coverage_curve(confidence, correct)[1]
    return (n * aurc(confidence, correct) - (risk[0] + risk[-1]) / 2) / (n - 1)


def tie_free(seed):
    """2 to 60 items in random order, no two confidences alike (nor in float32), right and wrong answers."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 61))
    confidence = (1 + rng.choice(1000, n, replace=False)) / 1000
    return confidence.tolist(), rng.permutation(np.arange(n) < rng.integers(1, n)).astype(int).tolist()


INPUTS = [tie_free(seed) for seed in range(500)]


@pytest.mark.slow
def test_lm_polygraph_has_our_value_on_inputs_without_ties(peers):
    """And one less it is its rejection area, of which PRR is the ratio."""
    for confidence, correct in INPUTS:
        assert peers.lm_polygraph(confidence, correct) == pytest.approx(aurc(confidence, correct), rel=0, abs=1e-12)
        found, perfect = (peers.rejection_area(one, correct) for one in (confidence, correct))
        assert 1 - aurc(confidence, correct) == pytest.approx(found, abs=1e-12)
        # Its random score is the mean over shuffles; the expectation is the accuracy.
        room = perfect - np.mean(correct)
        assert prr(confidence, correct) == pytest.approx((found - np.mean(correct)) / room, abs=1e-9)
        assert prr(confidence, correct) == pytest.approx(1 - e_aurc(confidence, correct) / room)


@pytest.mark.slow
def test_torch_uncertainty_has_the_trapezoid_of_our_curve_on_inputs_without_ties(peers):
    for confidence, correct in INPUTS:
        for dtype, error in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
            theirs = peers.torch_uncertainty(confidence, correct, dtype)
            assert theirs == pytest.approx(trapezoid(confidence, correct), rel=0, abs=error)
    for confidence, correct in INPUTS[:50]:
        n, first = len(correct), 1 - correct[int(np.argmax(confidence))]
        # Its AUGRC starts at coverage 1 / n and divides by the width, 1 - 1 / n.
        ours = (augrc(confidence, correct) - first / (2 * n**2)) / (1 - 1 / n)
        assert peers.torch_uncertainty(confidence, correct, metric="AUGRC") == pytest.approx(ours, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("confidence", "correct"), cases("ties"))
def test_with_ties_ours_is_the_mean_of_theirs_over_all_orders_of_the_rows(peers, confidence, correct):
    orders = [list(zip(*rows, strict=True)) for rows in itertools.permutations(zip(confidence, correct, strict=True))]
    assert len({aurc(*order) for order in orders}) == 1
    for theirs, ours in ((peers.lm_polygraph, aurc), (peers.torch_uncertainty, trapezoid)):
        values = [theirs(*order) for order in orders]
        assert np.mean(values) == pytest.approx(ours(confidence, correct), rel=0, abs=1e-12)
        assert np.ptp(values) > 0.1


@pytest.mark.slow
def test_elsewhere_theirs_have_the_values_that_the_page_gives(peers):
    """docs/metrics.md, "Where other code differs"."""
    confidence, correct = [0.7] * 14042, [1] * 9057 + [0] * 4985
    assert aurc(confidence, correct) == pytest.approx(4985 / 14042)  # the error rate, 0.355
    assert peers.lm_polygraph(confidence, correct) == pytest.approx(0.072, abs=5e-4)
    assert peers.lm_polygraph(confidence, correct[::-1]) == pytest.approx(0.723, abs=5e-4)
    for correct in (0, 1):
        one, alike = ([0.7], [correct]), ([0.9, 0.6, 0.3], [correct] * 3)
        assert aurc(*one) == aurc(*alike) == 1 - correct
        assert math.isnan(peers.torch_uncertainty(*one))  # a trapezoid of width 0
        assert peers.torch_uncertainty(*alike) == pytest.approx(1 - correct)
        assert peers.lm_polygraph(*one) == peers.lm_polygraph(*alike) == 0.5
    # A wrong answer stated with .1 becomes class 0 predicted with .9, and right.
    confidence, correct = [0.9, 0.6, 0.1], [1, 1, 0]
    assert aurc(confidence, correct) == pytest.approx(1 / 9)
    assert peers.torch_uncertainty(confidence, correct) == pytest.approx(1 / 12)
    assert peers.torch_uncertainty(confidence, correct, plain=True) == 0
