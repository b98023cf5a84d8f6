"""Soft labels and the order-aware loss of the variants `soft` and `ordered`, against what they should be by hand."""

import pytest
import torch

from orce import methods
from orce.methods import soft


def logprobs(*percents):
    """Distributions that state one value each, nearly."""
    found = torch.full((len(percents), 101), -20.0)
    for row, percent in enumerate(percents):
        found[row, percent] = 0.0
    return found


def test_a_label_is_the_posterior_of_the_rate_after_k_of_sixteen_answers():
    found = soft.targets(torch.tensor([0.25]), 16)[0]
    rates = torch.linspace(0, 1, 101).clamp(0.0025, 0.9975)
    beta = torch.distributions.Beta(5.0, 13.0).log_prob(rates).exp()
    assert found == pytest.approx(beta / beta.sum(), abs=1e-5)
    assert found.argmax() == 25 and found.sum() == pytest.approx(1)


def test_more_answers_make_a_label_narrower():
    few, many = (soft.targets(torch.tensor([0.5]), answers)[0] for answers in (4, 64))
    assert few[20] > many[20] and few.max() < many.max()


def test_disorder_is_small_in_the_right_order_and_large_in_the_wrong_one():
    kappa = torch.tensor([0.9, 0.5, 0.1])
    right, level, wrong = (
        float(soft.disorder(one, kappa)) for one in (logprobs(90, 50, 10), logprobs(50, 50, 50), logprobs(10, 50, 90))
    )
    assert right < level < wrong
    assert level == pytest.approx(0.6931, abs=1e-3)  # ln 2 for every pair that is level


def test_disorder_is_by_hand_for_two_questions_and_none_for_equal_kappas():
    found = soft.disorder(logprobs(30, 20), torch.tensor([0.8, 0.6]))
    assert float(found) == pytest.approx(float(torch.nn.functional.softplus(torch.tensor(-1.0))), abs=1e-3)
    assert float(soft.disorder(logprobs(30, 20), torch.tensor([0.5, 0.5]))) == 0


def test_the_variants_are_methods_under_names_of_their_own():
    registry = methods.Registry()
    assert [registry.label(name) for name in ("soft", "ordered")] == ["Soft labels", "Soft labels + order"]
    assert (registry.settings("soft")["rank_weight"], registry.settings("ordered")["rank_weight"]) == (0.0, 1.0)
    assert {"soft", "ordered", "sft_all", "sft_long"} <= set(registry.trained())
