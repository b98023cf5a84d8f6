"""AURC beside two published implementations, run from their wheels: equal where they mean the same, and where not.

lm-polygraph takes the mean over prefixes, as we do, in the order of the rows. torch-uncertainty takes the trapezoid over
[1/n, 1] of the same curve, divided by the width 1 - 1/n: (n AURC - (first risk + last risk) / 2) / (n - 1).
"""

import importlib
import itertools
import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import wheels

from orce.metrics import augrc, aurc, e_aurc, prr, risk_coverage_curve

pytestmark = pytest.mark.slow  # the wheels are downloaded
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
    path = wheels.unpack(WHEELS, cache, unpacked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*path, *sys.path])
        importlib.invalidate_caches()
        by_prefixes = importlib.import_module("lm_polygraph.ue_metrics.risk_cov_curve").RiskCoverageCurveAUC()
        rejection = importlib.import_module("lm_polygraph.ue_metrics.pred_rej_area").PredictionRejectionArea()
        selective = importlib.import_module("torch_uncertainty.metrics.classification.risk_coverage")

    def lm_polygraph(confidence, correct):
        return float(by_prefixes([-c for c in confidence], list(correct)))

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

    def rejection_area(confidence, correct):
        return rejection([-c for c in confidence], correct)

    return SimpleNamespace(
        lm_polygraph=lm_polygraph, rejection_area=rejection_area, torch_uncertainty=torch_uncertainty
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
    correct = rng.permutation(np.arange(n) < rng.integers(1, n)).astype(int)
    return confidence.tolist(), correct.tolist()


INPUTS = [tie_free(seed) for seed in range(500)]
exactly = {"rel": 0, "abs": 1e-12}


def test_lm_polygraph_has_our_value_on_inputs_without_ties(peers):
    assert {len(correct) for _, correct in INPUTS} == set(range(2, 61))
    for confidence, correct in INPUTS:
        assert peers.lm_polygraph(confidence, correct) == pytest.approx(aurc(confidence, correct), **exactly)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-12), (torch.float32, 1e-6)], ids=str)
def test_torch_uncertainty_has_the_trapezoid_of_our_curve_on_inputs_without_ties(peers, dtype, error):
    for confidence, correct in INPUTS:
        theirs = peers.torch_uncertainty(confidence, correct, dtype)
        assert theirs == pytest.approx(trapezoid(confidence, correct), rel=0, abs=error)


@pytest.mark.parametrize(
    ("confidence", "correct"),
    [
        ([0.7] * 5, [1, 0, 1, 1, 0]),
        ([0.9, 0.5, 0.5, 0.5, 0.2], [0, 1, 0, 1, 1]),
        ([0.8, 0.8, 0.3, 0.8, 0.3], [1, 0, 1, 0, 0]),
    ],
)
def test_with_ties_ours_is_the_mean_of_theirs_over_all_orders_of_the_rows(peers, confidence, correct):
    orders = [list(zip(*rows, strict=True)) for rows in itertools.permutations(zip(confidence, correct, strict=True))]
    assert len({aurc(*order) for order in orders}) == 1
    for theirs, ours in ((peers.lm_polygraph, aurc), (peers.torch_uncertainty, trapezoid)):
        values = [theirs(*order) for order in orders]
        assert np.mean(values) == pytest.approx(ours(confidence, correct), **exactly)
        assert np.ptp(values) > 0.1


def test_one_less_aurc_is_lm_polygraphs_rejection_area_and_prr_its_ratio(peers):
    for confidence, correct in INPUTS[:50]:
        found, perfect = (peers.rejection_area(one, correct) for one in (confidence, correct))
        assert 1 - aurc(confidence, correct) == pytest.approx(found, abs=1e-12)
        # Its random score is the mean over shuffles; the expectation is the accuracy.
        expected = (found - np.mean(correct)) / (perfect - np.mean(correct))
        assert prr(confidence, correct) == pytest.approx(expected, abs=1e-9)
        assert prr(confidence, correct) == pytest.approx(1 - e_aurc(confidence, correct) / (perfect - np.mean(correct)))


def test_augrc_is_torch_uncertaintys_without_the_half_of_its_first_step(peers):
    for confidence, correct in INPUTS[:50]:
        n, first = len(correct), 1 - correct[int(np.argmax(confidence))]
        # Theirs starts at coverage 1 / n and divides by the width, 1 - 1 / n.
        ours = (augrc(confidence, correct) - first / (2 * n**2)) / (1 - 1 / n)
        assert peers.torch_uncertainty(confidence, correct, metric="AUGRC") == pytest.approx(ours, abs=1e-12)


def test_the_trapezoid_leaves_out_half_of_the_first_and_last_risk(peers):
    confidence, correct = [0.95, 0.85, 0.72, 0.61, 0.33], [1, 1, 0, 1, 0]
    assert aurc(confidence, correct) == pytest.approx(0.196667, abs=5e-7)
    assert peers.torch_uncertainty(confidence, correct) == pytest.approx(0.195833, abs=5e-7)


def test_ties_are_broken_by_row_order_there_and_not_here(peers):
    confidence, correct = [0.9, 0.5, 0.5], [1, 1, 0]
    swapped = [1, 0, 1]
    assert aurc(confidence, correct) == aurc(confidence, swapped) == pytest.approx((0 + 1 / 4 + 1 / 3) / 3)
    assert peers.lm_polygraph(confidence, correct) == pytest.approx((0 + 0 + 1 / 3) / 3)
    assert peers.lm_polygraph(confidence, swapped) == pytest.approx((0 + 1 / 2 + 1 / 3) / 3)
    assert peers.torch_uncertainty(confidence, correct) != peers.torch_uncertainty(confidence, swapped)


def test_a_constant_confidence_knows_nothing_but_rows_sorted_by_correctness_look_good_there(peers):
    confidence, correct = [0.7] * 14042, [1] * 9057 + [0] * 4985
    assert aurc(confidence, correct) == pytest.approx(4985 / 14042)  # the error rate, 0.355
    assert peers.lm_polygraph(confidence, correct) == pytest.approx(0.072, abs=5e-4)
    assert peers.lm_polygraph(confidence, correct[::-1]) == pytest.approx(0.723, abs=5e-4)


@pytest.mark.parametrize("correct", [0, 1])
def test_one_item_has_its_own_risk_here_none_in_torch_uncertainty_and_one_half_in_lm_polygraph(peers, correct):
    assert aurc([0.7], [correct]) == 1 - correct
    assert math.isnan(peers.torch_uncertainty([0.7], [correct]))  # a trapezoid of width 0
    assert peers.lm_polygraph([0.7], [correct]) == 0.5  # as with all answers alike, below


@pytest.mark.parametrize("correct", [0, 1])
def test_all_answers_alike_are_one_half_in_lm_polygraph_which_rescales_correctness_to_its_range(peers, correct):
    confidence = [0.9, 0.6, 0.3]
    assert aurc(confidence, [correct] * 3) == 1 - correct
    assert peers.torch_uncertainty(confidence, [correct] * 3) == pytest.approx(1 - correct)
    assert peers.lm_polygraph(confidence, [correct] * 3) == 0.5


def test_an_unread_confidence_is_an_error_here_and_a_number_there(peers):
    confidence, correct = [0.9, math.nan, 0.5, 0.2], [1, 0, 1, 0]
    with pytest.raises(ValueError, match="confidence has 1 values that are not finite numbers"):
        aurc(confidence, correct)
    assert math.isfinite(peers.lm_polygraph(confidence, correct))
    assert math.isfinite(peers.torch_uncertainty(confidence, correct))


def test_torch_uncertainty_reads_a_plain_list_of_confidences_as_probabilities_of_class_1(peers):
    # A wrong answer stated with .1 becomes class 0 predicted with .9, and right.
    confidence, correct = [0.9, 0.6, 0.1], [1, 1, 0]
    assert aurc(confidence, correct) == pytest.approx(1 / 9)
    assert peers.torch_uncertainty(confidence, correct) == pytest.approx(1 / 12)
    assert peers.torch_uncertainty(confidence, correct, plain=True) == 0
