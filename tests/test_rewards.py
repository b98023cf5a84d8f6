"""What each reward prefers, and that the SC reward is scipy's to the last digits."""

import re
from pathlib import Path

import numpy as np
import pytest
from conftest import cases, with_peak
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from stages_by_hand import WORDS, asked, stage, write

from orce.align.rewards import (
    LABELS,
    REWARDS,
    load,
    numeric_distance,
    numeric_ranking_difference,
    reward_candidates,
    reward_without_own_pair,
    select_pairs,
    spearman_marginal,
)
from orce.artefacts import store
from orce.stages.pairs import tied_candidates

pytestmark = pytest.mark.filterwarnings("error")

C = [0.9, 0.6, 0.6, 0.3, 0.1]
K = [1, 0.8, 0.4, 0.4, 0]
CANDIDATES = [0, 0.3, 0.5, 0.6, 0.9, 1]


def correlations(confidence, surrogate):
    """Row-wise Pearson correlation of scipy's average ranks, 0 where a side is constant."""
    x, y = stats.rankdata(confidence, axis=1), stats.rankdata(surrogate, axis=1)
    x, y = x - x.mean(axis=1, keepdims=True), y - y.mean(axis=1, keepdims=True)
    scale = np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    return np.divide((x * y).sum(axis=1), scale, out=np.zeros(len(scale)), where=scale > 0)


def by_scipy(reference_confidence, reference_surrogate, confidence, surrogate):
    def enlarged(reference, values):
        return np.column_stack([np.tile(reference, (len(values), 1)), values])

    before = correlations(np.array([reference_confidence]), np.array([reference_surrogate]))
    return correlations(enlarged(reference_confidence, confidence), enlarged(reference_surrogate, surrogate)) - before


@given(
    st.integers(1, 40), st.integers(1, 12), st.integers(1, 11), st.sampled_from([0.0, 0.5, 0.95]), st.integers(0, 2**32)
)
@settings(max_examples=500, deadline=None)
def test_sc_equals_scipy_on_heavily_tied_sets(n, n_confidences, n_kappas, agreement, seed):
    """500 sets of 20 candidates: 10,000 insertions, of values in the set, between its values and outside it."""
    rng = np.random.default_rng(seed)
    k = (2 * rng.integers(0, n_kappas, n) + 2) / 28
    c = np.where(rng.random(n) < agreement, k, (2 * rng.integers(0, n_confidences, n) + 2) / 28)
    c_new, k_new = rng.integers(1, 2 * n_confidences + 4, 20) / 28, rng.integers(1, 2 * n_kappas + 4, 20) / 28
    assert np.abs(spearman_marginal(c, k, c_new, k_new) - by_scipy(c, k, c_new, k_new)).max() < 1e-12


def test_sc_equals_scipy_on_percents_and_reals_and_has_the_shape_of_its_candidates():
    rng = np.random.default_rng(1)
    k = rng.binomial(16, rng.beta(1, 1, 20_000)) / 16
    percents = np.round(100 * (0.6 * k + 0.4 * rng.random(20_000))) / 100
    new = rng.integers(0, 101, 20) / 100, rng.integers(0, 17, 20) / 16
    for sets in ((percents, k, *new), (*rng.random((2, 200)), *rng.random((2, 50)))):
        assert np.abs(spearman_marginal(*sets) - by_scipy(*sets)).max() < 1e-12
    enlarged = stats.spearmanr([0.5, 0.5, 0.5, 0.5, 0.9], [0, 0.2, 0.8, 1, 1]).statistic
    assert spearman_marginal([0.5] * 4, [0, 0.2, 0.8, 1], [0.5, 0.9], 1) == pytest.approx([0, enlarged], abs=1e-15)
    assert spearman_marginal(C, K, np.full((3, 4), 0.5), np.array([[0], [0.5], [1]])).shape == (3, 4)
    assert spearman_marginal(C, K, 0.9, 1).shape == ()
    assert spearman_marginal(C, K, [], 1).shape == (0,)
    with pytest.raises(ValueError, match="of one length"):
        spearman_marginal(C, K[:-1], 0.5, 1)


MASKED = np.ma.array([0.5, 0.6], mask=[0, 1])


@pytest.mark.parametrize("name", REWARDS)
@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [*cases("unfit_rewards"), ("confidence", MASKED, "confidence is a masked array")],
)
def test_every_reward_refuses_what_it_cannot_judge(name, argument, value, message):
    arguments = {"reference_confidence": C, "reference_surrogate": K, "confidence": [0.5, 0.6]}
    arguments |= {"surrogate": 0.5, "correct": True}
    REWARDS[name](*arguments.values())
    with pytest.raises(ValueError, match=message):
        REWARDS[name](*(arguments | {argument: value}).values())


@pytest.mark.slow
def test_sc_is_exact_for_more_pairs_than_64_bits_hold():
    # Doubling every pair changes no rank correlation, so n times the reward is almost the same for 20 as for 8 million.
    c, k = np.array([0.1, 0.3, 0.3, 0.9]), np.array([0, 0.5, 0.25, 1])
    many = (500_000, 2_000_000)
    small, large = (n * spearman_marginal(np.repeat(c, n), np.repeat(k, n), [0, 1], [1, 1]) for n in many)
    assert large == pytest.approx(small, rel=1e-4)


def test_twenty_thousand_prompts_and_hundreds_of_candidates_take_little_memory():
    """Of percents, and all different, as `reference: mean` makes them."""
    rng = np.random.default_rng(0)
    k, candidates = rng.integers(0, 11, 20_000) / 10, rng.integers(0, 101, (20_000, 16)) / 100
    for c in (rng.integers(0, 101, 20_000) / 100, rng.random(20_000)):
        assert with_peak(spearman_marginal, c, k, candidates, k[:, None])[1] < 20 * candidates.nbytes
    many = rng.random((800, 400))
    assert with_peak(select_pairs, many, many, 0)[1] < 20 * many.nbytes


@pytest.mark.parametrize("name", REWARDS)
def test_leave_one_out_is_the_reward_against_the_other_prompts(name):
    rng = np.random.default_rng(0)
    c, k = rng.integers(0, 5, 30) / 10, rng.integers(0, 6, 30) / 5
    candidates = rng.integers(0, 11, (30, 7)) / 10
    got = reward_without_own_pair(REWARDS[name], c, k, candidates, k, k >= 0.5)
    for i in range(30):
        rest = np.arange(30) != i
        assert (got[i] == REWARDS[name](c[rest], k[rest], candidates[i], k[i], k[i] >= 0.5)).all()
    whole = reward_candidates(REWARDS[name], c, k, candidates, k, k >= 0.5)
    assert np.allclose(got, whole, atol=1e-6) == (name in ("numeric", "sayself", "rlcr", "logscore"))
    alone = reward_without_own_pair(REWARDS["sc"], [0.5], [1.0], [[0.1, 0.9]], [1.0], [True])
    assert alone.tolist() == [[0, 0]]


def test_nrd_is_the_distance_of_scipys_ranks_and_numeric_that_of_the_values():
    rng = np.random.default_rng(0)
    c, k = rng.integers(0, 8, (2, 40)) / 7
    for c_new, k_new in rng.integers(0, 15, (30, 2)) / 14:
        expected = stats.rankdata([*c, c_new])[-1] - stats.rankdata([*k, k_new])[-1]
        assert numeric_ranking_difference(c, k, c_new, k_new) == -abs(expected)
    got = numeric_distance(C, K, [0.3, 0.5, 0.4, 1], 0.4)
    assert got[0] == got[1], "equal distances, to the last bit"
    assert got == pytest.approx([-0.1, -0.1, 0, -0.6])
    best = {name: CANDIDATES[REWARDS[name](C, K, CANDIDATES, 0.4).argmax()] for name in ("sc", "nrd")}
    assert best == {"sc": 0.3, "nrd": 0.5}, "they differ"


@pytest.mark.parametrize(("name", "confidence", "correct", "expected"), cases("scored_answers"))
def test_the_rewards_of_right_answers_are_their_formulas_and_need_to_know_which_are(
    name, confidence, correct, expected
):
    assert REWARDS[name](C, K, confidence, 0.5, correct) == pytest.approx(expected)
    with pytest.raises(ValueError, match="needs `correct`"):
        REWARDS[name](C, K, confidence, 0.5, None)


def test_for_a_fixed_answer_sayself_rlcr_and_logscore_choose_the_same_pairs():
    """Each rises with the confidence in a right answer and falls in a wrong one: docs/field.md says that they are one row."""
    rng = np.random.default_rng(3)
    candidates, correct = rng.integers(0, 101, (200, 8)) / 100, rng.random(200) < 0.5
    chosen = []
    for name in ("sayself", "rlcr", "logscore"):
        rewards = reward_candidates(REWARDS[name], C, K, candidates, rng.random(200), correct)
        pairs = select_pairs(rewards, candidates, seed=0)
        chosen.append((candidates[pairs.prompt, pairs.chosen], candidates[pairs.prompt, pairs.rejected]))
    assert len(chosen[0][0]) == 200 and all((np.array(one) == np.array(chosen[0])).all() for one in chosen)


def test_without_generation_no_candidate_raises_the_correlation():
    """So "W/o gen" has no pairs to accept by its own reward: r_s(K, K) is 1 already."""
    k = np.random.default_rng(0).integers(0, 11, 500) / 10
    candidates = np.tile(np.arange(101) / 100, (500, 1))
    rewards = reward_candidates(REWARDS["sc-surrogate"], np.full(500, 0.5), k, candidates, k, k >= 0.5)
    assert (rewards.argmax(axis=1) / 100 == k).all() and rewards.max() <= 1e-12


def test_every_reward_has_the_shape_of_the_candidates_a_label_and_a_source():
    candidates = [[0.1, 0.5, 0.9], [0.2, 0.2, 0.7]]
    for name, reward in REWARDS.items():
        got = reward_candidates(reward, C, K, candidates, [1.0, 0.25], [True, False])
        assert got.shape == (2, 3) and got.dtype == np.float64
        assert got[0].argmax() == 2 and got[1].argmax() < 2
        assert load(name) is reward and name in LABELS
        assert re.search(r"Section 3\.2|Table 4|[A-Z][a-z]+( et al\.)?, \d{4}", reward.__doc__), name
    with pytest.raises(ValueError, match="expected confidence"):
        reward_candidates(REWARDS["sc"], C, K, [0.5, 0.6], [1.0, 0.5], [True, True])
    with pytest.raises(ValueError, match=r"one reward a candidate, \(1, 2\), not \(\)"):
        reward_candidates(lambda *_: 1.0, C, K, [[0.5, 0.6]], [1.0], [True])


def test_a_prompt_of_one_value_or_of_equal_rewards_makes_no_pair():
    rewards = [[1, 1, 1], [2, 2, 2], [0, 1, -1], [3, 3, 3]]
    confidences = [[0.5, 0.5, 0.5], [0.1, 0.2, 0.3], [0.1, 0.9, 0.7], [0.7, 0.7, 0.7]]
    pairs = select_pairs(rewards, confidences, seed=0)
    assert (pairs.prompt.tolist(), pairs.chosen.tolist(), pairs.rejected.tolist()) == ([2], [1], [2])
    assert pairs.skipped == {"one value": 2, "equal rewards": 1}


def test_equal_rewards_go_to_the_most_frequent_value_and_then_evenly():
    rewards, confidences = [[-1, -1, -1, -5, -5, -5]], [[0.3, 0.5, 0.5, 0.8, 0.8, 1]]
    for seed in range(20):
        pairs = select_pairs(rewards, confidences, seed)
        assert (confidences[0][pairs.chosen[0]], confidences[0][pairs.rejected[0]]) == (0.5, 0.8)
    rewards, confidences = np.tile([-1.0, -1.0, -5.0], (2000, 1)), np.tile([0.3, 0.5, 0.9], (2000, 1))
    pairs, again, other = (select_pairs(rewards, confidences, seed) for seed in (1, 1, 2))
    assert 900 < (pairs.chosen == 0).sum() < 1100 and (pairs.rejected == 2).all()
    assert (again.chosen == pairs.chosen).all() and (other.chosen != pairs.chosen).any()


@pytest.mark.parametrize(("reward", "stated", "size", "warned"), cases("warm_starts"))
def test_the_manifest_of_the_pairs_says_how_the_warm_start_orders_answers(reward, stated, size, warned, folder, capsys):
    right = [9, 2, 5, 5, 0, 10]  # of ten samples
    table = "".join(f"q{i},rl,{n},10,{n / 10},ant,{int(n >= 5)}\n" for i, n in enumerate(right))
    Path("surrogate.csv").write_text(f"id,split,n_correct,n_samples,kappa,answer,answer_correct\n{table}")
    drawn = {"confidences": [0.1, 0.9], "raw": ["Confidence: 10", "Confidence: 90"], "completion_logprobs": [-1, -1]}
    drawn |= {"logprobs": [-1.0] * 101}
    candidates = [
        {"id": f"q{i}", "kappa": n / 10, "correct": n >= 5, "stated": c} | drawn
        for i, (c, n) in enumerate(zip(stated, right, strict=True))
    ]
    how = {"reward": reward, "module": reward, "reference": "stated", "leave_one_out": False, "seed": 1}
    stage(
        "pairs", {"task": WORDS, "label": "pairs"} | how, surrogate="surrogate.csv", out="pairs.jsonl",
        prompts={"rl": write("rl.jsonl", [asked(f"q{i}", "ant") for i in range(6)])},
        candidates=write("candidates.jsonl", candidates), manifest="pairs.manifest.json",
    )  # fmt: skip
    facts = store.read_manifest("pairs.manifest.json")
    expected = None if size == 1 else stats.spearmanr(stated, right).statistic
    assert facts["reference_spearman"] == (expected and pytest.approx(expected))
    assert (facts["reference_values"], facts["tied"]) == (size, 0)
    heard = capsys.readouterr().err.splitlines()
    assert expected is None or any(f"{expected:.3f}" in line for line in heard if "r_s(C, K)" in line)
    warnings = [line for line in heard if "warning" in line]
    assert len(warnings) == bool(warned)
    assert all(words in warnings[0] for words in warned)


def test_candidates_between_the_same_two_values_of_the_reference_are_tied():
    """Of the second prompt .6 and .7 alone: .5 is a value of the reference itself."""
    assert tied_candidates(np.array([0.0, 1.0, 1.0]), [[0.1, 0.9, 0.9]]) == 1.0
    assert tied_candidates(np.array([0.5, 0.5]), [[0.1, 0.9], [0.5, 0.6, 0.7]]) == 1 / 4
    assert tied_candidates(np.array([0.5]), [[0.4, 0.4]]) == 0.0, "no two different candidates"
