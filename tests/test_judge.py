"""A trained confidence LLM on anyone's pairs: the workflow's own values at each door, and given confidences beside it."""

import contextlib

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
from orce.judge.judge import AsGiven

CELL = finished_run.CELL / "sft"
VALUES = ("confidence", "stated", "mean", "mass", "raw", "retried")
BATCHES = {"batch_tokens": 512, "chunk": 8}  # those of the finished run


def values(records):
    return [[record[key] for key in VALUES] for record in records]


def write(path, records):
    files.write_jsonl(path, records)
    return path


def pairs(n, **more):
    return [{"id": i, "question": f"What is {i} + {i % 7}?", "answer": str(i + i % 7), **more} for i in range(n)]


def test_scores_are_those_of_the_workflows_evaluation_and_of_vanilla_without_training(finished, tmp_path, small):
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
    table = orce.confidence(small, pairs, ["vanilla"], task=ARITHMETIC, **BATCHES)
    assert table.confidence("vanilla") == [record["confidence"] for record in untrained]


def test_three_lines_of_python_the_record_that_is_no_pair_and_an_endless_stream(finished, small):
    scorer = orce.load_judge(finished / CELL)
    (record,) = scorer([{"question": "What is 17 * 3?", "answer": "51", "mine": [1, 2]}])
    assert record["mine"] == [1, 2] and 0 <= record["mean"] <= 1 and set(VALUES) < set(record)
    with pytest.raises(BadInput, match="record 2: no key 'answer'"):
        list(scorer([{"question": "What is 1 + 1?", "answer": "2"}, {"question": "What is 1 + 1?"}]))
    scorer = orce.load_judge(base=small, chunk=2, batch_tokens=200)
    stream = scorer({"question": f"What is {i}?", "answer": str(i)} for i in iter(int, 1))
    assert [next(stream)["answer"] for _ in range(5)] == ["0"] * 5


EXAMPLE = {"id": "1", "question": "Which one?", "context": None, "choices": None}
CHOICES = {"choices": ["B", "the second ", "a third"]}
EXAMPLES = {
    "mmlu": (EXAMPLE | CHOICES, ["A", "B", "C", None]),
    "logiqa": (EXAMPLE | CHOICES | {"context": "A text."}, ["A", "B", "C", None]),
    "reclor": (EXAMPLE | CHOICES | {"context": "A text."}, ["A", "B", "C", None]),
    "drop": (EXAMPLE | {"context": "A passage."}, ["3", "Smith; Jones", None]),
    ARITHMETIC: (EXAMPLE, ["17", "-5", None]),
    WORLDFACTS: (EXAMPLE, ["Paris", None]),
    "choice": (EXAMPLE | CHOICES, ["A", "B", "C", None]),
    "qa": (EXAMPLE | {"context": "A text."}, ["Paris", "17", None]),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_record_is_shown_as_its_task_shows_it_without_being_told_the_task(small, name):
    assert set(EXAMPLES) == {*tasks.NAMES, ARITHMETIC, WORLDFACTS}
    example, answers = EXAMPLES[name]
    given, told = (orce.load_judge(base=small, task=task) for task in (None, name))
    for answer in answers:
        assert given.prompt(example | {"answer": answer}) == told.prompt(example | {"answer": answer})


@pytest.mark.parametrize(
    ("answer", "shown"),
    [("B", "B. blue"), ("The answer is (B).", "B. blue"), ("blue", "B. blue"), ("Both of them", "Both of them")],
)
def test_a_choice_in_free_words_is_shown_as_the_option_it_names(answer, shown):
    assert AsGiven.display(answer, EXAMPLE | {"choices": ["red", "blue"]}) == shown


@pytest.mark.parametrize(("name", "text", "said"), [
    ("mine.jsonl", "", "mine.jsonl is empty; expected one JSON object a line"),
    ("mine.jsonl", '{"question": "?", "answer": "1", "confidence": 50}', "mine.jsonl, line 1: confidence is 50; expected a number from 0"),
    ("mine.csv", "question,answer\n?,2\n", "given: no question has a key 'confidence'; name its column"),
])  # fmt: skip
def test_a_file_without_confidences_is_named_and_nothing_is_written(name, text, said, folder):
    (folder / name).write_text(text)
    code, told = called(main, ["measure", name, "--methods", "given", "--out", "o.jsonl"])
    assert code == 2 and said in told and len(told.splitlines()) == 1 and not (folder / "o.jsonl").exists()


def test_a_removed_command_names_what_does_its_work():
    code, said = called(main, ["score"])
    assert code == 2 and said.strip() == "orce: no command 'score'; `orce measure` does its work"


def test_a_records_own_keys_stay_beside_what_was_measured(tmp_path):
    record = {"id": "1", "answer": "Paris.", "references": ["Paris"], "confidence": 0.9, "mine": [1]}
    (found,) = orce.confidence(None, [record])
    assert found == {
        "id": "1", "question": "1", "answer": "Paris", "reply": "Paris.", "correct": True, "confidence": {"given": 0.9}, "mine": [1],
    }  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), cases("measure_mistakes"))
def test_a_mistake_ends_in_one_line_before_anything_is_measured(tmp_path, capsys, arguments, message):
    with contextlib.chdir(tmp_path):
        write(tmp_path / "bad.jsonl", [{"confidence": 80, "correct": True}])
        write(tmp_path / "pairs.jsonl", [{"question": "1 + 1?", "answer": "2", "confidence": 0.5}])
        assert main(["measure", *arguments]) == 2
        assert not (tmp_path / "o.jsonl").exists()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("orce measure: ") and message in line


def test_an_adapter_whose_base_is_gone_says_what_to_name(finished, tmp_path):
    folder = tmp_path / "adapter"
    folder.mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors", "manifest.json"):
        (folder / name).write_bytes((finished / CELL / name).read_bytes())
    with pytest.raises(BadInput, match="its base model 'results/models/small' is not here; name it"):
        orce.load_judge(folder)


# Equal is equal: scores do not depend on the order of the samples, and a percent is that percent in float32 and float16 too. Lines of
# tests/data/equal.jsonl; configurations of tests/data/odd_yaml.jsonl go through their reader.
LINES = {kind: [case for case in cases("equal") if case["kind"] == kind] for kind in ("order", "threshold", "metrics")}


@pytest.mark.parametrize("case", LINES["order"], ids=lambda case: case["method"])
def test_the_order_of_the_samples_changes_no_bit(case):
    asked = [{"question": "?", "answers": answers} for answers in case["answers"]]
    table = orce.confidence(None, asked, [case["method"]])
    stated = table.confidence(case["method"])
    assert len(set(stated)) == 1


def short(values, dtype, mixed=False):
    rounded = np.array(values, dtype).astype(float).tolist()
    return [
        value if mixed and i % 2 else as_read for i, (value, as_read) in enumerate(zip(values, rounded, strict=True))
    ]


def given(confidences, correct):
    return [{"answer": str(i), "confidence": c, "correct": bool(y)} for i, (c, y) in enumerate(zip(confidences, correct, strict=True))]  # fmt: skip


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
        return
    with pytest.raises(BadInput) as error:
        read_config(paths)
    assert case["error"] in str(error.value) and "\n" not in str(error.value)
