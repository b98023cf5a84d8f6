"""What people bring, read by every door: tables of each kind and name, values of each form. tests/data/brought.jsonl has a case a line."""

import gzip
import json
import re
from pathlib import Path
from unittest.mock import ANY

import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
import pytest
from conftest import cases, prompts_words
from dry_run import called

import orce
from orce import tasks
from orce.__main__ import main
from orce.artefacts import files, store
from orce.errors import BadInput

CASES = cases("brought")


def packed(name: str, content) -> bytes:
    """A file's bytes: rows as Parquet or a text, packed as its ending says."""
    if isinstance(content, list):
        sink = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(content), sink)
        raw = sink.getvalue().to_pybytes()
    else:
        raw = content.encode()
    if name.lower().endswith(".gz"):
        return gzip.compress(raw)
    return pyarrow.compress(raw, codec="zstd", asbytes=True) if name.lower().endswith(".zst") else raw


def column(fields: dict) -> list[str]:
    words = [
        f"{name}={path}" for name, paths in fields.items() for path in ([paths] if isinstance(paths, str) else paths)
    ]
    return ["--fields", *words] if fields else []


def through(door: str, path: str, fields: dict, options: dict) -> tuple[int, str, list]:
    """(exit code, what is said, what is read): of a data set [id, right answer], of the others [id, answer, correct]."""
    if door in tasks.NAMES:
        try:
            made = tasks.get(door).load({"path": path, "fields": fields} | options, "test")
        except BadInput as error:
            return 2, str(error), []
        right = [
            one["choices"]["ABCDEF".index(one["reference"])] if one["choices"] else one["reference"] for one in made
        ]
        return 0, "", [[one["id"], answer] for one, answer in zip(made, right, strict=True)]
    if door == "given":
        store.write("prompts.jsonl", options.pop("prompts"), {})
        source = {"path": path} | ({"fields": fields} if fields else {})
        words = ["--prompts", "test=prompts.jsonl", "--out", "s.jsonl", "--manifest", "s.manifest.json"]
        settings = json.dumps({"task": "qa", "source": source, "label": "x"} | options)
        code, said = called(main, ["import-answers", "--settings", settings, *words])
        read = [] if code else files.read_jsonl("s.jsonl")
        return code, said, [[one["id"], one["answers"], one["correct"]] for one in read]
    words = {"score": ["score", "--in", path, "--method", "given"], "measure": ["measure", path, "--model", ""]}[door]
    words += ["--methods", "agreement"] if door == "measure" else []
    words += [text for key, value in options.items() for text in (f"--{key}", value)]
    code, said = called(main, [*words, *column(fields), "--out", "o.jsonl"])
    read = files.read_jsonl("o.jsonl") if Path("o.jsonl").exists() else []
    return (
        code,
        said,
        [[one.get("id"), one.get("judged", one.get("answer")), one.get("correct", one.get("error"))] for one in read],
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['kind']}-{case['door']}-{case['name']}")
def test_what_is_brought_is_read_whole_or_refused_in_one_line(case, folder):
    Path(case["name"]).write_bytes(packed(case["name"], case["content"]))
    code, said, read = through(case["door"], case["name"], case.get("fields", {}), case.get("options", {}))
    if "message" in case:
        refused = [line for line in said.splitlines() if re.search(case["message"], line)]
        assert code != 0 and len(refused) == 1 and "Traceback" not in said, said
        assert ".work/" not in said, "the user's own file is named"
    else:
        assert (code, read) == (0, case["read"]), said


ASKED = {"question": ["Capital of Peru?", "Capital of Chad?"], "reference": ["Lima", "N'Djamena"]}
ANSWERS = [["Lima", "lima"], ["Abuja", "Niamey"]]
ROWS = [dict(zip(ASKED, row, strict=True)) for row in zip(*ASKED.values(), strict=True)]
HELD = {
    "a data frame": pandas.DataFrame(ASKED),
    "a mapping of columns": ASKED,
    "a mapping of arrays": {name: np.array(column) for name, column in ASKED.items()},
    "a mapping of series": {name: pandas.Series(column, index=[7, 3]) for name, column in ASKED.items()},
    "a table of pyarrow": pyarrow.table(ASKED),
    "an array of mappings": np.array(ROWS, dtype=object),
    "a tuple": tuple(ROWS),
    "a generator's list": [*map(dict, ROWS)],
    "a data frame with missing cells": pandas.DataFrame(ASKED | {"context": [float("nan"), None], "id": [1.0, 2.0]}),
    "a data frame whose references are arrays": pandas.DataFrame(ASKED | {"reference": [np.array(["Lima"]), np.array(["N'Djamena", "x"])]}),
    "a categorical column": pandas.DataFrame(ASKED).astype("category"),
}  # fmt: skip


@pytest.mark.parametrize("name", HELD)
@pytest.mark.parametrize("answers", [ANSWERS, pandas.Series(ANSWERS), np.array(ANSWERS)], ids=["list", "series", "array"])  # fmt: skip
def test_what_a_program_holds_is_read_as_its_rows(name, answers):
    table = orce.confidence(None, HELD[name], ["agreement"], answers=answers)
    assert [record["question"] for record in table] == ASKED["question"]
    assert table.correct("agreement") == [True, False]


@pytest.mark.parametrize("labels", [
    np.array([42, 7]), [42.0, np.float64(7)], pandas.Series(["42", "7"]), [[42, 43], ["7"]], pandas.array([42, 7]),
], ids=repr)  # fmt: skip
def test_labels_may_be_numbers_and_of_numpy_or_pandas(labels):
    answers = [["42", "42"], ["8", "8"]]
    table = orce.confidence(None, ["6*7?", "2+5?"], ["agreement"], answers=answers, labels=labels)
    assert table.correct("agreement") == [True, False]


@pytest.mark.parametrize(("held", "message"), [
    ({"question": "Capital of Peru?", "reference": "Lima"}, "a single question is a list of one"),
    (3, "questions is 3; a single question is a list of one"),
    (pandas.DataFrame(ASKED).iloc[:0], "no questions"),
    ({"question": ["a?", "b?"], "reference": ["x"]}, "a single question is a list of one"),
])  # fmt: skip
def test_what_holds_no_rows_is_one_line(held, message):
    with pytest.raises(BadInput, match=message):
        orce.confidence(None, held, ["agreement"], answers=ANSWERS)


@pytest.mark.parametrize("methods", [["a/same.py", "b/same.py"], ["a/question.py"], ["a/correct.py"]])
def test_two_columns_of_one_name_are_refused(methods):
    with pytest.raises(BadInput, match="the table has another column '(same|question|correct)'; rename the file"):
        orce.confidence(None, ["?"], methods, answers=[["x", "y"]])


@pytest.mark.parametrize("name", ["o.parquet", "o.JSON", "o.jsonl.gz", "o.csv.zst", "o.tsv"])
def test_a_name_that_the_next_command_would_read_otherwise_is_refused(name, folder):
    Path("q.jsonl").write_text('{"question": "q?", "answers": ["x", "x"]}\n')
    code, said = called(main, ["measure", "q.jsonl", "--model", "", "--methods", "agreement", "--out", name])
    assert code == 2 and f"{name}: results are written as JSON lines or CSV" in said and not Path(name).exists()


@pytest.mark.parametrize("name", ["m.CSV", "m.csv", "m.jsonl", "m.txt"])
def test_what_measure_writes_is_read_by_measure_and_score(name, folder):
    Path("q.jsonl").write_text('{"id": 0, "question": "q?", "answers": ["x", "x"], "reference": "x"}\n')
    assert main(["measure", "q.jsonl", "--model", "", "--methods", "agreement", "--out", name]) == 0
    sure = "agreement" if name.lower().endswith("csv") else "confidence.agreement"
    fields = {"id": "id", "answer": "answer", "correct": "correct", "confidence": sure}
    assert through("score", name, fields, {}) == (0, ANY, [["0", "x", True]])


def test_empty_options_are_counted_where_the_prompts_are_made(folder):
    Path("x_test.csv").write_text("q?,a,b,c,,D\nq2?,a,b,,d,D\nq3?,a,b,c,d,D\n")
    settings = {"dataset": "d", "task": "mmlu", "source": {"path": "."}, "splits": {"test": {"from": "test"}}}
    code, said = called(main, prompts_words(settings | {"seed": 1, "tests": []}, "test.jsonl"))
    assert code == 0 and "2 of 3 questions have an empty option, the right one of 1 of them, as 'x-test-0'" in said
