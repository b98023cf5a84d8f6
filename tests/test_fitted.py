"""Rows that are fitted: combined from others, and probes of states; what is planned, and that no test label reaches a fit."""

import json
from pathlib import Path

import dry_run
import numpy as np
import pytest
import torch
from conftest import cases, on_cpu
from stages_by_hand import WORDS, asked, greedy, lines, sampled, stage, stated, write
from test_baselines import config, on_a_server

from orce import methods
from orce.config import check as configuration
from orce.errors import BadInput
from orce.llm import language_model, reading
from orce.llm.chat import prompt_ids
from orce.methods import fitted
from orce.methods.fitted import COMBINATIONS
from orce.methods.method import pack_state, unpack_states
from orce.stages.fit import align_by_id

MIX = {"of": ["likelihood", "agreement"], "fit": "logistic"}
COCOA = {"of": ["likelihood", "agreement"], "fit": "product", "label": "Likelihood x agreement"}


def combined(rows=("mix",), **given):
    """The demo's configuration with combined methods, and a table of some rows."""
    made = config(tables__mine__methods=list(rows))
    made["methods"] = made["methods"] | {"mix": MIX} | given
    return made


def refused(made: dict, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        configuration.check(made)


@pytest.mark.parametrize(("given", "rows", "message"), cases("combined"))
def test_what_cannot_be_combined_is_told(given, rows, message):
    refused(combined(rows, **given), message)


def test_what_a_combination_needs_is_checked_and_planned_and_a_transfer_names_its_source(tmp_path):
    made = combined()
    del made["datasets"]["arithmetic"]["calibrate_on"]
    refused(made, "mix needs datasets.arithmetic.calibrate_on, the dataset to fit logistic on")
    made["methods"]["mix"] = COCOA
    configuration.check(made)
    made["methods"]["mix"] = COCOA | {"of": ["sft+platt", "agreement"]}
    refused(made, r"sft\+platt needs datasets.arithmetic.calibrate_on")
    refused(on_a_server(combined()), "likelihood needs the weights of the answer LLM, and model 'far' is on a server")
    made = combined(mix=COCOA | {"of": ["orce", "agreement"]})
    del made["datasets"]["arithmetic"]["splits"]["rl"]
    refused(made, "orce is trained, and datasets.arithmetic.splits has no rl")
    made = combined(["sft", "mix"], mix=COCOA | {"of": ["sft", "agreement"]})
    made["models"]["other"] = made["models"]["smollm2"] | {"label": "Other"}
    made["tables"]["mine"] |= {"kind": "transfer", "source": "other"}
    refused(made, "mix is combined from sft of .* name sft-from-other in methods.mix.of")
    made["methods"]["mix"] = COCOA | {"of": ["sft-from-other", "agreement"]}
    planned = {*dry_run.outputs(dry_run.planned(tmp_path, made))}
    rows = {("state", "sft-from-other"), ("derive", "agreement"), ("fit", "mix")}
    assert planned >= {(stage, f"arithmetic/smollm2/{row}/confidences.jsonl") for stage, row in rows}
    assert ("sft", "arithmetic/other/sft/manifest.json") in planned
    assert not any(path.startswith("fit/smollm2") for _, path in planned), "a product is fitted on nothing"


# A set to fit on and a test set, with what two methods say of their answers; the first method knows more.
SIZES = {"rl": 60, "test": 20}
KNOWN = {split: [asked(f"{split}{i}", f"{split}{i}") for i in range(size)] for split, size in SIZES.items()}


def said(split: str) -> list[list[dict]]:
    rng = np.random.default_rng(len(split))
    truth, rows = rng.random(len(KNOWN[split])), []
    right = (rng.random(len(truth)) < truth).tolist()
    for noise in (0.1, 0.5):
        values = np.clip(truth + noise * rng.standard_normal(len(truth)), 0, 1).tolist()
        rows.append([stated(*one) for one in zip((row["id"] for row in KNOWN[split]), right, values, strict=True)])
    return rows


def fit_on(known: list[dict], rows: list[list[dict]], **how) -> None:
    """The step: out.jsonl and fit.json of what the methods say of the test answers."""
    own = said("test")[: len(rows)]
    stage(
        "fit", {"task": WORDS, "label": "mix", "method": "mix", "below": ["first", "second"][: len(rows)]} | how,
        prompts=write("test.jsonl", KNOWN["test"]), fit_on={"test": write("rl.jsonl", known)}, out="out.jsonl",
        confidences=[write(f"test{i}.jsonl", row) for i, row in enumerate(own)], fit="fit.json",
        fit_confidences=[write(f"rl{i}.jsonl", row) for i, row in enumerate(rows)],
    )  # fmt: skip


def test_a_logistic_combination_is_scikit_learns_on_logits(folder):
    from scipy.special import logit
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def logits(rows):
        return logit(np.array([[one["confidence"] for one in row] for row in rows]).T.clip(0.005, 0.995))

    known = said("rl")
    theirs = make_pipeline(StandardScaler(), LogisticRegression(tol=1e-10))
    theirs.fit(logits(known), [one["correct"] for one in known[0]])
    fit_on(KNOWN["rl"], known, combination="logistic", unparsed_confidence=0.5)
    expected = theirs.predict_proba(logits(said("test")))[:, 1]
    assert [one["confidence"] for one in lines("out.jsonl")] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("over", "message"), cases("apart"))
def test_rows_that_do_not_belong_together_are_refused(folder, over, message):
    first, second = said("test")
    paths = [write("first.jsonl", first), write("second.jsonl", [second[0] | over, *second[1:]])]
    with pytest.raises(BadInput, match=message):
        align_by_id(paths)


def test_a_calibration_without_both_kinds_of_answer_outside_the_test_set_is_refused(folder, capsys):
    known = [*KNOWN["test"][:3], KNOWN["rl"][0]]
    rows = [stated(one["id"], i > 0, 0.5) for i, one in enumerate(known)]
    with pytest.raises(AssertionError):  # the step does not end with 0
        fit_on(known, [rows], module="isotonic")
    assert "1 items to fit on (3 others are test questions), without both a right and a" in capsys.readouterr().err


@pytest.mark.parametrize("separated", [False, True])
def test_a_constant_or_separating_row_gives_finite_probabilities(separated):
    right = [False, False, True, True]
    rows = [[0.5, float(one) if separated else 0.3] for one in right]
    fit, apply = COMBINATIONS["logistic"]
    found = apply(fit(rows, right), np.random.default_rng(0).random((50, 2)))
    assert np.isfinite(found).all() and (found >= 0).all() and (found <= 1).all()


def test_the_last_states_are_those_before_the_last_norm_in_finite_half_precision(tiny):
    """Those of other layers, of question and reply: test_stage_models.py."""
    lm, outputs = language_model.load(on_cpu(path=tiny)), []
    questions = [[{"role": "user", "content": text}] for text in ("What is 1 + 1?", "What is 12 + 30?", "7 * 8 - 3?")]
    found = reading.Encoder(lm, [0.5, 1.0], 256).states(questions, ["1 + 1 = 2", "", "It is 53"])
    lm.model.model.layers[-1].register_forward_hook(lambda *one: outputs.append(one[2]))
    for messages, one in zip(questions, found, strict=True):
        with torch.no_grad():
            lm.model(torch.tensor([prompt_ids(lm.tokenizer, messages)]))
        assert one[0][1] == pytest.approx(outputs[-1][0, -1].numpy(), abs=1e-4)
    state = np.array([1.0, -3.14159, 1e9, -1e9], np.float32)
    assert unpack_states([pack_state(state)])[0] == pytest.approx([1, -3.140625, 65504, -65504])


def test_the_fit_is_scikit_learns_on_shares():
    """Weights kappa and 1 - kappa are K copies of a question, kappa K of them right."""
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(1)
    x, right = rng.standard_normal((60, 1, 4)), np.arange(60) % 2 == 0
    kappa = np.where(right, 0.75, 0.25)
    targets = {"question": list(map(str, range(60))), "correct": right, "kappa": kappa}
    found = fitted.fit_probe({"answer": x}, targets, "answer", "kappa")
    scaled = (x[:, 0] - x[:, 0].mean(0)) / x[:, 0].std(0)
    copies = [(row, i < 4 * share) for row, share in zip(scaled, kappa, strict=True) for i in range(4)]
    theirs = LogisticRegression(C=found["C"] / 4).fit([row for row, _ in copies], [one for _, one in copies])
    expected = theirs.predict_proba(scaled)[:, 1]
    assert fitted.apply_probe(found, {"answer": x}, "answer") == pytest.approx(expected, abs=1e-3)


def test_the_layer_that_tells_is_chosen_and_noise_stays_at_chance():
    """Sixty numbers tell forty answers apart, and say nothing of the next one."""
    x, right = np.random.default_rng(2).standard_normal((40, 3, 60)), np.arange(40) % 2 == 0
    targets = {"question": list(map(str, range(40))), "correct": right, "kappa": right * 1.0}
    noise = fitted.fit_probe({"answer": x[:, :1]}, targets, "answer", "correct")["cross_validated"]
    assert 0.2 < noise["auroc"] < 0.8 and noise["log_loss"] > 0.5
    x[:, 1, 0] += 8 * right
    found = fitted.fit_probe({"answer": x}, targets, "answer", "correct")
    assert found["layer"] == 1 and found["C"] in fitted.STRENGTHS and found["cross_validated"]["auroc"] > 0.9


def test_folds_keep_equal_questions_together_and_one_kind_of_label_is_refused():
    right = np.arange(40) % 2 == 0
    questions = [str(i // 4) for i in range(40)]
    for train, test in fitted.folds(right, questions):
        assert not {questions[i] for i in train} & {questions[i] for i in test}
    targets = {"question": ["a", "b", "c"], "correct": [1, 1, 1], "kappa": [1, 1, 1]}
    with pytest.raises(BadInput, match="two questions with a right answer and two with a wrong one; of 3 .* 3 are"):
        fitted.fit_probe({"answer": np.zeros((3, 1, 2))}, targets, "answer", "kappa")


OWN = """
LABEL, KIND, READS = "Nearest", "fitted", ("answer",)
def fit(features, targets):
    return {"centre": features["answer"][[bool(one) for one in targets["correct"]], -1].mean(0).tolist()}
def apply(parameters, features):
    import numpy as np
    return np.exp(-np.square(features["answer"][:, -1] - parameters["centre"]).sum(1))
"""


def test_a_learned_method_of_ones_own_is_a_row(folder):
    Path("mine.py").write_text(OWN)
    states = np.arange(18.0).reshape(3, 2, 3) / 16
    read = [write("states/answers.jsonl", [
        {"id": name, "split": split, "answer": [pack_state(layer) for layer in one]}
        for name, split, one in zip("abt", ("sft", "sft", "test"), states, strict=True)
    ])]  # fmt: skip
    head = "id,split,n_correct,n_samples,kappa,answer,answer_correct\n"
    Path("surrogate.csv").write_text(f"{head}a,sft,1,2,0.5,ant,1\nb,sft,0,2,0.0,bee,0\n")
    stage(
        "fit", {"task": WORDS, "label": "x", "method": "mine", "module": "mine.py", "depths": [0.5, 1.0]},
        fit_on={"sft": write("sft.jsonl", [asked("a", "a"), asked("b", "b")])}, surrogate="surrogate.csv", fit="fit.json",
        prompts=write("test.jsonl", [asked("t", "t")]), states=read, fit_states=read, out="out.jsonl",
        samples=write("samples.jsonl", [sampled("t", "test", ["x"], [True], greedy("x", True))]),
    )  # fmt: skip
    assert json.loads(Path("fit.json").read_text())["parameters"] == {"centre": states[0, 1].tolist()}
    expected = np.exp(-np.square(states[2, 1] - states[0, 1]).sum())
    assert lines("out.jsonl")[0]["confidence"] == pytest.approx(expected)


def test_a_probe_needs_training_questions_and_weights_and_may_be_calibrated_and_combined():
    made = on_a_server(config(tables__mine__methods=["probe"]))
    refused(made, "probe needs the weights of the answer LLM, and model 'far' is on a server")
    made["tables"]["mine"]["methods"] = ["probe_judge"]
    configuration.check(made)
    del made["datasets"]["arithmetic"]["splits"]["rl"]
    refused(made, "probe_judge is trained, and datasets.arithmetic.splits has no rl")
    of = {"mix": ["likelihood", "probe"], "top": ["topk", "topk+platt"]}
    registry = methods.Registry({name: {"of": rows, "fit": "mean"} for name, rows in of.items()})
    assert [registry.own_fit(name) for name in ("probe", "probe+platt")] == [None, "platt"]
    assert [registry.answers_scored(name) for name in of] == [{"greedy"}, {"topk"}]
    assert registry.leaves("top") == ["topk"]
