"""Data without code: the tasks qa and choice, by `fields`, on local files in published layouts."""

import csv
import json
import re

import pytest
import yaml
from conftest import ARITHMETIC, ROOT
from msgspec import convert
from test_config import deep_merge

from orce import stages, tasks
from orce.__main__ import main
from orce.config import check as configuration
from orce.config import load, settings
from orce.config.check import read_config
from orce.errors import BadInput
from orce.stage_settings import Split
from orce.stages.prompts import draw


def written(path, rows):
    """The rows as a file of the kind that the path's ending says."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    elif path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        with open(path, "w", newline="") as handle:
            writer = csv.DictWriter(handle, rows[0], dialect="excel-tab" if path.suffix == ".tsv" else "excel")
            writer.writeheader()
            writer.writerows(rows)
    return path


def shipped(name):
    """The dataset of a ready entry, checked with config.yaml, as --configfile would."""
    config = read_config([str(ROOT / "config.yaml"), str(ROOT / "config" / "datasets" / f"{name}.yaml")])
    assert config.paper_tables == [name] and config.tables[name].dataset == name
    return config


def test_every_ready_entry_is_pinned_to_a_commit():
    entries = sorted((ROOT / "config" / "datasets").glob("*.yaml"))
    for path in entries:
        for dataset in yaml.safe_load(path.read_text())["datasets"].values():
            if "path" in dataset["source"]:
                assert re.search(r"commit [0-9a-f]{40}", path.read_text())
            else:
                assert len(dataset["source"]["revision"]) == 40


@pytest.mark.parametrize(
    ("answer", "choices", "right"),
    [
        (2, ["x", "y", "z"], "C"), ("2", ["x", "y", "z"], "C"), ("b", ["x", "y", "z"], "B"), ("(C)", ["x", "y", "z"], "C"),
        ("y", ["x", "y", "z"], "B"), ([0, 0, 1], ["x", "y", "z"], "C"), (True, ["no", "yes"], "B"),
        ("False", ["True", "False"], "B"),
    ],
)  # fmt: skip
def test_an_answer_may_be_a_number_a_letter_a_text_a_mask_or_a_truth(answer, choices, right, tmp_path):
    path = written(tmp_path / "test.jsonl", [{"q": "?", "c": choices, "a": answer}])
    fields = {"question": "q", "choices": "c", "answer": "a"}
    (example,) = tasks.get("choice").load({"path": str(path), "fields": fields}, "test")
    assert example["reference"] == right


def qa(equality, *reference):
    asked = {"id": "1", "question": "?", "context": None, "choices": None}
    return asked | {"reference": [*reference], "equality": equality}


@pytest.mark.parametrize(
    ("equality", "reference", "text", "right"),
    [
        ("exact", "Paris", "Paris", True),
        ("exact", "Paris", "paris", False),
        ("normalised", "The Beatles", "beatles!", True),
        ("normalised", "Mark Twain", "Answer: Mark  Twain", True),
        ("normalised", "Mark Twain", "Twain", False),
        ("numeric", "1,200", "The answer is 1200.0.", True),
        ("numeric", "72", "He pays 3 * 24 = 72 dollars", True),
        ("numeric", "72", "$73", False),
        ("numeric", "72", "I do not know", False),
    ],
)
def test_equalities(equality, reference, text, right):
    task, example = tasks.get("qa"), qa(equality, reference)
    assert task.score(task.extract(text, example), example)["correct"] is right


@pytest.mark.parametrize(
    ("reference", "text", "right"),
    [("1/2", "0.5", True), (r"\frac{1}{2}", "Answer: 1/2", True), ("x^2+2x+1", "$(x+1)^2$", True), ("2", "3", False),
     (r"\sqrt{8}", r"So it is $\boxed{2\sqrt{2}}$.", True)],
)  # fmt: skip
def test_math_verify_compares_values(reference, text, right):
    pytest.importorskip("math_verify")
    task, example = tasks.get("qa"), qa("math-verify", reference)
    assert task.score(task.extract(text, example), example)["correct"] is right


def test_answers_of_one_meaning_have_one_key():
    task = tasks.get("qa")
    assert task.key("The Beatles", qa("normalised", "x")) == task.key("beatles.", qa("normalised", "x"))
    assert task.key("1200.0", qa("numeric", "1")) == task.key("1,200", qa("numeric", "1"))
    assert task.key("Paris", qa("exact", "x")) != task.key("paris", qa("exact", "x"))


@pytest.mark.parametrize(
    ("task", "fields", "row", "message"),
    [
        ("qa", {"question": "qustion", "answer": "a"}, {"q": "?", "a": "x"},
         r"test.jsonl, line 1: no column 'qustion', which fields.question names; columns are q, a"),
        ("qa", {"question": "q", "answer": "a.value"}, {"q": "?", "a": {"text": "x"}},
         r"no column 'value' in a, which fields.answer names; columns in a are text"),
        ("qa", {"question": "q", "answer": "a.value"}, {"q": "?", "a": "x"}, r"no column 'value' in a.*it has no columns"),
        ("qa", {"question": "q", "answer": "a"}, {"q": " ", "a": "x"}, r"'q' is ' '; expected a text that is not empty"),
        ("qa", {"question": "q", "answer": "a"}, {"q": "?", "a": []}, r"line 1: a is empty; give the accepted answer"),
        ("qa", {"question": "q", "answer": "a"}, {"q": "?", "a": "9 * 2 = 18\n#### 18"},
         r"a holds a solution with its answer after ####; so say: answer_after: '####'"),
        ("choice", {"question": "q", "choices": "c", "answer": "a"}, {"q": "?", "c": ["x"], "a": 0}, r"'c' is \['x'\]; expected a"),
        ("choice", {"question": "q", "choices": "c", "answer": "a"}, {"q": "?", "c": ["x", "y"], "a": 2},
         r"'a' is 2; expected 0 or 1 \(an option's position\), a letter or a text"),
        ("choice", {"question": "q", "choices": "c", "answer": "a"}, {"q": "?", "c": ["1", "2"], "a": "1"},
         r"'a' is '1'; it could mean several options; name their labels"),
        ("choice", {"question": "q", "choices": "c", "labels": "l", "answer": "a"}, {"q": "?", "c": ["x", "y"], "l": ["1", "2"], "a": "3"},
         r"'a' is '3'; expected 1, 2 of its options"),
    ],
)  # fmt: skip
def test_a_field_that_is_not_there_or_holds_something_else_is_one_line(task, fields, row, message, tmp_path):
    path = written(tmp_path / "test.jsonl", [row])
    with pytest.raises(BadInput, match=message):
        tasks.get(task).load({"path": str(path), "fields": fields}, "test")


def test_a_number_is_needed_for_numeric_equality_and_the_sign_for_answer_after(tmp_path):
    path = written(tmp_path / "test.jsonl", [{"q": "?", "a": "many"}])
    source = {"path": str(path), "fields": {"question": "q", "answer": "a"}}
    with pytest.raises(BadInput, match=r"a holds \['many'\]; expected a number to compare with \(numeric equality\)"):
        tasks.get("qa").load(source | {"equality": "numeric"}, "test")
    with pytest.raises(BadInput, match="'a' has no '####', which answer_after names"):
        tasks.get("qa").load(source | {"answer_after": "####"}, "test")


def test_ids_that_are_not_unique_may_be_left_out(tmp_path):
    rows = [{"id": "a", "q": "Who?", "a": "I"}, {"id": "a", "q": "Where?", "a": "Here"}]
    source = {"path": str(written(tmp_path / "test.jsonl", rows)), "fields": {"question": "q", "answer": "a"}}
    with pytest.raises(BadInput, match="ids must be unique, or leave out fields.id to number the rows"):
        tasks.get("qa").load(source | {"fields": source["fields"] | {"id": "id"}}, "test")
    assert [one["id"] for one in tasks.get("qa").load(source, "test")] == ["test-0", "test-1"]


def test_a_ragged_csv_names_its_line(tmp_path):
    (tmp_path / "test.csv").write_text("q,a\nWho?,x\nWho, then?,y\n")
    with pytest.raises(BadInput, match=r"test.csv, line 3: not 2 cells, as the header has"):
        tasks.get("qa").load({"path": str(tmp_path), "fields": {"question": "q", "answer": "a"}}, "test")


@pytest.mark.parametrize(("sign", "name"), [(";", "semicolons"), ("\t", "tabs")])
def test_a_csv_without_commas_says_what_it_has_in_their_place(sign, name, tmp_path):
    (tmp_path / "test.csv").write_text(f"q{sign}a\nWho, then?{sign}x\n")
    with pytest.raises(BadInput, match=rf"test.csv: {name} between the cells; save it with commas"):
        tasks.get("qa").load({"path": str(tmp_path), "fields": {"question": "q", "answer": "a"}}, "test")


def test_the_examples_of_big_bench_are_read_where_they_stand(tmp_path):
    told = {"name": "x", "keywords": ["a"], "examples": [{"input": "Who?", "target_scores": {"I": 0, "You": 1}}]}
    path = tmp_path / "task.json"
    path.write_text(json.dumps(told))
    source = {"path": str(path), "fields": {"question": "input", "choices": "target_scores", "answer": "target_scores"}}
    (example,) = tasks.get("choice").load(source, "test")
    assert (example["choices"], example["reference"]) == (["I", "You"], "B")
    path.write_text(json.dumps(told | {"more": told["examples"]}))
    with pytest.raises(BadInput, match="expected a list of records, found dict"):
        tasks.get("choice").load(source, "test")


@pytest.mark.parametrize(
    ("second", "said"),
    [("x", "1 of 2 questions repeat an earlier one"),
     ("y", "1 of 2 questions repeat an earlier one, 1 of them with another right answer, as 'test-0' and 'test-1'")],
)  # fmt: skip
def test_questions_that_stand_twice_are_counted_where_the_prompts_are_made(second, said, tmp_path, monkeypatch, capfd):
    """A file with a line for each accepted answer would call most right answers wrong."""
    monkeypatch.chdir(tmp_path)
    source = {"path": str(written(tmp_path / "d.jsonl", [{"q": "Who?", "a": "x"}, {"q": "Who? ", "a": second}]))}
    config = shipped("simpleqa")
    config.datasets["simpleqa"].source, config.datasets["simpleqa"].splits = source, {"test": {"from": "test"}}
    config.datasets["simpleqa"].fields = {"question": "q", "answer": "a"}
    chosen = settings.to_argument(stages.of("prompts", config, "simpleqa"))
    assert main(["prompts", "--settings", chosen, "--split", "test", "--out", "p.jsonl", "--manifest", "m.json"]) == 0
    assert capfd.readouterr().err.strip().endswith(f"[prompts simpleqa] test: {said}")


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({"fields": {"question": "q"}}, r"datasets.gsm8k.fields.answer: missing; name the column of the answer"),
        ({"fields": {"question": "q", "answer": "a", "choices": "c"}}, r"fields.choices: not of task qa, whose fields are"),
        ({"options": ["Yes", "No"]}, r"datasets.gsm8k.options: a key of task choice, and not of qa"),
        ({"equality": "same"}, r"datasets.gsm8k.equality: 'same'; expected exact or normalised or contains or numeric or math-verify"),
        ({"task": "choice", "equality": None, "answer_after": None}, r"fields.choices: name the column of the options \(of BIG-bench: target_scores\), or"),
        ({"task": ARITHMETIC, "equality": None, "answer_after": None}, r"fields: a key of the tasks qa and choice, and not of"),
    ],
)  # fmt: skip
def test_what_the_configuration_says_wrongly_is_told_before_anything_runs(over, message):
    more = load.mapping(ROOT / "config" / "datasets" / "gsm8k.yaml")
    config = deep_merge(load.mapping(ROOT / "config.yaml"), more)
    given = (config["datasets"]["gsm8k"] | over).items()
    config["datasets"]["gsm8k"] = {key: value for key, value in given if value is not None}
    with pytest.raises(BadInput, match=message):
        configuration.check(config)


def test_the_splits_of_one_file_are_cut_apart(tmp_path):
    config = shipped("simpleqa")
    splits = {split: {"from": "test", "size": 2} for split in ("sft", "rl", "test")}
    rows = [{"metadata": "{}", "problem": f"Who won prize {i}?", "answer": f"Winner, {i}"} for i in range(6)]
    source = {"path": str(written(tmp_path / "simple_qa_test_set.csv", rows))}
    config.datasets["simpleqa"].source, config.datasets["simpleqa"].splits = source, convert(splits, dict[str, Split])
    drawn = [one["id"] for split in splits for one in draw(stages.of("prompts", config, "simpleqa"), split)]
    assert len(set(drawn)) == 6
