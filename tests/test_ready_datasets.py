"""The entries of config/datasets: rows in the published layout, through the prompts step that Snakemake runs."""

import json

import pytest
from conftest import ROOT
from test_any_data import shipped, written

from orce import stages, tasks
from orce.__main__ import main
from orce.config import settings
from orce.config.schema import Split

# Of each set three rows in its published columns, their right answers, the column of the question and what else is shown.
READY = {one["name"]: one for one in map(json.loads, (ROOT / "tests/data/ready_datasets.jsonl").open(encoding="utf-8"))}
SHUFFLED = ("gpqa", "sciq", "truthfulqa")


def prompts(name, rows, folder, kind="parquet") -> tuple[int, list[dict]]:
    """Exit code of the prompts step on the rows, with the settings that the entry gives it, and the examples it froze."""
    config = shipped(name)
    origin = config.datasets[name].splits["test"].origin
    written(folder / f"{origin}.{kind}", rows)
    config.datasets[name].source, config.datasets[name].splits = {"path": str(folder)}, {"test": Split(origin=origin)}
    out = folder / "prompts.jsonl"
    options = settings.to_argument(stages.of("prompts", config, name))
    code = main(["prompts", "--settings", options, "--split", "test", "--out", str(out), "--manifest", str(folder / "m.json")])  # fmt: skip
    return code, [json.loads(line) for line in out.read_text().splitlines()] if code == 0 else []


@pytest.mark.parametrize("name", READY)
@pytest.mark.parametrize("kind", ["parquet", "jsonl", "json"])
def test_rows_as_published_give_their_question_options_and_right_answer(name, kind, tmp_path):
    code, examples = prompts(name, READY[name]["rows"], tmp_path, kind)
    assert code == 0 and len(examples) == 3
    task = tasks.get(shipped(name).datasets[name].task)
    for row, example, right in zip(READY[name]["rows"], examples, READY[name]["right"], strict=True):
        assert example["question"].startswith(row[READY[name]["asked"]])
        assert task.question(example) in task.prompt(example)[-1]["content"]
        if example["choices"] is None:
            assert example["reference"] == right
        else:
            assert set(example["choices"]) == {*READY[name]["shown"], right}
            assert example["choices"]["ABCDE".index(example["reference"])] == right
        answer = example["reference"] if example["choices"] else right[0]
        assert task.score(task.extract(answer, example), example) == {"correct": True, "f1": None}
        assert task.score(None, example)["correct"] is False
        assert task.display(None, example) == "(no answer)" and task.display(answer, example)
    if name in ("squad", "boolq"):
        assert [one["context"] for one in examples] == [
            row.get("context", row.get("passage")) for row in READY[name]["rows"]
        ]


@pytest.mark.parametrize("name", SHUFFLED)
def test_options_that_are_published_right_one_first_are_shuffled(name, tmp_path):
    rows = READY[name]["rows"] * 5
    rows = [row | {"Record ID": str(i)} for i, row in enumerate(rows)] if name == "gpqa" else rows
    _, examples = prompts(name, rows, tmp_path)
    assert len({example["reference"] for example in examples}) > 1
    assert prompts(name, rows, tmp_path)[1] == examples


@pytest.mark.parametrize(("name", "kind"), [("simpleqa", "csv"), ("gsm8k", "tsv")])
def test_tables_of_text_are_read_too(name, kind, tmp_path):
    _, examples = prompts(name, READY[name]["rows"], tmp_path, kind)
    assert [example["reference"] for example in examples] == READY[name]["right"]
    assert [example["question"] for example in examples] == [row[READY[name]["asked"]] for row in READY[name]["rows"]]


def test_a_line_that_says_what_is_asked_stands_between_the_text_and_the_options(tmp_path):
    _, examples = prompts("winogrande", READY["winogrande"]["rows"], tmp_path)
    assert examples[0]["question"].endswith("too small.\nWhich option fills the blank (_)?")


@pytest.mark.parametrize(("name", "wrong", "message"), [
    ("gpqa", {"Correct Answer": None}, "'Correct Answer' is None; expected a text"),
    ("sciq", {"correct_answer": " "}, "'correct_answer' is ' '; expected a text"),
    ("medmcqa", {"cop": -1}, "'cop' is -1; expected a number from 0 to 3 (an option's position); the benchmark hides the labels"),
    ("medmcqa", {"cop": 4}, "'cop' is 4; expected a number from 0 to 3 (an option's position); if positions count from 1"),
    ("piqa", {"label": -1}, "'label' is -1; expected 0 or 1 (an option's position); the benchmark hides the labels"),
    ("winogrande", {"answer": ""}, "'answer' is ''; expected a number from 1 to 2 (an option's position); the benchmark hides"),
    ("winogrande", {"answer": "0"}, "'answer' is '0'; expected a number from 1 to 2"),
    ("hellaswag", {"label": ""}, "'label' is ''; expected a number from 0 to 3 (an option's position); the benchmark hides"),
    ("commonsenseqa", {"answerKey": ""}, "'answerKey' is ''; expected A, B, C of its options; the benchmark hides the labels"),
    ("openbookqa", {"answerKey": "D"}, "'answerKey' is 'D'; expected A, B, C of its options"),
    ("boolq", {"answer": None}, "'answer' is None; expected"),
    ("popqa", {"possible_answers": "[]"}, "possible_answers is empty; give the accepted answer, or leave the row out"),
    ("qa-wikidata", {"continuation": " "}, "continuation is empty; give the accepted answer, or leave the row out"),
    ("squad", {"answers": {"text": [], "answer_start": []}}, "answers.text is empty; give the accepted answer, or leave the row out"),
    ("math500", {"answer": ""}, "answer is empty; give the accepted answer, or leave the row out"),
    ("truthfulqa", {"mc1_targets": {"choices": ["x", "y", "z"], "labels": [1, 1, 0]}}, "'mc1_targets.labels' is [1, 1, 0]; expected"),
])  # fmt: skip
def test_a_wrong_label_is_refused_in_one_line_that_names_its_row(name, wrong, message, tmp_path, capsys):
    rows = [*READY[name]["rows"][:2], READY[name]["rows"][2] | wrong]
    code, _ = prompts(name, rows, tmp_path, "jsonl")
    said = capsys.readouterr().err.strip().splitlines()
    assert code == 2 and f"line 3: {message}" in said[-1] and len(said) == 1


def test_every_ready_entry_has_published_rows_in_a_test():
    entries = {path.stem for path in (ROOT / "config" / "datasets").glob("*.yaml")}
    assert entries == READY.keys()
