"""The front door: `orce.confidence` and `orce measure` against the workflow, a server, and what people get wrong."""

import json
import re
import sys
from pathlib import Path
from unittest.mock import ANY

import datasets
import numpy as np
import pandas
import pyarrow
import pytest
import yaml
from conftest import ARITHMETIC, ROOT, cases, own_config, program
from dry_run import called
from test_any_data import right_of, written
from test_apis import Api, choice
from test_workflow import snakemake

import orce
from orce import tasks
from orce.__main__ import main
from orce.apps.table import labelled_records
from orce.artefacts import files, store
from orce.errors import BadInput
from orce.tasks.values import as_list

TOWNS = [{"id": f"q{i}", "question": f"Where is {i}?", "reference": [f"Town {i}", f"town of {i}"]} for i in range(60)]
METHODS = [
    "likelihood", "sequence_probability", "p_true", "semantic_entropy", "agreement", "consistency", "lexical_similarity",
    "num_sets", "eigv", "degree", "eccentricity", "kle", "vanilla", "topk", "linguistic",
]  # fmt: skip


@pytest.mark.slow
def test_the_numbers_are_those_of_the_workflow_to_the_last_bit(tiny, tmp_path):
    written(tmp_path / "towns.jsonl", TOWNS)
    names = {"id": "id", "question": "question", "answer": "reference"}
    dataset = {"task": "qa", "source": {"path": "towns.jsonl"}, "fields": names}
    settings = {"topk": {"k": 2, "max_tokens": 6}, "linguistic": {"max_tokens": 4}, "vanilla": {"constrained": True}}
    config = own_config(
        "towns", dataset, {"tiny": {"label": "Tiny", "source": {"path": tiny}}}, METHODS, methods=settings,
        engine={"name": "transformers", "batch_tokens": 2000}, answers={"samples": 3, "max_tokens": 6, "chunk": 32},
        confidence={"chunk": 32},
    )  # fmt: skip
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    cell = "results/towns/tiny"
    snakemake("--cores", "1", "--", *(f"{cell}/{name}/confidences.jsonl" for name in METHODS), folder=tmp_path)
    table = orce.confidence(
        tiny, tmp_path / "towns.jsonl", METHODS, settings=settings, samples=3, max_tokens=6, device="cpu", chunk=32,
        batch_tokens=2000,
    )  # fmt: skip
    for method in METHODS:
        stated = files.read_jsonl(tmp_path / cell / method / "confidences.jsonl")
        assert [one["id"] for one in stated] == [one["id"] for one in table]
        assert [one["confidence"] for one in stated] == table.confidence(method), method
        assert [one["correct"] for one in stated] == table.correct(method), method
    assert len({*table.confidence(METHODS[0])}) > 50, "numbers that differ between questions are compared"


@pytest.mark.parametrize(("words", "call"), cases("door"))
def test_what_cannot_be_done_is_one_line(words, call, tiny):
    with pytest.raises(BadInput) as error:
        orce.confidence(**{"model": tiny, "questions": ["Where?"]} | call)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_probes_of_a_model_that_answers_itself_draw_the_samples_that_they_are_fitted_on(letters, folder):
    shown = ["red", "blue", "green", "white"]
    for name, n in {"q": 2, "f": 12}.items():
        asked = [{"question": f"Which is {name}{i}?", "choices": shown, "reference": shown[i % 4]} for i in range(n)]
        files.write_jsonl(f"{name}.jsonl", asked)
    words = ["measure", "q.jsonl", "--model", letters, "--methods", "probe,p_ik,probe_judge", "--fit", "f.jsonl"]
    code, said = called(main, [*words, "--out", "o.jsonl", "--max-tokens", "1", "--device", "cpu"])
    assert code == 0, said
    for line in files.read_jsonl("o.jsonl"):
        assert [*line["confidence"]] == ["probe", "p_ik", "probe_judge"]
        assert all(0 < value < 1 for value in line["confidence"].values())


@pytest.mark.slow
def test_a_machine_without_a_gpu_is_said_in_one_line(tiny, folder):
    Path("q.csv").write_text("question\nWhere?\n")
    words = ["measure", "q.csv", "--model", tiny, "--methods", "likelihood", "--device", "cuda:1", "--out", "o.csv"]
    done = program(sys.executable, "-m", "orce", *words, CUDA_VISIBLE_DEVICES="")
    line = "orce measure: device cuda:1: torch sees no GPU here; leave --device out (device=) for the CPU\n"
    assert (done.returncode, done.stderr) == (2, line)


@pytest.mark.parametrize(("words", "correct", "last", "call"), cases("sentences"))
def test_sentences_and_fitted_rows_need_no_configuration(words, correct, last, call):
    """words: what the printed table ends with; last: the confidences of the last row."""
    table = orce.confidence(None, **call)
    assert repr(table).endswith(words) and [line["correct"] for line in table] == correct
    assert [*table[-1]["confidence"].values()] == pytest.approx(last, abs=0.001)


def test_the_columns_of_a_file_of_another_program_are_named(folder):
    rows = [{"doc": {"q": f"Is it {i}?"}, "resps": [["Yes", "yes", "No"]], "target": "Yes"} for i in range(4)]
    files.write_jsonl("rows.jsonl", rows)
    named = {"question": "doc.q", "answers": "resps.0", "reference": "target"}
    table = orce.confidence(None, "rows.jsonl", ["agreement"], fields=named)
    assert table.correct("agreement") == [True] * 4 and table.confidence("agreement") == [2 / 3] * 4
    words = ["measure", "rows.jsonl", "--model", "", "--methods", "agreement", "--out", "out.jsonl", "--fields"]
    assert main([*words, *(f"{name}={column}" for name, column in named.items())]) == 0
    assert files.read_jsonl("out.jsonl") == table.records


def test_a_users_task_gets_a_reference_as_it_stands():
    asked = {"id": "a", "question": "6 + 6?", "answers": ["12", "13"], "reference": 12}
    assert orce.confidence(None, [asked], ["agreement"], task=ARITHMETIC).correct("agreement") == [True]


def test_without_labels_nothing_is_called_right_or_wrong():
    asked = {"question": "Where?", "answers": ["here", "Here", "there"], "greedy": "here", "text": "more"}
    table = orce.confidence(None, [asked], ["agreement", "consistency"])
    (line,) = table
    other = str(orce.confidence(None, [asked | {"greedy": "there"}] * 11, ["agreement", "consistency"]))
    assert "consistency: of an answer of its own in 11 of 11" in other and "of its own" not in str(table)
    assert "... 1 more, of the same or a higher confidence (agreement)" in other
    assert line["confidence"] == {"agreement": 2 / 3, "consistency": 2 / 3}
    assert "correct" not in line and line["own"] == {"consistency": {"answer": "here"}} and line["text"] == "more"
    with pytest.raises(BadInput, match="no labels"):
        table.metrics()


@pytest.mark.slow
def test_a_folder_keeps_what_is_finished(tiny, tmp_path, monkeypatch):
    options = {"folder": tmp_path, "max_tokens": 4, "device": "cpu", "batch_tokens": 1000}
    first = orce.confidence(tiny, TOWNS[:4], ["likelihood"], **options)
    monkeypatch.setattr("orce.llm.language_model.load", None)  # no weights are loaded again
    assert orce.confidence(tiny, TOWNS[:4], ["likelihood"], **options).records == first.records


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, orce; print({'torch', 'numpy', 'transformers'} & set(sys.modules))"
    assert program(sys.executable, "-c", code, check=True).stdout == "set()\n"


@pytest.mark.slow
def test_the_block_on_the_first_page_runs_as_it_stands(smollm2, tmp_path):
    block = (ROOT / "README.md").read_text().partition("```python\n")[2]
    code, shown = block.split("```\n\n```text\n")[:2]
    (tmp_path / "results" / "models").mkdir(parents=True)
    (tmp_path / "results" / "models" / "smollm2").symlink_to(smollm2)
    done = program(sys.executable, "-c", code, cwd=tmp_path, check=True)
    number = re.compile(r"\d\.\d+")
    expected, printed = shown.partition("```")[0].splitlines(), done.stdout.splitlines()
    for line, real in zip(expected, printed[: len(expected)], strict=True):
        assert number.sub("#", real) == number.sub("#", line)
        # The last digits of a processor may turn one sample, which p_true shows the model: .840 on an EPYC, .852 on a Xeon.
        assert [*map(float, number.findall(real))] == pytest.approx([*map(float, number.findall(line))], abs=0.02)


# What people bring, read by every door: tables of each kind and name, values of each form. tests/data/brought.jsonl has a case a line.


def through(door: str, path: str, fields: dict, options: dict) -> tuple[int, str, list]:
    """(exit code, what is said, what is read): of a data set [id, right answer], of the others [id, answer, correct]."""
    if door in tasks.NAMES:
        try:
            made = tasks.get(door).load({"path": path, "fields": fields} | options, "test")
        except BadInput as error:
            return 2, str(error), []
        return 0, "", [[one["id"], right_of(one)] for one in made]
    if door == "given":
        store.write("prompts.jsonl", options.pop("prompts"), {})
        source = {"path": path} | ({"fields": fields} if fields else {})
        words = ["--prompts", "test=prompts.jsonl", "--out", "s.jsonl", "--manifest", "s.manifest.json"]
        settings = json.dumps({"task": "qa", "source": source, "label": "x"} | options)
        code, said = called(main, ["import-answers", "--settings", settings, *words])
        read = [] if code else files.read_jsonl("s.jsonl")
        return code, said, [[one["id"], one["answers"], one["correct"]] for one in read]
    words = ["measure", path, "--methods", {"own": "given", "measure": "agreement"}[door], "--out", "o.jsonl"]
    words += [text for key, value in options.items() for text in (f"--{key}", value)]
    named = [f"{name}={column}" for name, columns in fields.items() for column in as_list(columns)]
    code, said = called(main, [*words, "--fields", *named] if named else words)
    read = files.read_jsonl("o.jsonl") if Path("o.jsonl").exists() else []
    return code, said, [[one["id"], one["answer"], one.get("correct")] for one in read]


@pytest.mark.parametrize("case", cases("brought"), ids=lambda case: f"{case['kind']}-{case['door']}-{case['name']}")
def test_what_is_brought_is_read_whole_or_refused_in_one_line(case, folder):
    written(Path(case["name"]), case["content"])
    code, said, read = through(case["door"], case["name"], case.get("fields", {}), case.get("options", {}))
    if "message" in case:
        refused = [line for line in said.splitlines() if re.search(case["message"], line)]
        assert code != 0 and len(refused) == 1 and read == [] and "Traceback" not in said, said
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
    "a data frame with missing cells": pandas.DataFrame(ASKED | {"context": [float("nan"), None], "id": [1.0, 2.0]}),
    "a data frame whose references are arrays": pandas.DataFrame(ASKED | {"reference": [np.array(["Lima"]), np.array(["N'Djamena", "x"])]}),
    "a column of a data set": datasets.Dataset.from_list(ROWS),
    "a view of values": {i: row for i, row in enumerate(ROWS)}.values(),
    "a categorical column": pandas.DataFrame(ASKED).astype("category"),
}  # fmt: skip


@pytest.mark.parametrize("name", HELD)
@pytest.mark.parametrize("answers", [ANSWERS, pandas.Series(ANSWERS), np.array(ANSWERS)], ids=["list", "series", "array"])  # fmt: skip
def test_what_a_program_holds_is_read_as_its_rows(name, answers):
    table = orce.confidence(None, HELD[name], ["agreement"], answers=answers)
    assert [record["question"] for record in table] == ASKED["question"]
    assert table.correct("agreement") == [True, False]


def test_an_iterator_is_read_once_what_streams_to_its_end_and_a_named_index_is_a_column():
    table = orce.confidence(None, (row for row in ROWS), ["agreement"], answers=iter(ANSWERS))
    assert [record["question"] for record in table] == ASKED["question"]
    asked = datasets.Dataset.from_list([row | {"answers": ["a"] * 2} for row in ROWS])
    table = orce.confidence(None, asked["question"], ["agreement"], answers=asked["answers"], labels=asked["reference"])
    assert table.correct("agreement") == [False, False]
    frame = pandas.DataFrame(ASKED | {"id": ["x", "y"]}).set_index("id")
    table = orce.confidence(None, frame, ["agreement"], answers=ANSWERS)
    assert [record["id"] for record in table] == ["x", "y"]
    # datasets would take the type of a column from its first rows, where no reference is.
    rows = [{"question": f"{i}?", "reference": None if i < 5 else "a", "answers": ["a", "a"]} for i in range(9)]
    streaming = datasets.IterableDataset.from_generator(lambda: iter(rows))
    assert orce.confidence(None, streaming, ["agreement"]).correct("agreement") == [None] * 5 + [True] * 4


NUMBERS = [["42", "42"], ["8", "8"]]


@pytest.mark.parametrize(("answers", "labels", "correct"), [
    (ANSWERS, [[True, True], [True, False]], [True, True]),  # judgements of each sample
    (ANSWERS, [np.array([True, False]), np.array([False, True])], [True, False]),
    (ANSWERS, [["lima"], None], [True, None]),
    (ANSWERS, np.array(["Lima", "x"]), [True, False]),  # right answers
    (ANSWERS, ["lima", "Niamey"], [True, False]),
    (NUMBERS, np.array([42, 7]), [True, False]),
    (NUMBERS, [42.0, np.float64(7)], [True, False]),
    (NUMBERS, pandas.Series(["42", "7"]), [True, False]),
    (NUMBERS, [[42, 43], ["7"]], [True, False]),
    (NUMBERS, pandas.array([42, 7]), [True, False]),
], ids=repr)  # fmt: skip
def test_labels_judge_each_sample_or_are_right_answers_or_missing(answers, labels, correct):
    table = orce.confidence(None, ASKED["question"], ["agreement"], answers=answers, labels=labels)
    assert table.correct("agreement") == correct


@pytest.mark.parametrize("labels", [[True, None], pandas.array([True, None], dtype="boolean"), pandas.Series([True, None])])  # fmt: skip
def test_a_label_may_be_missing(labels):
    table = orce.confidence("", [{"question": "?", "answer": "x", "confidence": 0.5}] * 2, labels=labels)
    assert table.correct("given") == [True, None] and "1 of 2 questions have a label" in repr(table)


@pytest.mark.parametrize(("reply", "p_true"), cases("true_or_false"))
def test_a_server_is_asked_about_given_answers_in_text(reply, p_true):
    """vanilla and P(True) read weights elsewhere; a probability of a given answer has its true reason."""
    replies = {"integer from 0 to 100": "Confidence: 70", "expressions": "Likely", "Reply with only the letter": reply}

    def judging(body, headers):
        words = body["messages"][-1]["content"]
        return 200, {"choices": [choice(next((text for key, text in replies.items() if key in words), reply))]}

    given = {"answers": ["Lima", "Abuja"], "server_model": "m"}
    with Api(judging) as server:
        table = orce.confidence(server.address, ASKED["question"], ["vanilla", "linguistic", "p_true"], **given)
        assert [one["confidence"] for one in table] == [{"vanilla": 0.7, "linguistic": 0.7, "p_true": p_true}] * 2
        with pytest.raises(BadInput, match="a server tells of its own replies alone, and these answers are given"):
            orce.confidence(server.address, ASKED["question"], ["likelihood"], **given)


def test_the_screen_begins_with_the_least_sure():
    long = "It is said, by most of those who know, that the capital is Lima"
    asked = [
        {"question": "a?", "answer": long, "confidence": 0.9},
        {"question": "b?", "answer": "x", "confidence": 3e-7},
    ]
    lines = repr(orce.confidence(None, asked)).splitlines()
    assert lines[1].startswith("b?") and "3.0e-07" in lines[1] and "  ...capital is Lima  " in lines[2]


def test_an_answer_beside_its_samples_is_the_one_that_its_confidence_is_of():
    asked = {"question": "?", "answers": ["Cusco", "Cusco", "Lima"], "answer": "Lima", "reference": "Lima"}
    (line,) = orce.confidence(None, [asked | {"confidence": 0.4}], ["given", "agreement"])
    assert line["answer"] == "Lima" and line["correct"]
    assert line["confidence"] == {"given": 0.4, "agreement": 1 / 3}
    both = asked | {"greedy": "Cusco", "confidence": 0.4}
    known = [both | {"question": f"{i}?", "reference": place} for i, place in enumerate(["Lima", "Quito"])]
    table = orce.confidence(None, [both], ["given", "given+platt"], fit=known)
    assert table[0]["answer"] == "Cusco" and not table[0]["correct"]
    assert table.correct("given") == table.correct("given+platt") == [True]


@pytest.mark.parametrize(("header", "said"), cases("looks_like_answers"))
def test_columns_that_look_like_answers_and_are_not_read_are_named(header, said, folder, capfd):
    Path("q.csv").write_text(f"{header}\nHow sure is Lima?,Lima,0.9\n")
    methods = ["--methods", "given"]  # which no row has: it ends before a model is asked
    main(["measure", "q.csv", *methods, "--out", "o.jsonl"])
    err = capfd.readouterr().err
    assert said in err if said else "not read" not in err


def test_a_wrong_answer_by_its_own_label_or_a_grader_is_not_compared_with_the_reference(folder):
    Path("q.csv").write_text("question,answer,reference,correct,confidence\nCapital?,Lima,Lima,no,0.5\n")
    code, said = called(main, ["measure", "q.csv", "--out", "o.jsonl"])
    assert code == 0 and "accuracy 0.0000" in said and "contain" not in said
    with Api(lambda body, headers: (200, {"choices": [choice("no")]})) as grader:
        asked = {"question": "Capital?", "answers": ["It is Rome"] * 2, "reference": "Rome"}
        table = orce.confidence(None, [asked], ["agreement"], group_by=grader.address, server_model="m")
    assert table.correct("agreement") == [False] and "contain" not in repr(table)


def test_settings_that_are_no_json_are_refused_with_an_example(folder):
    for text in ("{topk: {k: 2}}", "[1]"):
        code, said = called(main, ["measure", "q.csv", "--settings", text, "--out", "o.jsonl"])
        assert code == 2 and f"{text!r}: expected a JSON object, for example" in said


@pytest.mark.parametrize(("held", "message"), [
    (pandas.DataFrame(ASKED).iloc[:0], "no questions"),
    (datasets.DatasetDict({"train": datasets.Dataset.from_list(ROWS), "test": datasets.Dataset.from_list(ROWS[:1])}), "a single question is a list of one"),
    (pandas.DataFrame(ASKED).iloc[0], "a single question is a list of one"),
    (next(pandas.DataFrame(ASKED).itertuples(index=False)), "a single question is a list of one"),
    ([row for _, row in pandas.DataFrame(ASKED).iterrows()], "question 1: expected a mapping of columns, found list"),
    (pandas.DataFrame([["q?", "a", "b"]], columns=["question", "answer", "answer"]), "the column 'answer' stands twice"),
    (pandas.DataFrame(ASKED | {"picture": [b"x", b"y"]}), "question 1: the column 'picture' cannot be written as JSON"),
    (pandas.DataFrame(ASKED | {("a", "b"): [1, 2]}), r"question 1: the column \('a', 'b'\) cannot be written as JSON"),
])  # fmt: skip
def test_what_holds_no_rows_is_one_line(held, message):
    with pytest.raises(BadInput, match=message):
        orce.confidence(None, held, ["agreement"], answers=ANSWERS)


@pytest.mark.parametrize("name", ["m.CSV", "m.csv", "m.jsonl", "m.txt"])
def test_what_measure_writes_is_read_by_measure(name, folder):
    Path("q.jsonl").write_text('{"id": 0, "question": "q?", "answers": ["x", "x"], "reference": "x"}\n')
    assert main(["measure", "q.jsonl", "--model", "", "--methods", "agreement", "--out", name]) == 0
    sure = "agreement" if name.lower().endswith("csv") else "confidence.agreement"
    fields = {"id": "id", "answer": "answer", "correct": "correct", "confidence": sure}
    assert through("own", name, fields, {}) == (0, ANY, [["0", "x", True]])


@pytest.mark.parametrize("name", ["m.csv", "m.jsonl"])
def test_an_output_calibrates_a_method_on_the_judgements_of_its_own_answers(name, folder):
    """consistency chooses x, which is right; the greedy answer y is wrong."""
    rows = [{"question": f"{i}?", "reference": "x", "answers": ["x", "x", "y"], "greedy": "y"} for i in range(3)]
    orce.confidence(None, rows, ["agreement", "consistency"]).write(name)
    assert labelled_records(Path(name), "consistency") == [(2 / 3, True)] * 3
    assert labelled_records(Path(name), "agreement") == [(1 / 3, False)] * 3
    files.write_jsonl("own.jsonl", [{"confidence": 0.4, "correct": True, "own": "a column of a user's"}])
    assert labelled_records(Path("own.jsonl"), "agreement") == [(0.4, True)]
    with pytest.raises(BadInput, match="no confidence of 'consistence'; it has .*agreement, consistency"):
        labelled_records(Path(name), "consistence")
