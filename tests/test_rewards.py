"""What each reward prefers, and that the SC reward is scipy's to the last digits."""

import json
import math
import re
import tracemalloc

import numpy as np
import pytest
from conftest import ARITHMETIC, ROOT, cases
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from orce.__main__ import main
from orce.align.rewards import (
    LABELS,
    REWARDS,
    load,
    numeric_distance,
    numeric_ranking_difference,
    reward_candidates,
    reward_without_own_pair,
    sayself,
    select_pairs,
    spearman_marginal,
)
from orce.artefacts import files, store
from orce.config.check import read_config
from orce.stages.pairs import PairsSettings, tied_candidates

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


@pytest.mark.parametrize(("kappa", "expected"), [
    (1, [-0.697147, -0.330144, -0.249336, -0.076890, 0.033493, 0.019351]),
    (0.4, [-0.151001, -0.014360, -0.027793, -0.050085, -0.233217, -0.335814]),
    (0, [0.019351, -0.027113, -0.100066, -0.233217, -0.557416, -0.697147]),
])  # fmt: skip
def test_sc_reference_values(kappa, expected):
    assert spearman_marginal(C, K, CANDIDATES, kappa) == pytest.approx(expected, abs=5e-7)


def test_the_reference_implementation_here_is_scipys_spearman():
    rng = np.random.default_rng(0)
    for _ in range(50):
        c, k = rng.integers(0, 6, (2, 12))
        if len(set(c)) > 1 and len(set(k)) > 1:
            assert correlations(c[None], k[None])[0] == pytest.approx(stats.spearmanr(c, k).statistic, abs=1e-14)


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


def test_sc_equals_scipy_on_percents_and_has_the_shape_of_its_candidates():
    rng = np.random.default_rng(1)
    k = rng.binomial(16, rng.beta(1, 1, 20_000)) / 16
    c = np.clip(np.round(100 * (0.6 * k + 0.4 * rng.random(20_000))), 0, 100) / 100
    c_new, k_new = rng.integers(0, 101, 20) / 100, rng.integers(0, 17, 20) / 16
    assert np.abs(spearman_marginal(c, k, c_new, k_new) - by_scipy(c, k, c_new, k_new)).max() < 1e-12
    rng = np.random.default_rng(2)
    c, k, c_new, k_new = rng.random(200), rng.random(200), rng.random(50), rng.random(50)
    assert np.abs(spearman_marginal(c, k, c_new, k_new) - by_scipy(c, k, c_new, k_new)).max() < 1e-12
    enlarged = stats.spearmanr([0.5, 0.5, 0.5, 0.5, 0.9], [0, 0.2, 0.8, 1, 1]).statistic
    assert spearman_marginal([0.5] * 4, [0, 0.2, 0.8, 1], [0.5, 0.9], 1) == pytest.approx([0, enlarged], abs=1e-15)
    assert spearman_marginal([0.1, 0.9], [0.5, 0.5], [0, 0.5, 1], 0.5).tolist() == [0, 0, 0]
    assert spearman_marginal([0.3], [0.7], [0.3, 0.4], 0.9).tolist() == [0, 1]
    assert spearman_marginal(C, K, np.full((3, 4), 0.5), np.array([[0], [0.5], [1]])).shape == (3, 4)
    assert spearman_marginal(C, K, 0.9, 1).shape == ()
    assert spearman_marginal(C, K, [], 1).shape == (0,)
    with pytest.raises(ValueError, match="of one length"):
        spearman_marginal(C, K[:-1], 0.5, 1)
    with pytest.raises(ValueError, match="confidence has 1 values that are not finite"):
        spearman_marginal(C, K, [0.5, np.nan], 1)


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


@pytest.mark.parametrize("name", ["sayself", "rlcr", "logscore"])
def test_a_reward_of_right_answers_needs_to_know_which_are(name):
    with pytest.raises(ValueError, match="needs `correct`"):
        REWARDS[name](C, K, 0.5, 0.5, None)


@pytest.mark.slow
def test_sc_is_exact_for_more_pairs_than_64_bits_hold():
    # Doubling every pair changes no rank correlation, so n times the reward is almost the same for 20 as for 8 million.
    c, k = np.array([0.1, 0.3, 0.3, 0.9]), np.array([0, 0.5, 0.25, 1])
    many = (500_000, 2_000_000)
    small, large = (n * spearman_marginal(np.repeat(c, n), np.repeat(k, n), [0, 1], [1, 1]) for n in many)
    assert large == pytest.approx(small, rel=1e-4)


def test_sc_prefers_the_right_direction_even_if_the_reference_set_is_reversed():
    c = np.linspace(0, 1, 21)
    assert spearman_marginal(c, 1 - c, c, 0.95).argmax() == 20
    assert spearman_marginal(c, 1 - c, c, 0.05).argmax() == 0


@pytest.mark.parametrize("reference", ["percents", "all different, as `reference: mean` makes them"])
def test_twenty_thousand_prompts_take_little_memory(reference):
    rng = np.random.default_rng(0)
    c, k = rng.integers(0, 101, 20_000) / 100, rng.integers(0, 11, 20_000) / 10
    candidates = rng.integers(0, 101, (20_000, 16)) / 100
    tracemalloc.start()
    spearman_marginal(c if reference == "percents" else rng.random(20_000), k, candidates, k[:, None])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 * candidates.nbytes


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


def test_only_a_prompts_own_pair_can_be_left_out():
    got = reward_without_own_pair(REWARDS["sc"], [0.5], [1.0], [[0.1, 0.9]], [1.0], [True])
    assert got.tolist() == [[0, 0]]
    with pytest.raises(ValueError, match="reference pairs of the 1 prompts"):
        reward_without_own_pair(REWARDS["sc"], C, K, [[0.5]], [0.4], [False])


def test_nrd_is_the_distance_of_scipys_ranks():
    assert numeric_ranking_difference(C, K, CANDIDATES, 1).tolist() == [-4.5, -3, -2.5, -1.5, 0, -0.5]
    assert numeric_ranking_difference(C, K, CANDIDATES, 0.4).tolist() == [-2, -0.5, 0, -1, -2.5, -3]
    rng = np.random.default_rng(0)
    c, k = rng.integers(0, 8, (2, 40)) / 7
    for c_new, k_new in rng.integers(0, 15, (30, 2)) / 14:
        expected = stats.rankdata([*c, c_new])[-1] - stats.rankdata([*k, k_new])[-1]
        assert numeric_ranking_difference(c, k, c_new, k_new) == -abs(expected)
    got = numeric_distance(C, K, [0.3, 0.5, 0.4, 1], 0.4)
    assert got[0] == got[1]
    assert got == pytest.approx([-0.1, -0.1, 0, -0.6])
    sc, nrd = spearman_marginal(C, K, CANDIDATES, 0.4), numeric_ranking_difference(C, K, CANDIDATES, 0.4)
    assert CANDIDATES[sc.argmax()] == 0.3
    assert CANDIDATES[nrd.argmax()] == 0.5


def test_the_ablations_are_their_formulas():
    assert sayself(C, K, [0.2, 0.9], 0.5, True).argmax() == 1
    assert sayself(C, K, [0.2, 0.9], 0.5, False).argmax() == 0
    # Brier scores of .2 and .9: right .64 and .01, wrong .04 and .81.
    rlcr = REWARDS["rlcr"]
    assert rlcr(C, K, [0.2, 0.9], 0.5, True) == pytest.approx([1 - 0.64, 1 - 0.01])
    assert rlcr(C, K, [0.2, 0.9], 0.5, False) == pytest.approx([0 - 0.04, 0 - 0.81])
    assert rlcr(C, K, [0.5, 0.5], 0.5, [True, False]) == pytest.approx([0.75, -0.25])
    assert rlcr(C, K, [0, 1], 0.5, [True, True]) == pytest.approx([0, 1])
    logscore = REWARDS["logscore"]
    assert logscore(C, K, [0.2, 0.9], 0.5, True) == pytest.approx([math.log(0.2), math.log(0.9)])
    assert logscore(C, K, [0.2, 0.9], 0.5, False) == pytest.approx([math.log(0.8), math.log(0.1)])
    assert logscore(C, K, [0, 1], 0.5, [True, False]) == pytest.approx([math.log(0.005)] * 2), "finite at the ends"


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


def test_without_generation_the_best_candidate_has_the_rank_of_kappa():
    k = np.random.default_rng(0).integers(0, 11, 500) / 10
    candidates = np.tile(np.arange(11) / 10, (500, 1))
    generated = np.full(500, 0.5)
    rewards = reward_candidates(REWARDS["sc-surrogate"], generated, k, candidates, k, k >= 0.5)
    assert (rewards.argmax(axis=1) / 10 == k).all()


def test_every_reward_has_the_shape_of_the_candidates_a_label_and_a_source():
    candidates = np.array([[0.1, 0.5, 0.9], [0.2, 0.2, 0.7]])
    for reward in REWARDS.values():
        got = reward_candidates(reward, C, K, candidates, [1.0, 0.25], [True, False])
        assert got.shape == (2, 3) and got.dtype == np.float64
        assert got[0].argmax() == 2
        assert got[1].argmax() < 2
    assert LABELS.keys() == REWARDS.keys()
    for name, reward in REWARDS.items():
        assert load(name) is reward
        assert re.search(r"Section 3\.2|Table 4|[A-Z][a-z]+( et al\.)?, \d{4}", reward.__doc__), name
    with pytest.raises(ValueError, match="expected confidence"):
        reward_candidates(REWARDS["sc"], C, K, [0.5, 0.6], [1.0, 0.5], [True, True])
    with pytest.raises(ValueError, match=r"one reward a candidate, \(1, 2\), not \(\)"):
        reward_candidates(lambda *_: 1.0, C, K, [[0.5, 0.6]], [1.0], [True])


def test_the_highest_and_the_lowest_rewarded_make_the_pair_where_there_is_a_preference():
    pairs = select_pairs([[0.1, 0.3, -0.2]], [[0.5, 0.9, 0.1]], seed=0)
    assert (pairs.prompt.tolist(), pairs.chosen.tolist(), pairs.rejected.tolist()) == ([0], [1], [2])
    assert pairs.skipped == {"one value": 0, "equal rewards": 0}
    rewards = [[1, 1, 1], [2, 2, 2], [0, 1, 1], [3, 3, 3]]
    confidences = [[0.5, 0.5, 0.5], [0.1, 0.2, 0.3], [0.1, 0.9, 0.9], [0.7, 0.7, 0.7]]
    pairs = select_pairs(rewards, confidences, seed=0)
    assert pairs.prompt.tolist() == [2]
    assert pairs.skipped == {"one value": 2, "equal rewards": 1}
    nothing = select_pairs([[1.0], [2.0]], [[0.5], [0.6]], seed=0)
    assert len(nothing.chosen) == 0 and nothing.skipped["one value"] == 2


def test_equal_rewards_go_to_the_most_frequent_value_and_then_evenly():
    rewards, confidences = [[-1, -1, -1, -5, -5, -5]], [[0.3, 0.5, 0.5, 0.8, 0.8, 1]]
    for seed in range(20):
        pairs = select_pairs(rewards, confidences, seed)
        assert confidences[0][pairs.chosen[0]] == 0.5
        assert confidences[0][pairs.rejected[0]] == 0.8
    rewards, confidences = np.tile([-1.0, -1.0, -5.0], (2000, 1)), np.tile([0.3, 0.5, 0.9], (2000, 1))
    pairs = select_pairs(rewards, confidences, seed=1)
    assert 900 < (pairs.chosen == 0).sum() < 1100
    assert (pairs.rejected == 2).all()
    assert (select_pairs(rewards, confidences, seed=1).chosen == pairs.chosen).all()
    assert (select_pairs(rewards, confidences, seed=2).chosen != pairs.chosen).any()


@given(st.integers(1, 8), st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_pairs_are_extremes_of_different_value(m, seed):
    rng = np.random.default_rng(seed)
    k = rng.integers(0, 5, 12) / 4
    candidates = rng.integers(0, 4, (12, m)) / 10
    rewards = reward_candidates(REWARDS["sc"], C, K, candidates, k, k >= 0.5)
    pairs = select_pairs(rewards, candidates, seed=0)
    assert len(pairs.prompt) + sum(pairs.skipped.values()) == 12
    assert (rewards[pairs.prompt, pairs.chosen] == rewards[pairs.prompt].max(axis=1)).all()
    assert (rewards[pairs.prompt, pairs.rejected] == rewards[pairs.prompt].min(axis=1)).all()
    assert (candidates[pairs.prompt, pairs.chosen] != candidates[pairs.prompt, pairs.rejected]).all()


def test_no_candidate_raises_the_correlation_of_the_surrogates_with_themselves():
    """Why "W/o gen" has no pairs to accept by its own reward: r_s(K, K) is 1 already."""
    kappa = np.array([0.0, 0.1, 0.1, 0.5, 0.9, 1.0])
    percents = np.arange(101) / 100
    for surrogate in (0.0, 0.1, 0.3, 0.5, 1.0):
        assert REWARDS["sc-surrogate"](kappa, kappa, percents, surrogate).max() <= 1e-12


@pytest.mark.parametrize("accept", ["all", "improving"])
def test_the_pairs_of_a_run_are_chosen_as_its_configuration_says(accept, tmp_path):
    (tmp_path / "more.yaml").write_text(f"dpo: {{accept: {accept}}}")
    config = read_config([str(ROOT / "config.yaml"), str(tmp_path / "more.yaml")])
    assert PairsSettings.of(config, "mmlu", "llama3-8b", "sc").accept == accept


def choose_pairs(folder, stated, correct_of_ten) -> dict:
    """The manifest of the pairs step, on questions whose confidence LLM states `stated` and whose kappas are n / 10."""
    rows = ["id,split,n_correct,n_samples,kappa,answer,answer_correct"]
    asked, drawn = [], []
    for i, (c, n) in enumerate(zip(stated, correct_of_ten, strict=True)):
        name, kappa, right = f"{i}+1", n / 10, n >= 5
        rows.append(f"{name},rl,{n},10,{kappa},1,{int(right)}")
        question = {"id": name, "question": f"What is {name}?", "reference": "1"}
        asked.append(question | {"context": None, "choices": None})
        offered = {"confidences": [0.1, 0.9], "raw": ["Confidence: 10", "Confidence: 90"]}
        known = {"id": name, "kappa": kappa, "correct": right, "stated": c, "logprobs": [-1.0] * 101}
        drawn.append(known | offered | {"completion_logprobs": [-1, -1]})
    (folder / "surrogate.csv").write_text("\n".join(rows) + "\n")
    files.write_jsonl(folder / "rl.jsonl", asked)
    files.write_jsonl(folder / "candidates.jsonl", drawn)
    options = {"task": ARITHMETIC, "label": "pairs", "reward": "sc", "module": "sc"}
    options |= {"reference": "stated", "leave_one_out": False, "seed": 1}
    words = ["pairs", "--settings", json.dumps(options), "--surrogate", str(folder / "surrogate.csv")]
    words += ["--prompts", f"rl={folder / 'rl.jsonl'}", "--candidates", str(folder / "candidates.jsonl")]
    manifest = folder / "sc.manifest.json"
    assert main([*words, "--out", str(folder / "sc.jsonl"), "--manifest", str(manifest)]) == 0
    return store.read_manifest(manifest)


STATED = [0.9, 0.2, 0.8, 0.2, 0.4, 1.0]


@pytest.mark.parametrize(("stated", "values", "warned"), [
    (STATED, 5, []),
    ([1 - value for value in STATED], 5, ["sft.epochs", "r_s(C, K)"]),  # it orders answers the other way
    ([0.4, 0.1, 0.2, 0.3, 0.1, 0.4], 4, ["same rank among them", "dpo.reference: mean"]),
    ([0.9] * 6, 1, ["undefined", "sft.epochs", "dpo.reference: mean"]),
])  # fmt: skip
def test_the_manifest_of_the_pairs_says_how_the_warm_start_orders_answers(stated, values, warned, tmp_path, capsys):
    correct_of_ten = [9, 2, 5, 5, 0, 10]
    facts = choose_pairs(tmp_path, stated, correct_of_ten)
    expected = None if values == 1 else stats.spearmanr(stated, correct_of_ten).statistic
    assert facts["reference_spearman"] == (expected and pytest.approx(expected))
    assert (facts["reference_values"], facts["tied"]) == (values, 0)
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
