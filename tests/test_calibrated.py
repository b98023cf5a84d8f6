"""`orce.calibrate` and `orce.of_response`: from confidences to probabilities, and from a client's response to a confidence."""

import math

import numpy as np
import pytest

import orce
from orce.errors import BadInput
from orce.metrics import selective

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
    assert again == fitted and again.apply(CONFIDENCE) == after
    assert fitted(0.5) == fitted([0.5, None])[0] and fitted([0.5, None])[1] is None


def test_the_threshold_is_the_one_with_the_guarantee(tmp_path):
    fitted = orce.calibrate(CONFIDENCE, CORRECT, risk=0.4)
    assert fitted.selection == selective.threshold_for_risk(CONFIDENCE, CORRECT, 0.4)
    fitted.save(tmp_path / "calibration.json")
    again = orce.Calibration.load(tmp_path / "calibration.json")
    assert again.keeps(0.99) and not again.keeps(0.1) and not again.keeps(None)


def test_what_cannot_be_calibrated_is_said():
    for words, arguments in {
        "unknown calibration 'isotone'": ([0.1, 0.9], [0, 1], "isotone"),
        "a confidence is 90": ([90, 10], [0, 1]),
        "correct must be 2 values": ([0.1, 0.9], [1]),
        "needs right and wrong answers": ([0.1, 0.9], [1, 1]),
    }.items():
        with pytest.raises(BadInput, match=words):
            orce.calibrate(*arguments)


def response(*contents, logprobs=None) -> dict:
    tokens = None if logprobs is None else {"content": [{"token": "t", "logprob": value} for value in logprobs]}
    return {
        "choices": [{"index": i, "message": {"content": text}, "logprobs": tokens} for i, text in enumerate(contents)]
    }


class Completion:
    """As the openai package gives it."""

    def model_dump(self) -> dict:
        return response("Lima", logprobs=[-0.1, -0.3])


def test_a_response_has_the_confidence_of_its_tokens_or_of_its_choices():
    assert orce.of_response(Completion()) == math.exp(-0.2)
    assert orce.of_response(Completion(), "sequence_probability") == math.exp(-0.4)
    assert orce.of_response(response("Lima", "lima.", "Quito"), "agreement") == 2 / 3


def test_a_response_without_what_is_read_says_what_to_ask_for():
    for words, arguments in {
        "ask with logprobs=True": (response("Lima"),),
        "ask for n=5": (response("Lima"), "agreement"),
        "unknown method 'p_true'": (response("Lima"), "p_true"),
        "not a chat completion": ({"error": "no"},),
        "of type int": (3,),
    }.items():
        with pytest.raises(BadInput, match=words):
            orce.of_response(*arguments)
