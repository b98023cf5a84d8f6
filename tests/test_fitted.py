"""Rows that are fitted: combined from others, and probes of states; what is planned, and that no test label reaches a fit."""

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import dry_run
import finished_run
import numpy as np
import pytest
import torch
from conftest import ARITHMETIC, cases, prompts_words
from finished_run import CELL, MODEL, PROMPTS, TEST
from test_baselines import config, on_a_server

from orce import methods
from orce.__main__ import main
from orce.artefacts import files, store
from orce.config import check as configuration
from orce.errors import BadInput
from orce.llm import language_model, reading
from orce.llm.chat import prompt_ids
from orce.methods import fitted
from orce.methods.fitted import COMBINATIONS
from orce.methods.method import pack_state, unpack_states

MIX = {"of": ["likelihood", "agreement"], "fit": "logistic"}
COCOA = {"of": ["likelihood", "agreement"], "fit": "product", "label": "Likelihood x agreement"}
DATA = "results/arithmetic/prompts"
OF_ALL = ("convert-model", "prompts", "overlap", "table", "tables")  # stages of every plan


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


def test_what_a_combination_needs_is_checked_and_a_transfer_names_its_source(tmp_path):
    made = combined()
    del made["datasets"]["arithmetic"]["calibrate_on"]
    refused(made, "mix needs datasets.arithmetic.calibrate_on, the dataset to fit logistic on")
    made["methods"]["mix"] = COCOA
    configuration.check(made)
    made["methods"]["mix"] = COCOA | {"of": ["sft+platt", "agreement"]}
    refused(made, r"sft\+platt needs datasets.arithmetic.calibrate_on")
    on_server = "likelihood needs the weights of the answer LLM, and model 'far' is on a server"
    refused(on_a_server(combined()), on_server)
    made = combined(mix=COCOA | {"of": ["orce", "agreement"]})
    del made["datasets"]["arithmetic"]["splits"]["rl"]
    refused(made, "orce is trained, and datasets.arithmetic.splits has no rl")
    made = combined(["sft", "mix"], mix=COCOA | {"of": ["sft", "agreement"]})
    made["models"]["other"] = made["models"]["smollm2"] | {"label": "Other"}
    made["tables"]["mine"] |= {"kind": "transfer", "source": "other"}
    refused(made, "mix is combined from sft of .* name sft-from-other in methods.mix.of")
    made["methods"]["mix"] = COCOA | {"of": ["sft-from-other", "agreement"]}
    planned = {*dry_run.outputs(dry_run.planned(tmp_path, made))}
    here = "arithmetic/smollm2"
    assert ("state", f"{here}/sft-from-other/confidences.jsonl") in planned
    assert ("fit", f"{here}/mix/confidences.jsonl") in planned
    assert ("sft", "arithmetic/other/sft/manifest.json") in planned


def test_rows_of_the_same_method_judge_the_same_answers_of_their_own():
    registry = methods.Registry({"mix": {"of": ["topk", "topk+platt"], "fit": "mean"}})
    assert registry.answers_scored("mix") == {"topk"} and registry.leaves("mix") == ["topk"]


def test_a_combination_plans_its_rows_and_a_fitted_one_those_of_the_set_to_fit_on(tmp_path):
    def planned(name, given):
        (tmp_path / name).mkdir()
        commands = dry_run.planned(tmp_path / name, combined(["mix"], mix=given))
        return {one for one in dry_run.outputs(commands) if one[0] not in OF_ALL}

    rows = [("sample", "samples.jsonl"), ("likelihoods", "likelihoods.jsonl")]
    rows += [("derive", "likelihood/confidences.jsonl"), ("derive", "agreement/confidences.jsonl")]
    above = [("fit", "mix/confidences.jsonl"), ("evaluate", "mix/metrics.json"), ("surrogate", "surrogate.csv")]
    here = {(stage, f"arithmetic/smollm2/{file}") for stage, file in rows + above}
    assert planned("cocoa", COCOA) == here
    assert planned("mix", MIX) == here | {(stage, f"fit/smollm2/{file}") for stage, file in rows}


@pytest.fixture
def cell(tmp_path, monkeypatch):
    """Frozen prompts, and two rows' confidences in the same answers on the test set and on a set to fit on."""
    monkeypatch.chdir(tmp_path)
    larger = PROMPTS | {"splits": PROMPTS["splits"] | {"rl": {"from": "train", "size": 60}}}
    for split, made in (("test", PROMPTS), ("rl", larger)):
        assert main(prompts_words(made, f"{DATA}/{split}.jsonl", split)) == 0
    rng = np.random.default_rng(3)
    for split in ("test", "rl"):
        ids = [one["id"] for one in files.read_jsonl(f"{DATA}/{split}.jsonl")]
        truth = rng.random(len(ids))
        right = rng.random(len(ids)) < truth
        for row, noise in (("first", 0.1), ("second", 0.5)):
            stated = np.clip(truth + noise * rng.standard_normal(len(ids)), 0, 1).round(2)
            write(split, row, [record(*one) for one in zip(ids, right.tolist(), stated.tolist(), strict=True)])
    return tmp_path


def record(name, right, stated):
    return {"id": name, "answer": "7", "correct": right, "f1": None, "confidence": stated, "raw": "x"}


def sealed(path, records):
    files.write_jsonl(path, records)
    store.seal(path, n=len(records))


def write(split, row, records):
    sealed(f"{split}-{row}.jsonl", records)


def change(split, row, **over):
    """Rewrite a file; `over` maps a key to a function of the record."""
    records = files.read_jsonl(f"{split}-{row}.jsonl")
    write(split, row, [one | {key: made(one) for key, made in over.items()} for one in records])


def combine(how, rows=("first", "second"), fit_prompts=f"{DATA}/rl.jsonl"):
    """(exit code, records, fit.json) of the step."""
    options = {"task": ARITHMETIC, "label": "mix", "method": "mix", "below": list(rows)}
    options |= {"module": how} if how == "isotonic" else {"combination": how, "unparsed_confidence": 0.5}
    fit = ["--fit-on", f"test={fit_prompts}", "--fit-confidences", *(f"rl-{row}.jsonl" for row in rows)]
    words = ["--prompts", f"{DATA}/test.jsonl", "--confidences", *(f"test-{row}.jsonl" for row in rows)]
    words += [*(fit if how in ("logistic", "isotonic") else []), "--out", "out.jsonl", "--fit", "fit.json"]
    code = main(["fit", "--settings", json.dumps(options), *words])
    return code, *((files.read_jsonl("out.jsonl"), files.read_json("fit.json")) if code == 0 else (None, None))


def stated(split, row):
    return np.array([one["confidence"] for one in files.read_jsonl(f"{split}-{row}.jsonl")])


def test_a_logistic_combination_is_scikit_learns_on_logits(cell):
    from scipy.special import logit
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def logits(split):
        columns = [stated(split, row) for row in ("first", "second")]
        return logit(np.stack(columns, 1).clip(0.005, 0.995))

    right = [one["correct"] for one in files.read_jsonl("rl-first.jsonl")]
    theirs = make_pipeline(StandardScaler(), LogisticRegression(tol=1e-10)).fit(logits("rl"), right)
    _, records, fit = combine("logistic")
    assert (fit["n"], fit["n_in_test_set"]) == (60, 0)
    expected = theirs.predict_proba(logits("test"))[:, 1]
    assert [one["confidence"] for one in records] == pytest.approx(expected, abs=1e-6)


def test_questions_of_the_test_set_among_those_to_fit_on_change_no_fit(cell):
    """Whatever their labels; test_unlabelled.py shows that the test set's own labels change nothing."""
    _, before, alone = combine("logistic")
    tested = files.read_jsonl(f"{DATA}/test.jsonl")
    sealed("both.jsonl", files.read_jsonl(f"{DATA}/rl.jsonl") + tested)
    for row in ("first", "second"):
        own = [one | {"correct": not one["correct"]} for one in files.read_jsonl(f"test-{row}.jsonl")]
        write("rl", row, files.read_jsonl(f"rl-{row}.jsonl") + own)
    _, after, fit = combine("logistic", fit_prompts="both.jsonl")
    assert (fit["n_in_test_set"], fit["n"]) == (len(tested), 60)
    assert fit["parameters"] == alone["parameters"] and after == before


@pytest.mark.parametrize(("over", "message"), [
    ({"answer": lambda one: "8"}, "test-second.jsonl: judges '8' for id .*, and test-first.jsonl judges '7'"),
    ({"id": lambda one: f"{one['id']}!"}, "test-second.jsonl: not the items of test-first.jsonl"),
    ({"confidence": lambda one: 60}, "test-second.jsonl, line 1: confidence is 60; expected a number from 0 to 1"),
])  # fmt: skip
def test_rows_that_do_not_belong_together_are_refused(cell, capsys, over, message):
    change("test", "second", **over)
    assert combine("mean")[0] == 2
    assert re.search(message, capsys.readouterr().err)


def test_a_calibration_without_both_kinds_of_answer_outside_the_test_set_is_refused(cell, capsys):
    known, tested = (files.read_jsonl(f"{DATA}/{split}.jsonl") for split in ("rl", "test"))
    to_fit_on = [*tested[:3], known[0]]
    write("rl", "first", [record(one["id"], i > 0, 0.5) for i, one in enumerate(to_fit_on)])
    sealed("both.jsonl", [*known, *tested])
    assert combine("isotonic", ["first"], "both.jsonl")[0] == 2
    said = "1 items to fit on, without both a right and a wrong answer"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("separated", [False, True])
def test_a_constant_or_separating_row_gives_finite_probabilities(separated):
    right = [False, False, True, True]
    rows = [[0.5, float(one) if separated else 0.3] for one in right]
    fit, apply = COMBINATIONS["logistic"]
    found = apply(fit(rows, right), np.random.default_rng(0).random((50, 2)))
    assert np.isfinite(found).all() and (found >= 0).all() and (found <= 1).all()


SPLIT = {name: f"{name}={DATA}/{name}.jsonl" for name in ("sft", "rl", "test")}
FIT = {"task": ARITHMETIC, "label": "x", "method": "probe", "module": "probe", "depths": [0.5, 1.0]}
QUESTIONS = [[{"role": "user", "content": text}] for text in ("What is 1 + 1?", "What is 12 + 30?", "And 7 * 8 - 3?")]


def test_states_are_those_of_a_plain_forward_pass_in_finite_half_precision(tiny):
    lm = language_model.load(MODEL | {"source": {"path": tiny}})
    replies = ["1 + 1 = 2", "", "It is 53"]
    found = reading.Encoder(lm, [0.5, 1.0], 256).states(QUESTIONS, replies)
    outputs = []
    lm.model.model.layers[-1].register_forward_hook(lambda *one: outputs.append(one[2]))  # before the last norm
    for messages, reply, one in zip(QUESTIONS, replies, found, strict=True):
        ids = prompt_ids(lm.tokenizer, messages)
        for place, end in ((0, []), (1, lm.tokenizer(reply, add_special_tokens=False)["input_ids"])):
            with torch.no_grad():
                layers = lm.model(torch.tensor([ids + end]), output_hidden_states=True).hidden_states
            expected = torch.stack([layers[1][0, -1], outputs[-1][0, -1]])
            assert one[place] == pytest.approx(expected.numpy(), abs=1e-4)
    state = np.array([1.0, -3.14159, 1e9, -1e9], np.float32)
    assert unpack_states([pack_state(state)])[0] == pytest.approx([1, -3.140625, 65504, -65504])


def sampled(split, example):
    """Samples as the step writes them: a greedy one on the test split alone."""
    made = finished_run.sample(split, example)
    return made if split == "test" else {key: value for key, value in made.items() if key != "greedy"}


@pytest.fixture
def asked(tiny, tmp_path, monkeypatch):
    """Prompts, answers and labels of a cell."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny, "results/models/small")
    for split in SPLIT:
        assert main(prompts_words(PROMPTS, f"{DATA}/{split}.jsonl", split)) == 0
    store.write(CELL / "samples.jsonl", [sampled(split, one) for split in SPLIT for one in finished_run.prompts(split)])
    finished_run.step("surrogate", samples=CELL / "samples.jsonl", seed=1, out=CELL / "surrogate.csv")
    return tmp_path


@pytest.fixture
def known(asked):
    """States of the asked, drawn at random, in whose second layer a number says whether the answer is right."""
    rng, labels = np.random.default_rng(0), {}
    for row in (CELL / "surrogate.csv").read_text().splitlines()[1:]:
        name, split, *_, right = row.split(",")
        labels[split, name] = int(right)
    made = []
    for one in store.read(CELL / "samples.jsonl"):
        right = one["greedy"]["correct"] if "greedy" in one else labels[one["split"], one["id"]]
        layers = rng.standard_normal((2, 5))
        layers[1, 0] += 4 * right
        made.append({"id": one["id"], "split": one["split"], "answer": [pack_state(layer) for layer in layers]})
    sealed(CELL / "states/answers.jsonl", made)
    return asked


def probe(name="probe"):
    """(records, fit.json) of the step."""
    read, made = f"{CELL}/states/answers.jsonl", CELL / "probe"
    given = ["--fit-on", SPLIT["sft"], SPLIT["rl"], "--surrogate", f"{CELL}/surrogate.csv", "--prompts", TEST]
    given += ["--fit-states", read, "--states", read, "--samples", f"{CELL}/samples.jsonl"]
    out = ["--out", f"{made}/confidences.jsonl", "--fit", f"{made}/fit.json"]
    if main(["fit", "--settings", json.dumps(FIT | {"module": name}), *given, *out]) != 0:
        return None
    return files.read_jsonl(made / "confidences.jsonl"), files.read_json(made / "fit.json")


def test_the_layer_is_chosen_on_training_questions_and_the_fit_says_so(known):
    records, fit = probe()
    chosen = fit["parameters"]
    assert chosen["layer"] == 1 and chosen["C"] in fitted.STRENGTHS and chosen["cross_validated"]["auroc"] > 0.9
    assert fit["n"] + sum(fit["n_in_test_set"].values()) == 24 and fit["depths"] == [0.5, 1.0]
    right = np.array([one["correct"] for one in records])
    stated = np.array([one["confidence"] for one in records])
    assert stated[right].mean() > stated[~right].mean() and ((stated >= 0) & (stated <= 1)).all()


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


def test_a_probe_of_noise_is_no_better_than_chance_on_the_questions_that_it_was_not_fitted_on():
    """Sixty numbers tell forty answers apart, and say nothing of the next one."""
    x, right = np.random.default_rng(2).standard_normal((40, 1, 60)), np.arange(40) % 2 == 0
    targets = {"question": list(map(str, range(40))), "correct": right, "kappa": right * 1.0}
    found = fitted.fit_probe({"answer": x}, targets, "answer", "correct")
    assert 0.2 < found["cross_validated"]["auroc"] < 0.8 and found["cross_validated"]["log_loss"] > 0.5


def test_folds_keep_equal_questions_together_and_one_kind_of_label_is_refused():
    right = np.arange(40) % 2 == 0
    questions = [str(i // 4) for i in range(40)]
    for train, test in fitted.folds(right, questions):
        assert not {questions[i] for i in train} & {questions[i] for i in test}
    targets = {"question": ["a", "b", "c"], "correct": [1, 1, 1], "kappa": [1, 1, 1]}
    said = "two questions with a right answer and two with a wrong one; of 3 items .* 3 are"
    with pytest.raises(BadInput, match=said):
        fitted.fit_probe({"answer": np.zeros((3, 1, 2))}, targets, "answer", "kappa")


OWN = """
LABEL, KIND, READS = "Nearest", "fitted", ("answer",)
def fit(features, targets):
    return {"centre": features["answer"][[bool(one) for one in targets["correct"]], -1].mean(0).tolist()}
def apply(parameters, features):
    import numpy as np
    return np.exp(-np.square(features["answer"][:, -1] - parameters["centre"]).sum(1))
"""


def test_a_learned_method_of_ones_own_is_a_row(known):
    Path("mine.py").write_text(OWN)
    records, fit = probe("mine.py")
    assert len(fit["parameters"]["centre"]) == 5 and all(0 <= one["confidence"] <= 1 for one in records)


def test_a_probe_plans_its_states_and_no_training_and_may_be_calibrated_and_combined(tmp_path):
    made = config(tables__mine__methods=["probe", "probe_judge"])
    planned = Counter(one for one in dry_run.outputs(dry_run.planned(tmp_path, made)) if one[0] not in OF_ALL)
    files = [("sample", "samples.jsonl"), ("surrogate", "surrogate.csv")]
    files += [("states", f"states/{place}.jsonl") for place in ("answers", "judge")]
    files += [("fit", f"{name}/confidences.jsonl") for name in ("probe", "probe_judge")]
    files += [("evaluate", f"{name}/metrics.json") for name in ("probe", "probe_judge")]
    assert planned == dict.fromkeys(((stage, f"arithmetic/smollm2/{file}") for stage, file in files), 1)
    registry = methods.Registry({"mix": {"of": ["likelihood", "probe"], "fit": "logistic"}})
    assert [registry.own_fit(name) for name in ("probe", "probe+platt")] == [None, "platt"]
    assert registry.answers_scored("mix") == {"greedy"}


def test_a_probe_needs_training_questions_and_weights():
    made = on_a_server(config(tables__mine__methods=["probe"]))
    refused(made, "probe needs the weights of the answer LLM, and model 'far' is on a server")
    made["tables"]["mine"]["methods"] = ["probe_judge"]
    configuration.check(made)
    del made["datasets"]["arithmetic"]["splits"]["rl"]
    refused(made, "probe_judge is trained, and datasets.arithmetic.splits has no rl")
