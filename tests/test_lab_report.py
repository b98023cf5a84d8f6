"""The laboratory's analysis: fast E-AURC, the hierarchical bootstrap, Holm, verdicts, and the choice on validation."""

import numpy as np
import pytest
from evidence.lab import arms, intervals

from orce import metrics


@pytest.mark.parametrize("levels", [3, 101, None])
def test_the_fast_e_aurc_is_that_of_the_library_also_for_repeated_items(levels):
    rng = np.random.default_rng(0)
    confidence = rng.random(200) if levels is None else rng.integers(0, levels, 200) / levels
    correct = rng.random(200) < confidence
    counts = rng.multinomial(200, np.full(200, 1 / 200))
    again = np.repeat(np.arange(200), counts)
    curve = intervals.Curve(confidence, correct)
    assert curve.e_aurc(np.ones(200, int)) == pytest.approx(metrics.e_aurc(confidence, correct), abs=1e-12)
    assert curve.e_aurc(counts) == pytest.approx(metrics.e_aurc(confidence[again], correct[again]), abs=1e-12)


def cells(gap, models=6, n=400):
    """Answer models on which arm a orders answers by `gap` better than arm b."""
    rng = np.random.default_rng(1)
    found = {}
    for model in range(models):
        truth = rng.random(n)
        correct = rng.random(n) < truth
        arm = {name: truth + noise * rng.normal(size=n) for name, noise in (("a", 0.3), ("b", 0.3 + gap))}
        found[f"m-{model}"] = {1: {name: intervals.Curve(score, correct) for name, score in arm.items()}}
    return found


@pytest.mark.parametrize(("gap", "sides"), [(1.0, (-1, -1)), (0.0, (-1, 1))])
def test_the_interval_excludes_zero_where_there_is_a_difference_and_only_there(gap, sides):
    found = cells(gap)
    drawn = intervals.replicates(found, ["a", "b"], 100)
    value, resampled = intervals.hierarchical(lambda e: e[:, 0] - e[:, 1], found, ["a", "b"], drawn)
    low, high = intervals.interval(resampled)
    assert low < value < high
    assert (np.sign(low), np.sign(high)) == sides


def test_holm_adjusts_as_in_its_definition():
    assert intervals.holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})


@pytest.mark.parametrize(
    ("low", "high", "adjusted", "said"),
    [
        (-0.05, -0.02, 0.001, "better"),
        (0.012, 0.05, 0.001, "worse"),
        (-0.004, 0.006, 0.8, "no difference that matters"),
        (-0.02, 0.03, 0.8, "open"),
    ],
)
def test_a_verdict_follows_from_the_interval_and_the_margin(low, high, adjusted, said):
    assert intervals.verdict(low, high, adjusted, 0.01) == said


def test_the_choice_takes_the_lowest_mean_on_validation_and_never_reads_the_test():
    def row(model, arm, value, split="validation", **facts):
        return {"model": model, "arm": arm, "split": split, "stated_e_aurc": value} | facts

    rows = [
        row(model, f"{reward}-beta{beta:g}", 0.1 * beta if reward != "nrd" else 0.05, reward=reward, beta=beta)
        for model in ("sums-values-0", "counts-values-0")
        for reward in arms.REWARDS
        for beta in (0.5, 1.0)
    ]
    rows += [row("sums-values-0", "sc-beta9", 0.0, split="test", reward="sc", beta=9.0)]
    rows += [row("sums-values-0", f"sft-{rate:g}", rate, learning_rate=rate) for rate in (0.2, 0.1)]
    chosen = arms.choose(rows)
    assert list(chosen) == ["values"]
    assert chosen["values"]["sc"] == {"beta": 0.5}
    assert chosen["values"]["sft"] == {"learning_rate": 0.1}
    assert chosen["values"]["other"] in ("nrd", "numeric", "sayself", "sc-surrogate")
