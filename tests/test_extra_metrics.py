"""The field's other metrics: by definition and with ties."""

import itertools
import math
import time

import numpy as np
import pytest
from sklearn.metrics import log_loss

from orce.metrics import augrc, bootstrap, nll, paired_bootstrap, prr, summarise_extra, undefined_reason
from orce.metrics.definitions import EXTRA

TIED = [
    ([0.7] * 5, [1, 0, 1, 1, 0]),
    ([0.9, 0.5, 0.5, 0.5, 0.2], [0, 1, 0, 1, 1]),
    ([0.8, 0.8, 0.3, 0.8, 0.3], [1, 0, 1, 0, 0]),
]


def items(seed, n=None, levels=None):
    """Items in random order; without ties unless there are `levels`."""
    rng = np.random.default_rng(seed)
    n = n or int(rng.integers(2, 61))
    confidence = (
        (1 + rng.choice(10_000, n, replace=False)) / 10_001
        if levels is None
        else rng.integers(0, levels, n) / (levels - 1)
    )
    return confidence.tolist(), rng.permutation(np.arange(n) < rng.integers(1, n)).astype(int).tolist()


UNTIED = [items(seed) for seed in range(100)]


@pytest.mark.parametrize(("confidence", "correct"), [items(seed, levels=11) for seed in range(20)])
def test_nll_is_scikit_learns_log_loss_of_confidences_half_a_percent_from_the_ends(confidence, correct):
    expected = log_loss(correct, np.clip(confidence, 0.005, 0.995), labels=[0, 1])
    assert nll(confidence, correct) == pytest.approx(expected, rel=1e-12)


def test_nll_of_a_certain_error_is_finite():
    assert nll([1.0, 0.0], [0, 1]) == pytest.approx(-math.log(0.005))


def generalised(confidence, correct):
    """The trapezoid of (errors among the i most confident) / n over coverage i / n, from coverage 0 on."""
    order = np.argsort(-np.asarray(confidence), kind="stable")
    errors = np.concatenate([[0], np.cumsum(1 - np.asarray(correct)[order])]) / len(correct)
    return float((errors[1:] + errors[:-1]).sum() / 2 / len(correct))


def rejection(confidence, correct):
    """The mean accuracy over coverages i / n."""
    right = np.cumsum(np.asarray(correct)[np.argsort(-np.asarray(confidence), kind="stable")])
    return float((right / np.arange(1, len(correct) + 1)).mean())


def ratio(confidence, correct):
    """(area - random's) / (perfect's - random's), where a random order has the accuracy at every coverage."""
    random, perfect = np.mean(correct), rejection(correct, correct)
    return (rejection(confidence, correct) - random) / (perfect - random)


NAIVE = [(augrc, generalised), (prr, ratio)]


@pytest.mark.parametrize(("ours", "naive"), NAIVE, ids=["augrc", "prr"])
def test_without_ties_they_are_the_definition(ours, naive):
    for confidence, correct in UNTIED:
        assert ours(confidence, correct) == pytest.approx(naive(confidence, correct), abs=1e-12)


@pytest.mark.parametrize(("ours", "naive"), NAIVE, ids=["augrc", "prr"])
@pytest.mark.parametrize(("confidence", "correct"), TIED)
def test_with_ties_they_are_the_mean_over_all_orders(ours, naive, confidence, correct):
    orders = [list(zip(*rows, strict=True)) for rows in itertools.permutations(zip(confidence, correct, strict=True))]
    assert ours(confidence, correct) == pytest.approx(np.mean([naive(*order) for order in orders]), abs=1e-12)


@pytest.mark.parametrize("name", EXTRA)
def test_the_order_of_the_rows_changes_no_bit(name):
    confidence, correct = items(3, 200, 11)
    order = np.random.default_rng(0).permutation(200)
    assert EXTRA[name](confidence, correct) == EXTRA[name](np.array(confidence)[order], np.array(correct)[order])


def test_what_they_say_of_a_constant_a_perfect_and_a_reversed_confidence():
    y = [1, 1, 1, 0, 0]
    assert prr([0.9, 0.8, 0.7, 0.2, 0.1], y) == 1 and prr([0.5] * 5, y) == pytest.approx(0)
    assert prr([0.1, 0.2, 0.3, 0.8, 0.9], y) < 0
    assert augrc([0.9, 0.8, 0.7, 0.2, 0.1], y) == pytest.approx(0.4**2 / 2)
    assert augrc([0.5] * 5, y) == pytest.approx(0.5 * 0.4 * 0.6 + 0.08)
    assert augrc([0.3, 0.5], [0, 0]) == 0.5 and augrc([0.3, 0.5], [1, 1]) == 0
    assert prr([0.3, 0.5], [1, 1]) is None and undefined_reason("prr", [0.3, 0.5], [1, 1]) == "all answers are right"
    assert all(metric([], []) is None for metric in EXTRA.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in EXTRA if not EXTRA[name].gaps])
def test_the_interval_is_that_of_items_drawn_one_by_one(name):
    confidence, correct = items(5, 120, 21)
    fast = bootstrap(name, confidence, correct, 2000, seed=1)
    rng = np.random.default_rng(2)
    c, y = np.array(confidence), np.array(correct)
    values = [EXTRA[name](c[i], y[i]) for i in (rng.integers(0, 120, 120) for _ in range(400))]
    assert fast == pytest.approx(np.quantile(values, [0.025, 0.975]), abs=0.1 * (fast[1] - fast[0]) + 1e-3)


def test_two_methods_are_compared_by_them_and_a_summary_has_all():
    (a, y), (b, _) = items(5, 80, 21), items(6, 80, 21)
    found = paired_bootstrap("augrc", a, y, b, y, 200)
    assert found["difference"] == pytest.approx(augrc(a, y) - augrc(b, y))
    summary = summarise_extra(a, y, 100)
    assert {*EXTRA, "n", "intervals", "reasons"} == summary.keys() and summary["n"] == 80
    assert all(
        summary["intervals"][name][0] <= summary[name] <= summary["intervals"][name][1] for name in ("nll", "prr")
    )
    assert summarise_extra([0.5], [1], 50)["reasons"]["prr"] == "all answers are right"


@pytest.mark.slow
def test_the_papers_largest_set_takes_seconds():
    rng = np.random.default_rng(0)
    confidence = rng.integers(0, 101, 14_042) / 100
    start = time.process_time()
    summarise_extra(confidence, rng.random(14_042) < confidence, 1000)
    assert time.process_time() - start < 20
