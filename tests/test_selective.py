"""The threshold for a risk, valid on the true error rate and as low as it can be; calibrations, and a client's response as a confidence."""

import math

import numpy as np
import pytest

import orce
from orce.errors import BadInput
from orce.metrics import selective
from orce.metrics.selective import STARTS, lowest_rejected, p_values, threshold_for_risk

PERCENT = np.arange(101)
WORLDS = {
    "in tens and calibrated, as after SFT on kappa":
        (np.isin(PERCENT, np.arange(0, 101, 10)) * (1 + PERCENT / 20), 0.9 - 0.88 * PERCENT / 100),
    "overconfident, nearly all at 80 to 100": (np.isin(PERCENT, (80, 85, 90, 95, 100)) * 1.0, np.full(101, 0.28)),
    "wrong where it is surest": (np.ones(101), np.where(PERCENT >= 97, 0.3, np.where(PERCENT >= 80, 0.01, 0.3))),
    "one value for all": ((PERCENT == 90) * 1.0, np.full(101, 0.1)),
}  # fmt: skip
TENS = next(iter(WORLDS))


def draw(world, n, rng):
    share, error = WORLDS[world]
    percent = rng.choice(101, n, p=share / share.sum())
    return percent / 100, rng.random(n) >= error[percent]


def true_risk(world, threshold):
    share, error = WORLDS[world]
    kept = share * (np.round(100 * threshold) <= PERCENT)
    return (kept * error).sum() / kept.sum()


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("risk", [0.1, 0.2, 0.3])
def test_the_true_risk_exceeds_the_bound_in_no_more_than_delta_of_the_draws(world, risk):
    rng, delta, draws = np.random.default_rng(1), 0.1, 300
    thresholds = [threshold_for_risk(*draw(world, 400, rng), risk, delta).threshold for _ in range(draws)]
    broken = sum(t is not None and true_risk(world, t) > risk for t in thresholds)
    assert broken <= draws * delta + 2.6 * math.sqrt(draws * delta * (1 - delta))


def test_a_threshold_is_found_wherever_the_model_is_wrong_and_not_by_answering_nothing():
    rng = np.random.default_rng(2)
    found = [threshold_for_risk(*draw(TENS, 2000, rng), 0.2) for _ in range(20)]
    best = next(t for t in PERCENT / 100 if true_risk(TENS, t) <= 0.2)
    assert all(best - 1e-9 <= one.threshold <= best + 0.1 for one in found)
    found = threshold_for_risk(*draw("wrong where it is surest", 5000, np.random.default_rng(3)), 0.15)
    assert found.coverage > 0.15


@pytest.mark.slow
def test_on_random_halves_the_other_half_stays_under_the_bound_but_for_its_own_noise():
    """What is bounded is the true error rate. The other half's scatters around it, so some of them end above."""
    confidence, correct = draw(TENS, 3000, np.random.default_rng(4))
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
    kept, errors = np.zeros(101, int), np.zeros(101, int)
    kept[:91] += 10
    kept[:61] += 10
    errors[:61] += 1
    p = p_values(kept, errors, 0.5)
    assert p[95] == 1
    assert p[90] == pytest.approx(1 / 1024) and p[75] == pytest.approx(1 / 1024)
    assert p[60] == p[0] == pytest.approx(21 / 2**20)
    # Of the ten at 0.6, nine wrong: P(Bin(20, 1/2) <= 9) = 0.41, and the threshold stays above them.
    strict = threshold_for_risk(confidence, [True] * 11 + [False] * 9, 0.5)
    assert (strict.threshold, strict.kept, strict.errors) == (0.61, 10, 0)


def test_a_rejected_threshold_hands_its_level_down_and_one_that_is_not_loses_it():
    share = 0.05 / len(STARTS)
    p = np.ones(101)
    p[90:101] = 0.9 * share
    p[80:90] = 1.9 * share  # too large for one share, small enough for 1.00's and 0.90's
    p[70:80] = 2.9 * share
    assert lowest_rejected(p, 0.05) == 70
    p[95] = 1.0  # the chain from 1.00 ends here: 0.90 starts again with its own share alone
    assert lowest_rejected(p, 0.05) == 90
    assert lowest_rejected(np.ones(101), 0.05) is None


def test_a_looser_bound_or_a_larger_delta_never_answers_less():
    p = np.ones(101)
    p[55] = 0.0  # between two starts, and nothing rejected above it
    assert lowest_rejected(p, 0.05) is None
    rng = np.random.default_rng(5)
    for _ in range(20):
        confidence, correct = draw(TENS, 300, rng)
        by_risk = [threshold_for_risk(confidence, correct, risk).coverage for risk in np.linspace(0.02, 0.6, 12)]
        by_delta = [threshold_for_risk(confidence, correct, 0.2, delta).coverage for delta in (0.01, 0.05, 0.2, 0.5)]
        assert by_risk == sorted(by_risk) and by_delta == sorted(by_delta)
    before = threshold_for_risk(confidence, correct, 0.25).coverage
    for i in np.flatnonzero(~correct)[:20]:  # nor does an answer that turns out right
        better = correct.copy()
        better[i] = True
        assert threshold_for_risk(confidence, better, 0.25).coverage >= before


def test_order_does_not_matter_ties_go_together_and_the_unread_are_never_kept():
    confidence, correct = [0.8] * 40 + [0.3] * 40, [True] * 40 + [False] * 40
    order = np.random.default_rng(7).permutation(80)
    found = threshold_for_risk(confidence, correct, 0.2)
    assert found == threshold_for_risk(np.array(confidence)[order], np.array(correct)[order], 0.2)
    assert (found.kept, found.errors) == (40, 0)
    found = threshold_for_risk([0.9] * 60 + [None] * 40, [True] * 60 + [False] * 40, 0.2)
    assert found.keeps(0.9) and not found.keeps(None)
    assert found.coverage == 0.6 and found.errors == 0


@pytest.mark.parametrize("percent", range(1, 101))
def test_a_stated_percent_is_kept_at_its_own_threshold(percent):
    """In floating point 100 * 0.29 is below 29. All below the percent is wrong, so that the threshold is the percent."""
    stated = [1.0] * 50 + [percent / 100] + [(percent - 1) / 100] * 200
    found = threshold_for_risk(stated, [True] * 51 + [False] * 200, 0.2)
    assert (found.threshold, found.kept, found.errors) == (percent / 100, 51, 0)
    assert found.keeps(percent / 100) and not found.keeps((percent - 1) / 100)


def test_a_bound_out_of_reach_is_said_with_what_it_would_take():
    found = threshold_for_risk([0.9] * 20, [True] * 20, 0.05)
    assert found.threshold is None and found.coverage == 0 and not found.keeps(1.0)
    assert "no threshold ensures an error rate of at most 0.05" in str(found) and "coverage 0" in str(found)
    least = int(str(found).split("at least ")[1].split()[0])
    assert threshold_for_risk([0.9] * least, [True] * least, 0.05).kept == least
    assert threshold_for_risk([0.9] * (least - 1), [True] * (least - 1), 0.05).threshold is None


@pytest.mark.parametrize(("confidence", "correct", "risk", "message"), [
    ([], [], 0.1, "no calibration items"),
    ([0.5, 73], [1, 0], 0.1, "outside"),
    ([0.5], [1, 0], 0.1, "1 values of true or false"),
    ([0.5], [0.5], 0.1, "true or false"),
    ([0.5], [1], 0.0, "risk is 0"),
    ([0.5], [1], 5, "risk is 5; expected a number between 0 and 1"),
])  # fmt: skip
def test_bad_calibration_data_is_refused(confidence, correct, risk, message):
    with pytest.raises(BadInput, match=message):
        threshold_for_risk(confidence, correct, risk)


RNG = np.random.default_rng(0)
CONFIDENCE = RNG.random(400).round(3).tolist()
CORRECT = (RNG.random(400) < np.square(CONFIDENCE)).tolist()


@pytest.mark.parametrize("method", ["isotonic", "platt", "temperature"])
def test_a_calibration_comes_nearer_to_the_truth_and_survives_a_file(method, tmp_path):
    fitted = orce.calibrate(CONFIDENCE, CORRECT, method)
    after = fitted(CONFIDENCE)
    assert np.mean((np.array(after) - CORRECT) ** 2) <= np.mean((np.array(CONFIDENCE) - CORRECT) ** 2)
    fitted.save(tmp_path / "calibration.json")
    again = orce.Calibration.load(tmp_path / "calibration.json")
    assert again == fitted and again(CONFIDENCE) == after
    assert fitted(0.5) == fitted([0.5, None])[0] and fitted([0.5, None])[1] is None


def test_what_cannot_be_calibrated_is_said_and_the_threshold_is_the_one_with_the_guarantee(tmp_path):
    fitted = orce.calibrate(CONFIDENCE, CORRECT, risk=0.4)
    assert fitted.selection == selective.threshold_for_risk(CONFIDENCE, CORRECT, 0.4)
    fitted.save(tmp_path / "calibration.json")
    again = orce.Calibration.load(tmp_path / "calibration.json")
    assert again.keeps(0.99) and not again.keeps(0.1) and not again.keeps(None)
    for words, arguments in {
        "unknown calibration 'isotone'": ([0.1, 0.9], [0, 1], "isotone"),
        "a confidence is 90": ([90, 10], [0, 1]),
        "correct must be 2 values": ([0.1, 0.9], [1]),
        "needs right and wrong answers": ([0.1, 0.9], [1, 1]),
    }.items():
        with pytest.raises(BadInput, match=words):
            orce.calibrate(*arguments)


def response(*contents, logprobs=None) -> dict:
    halves = contents[0][:1], contents[0][1:]
    tokens = logprobs and {"content": [{"token": text, "logprob": p} for text, p in zip(halves, logprobs, strict=True)]}
    choices = [{"index": i, "message": {"content": text}, "logprobs": tokens} for i, text in enumerate(contents)]
    return {"choices": choices}


class Completion:
    """As the openai package gives it."""

    def model_dump(self) -> dict:
        return response("Lima", logprobs=[-0.1, -0.3])


def test_a_response_has_the_confidence_of_its_tokens_or_of_its_choices_and_says_what_to_ask_for():
    assert orce.of_response(Completion()) == math.exp(-0.2)
    assert orce.of_response(Completion(), "sequence_probability") == math.exp(-0.4)
    assert orce.of_response(response("Lima", "lima.", "Quito"), "agreement") == 2 / 3
    for words, arguments in {
        "ask with logprobs=True": (response("Lima"),),
        "ask for n=5": (response("Lima"), "agreement"),
        "unknown method 'p_true'": (response("Lima"), "p_true"),
        "not a chat completion": ({"error": "no"},),
        "of type int": (3,),
    }.items():
        with pytest.raises(BadInput, match=words):
            orce.of_response(*arguments)
