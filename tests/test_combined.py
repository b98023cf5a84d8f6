"""Rows combined from others: what the configuration may say, what is planned, and that no test label reaches a fit."""

import json
import re

import numpy as np
import pytest
import yaml
from conftest import ARITHMETIC, ROOT, cases, prompts_words, typed
from finished_run import PROMPTS
from test_baselines import config, on_a_server
from test_workflow import job_counts, plan

from orce import methods
from orce.__main__ import main
from orce.artefacts import files, store
from orce.config import check as configuration
from orce.config import graph
from orce.errors import BadInput

MIX = {"of": ["likelihood", "agreement"], "fit": "logistic"}
COCOA = {"of": ["likelihood", "agreement"], "fit": "product", "label": "Likelihood x agreement"}
DATA = "results/arithmetic/prompts"


def combined(rows=("mix",), **given):
    """The demo's configuration with combined methods, and a table of some rows."""
    made = config(tables__mine__methods=list(rows))
    made["methods"] = made["methods"] | {"mix": MIX} | given
    return made


@pytest.mark.parametrize(("given", "rows", "message"), cases("combined"))
def test_what_cannot_be_combined_is_told(given, rows, message):
    with pytest.raises(BadInput, match=message):
        configuration.check(combined(rows, **given))


def test_what_a_combination_needs_is_checked_and_a_transfer_names_its_source():
    made = combined(["mix"])
    del made["datasets"]["arithmetic"]["calibrate_on"]
    with pytest.raises(BadInput, match="mix needs datasets.arithmetic.calibrate_on, the dataset to fit logistic on"):
        configuration.check(made)
    made["methods"]["mix"] = COCOA
    configuration.check(made)
    made["methods"] |= {"mix": COCOA | {"of": ["sft+platt", "agreement"]}}
    with pytest.raises(BadInput, match=r"sft\+platt needs datasets.arithmetic.calibrate_on"):
        configuration.check(made)
    with pytest.raises(
        BadInput, match="likelihood needs the weights of the answer LLM, and model 'far' is on a server"
    ):
        configuration.check(on_a_server(combined(["mix"])))
    made = combined(["mix"], mix=COCOA | {"of": ["orce", "agreement"]})
    del made["datasets"]["arithmetic"]["splits"]["rl"]
    with pytest.raises(BadInput, match="orce is trained, and datasets.arithmetic.splits has no rl"):
        configuration.check(made)
    made = combined(["sft", "mix"], mix=COCOA | {"of": ["sft", "agreement"]})
    made["models"]["other"] = made["models"]["smollm2"] | {"label": "Other"}
    made["tables"]["mine"] |= {"kind": "transfer", "source": "other"}
    with pytest.raises(BadInput, match="mix is combined from sft of .* name sft-from-other in methods.mix.of"):
        configuration.check(made)
    made["methods"]["mix"] = COCOA | {"of": ["sft-from-other", "agreement"]}
    configuration.check(made)
    planned = {(one.rule, one.cell.model, one.name) for one in graph.stages(typed(made), ["mine"])}
    assert {("sft", "other", "sft"), ("state", "smollm2", "sft-from-other"), ("fit", "smollm2", "mix")} <= planned


def test_rows_of_the_same_method_judge_the_same_answers_of_their_own():
    registry = methods.Registry({"mix": {"of": ["topk", "topk+platt"], "fit": "mean"}})
    assert registry.judges("mix") == {"topk"} and registry.leaves("mix") == ["topk"]


def test_a_combination_plans_its_rows_and_a_fitted_one_those_of_the_set_to_fit_on():
    def planned(given):
        stages = graph.stages(typed(combined(["mix"], mix=given)), ["mine"])
        return {(one.rule, one.cell.dataset, one.name) for one in stages}

    rows = {("sample", ""), ("likelihoods", "likelihoods"), ("derive", "likelihood"), ("derive", "agreement")}
    above = {("fit", "mix"), ("evaluate", "mix"), ("surrogate", "")}
    here = {(rule, "arithmetic", name) for rule, name in rows | above}
    assert planned(COCOA) == here
    assert planned(MIX) == here | {(rule, "fit", name) for rule, name in rows}


@pytest.mark.slow
def test_snakemake_runs_only_what_a_combination_needs(tmp_path):
    (tmp_path / "config").symlink_to(ROOT / "config")
    made = combined(["mix"], cocoa=COCOA)
    for name, target in (("mix", {"derive": 4, "likelihoods": 2, "fit": 1}), ("cocoa", {"derive": 2, "fit": 1})):
        (tmp_path / "mine.yaml").write_text(yaml.safe_dump(made))
        wanted = f"results/arithmetic/smollm2/{name}/metrics.json"
        counts = job_counts(plan("--configfile", "mine.yaml", "--cores", "1", "--", wanted, folder=tmp_path))
        assert {rule: counts[rule] for rule in target} == target
        assert not {"sft", "dpo", "state", "elicit"} & counts.keys()


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


def write(split, row, records):
    files.write_jsonl(f"{split}-{row}.jsonl", records)
    store.seal(f"{split}-{row}.jsonl", n=len(records))


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


def test_mean_and_product_are_those_of_the_rows_and_logistic_scikit_learns_on_logits(cell):
    first, second = stated("test", "first"), stated("test", "second")
    for how, expected in (("mean", (first + second) / 2), ("product", first * second)):
        _, records, fit = combine(how)
        assert [one["confidence"] for one in records] == pytest.approx(expected.tolist(), abs=1e-15)
        assert [one["raw"] for one in records] == np.stack([first, second], 1).tolist()
        unread = {"first": 0, "second": 0}
        assert fit == {"method": "mix", "of": ["first", "second"], "parameters": {}, "n_unparsed": unread}
    from scipy.special import logit
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def logits(split):
        return logit(np.stack([stated(split, row) for row in ("first", "second")], 1).clip(0.005, 0.995))

    right = [one["correct"] for one in files.read_jsonl("rl-first.jsonl")]
    theirs = make_pipeline(StandardScaler(), LogisticRegression(tol=1e-10)).fit(logits("rl"), right)
    _, records, fit = combine("logistic")
    assert fit["n"] == 60 and fit["n_in_test_set"] == 0
    assert [one["confidence"] for one in records] == pytest.approx(theirs.predict_proba(logits("test"))[:, 1], abs=1e-6)


def test_no_label_and_no_question_of_the_test_set_reaches_the_fit(cell):
    before = combine("logistic")
    for row in ("first", "second"):
        change("test", row, correct=lambda one: not one["correct"])
    after = combine("logistic")
    assert after[2] == before[2]
    assert [one["confidence"] for one in after[1]] == [one["confidence"] for one in before[1]]
    assert [one["correct"] for one in after[1]] != [one["correct"] for one in before[1]]
    # With test questions among those to fit on, whatever their labels, the fit is the one without them.
    _, before, alone = combine("logistic")
    tested = files.read_jsonl(f"{DATA}/test.jsonl")
    files.write_jsonl("both.jsonl", files.read_jsonl(f"{DATA}/rl.jsonl") + tested)
    store.seal("both.jsonl")
    for row in ("first", "second"):
        write("rl", row, files.read_jsonl(f"rl-{row}.jsonl") + files.read_jsonl(f"test-{row}.jsonl"))
    _, after, fit = combine("logistic", fit_prompts="both.jsonl")
    assert fit["n_in_test_set"] == len(tested) and fit["n"] == 60 and fit["parameters"] == alone["parameters"]
    assert after == before


def test_an_unread_confidence_counts_as_the_default_and_one_that_no_row_has_stays_unread(cell):
    change("test", "first", confidence=lambda one: None)
    gone = files.read_jsonl("test-first.jsonl")[0]["id"]
    change("test", "second", confidence=lambda one: None if one["id"] == gone else one["confidence"])
    _, records, fit = combine("mean")
    assert records[0]["confidence"] is None and records[0]["raw"] == [None, None]
    expected = (stated("test", "second")[1:].astype(float) + 0.5) / 2
    assert [one["confidence"] for one in records[1:]] == pytest.approx(expected)
    assert fit["n_unparsed"] == {"first": len(records), "second": 1}


@pytest.mark.parametrize(("over", "message"), [
    ({"answer": lambda one: "8"}, "test-second.jsonl: judges '8' for id .*, and test-first.jsonl judges '7'"),
    ({"id": lambda one: f"{one['id']}!"}, "test-second.jsonl: not the items of test-first.jsonl"),
    ({"confidence": lambda one: 60}, "test-second.jsonl, line 1: confidence is 60; expected a number from 0 to 1"),
])  # fmt: skip
def test_rows_that_do_not_belong_together_are_refused(cell, capsys, over, message):
    change("test", "second", **over)
    assert combine("mean")[0] == 2
    assert re.search(message, capsys.readouterr().err)


def test_a_calibration_is_fitted_on_readable_items_outside_the_test_set(cell, capsys):
    records = files.read_jsonl("rl-first.jsonl")
    change("rl", "first", confidence=lambda one: None if one["id"] == records[0]["id"] else one["confidence"])
    _, mapped, fit = combine("isotonic", ["first"])
    assert fit["n"] == 59 and [one["raw"] for one in mapped] == stated("test", "first").tolist()
    tested = files.read_jsonl(f"{DATA}/test.jsonl")
    write("rl", "first", [record(one["id"], i > 0, 0.5) for i, one in enumerate([*tested[:3], *records[:1]])])
    files.write_jsonl("both.jsonl", [*files.read_jsonl(f"{DATA}/rl.jsonl"), *tested])
    store.seal("both.jsonl")
    assert combine("isotonic", ["first"], "both.jsonl")[0] == 2
    assert "1 items to fit on, without both a right and a wrong answer" in capsys.readouterr().err


@pytest.mark.parametrize("separated", [False, True])
def test_a_constant_or_separating_row_gives_finite_probabilities(separated):
    right = [False, False, True, True]
    rows = [[0.5, float(one) if separated else 0.3] for one in right]
    fit, apply = methods.COMBINATIONS["logistic"]
    found = apply(fit(rows, right), np.random.default_rng(0).random((50, 2)))
    assert np.isfinite(found).all() and (found >= 0).all() and (found <= 1).all()
