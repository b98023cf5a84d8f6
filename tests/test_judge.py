"""A trained confidence LLM on anyone's pairs: the workflow's own values at each door, and given confidences beside it."""

import contextlib
import shutil

import finished_run
import numpy as np
import pytest
from conftest import ARITHMETIC, ROOT, WORLDFACTS, cases
from dry_run import called

import orce
from orce import tasks
from orce.__main__ import main
from orce.artefacts import files
from orce.config.check import read_config
from orce.errors import BadInput

CELL = finished_run.CELL / "sft"
VALUES = ("confidence", "stated", "mean", "mass", "raw", "retried")
BATCHES = {"batch_tokens": 512, "chunk": 8}  # those of the finished run


def values(records):
    return [[record[key] for key in VALUES] for record in records]


def test_scores_are_those_of_the_workflows_evaluation_and_of_vanilla_untrained(finished, tmp_path, small, capsys):
    pairs = finished_run.pairs(finished)
    assert any(record["answer"] is None for record in pairs)
    evaluated = files.read_jsonl(finished / CELL / "confidences.jsonl")
    records = [*orce.load_judge(finished / CELL, **BATCHES)(pairs)]
    assert [record["id"] for record in records] == [record["id"] for record in evaluated]
    assert values(records) == values(evaluated)
    options = {"judge": finished / CELL, "task": ARITHMETIC, "equality": None, **BATCHES}
    for readout in ("stated", "mean"):
        table = orce.confidence(None, pairs, readout=readout, **options)
        assert table.confidence("judge") == [record[readout] for record in evaluated]
    with contextlib.chdir(finished):
        finished_run.state(tmp_path / "vanilla.jsonl")
    untrained = files.read_jsonl(tmp_path / "vanilla.jsonl")
    assert values(orce.load_judge(base=small, **BATCHES)(pairs)) == values(untrained)
    capsys.readouterr()
    table = orce.confidence(small, pairs, ["vanilla"], task=ARITHMETIC, **BATCHES)
    assert "prompts have less than 50% of their probability on 0 to 100 percent" in capsys.readouterr().err
    assert table.confidence("vanilla") == [record["confidence"] for record in untrained]


def test_a_judge_takes_own_keys_samples_and_endless_streams_but_no_record_without_an_answer(finished, small):
    scorer = orce.load_judge(finished / CELL)
    (record,) = scorer([{"question": "What is 17 * 3?", "answer": "51", "mine": [1, 2]}])
    assert record["mine"] == [1, 2] and 0 <= record["mean"] <= 1 and set(VALUES) < set(record)
    asked = {"question": "What is 1 + 1?"}
    sampled = scorer([asked | {"answers": ["2", "3"]}, asked | {"greedy": "3"}])
    assert values(sampled) == values(scorer([asked | {"answer": answer} for answer in "23"]))
    with pytest.raises(BadInput, match="record 2: no key 'answer'"):
        list(scorer([asked | {"answer": "2"}, asked]))
    scorer = orce.load_judge(base=small, chunk=2, batch_tokens=200)
    stream = scorer({"question": f"What is {i}?", "answer": str(i)} for i in iter(int, 1))
    assert [next(stream)["answer"] for _ in range(5)] == ["0"] * 5


def test_a_record_is_shown_as_its_task_shows_it_without_being_told_the_task(small):
    """A choice in free words is the option that it names."""
    asked = {"id": "1", "question": "Which one?", "context": None, "choices": None}
    lettered = asked | {"choices": ["B", "the second ", "a third"]}, ["A", "B", "C", None]
    read = lettered[0] | {"context": "A text."}, ["A", "B", "C", None]
    examples = {
        "mmlu": lettered, "logiqa": read, "reclor": read, "drop": (asked | {"context": "A passage."}, ["3", "Smith; Jones", None]),
        ARITHMETIC: (asked, ["17", "-5", None]), WORLDFACTS: (asked, ["Paris", None]),
        "choice": lettered, "qa": (asked | {"context": "A text."}, ["Paris", "17", None]),
    }  # fmt: skip
    assert set(examples) == {*tasks.NAMES, ARITHMETIC, WORLDFACTS}
    given = orce.load_judge(base=small)
    for name, (example, answers) in examples.items():
        told = orce.load_judge(base=small, task=name)
        for answer in answers:
            assert given.prompt(example | {"answer": answer}) == told.prompt(example | {"answer": answer}), name
    named = dict.fromkeys(("B", "The answer is (B).", "blue"), "B. blue") | {"Both of them": "Both of them"}
    for answer, shown in named.items():
        (turn, *_) = given.prompt(asked | {"choices": ["red", "blue"], "answer": answer})
        assert turn["content"].endswith(f"Proposed answer: {shown}")


def test_a_removed_command_names_what_does_its_work():
    assert called(main, ["score"]) == (2, "orce: no command 'score'; `orce measure` does its work\n")


def test_a_records_own_keys_stay_beside_what_was_measured():
    record = {"id": "1", "answer": "Paris.", "references": ["Paris"], "confidence": 0.9, "mine": [1]}
    (found,) = orce.confidence(None, [record])
    read = {"id": "1", "question": "1", "answer": "Paris", "reply": "Paris.", "correct": True}
    assert found == read | {"confidence": {"given": 0.9}, "mine": [1]}


@pytest.mark.parametrize(("arguments", "message"), cases("measure_mistakes"))
def test_a_mistake_ends_in_one_line_before_anything_is_measured(arguments, message, folder):
    files.write_jsonl("bad.jsonl", [{"confidence": 80, "correct": True}])
    files.write_jsonl("pairs.jsonl", [{"question": "1 + 1?", "answer": "2", "confidence": 0.5}])
    code, said = called(main, ["measure", *arguments])
    assert code == 2 and {path.name for path in folder.iterdir()} == {"bad.jsonl", "pairs.jsonl"}
    (line,) = said.splitlines()
    assert line.startswith("orce measure: ") and message in line


def test_an_adapter_whose_base_is_gone_says_what_to_name(finished, tmp_path):
    for name in ("adapter_config.json", "adapter_model.safetensors", "manifest.json"):
        shutil.copy(finished / CELL / name, tmp_path)
    with pytest.raises(BadInput, match="its base model 'results/models/small' is not here; put it at .*load_judge"):
        orce.load_judge(tmp_path)


# Equal is equal: scores do not depend on the order of the samples, and a percent is that percent in float32 and float16 too. Lines of
# tests/data/equal.jsonl; configurations of tests/data/odd_yaml.jsonl go through their reader.
LINES = {kind: [case for case in cases("equal") if case["kind"] == kind] for kind in ("order", "threshold", "metrics")}


@pytest.mark.parametrize("case", LINES["order"], ids=lambda case: case["method"])
def test_the_order_of_the_samples_changes_no_bit(case):
    asked = [{"question": "?", "answers": answers} for answers in case["answers"]]
    assert len({*orce.confidence(None, asked, [case["method"]]).confidence(case["method"])}) == 1


def short(values, dtype, mixed=False):
    """The values as a shorter type has them, or every other one of them."""
    rounded = np.array(values, dtype).astype(float)
    if mixed:
        rounded[1::2] = values[1::2]
    return rounded.tolist()


def given(confidences, correct):
    labelled = zip(confidences, correct, strict=True)
    return [{"answer": str(i), "confidence": c, "correct": bool(y)} for i, (c, y) in enumerate(labelled)]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("case", LINES["threshold"])
def test_a_threshold_keeps_the_same_answers(case, dtype, tmp_path):
    stated, confidence = case["calibration"], case["confidence"]
    right = [i < case["right"] for i in range(len(stated))]
    kept = []
    for known, asked in ((stated, confidence), (short(stated, dtype), confidence), (stated, short(confidence, dtype))):
        files.write_jsonl(tmp_path / "known.jsonl", given(known, right))
        table = orce.confidence(None, given(asked, [1] * len(asked)))
        table.keep(risk=0.1, calibration=tmp_path / "known.jsonl")
        kept.append([record["decision"] for record in table])
    assert kept == [["keep"] * len(confidence)] * 3


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("case", LINES["metrics"])
def test_metrics_are_the_same(case, dtype):
    measured = []
    for values in (case["confidence"], short(case["confidence"], dtype, case.get("mixed", False))):
        measured.append(orce.confidence(None, given(values, case["correct"])).metrics())
    assert measured[0] == measured[1]


@pytest.mark.parametrize("case", cases("odd_yaml"), ids=lambda case: " | ".join(case["yaml"])[-60:])
def test_a_configuration_means_what_it_says_or_is_refused(case, tmp_path):
    mine = [tmp_path / f"{i}.yaml" for i in range(len(case["yaml"]))]
    for path, text in zip(mine, case["yaml"], strict=True):
        path.write_text(text)
    paths = [str(path) for path in (ROOT / "config.yaml", ROOT / "config" / "demo.yaml", *mine)]
    if case["error"] is None:
        read_config(paths)
    else:
        with pytest.raises(BadInput) as error:
            read_config(paths)
        assert case["error"] in str(error.value) and "\n" not in str(error.value)
