"""What training optimises, by hand and by others' formulas, without a model: a reversed sign is told in seconds."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import ROOT
from transformers import AutoTokenizer

from orce import stages
from orce.config.check import read_config
from orce.judging.distribution import value_logprobs
from orce.llm.chat import expected, to_percent
from orce.llm.trie import Packed, TokenTrie, path_logprobs
from orce.records import Realised
from orce.stages import sft as sft_step
from orce.training import dpo, sft, tokenized_brier

# DPO


def test_dpo_loss_is_the_papers_formula_on_hand_made_log_probabilities():
    policy = torch.tensor([[-1.0, -3.0], [-2.0, -0.5]])
    reference = torch.tensor([[-1.5, -2.0], [-1.0, -1.0]])
    # Margins 1.5 and -1.5, times 0.3: the mean of -ln sigmoid(0.45) and -ln sigmoid(-0.45).
    by_hand = (math.log(1 + math.exp(-0.45)) + math.log(1 + math.exp(0.45))) / 2
    assert dpo.preference_loss(policy, reference, 0.3).item() == pytest.approx(by_hand, abs=1e-6)
    assert dpo.preference_loss(policy[:1], reference[:1], 0.3).item() == pytest.approx(0.493_248, abs=1e-6)
    assert dpo.preference_loss(policy[:1], reference[:1], 2.0).item() == pytest.approx(0.048_587, abs=1e-6)


def test_a_step_down_the_dpo_loss_makes_the_chosen_statement_likelier_and_the_rejected_one_less_likely():
    policy = torch.tensor([[-1.0, -1.0]], requires_grad=True)
    dpo.preference_loss(policy, torch.tensor([[-1.0, -1.0]]), 0.5).backward()
    assert policy.grad is not None
    assert (-policy.grad).tolist() == [[0.25, -0.25]]  # beta sigmoid(0)


def test_a_batch_has_the_chosen_statement_first_and_its_own_reference():
    row = dpo.Row(prompt_ids=[5, 6], chosen_ids=[7, 8], rejected_ids=[7, 9, 4], reference=(-1.0, -2.0))
    batch = dpo.collate([row])
    assert batch["reference"].tolist() == [[-1.0, -2.0]]
    packed = Packed.of(batch)
    per_token = torch.where(packed.token == 7, -0.5, torch.where(packed.token == 8, -1.0, -4.0))
    assert path_logprobs(per_token, packed).tolist() == [[-1.5, -8.5]]


def taught(monkeypatch, target, pairs):
    """The percents that the step asks the training for."""
    found = []
    monkeypatch.setattr(stages, "realised", lambda *_: pairs)
    monkeypatch.setattr(sft, "train", lambda examples, options, out: found.extend(examples))
    config = read_config([str(ROOT / "config.yaml")])
    config.sft.target = target
    sft_step.run(stages.of("sft", config, "mmlu", "llama3-8b"), "s.csv", {}, "sft")
    return [one["percent"] for one in found]


@pytest.mark.parametrize("target, percents", [("kappa", [0, 25, 100]), ("reversed", [100, 75, 0])])
def test_the_warm_start_is_taught_kappa_or_its_opposite(monkeypatch, target, percents):
    pairs = [Realised(id="", prompt=[], kappa=kappa, correct=kappa < 0.5) for kappa in (0.0, 0.25, 1.0)]
    assert taught(monkeypatch, target, pairs) == percents


def test_only_the_statement_and_its_end_are_trained_on(small):
    tokenizer = AutoTokenizer.from_pretrained(small)
    lm = SimpleNamespace(tokenizer=tokenizer, template_kwargs={})
    (row,) = sft.rows(lm, [{"prompt": [{"role": "user", "content": "Sure?"}], "percent": 42}])
    trained = [token for token, label in zip(row.input_ids, row.labels, strict=True) if label != -100]
    assert tokenizer.decode(row.input_ids) == "Sure?<end>Confidence: 42<end>"
    assert tokenizer.decode(trained) == "Confidence: 42<end>"


@pytest.mark.parametrize(("kappa", "percent"), [(0, 0), (0.125, 13), (0.375, 38), (0.5, 50), (1 / 3, 33), (1, 100)])
def test_kappa_is_stated_as_the_nearest_percent_halves_up(kappa, percent):
    assert to_percent(kappa) == percent


def test_the_mean_of_a_distribution_that_holds_a_part_of_the_mass_is_that_of_the_part():
    some = np.full(101, -np.inf)
    some[[20, 60]] = np.log([0.1, 0.3])
    assert expected(some) == pytest.approx(0.5)


def test_a_short_value_is_stated_where_no_longer_one_goes_on():
    """Values 7 and 70: P(7) = 0.5 (1 - 0.2), P(70) = 0.5 x 0.2."""
    trie = TokenTrie.of([[7], [7, 0]])
    found = value_logprobs(torch.tensor([[0.5, 0.2]]).log(), trie).exp()
    assert found[0].tolist() == pytest.approx([0.4, 0.1])


def test_the_tokenized_brier_score_is_the_mean_squared_distance_under_the_renormalised_distribution():
    probabilities = torch.full((2, 101), 1e-30)
    probabilities[0, 100], probabilities[0, 50] = 0.3, 0.1  # three quarters at 1.00, one quarter at 0.50
    probabilities[1, 20] = 0.2
    right = 0.25 * 0.5**2
    assert tokenized_brier.tokenized_brier(probabilities[:1].log(), torch.tensor([1.0])).item() == pytest.approx(right)
    both = tokenized_brier.tokenized_brier(probabilities.log(), torch.tensor([1.0, 0.0])).item()
    assert both == pytest.approx((right + 0.2**2) / 2)
