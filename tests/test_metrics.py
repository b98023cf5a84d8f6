"""What the metrics mean, on inputs where other code gets them wrong. Values of published implementations: test_reference_values.py."""

import itertools
import json
import math
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
from conftest import ROOT, cases
from hypothesis import given, settings
from hypothesis import strategies as st

import orce
from orce import metrics
from orce.apps import calibrate
from orce.apps.calibrate import threshold_for_risk
from orce.errors import BadInput
from orce.metrics.counts import Metric, Tally, tabulate
from orce.metrics.definitions import ALL, EXTRA, METRICS
from orce.metrics.resampling import draw, interval

pytestmark = pytest.mark.filterwarnings("error")

A = [0.95, 0.85, 0.72, 0.61, 0.33], [1, 1, 0, 1, 0]
B = [1, 0.9, 0.9, 0.9, 0.5, 0.5, 0.3, 0], [1, 1, 0, 1, 1, 0, 0, 1]
C = [0.7] * 5, [1, 0, 1, 1, 0]
D = [0.9, 0.6, 0.6], [1, 1, 1]

percents = st.sampled_from([0, 0.05, 0.1, 0.3, 0.35, 0.6, 0.7, 0.9, 1])
items = st.lists(st.tuples(percents, st.booleans()), min_size=1, max_size=30)


def split(pairs):
    return [c for c, _ in pairs], [y for _, y in pairs]


def stated(n, seed=0):
    """Confidences in steps of 5 % that know something, and correctness."""
    rng = np.random.default_rng(seed)
    correct = rng.random(n) < 0.65
    return np.clip(np.round(rng.normal(0.6 + 0.15 * correct, 0.2) * 20), 0, 20) / 20, correct


@pytest.mark.parametrize(("names", "confidence", "correct", "message"), [
    (ALL, [0.9, None], [1, 0], "confidence has 1 values that are not finite numbers"),
    (ALL, [0.7, 0.8], [1], "one length"),
    (ALL, np.ma.array([0.9, 0.5], mask=[True, False]), [1, 0], "confidence is a masked array"),
    (ALL, [0.9, 0.5], np.ma.array([1, 0], mask=[True, False]), "(correct|target) is a masked array"),
    (["ece"], [73, 80], [0, 1], r"\[0, 1\]"),
    (["aurc"], [0.7, 0.8], [0.5, 1], "0 or 1"),
], ids=["unread", "lost", "masked", "masked label", "percents", "half right"])  # fmt: skip
def test_what_is_no_share_or_no_label_is_refused(names, confidence, correct, message):
    for name in names:
        with pytest.raises(ValueError, match=message):
            ALL[name](confidence, correct)


@pytest.mark.parametrize("n_bins", [1, 2, 3, 7, 10, 15, 20, 100])
def test_every_percent_falls_in_the_bin_of_rational_arithmetic(n_bins):
    number = [next(k for k in range(1, n_bins + 1) if percent * n_bins <= 100 * k) for percent in range(101)]
    for percent in range(100):
        first, second = percent / 100, (percent + 1) / 100
        # The errors of two items, of opposite signs, cancel in one bin; in two bins they add up.
        sign = -1 if number[percent] == number[percent + 1] else 1
        expected = abs((1 - first) + sign * second) / 2
        assert metrics.expected_calibration_error([first, second], [1, 0], n_bins) == pytest.approx(expected, abs=1e-12)


def test_shares_off_the_percent_grid_keep_their_value_and_the_calibrated_have_no_error():
    assert metrics.expected_calibration_error([3 / 7, 3 / 7], [1, 0]) == pytest.approx(0.5 - 3 / 7, abs=1e-15)
    assert metrics.expected_calibration_error([0.3] * 10 + [0.7] * 10, [1] * 3 + [0] * 7 + [1] * 7 + [0] * 3) < 1e-15


def errors_kept(pairs):
    """How many of the i most confident are wrong, [orders, i]: a row for each order of the items, ties as they stand in it."""
    orders = np.array([*itertools.permutations(pairs)], dtype=float)
    ranks = np.argsort(-orders[..., 0], axis=1, kind="stable")
    return (1 - np.take_along_axis(orders[..., 1], ranks, axis=1)).cumsum(axis=1)


def mean_risk(errors):
    return (errors / np.arange(1, errors.shape[1] + 1)).mean()


def generalised_risk(errors):
    """The trapezoid of errors / n over coverage i / n, from coverage 0 on."""
    return (errors.sum(axis=1) - errors[:, -1] / 2).mean() / errors.shape[1] ** 2


def rejection_ratio(errors):
    """(random's area - area) / (random's - perfect's), where a random order has the error rate at every coverage."""
    n, wrong = errors.shape[1], errors[0, -1]
    random, perfect = wrong / n, mean_risk(np.maximum(np.arange(wrong - n + 1, wrong + 1), 0)[None])
    return None if perfect == random else (random - mean_risk(errors)) / (random - perfect)


@pytest.mark.parametrize(("name", "by_definition"), [
    ("aurc", mean_risk), ("augrc", generalised_risk), ("prr", rejection_ratio),
])  # fmt: skip
@given(st.lists(st.tuples(st.sampled_from([0.2, 0.5, 0.9]), st.booleans()), min_size=1, max_size=6))
@settings(max_examples=150, deadline=None)
def test_an_area_is_the_mean_of_its_definition_over_all_orders_of_ties(name, by_definition, pairs):
    expected = by_definition(errors_kept(pairs))
    found = ALL[name](*split(pairs))
    assert found == (None if expected is None else pytest.approx(expected, abs=1e-12))


def test_aurc_is_the_exact_mean_of_its_curve_and_a_late_error_is_seen():
    coverage, risk = metrics.risk_coverage_curve([0.9, 0.5, 0.5], [1, 1, 0])
    assert (coverage.tolist(), risk.tolist()) == ([1 / 3, 2 / 3, 1], [0, 0.25, 1 / 3])
    for n, steps in itertools.product((10, 1000, 14_042), (1, 10, 100, 10**9)):
        rng = np.random.default_rng(n)
        confidence, correct = rng.integers(0, steps, n) / steps, rng.random(n) < 0.65
        area = math.fsum(metrics.risk_coverage_curve(confidence, correct)[1])
        best = math.fsum(max(i - int(correct.sum()), 0) / i for i in range(1, n + 1))
        assert metrics.aurc(confidence, correct) == pytest.approx(area / n, abs=1e-15)
        assert metrics.e_aurc(confidence, correct) == pytest.approx((area - best) / n, abs=1e-15)
    # One wrong answer tied with the one right answer before it, among 100,000: E-AURC is about 1 / (2 n^2).
    n = 100_000
    confidence, correct = np.linspace(1, 0, n), np.arange(n) < n - 1
    confidence[-2:] = 0
    assert metrics.e_aurc(confidence, correct) == pytest.approx(0.5 / (n - 1) / n, rel=1e-4)


@given(items)
@settings(max_examples=150, deadline=None)
def test_e_aurc_is_never_negative_and_zero_for_a_perfect_ranking(pairs):
    confidence, correct = split(pairs)
    assert metrics.e_aurc(confidence, correct) >= 0
    assert metrics.e_aurc_analytic(confidence, correct) >= metrics.e_aurc(confidence, correct) - 1e-15
    assert metrics.e_aurc(0.6 * np.asarray(correct) + np.linspace(0, 0.3, len(correct)), correct) == 0


def test_log10_p_is_the_logarithm_of_p_and_continuous_where_p_ends():
    # Computed with mpmath to 40 digits; there p underflows.
    assert metrics.log10_p(0.9, 1000) == pytest.approx(-361.45403144633843, rel=1e-13)
    assert metrics.log10_p(0.99, 600) == pytest.approx(-510.1251721350818, rel=1e-13)
    assert metrics.log10_p(0.999999, 400) == pytest.approx(-1135.4933479128774, rel=1e-13)
    assert metrics.log10_p(0.088, 1572) == pytest.approx(math.log10(metrics.p_value(0.088, 1572)), rel=1e-14)
    around = [metrics.log10_p(rho, 14042) for rho in np.linspace(0.3000, 0.3010, 21)]
    assert around[0] > -290 > around[-1]
    assert np.abs(np.diff(around, 2)).max() < 1e-3
    assert metrics.log10_p(1.0, 10) is None


@given(items, st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_permuting_the_items_changes_no_bit(pairs, random):
    def summaries(items):
        kappa = [c / 2 for c, _ in items]
        return metrics.summarise(*split(items), kappa=kappa, n_resamples=20), metrics.summarise_extra(*split(items), 20)

    assert summaries(pairs) == summaries(random.sample(pairs, len(pairs)))


@pytest.mark.parametrize(("case", "metric", "reason"), [
    (A, "auroc", None),
    (B, "spearman", None),
    (C, "spearman", "every confidence is the same"),
    (D, metrics.prr, "all answers are right"),
    (([0.7] * 4, [0] * 4), "aupr", "all answers are wrong"),
    (([], []), "aurc", "there are no items"),
    (([0.4], [1]), metrics.auroc, "all answers are right"),
    (([0.4], [0]), "auroc", "all answers are wrong"),
    (([0.2, 0.3], [0, 1]), "spearman", "there are fewer than 3 items"),
])  # fmt: skip
def test_every_null_has_its_reason_and_nothing_is_nan_or_warned_of(case, metric, reason):
    assert metrics.undefined_reason(metric, *case) == reason
    usual = metrics.summarise(*case, kappa=case[1], n_resamples=200), [*METRICS, "f1", "spearman_surrogate"]
    for summary, names in (usual, (metrics.summarise_extra(*case, 200), EXTRA)):
        json.dumps(summary, allow_nan=False)
        for name in names:
            value = summary[name]["rho"] if name.startswith("spearman") else summary[name]
            assert (value is None) == (name in summary["reasons"])
            assert value is None or type(value) is float
            if value is None:
                assert summary["intervals"][name] is None


def test_a_summary_has_every_metric_with_its_interval_and_the_counts():
    confidence, correct = stated(400)
    summary = metrics.summarise(confidence, correct, f1=correct * 0.75, n_unparsed={"answer": np.int64(3)})
    assert summary["reasons"] == {} and "spearman_surrogate" not in summary
    assert summary["n_unparsed"] == {"answer": 3, "confidence": 0}
    assert summary["f1"] == pytest.approx(0.75 * correct.mean())
    for name, metric in METRICS.items():
        value = summary[name]["rho"] if name == "spearman" else summary[name]
        low, high = summary["intervals"][name]
        assert (low, high) == metrics.bootstrap(name, confidence, correct), name
        assert low < value < high and value == metric(confidence, correct), name
    with pytest.raises(ValueError, match="one value an item"):
        metrics.summarise([0.5, 0.6], [0, 1], f1=[0.5])


@pytest.mark.parametrize("name", ALL)
def test_metrics_on_counts_equal_metrics_on_the_resampled_items(name):
    confidence, correct = stated(60, seed=3)
    metric, cells = ALL[name], tabulate(confidence, correct)
    counts = np.random.default_rng(0).multinomial(60, cells.count / 60, size=40)
    counts = np.concatenate([counts, np.eye(len(cells.count), dtype=int) * 60])  # one-value resamples too
    for row, value in zip(counts, metric.compute(Tally(cells, counts)), strict=True):
        c, y = np.repeat(cells.confidence[cells.row], row), np.repeat(cells.target[cells.column], row)
        expected = metric(c, y)
        assert np.isnan(value) if expected is None else value == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("distinct", [5, 600], ids=["few values", "all different"])
def test_resamples_have_every_cell_in_its_share_whatever_the_size_of_their_chunks(distinct):
    """Few cells are drawn by a multinomial, many item by item: means and variances are those of the multinomial."""
    cells = tabulate(np.arange(600) % distinct / distinct, np.arange(600) % 2)
    (counts,), parts = ([*draw(cells.count, 4000, seed=3, chunk=chunk)] for chunk in (10**7, 3000))
    assert len(parts) > 1 and (np.concatenate(parts) == counts).all()
    share = cells.count / 600
    assert counts.shape == (4000, len(cells.count)) and (counts.sum(axis=1) == 600).all()
    assert np.abs((counts.mean(axis=0) - 600 * share) / np.sqrt(600 * share / 4000)).max() < 5
    assert counts.var(axis=0).mean() == pytest.approx((600 * share * (1 - share)).mean(), rel=0.05)


def test_the_interval_of_a_mean_is_the_normal_one_fixed_by_a_seed():
    confidence, correct = stated(2000)
    low, high = metrics.bootstrap("accuracy", confidence, correct, n_resamples=20_000)
    p = correct.mean()
    assert low < p < high
    assert high - low == pytest.approx(2 * 1.96 * math.sqrt(p * (1 - p) / 2000), rel=0.03)
    named = (("aurc", 7), ("aurc", 8), (metrics.aurc, 7))
    first, other, again = (metrics.bootstrap(name, confidence, correct, 500, seed=seed) for name, seed in named)
    assert again == first != other
    with pytest.raises(ValueError, match="aurc.*brier"):
        metrics.bootstrap("auc", *A)


def test_resamples_that_define_nothing_are_left_out():
    # One wrong answer in 20 is absent from 36 % of resamples; in two items, one of each, half of them have one class.
    assert metrics.bootstrap("auroc", np.arange(20) / 20, [0] + [1] * 19) is not None
    assert metrics.bootstrap("auroc", *D) is None
    assert interval(np.array([0.5, np.nan, np.nan])) is None and interval(np.array([0.5, np.nan])) == (0.5, 0.5)


def test_a_maximum_of_gaps_gets_no_interval_since_percentiles_would_miss_its_true_value(monkeypatch):
    """Each confidence is the probability of a right answer: no bin has a gap but by noise."""
    ece, rng = METRICS["ece"], np.random.default_rng(0)
    confidence = rng.integers(0, 101, 300) / 100
    correct = rng.random(300) < confidence

    @partial(Metric, read=ece.read, gaps=ece.gaps)
    def mce(tally):
        return np.abs(ece.gaps(tally)).max(axis=1)

    monkeypatch.setitem(EXTRA, "mce", mce)
    extra = metrics.summarise_extra(confidence, correct, n_resamples=50)
    assert extra["mce"] > 0 and extra["intervals"]["mce"] is None
    assert extra["reasons"] == {"mce interval": "noise makes it larger, so percentiles would miss its true value"}
    mce.gaps = None
    assert metrics.summarise_extra(confidence, correct, n_resamples=50)["intervals"]["mce"][0] > 0


@pytest.mark.parametrize("name", ["ece", "ece_15"])
@pytest.mark.parametrize("n", [1, 2, 30, 500])
def test_ece_lies_in_its_own_interval_where_calibration_is_good(name, n):
    for seed in range(6):
        rng = np.random.default_rng([n, seed])
        confidence = rng.integers(0, 101, n) / 100
        correct = rng.random(n) < confidence
        low, high = metrics.bootstrap(name, confidence, correct, n_resamples=100, seed=seed)
        assert 0 <= low <= ALL[name](confidence, correct) <= high <= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ece", "ece_15"])
@pytest.mark.parametrize(("n", "true"), [(100, 0), (500, 0.03)])
def test_the_interval_of_ece_contains_the_true_value(name, n, true):
    """40 samples: an interval that covers 93 % contains it in fewer than 33 of them once in a hundred cells."""
    rng, inside = np.random.default_rng([n, int(100 * true)]), 0
    for seed in range(40):
        stated = rng.integers(round(100 * true), 101, n) / 100
        low, high = metrics.bootstrap(name, stated, rng.random(n) < stated - true, n_resamples=100, seed=seed)
        inside += low - 1e-9 <= true <= high + 1e-9
    assert inside >= 33


def test_pairing_sees_what_two_intervals_do_not_and_agrees_with_a_loop():
    confidence, correct = stated(500)
    same = metrics.paired_bootstrap("aurc", confidence, correct, confidence, correct)
    assert same == {"difference": 0, "low": 0, "high": 0, "p": 1}
    worse = np.where(np.arange(500) % 8 == 0, 1 - confidence, confidence)
    result = metrics.paired_bootstrap("auroc", confidence, correct, worse, correct, n_resamples=4000)
    assert result["difference"] == pytest.approx(metrics.auroc(confidence, correct) - metrics.auroc(worse, correct))
    assert 0 < result["low"] < result["difference"] < result["high"] and result["p"] < 0.05
    assert metrics.bootstrap("auroc", confidence, correct)[0] < metrics.bootstrap("auroc", worse, correct)[1]
    (confidence, correct), (other, other_correct) = stated(150, seed=1), stated(150, seed=2)
    got = metrics.paired_bootstrap("brier", confidence, correct, other, other_correct, n_resamples=20_000)
    better = (confidence - correct) ** 2 - (other - other_correct) ** 2
    loop = better[np.random.default_rng(0).integers(0, 150, (3000, 150))].mean(axis=1)
    assert np.quantile(loop, [0.025, 0.975]) == pytest.approx([got["low"], got["high"]], abs=0.01)


def test_the_p_value_is_uniform_enough_when_nothing_differs():
    rng = np.random.default_rng(0)
    below = 0
    for seed in range(200):
        correct = rng.random(120) < 0.6
        a, b = rng.integers(0, 11, (2, 120)) / 10
        below += metrics.paired_bootstrap("brier", a, correct, b, correct, n_resamples=400, seed=seed)["p"] < 0.1
    assert 8 <= below <= 36


def test_a_side_without_a_value_gives_no_difference_and_ece_no_interval_of_one():
    assert set(metrics.paired_bootstrap("spearman", *C, *A).values()) == {None}
    with pytest.raises(ValueError, match="same items"):
        metrics.paired_bootstrap("aurc", *A, *B)
    difference = ALL["ece"](*A) - ALL["ece"](*C)
    none = dict.fromkeys(("low", "high", "p"))
    assert metrics.paired_bootstrap("ece", *A, *C) == {"difference": difference} | none


def test_the_page_defines_every_metric():
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert [name for name in ALL if f"`{name}`" not in page] == [], "docs/metrics.md has a line for each metric"


# The threshold for a risk, valid on the true error rate and as low as it can be; calibrations, and a client's response as a confidence.

PERCENT = np.arange(101)
WORLDS = {
    "in tens and calibrated, as after SFT on kappa":
        (np.isin(PERCENT, np.arange(0, 101, 10)) * (1 + PERCENT / 20), 0.9 - 0.88 * PERCENT / 100),
    "overconfident, nearly all at 80 to 100": (np.isin(PERCENT, (80, 85, 90, 95, 100)) * 1.0, np.full(101, 0.31)),
    "wrong where it is surest": (np.ones(101), np.where(PERCENT >= 97, 0.37, np.where(PERCENT >= 80, 0.01, 0.37))),
    "one value for all": ((PERCENT == 90) * 1.0, np.full(101, 0.31)),
}  # fmt: skip
TENS = next(iter(WORLDS))


def drawn_from(world, n, rng):
    share, error = WORLDS[world]
    percent = rng.choice(101, n, p=share / share.sum())
    return percent / 100, rng.random(n) >= error[percent]


def true_risk(world, threshold):
    share, error = WORLDS[world]
    kept = share * (np.round(100 * threshold) <= PERCENT)
    return (kept * error).sum() / kept.sum()


def test_a_coverage_keeps_the_surest_of_all_questions_and_counts_unread_ones():
    """Of five in float32, one of them unread: two of the five are .9 and .6."""
    given = [value and float(np.float32(value)) for value in (0.9, 0.2, None, 0.6, 0.4)]
    table = orce.confidence(None, [{"answer": str(i), "confidence": one} for i, one in enumerate(given)], ["given"])
    for coverage, kept in ((1e-12, [0]), (0.2, [0]), (0.4, [0, 3]), (0.5, [0, 3, 4]), (0.8, [0, 1, 3, 4])):
        table.keep(coverage=coverage)
        assert [i for i, row in enumerate(table) if row["decision"] == "keep"] == kept
    with pytest.raises(BadInput, match="coverage is 1, and of 5 confidences 4 are readable"):
        table.keep(coverage=1)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("risk", [0.1, 0.2, 0.3])
def test_the_true_risk_exceeds_the_bound_in_no_more_than_delta_of_the_draws(world, risk):
    assert true_risk(world, 0) > risk, "it can be exceeded"
    rng, delta, draws = np.random.default_rng(1), 0.1, 300
    thresholds = [threshold_for_risk(*drawn_from(world, 400, rng), risk, delta).threshold for _ in range(draws)]
    broken = sum(t is not None and true_risk(world, t) > risk for t in thresholds)
    assert broken <= draws * delta + 2.6 * math.sqrt(draws * delta * (1 - delta))


def test_probabilities_of_whole_texts_get_a_threshold_on_a_scale_that_keeps_their_order():
    """Whole percents cannot tell them apart; the bound holds on the other half of the questions."""
    probabilities = [0.0, 1e-300, 1e-9, 1e-8, 0.0012, 0.0013, 0.5, 1.0]
    scaled = [calibrate.spread(value) for value in probabilities]
    assert scaled == sorted(set(scaled)) and (scaled[0], scaled[-1]) == (0.0, 1.0)
    assert [calibrate.unspread(value) for value in scaled] == pytest.approx(probabilities, rel=1e-9, abs=0)
    rng = np.random.default_rng(5)
    logs = -np.exp(rng.uniform(np.log(6), np.log(60), 2000))  # all below a quarter of a percent
    correct = rng.random(2000) < np.where(logs > -20, 0.97, 0.3)
    assert threshold_for_risk(np.exp(logs), correct, 0.15).kept in (0, 2000)
    half = [calibrate.spread(value) for value in np.exp(logs[:1000])]
    kept = np.exp(logs[1000:]) >= calibrate.unspread(threshold_for_risk(half, correct[:1000], 0.15).threshold)
    assert kept.sum() > 200 and (~correct[1000:][kept]).mean() < 0.15


def test_a_threshold_is_found_wherever_the_model_is_wrong_and_not_by_answering_nothing():
    rng = np.random.default_rng(2)
    found = [threshold_for_risk(*drawn_from(TENS, 2000, rng), 0.2) for _ in range(20)]
    best = next(t for t in PERCENT / 100 if true_risk(TENS, t) <= 0.2)
    assert all(best - 1e-9 <= one.threshold <= best + 0.1 for one in found)
    found = threshold_for_risk(*drawn_from("wrong where it is surest", 5000, np.random.default_rng(3)), 0.15)
    assert found.coverage > 0.15


@pytest.mark.slow
def test_on_random_halves_the_other_half_stays_under_the_bound_but_for_its_own_noise():
    """What is bounded is the true error rate. The other half's scatters around it, so some of them end above."""
    confidence, correct = drawn_from(TENS, 3000, np.random.default_rng(4))
    under, coverage = 0, []
    for seed in range(100):
        half, other = np.split(np.random.default_rng(seed).permutation(len(confidence)), 2)
        found = threshold_for_risk(confidence[half], correct[half], 0.2)
        kept = np.array([found.keeps(one) for one in confidence[other]])
        error = (~correct[other][kept]).mean()
        under += error <= 0.2
        coverage.append(kept.mean())
        assert error <= 0.2 + 3 * math.sqrt(0.2 * 0.8 / kept.sum())
    assert under >= 90
    assert np.mean(coverage) > 0.3


def test_a_case_worked_by_hand():
    """Ten right at 0.9, one wrong and nine right at 0.6. P(Bin(10, 1/2) = 0) = 1/1024, P(Bin(20, 1/2) <= 1) = 21/2^20.

    With delta = 0.05 each start holds 0.05 / 11 = 0.0045; all thresholds up to 0.9 fall.
    """
    confidence = [0.9] * 10 + [0.6] * 10
    found = threshold_for_risk(confidence, [True] * 19 + [False], 0.5)
    assert (found.threshold, found.kept, found.errors, found.coverage) == (0.0, 20, 1, 1.0)
    # Of the ten at 0.6, nine wrong: P(Bin(20, 1/2) <= 9) = 0.41, and the threshold stays above them.
    strict = threshold_for_risk(confidence, [True] * 11 + [False] * 9, 0.5)
    assert (strict.threshold, strict.kept, strict.errors) == (0.61, 10, 0)


def test_a_looser_bound_or_a_larger_delta_never_answers_less():
    rng = np.random.default_rng(5)
    for _ in range(20):
        confidence, correct = drawn_from(TENS, 300, rng)
        by_risk = [threshold_for_risk(confidence, correct, risk).coverage for risk in np.linspace(0.02, 0.6, 12)]
        by_delta = [threshold_for_risk(confidence, correct, 0.2, delta).coverage for delta in (0.01, 0.05, 0.2, 0.5)]
        assert by_risk == sorted(by_risk) and by_delta == sorted(by_delta)


def test_a_stated_percent_is_kept_at_its_own_threshold_and_the_unread_never():
    """In floating point 100 * 0.29 is below 29. All below the percent is wrong, so that the threshold is the percent."""
    for percent in range(1, 101):
        stated = [1.0] * 50 + [percent / 100] + [(percent - 1) / 100] * 200 + [None] * 4
        found = threshold_for_risk(stated, [True] * 51 + [False] * 200 + [True] * 4, 0.2)
        assert (found.threshold, found.kept, found.errors, found.coverage) == (percent / 100, 51, 0, 0.2)
        assert [found.keeps(value) for value in (percent / 100, (percent - 1) / 100, None)] == [True, False, False]


def test_a_bound_out_of_reach_is_said_with_what_it_would_take():
    found = threshold_for_risk([0.9] * 20, [True] * 20, 0.05)
    assert found.threshold is None and found.coverage == 0 and not found.keeps(1.0)
    assert "no threshold ensures an error rate of at most 0.05" in str(found) and "coverage 0" in str(found)
    least = int(str(found).split("at least ")[1].split()[0])
    assert threshold_for_risk([0.9] * least, [True] * least, 0.05).kept == least
    assert threshold_for_risk([0.9] * (least - 1), [True] * (least - 1), 0.05).threshold is None


RNG = np.random.default_rng(0)
CONFIDENCE = RNG.random(400).round(3).tolist()
CORRECT = (RNG.random(400) < np.square(CONFIDENCE)).tolist()


@pytest.mark.parametrize("method", ["isotonic", "platt", "temperature"])
def test_a_calibration_comes_nearer_to_the_truth_and_survives_a_file(method, tmp_path):
    fitted = orce.calibrate(CONFIDENCE, CORRECT, method, risk=0.4)
    after = fitted(CONFIDENCE)
    assert np.mean((np.array(after) - CORRECT) ** 2) <= np.mean((np.array(CONFIDENCE) - CORRECT) ** 2)
    fitted.save(tmp_path / "calibration.json")
    again = orce.Calibration.load(tmp_path / "calibration.json")
    assert again == fitted and again(CONFIDENCE) == after
    assert fitted(0.5) == fitted([0.5, None])[0] and fitted([0.5, None])[1] is None
    assert again.selection == threshold_for_risk(CONFIDENCE, CORRECT, 0.4)
    assert again.keeps(0.99) and not again.keeps(0.1) and not again.keeps(None)


@pytest.mark.parametrize(("function", "arguments", "message"), cases("uncalibrated"))
def test_what_cannot_be_calibrated_is_said(function, arguments, message):
    with pytest.raises(BadInput, match=message):
        getattr(calibrate, function)(*arguments)


@pytest.mark.parametrize("held", [iter, pandas.Series, pandas.array, lambda values: dict(enumerate(values)).values()])
def test_what_holds_confidences_and_labels_is_read_and_a_missing_one_of_pandas_is_unread(held):
    assert orce.calibrate(held(CONFIDENCE), held(CORRECT), "platt") == orce.calibrate(CONFIDENCE, CORRECT, "platt")
    assert metrics.spearman(held(CONFIDENCE), held(CORRECT)) == metrics.spearman(CONFIDENCE, CORRECT)
    missing = pandas.array([0.1, None, 0.9], dtype="Float64")
    fitted = orce.calibrate(missing, [0, 1, 1], "platt")
    assert fitted.n == 2 and fitted(missing)[1] is None
    with pytest.raises(BadInput, match="must be 2 values"):
        orce.calibrate([0.1, 0.9], pandas.array([True, None], dtype="boolean"))


def response(*texts, **more) -> dict:
    return {"choices": [{"index": i, "message": {"content": text}} | more for i, text in enumerate(texts)]}


def test_a_response_has_the_confidence_of_its_tokens_or_of_its_choices():
    tokens = {"content": [{"token": "L", "logprob": -0.1}, {"token": "ima", "logprob": -0.3}]}
    asked = response("Lima", logprobs=tokens)
    as_the_openai_package = SimpleNamespace(model_dump=lambda: asked)
    assert orce.of_response(as_the_openai_package) == math.exp(-0.2)
    assert orce.of_response(asked, "sequence_probability") == math.exp(-0.4)
    assert orce.of_response(response("Lima", "lima.", "Quito"), "agreement") == 2 / 3


@pytest.mark.parametrize(("arguments", "message"), cases("responses"))
def test_a_response_without_what_a_method_reads_says_what_to_ask_for(arguments, message):
    with pytest.raises(BadInput, match=message):
        orce.of_response(*arguments)
