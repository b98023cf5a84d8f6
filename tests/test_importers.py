"""`orce import`: files of other programs become given answers, which the steps of the workflow take as they are."""

import csv
import json
import math
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pages
import pytest
import yaml
from conftest import ROOT
from test_workflow import snakemake

from orce.__main__ import main
from orce.artefacts import files
from orce.config import settings
from orce.config.load import read_config

REAL = ROOT / "tests" / "data" / "imports"
GSM8K = [REAL / "samples_gsm8k.jsonl", "--equality", "numeric", "--answer-after", "####"]
GREEDY = REAL / "samples_gsm8k_greedy.jsonl"
CAPITALS = REAL / "samples_capitals.jsonl"
RLCR = REAL / "rlcr-commonsenseqa.arrow"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def imported(*arguments) -> tuple[int, dict[str, list[dict]]]:
    """Exit code of `orce import`, and the records of the files that it made in the folder `given`."""
    code = main(["import", *map(str, arguments), "--out", "given"])
    return code, {} if code else {path.stem: files.read_jsonl(path) for path in Path("given").glob("*.jsonl")}


def taken(external: str = "") -> list[dict]:
    """What the steps of the workflow make of the folder `given`, by its own configuration: samples, or confidences."""
    config = read_config([str(ROOT / "config.yaml"), "given/config.yaml"])
    cell = ("given", "given")
    run("prompts", settings.prompts(config, "given"), "--split", "test", "--out", "test.jsonl", "--manifest", "p.json")
    run("import-answers", settings.import_answers(config, *cell), "--prompts", "test=test.jsonl", "--out", "samples.jsonl", "--manifest", "s.json")  # fmt: skip
    if not external:
        return files.read_jsonl("samples.jsonl")
    run("import-confidences", settings.import_confidences(config, *cell, external), "--prompts", "test.jsonl", "--samples", "samples.jsonl", "--out", "c.jsonl")  # fmt: skip
    return files.read_jsonl("c.jsonl")


def run(step: str, options: dict, *arguments: str) -> None:
    assert main([step, "--settings", settings.to_argument(options), *arguments]) == 0


def table(path, rows: list[dict]):
    with open(path, "w", newline="") as handle:
        writer = csv.DictWriter(handle, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


# ---- lm-evaluation-harness


def test_the_harness_repeats_are_samples_and_another_file_has_the_greedy_answers():
    code, made = imported("lm-eval", *GSM8K, "--greedy", GREEDY, "--filter", "flexible-extract")
    assert code == 0 and [len(one["answers"]) for one in made["answers"]] == [3, 3]
    assert made["questions"][0]["question"].startswith("Every day, Wendi feeds each of her chickens")
    first, _ = taken()
    assert first["raw"][0].startswith("To solve this puzzle") and first["answers"][2] == "45"
    assert first["greedy"]["raw"].strip() == json.loads(GREEDY.read_text().splitlines()[0])["resps"][0][0].strip()
    assert not first["greedy"]["correct"], "as the harness judged"


def test_one_response_keeps_the_harness_judgement_of_the_filter_that_is_named(capsys):
    code, _ = imported("lm-eval", GREEDY)
    said = capsys.readouterr().err
    assert code == 2 and "line 1: judged after the filters strict-match, flexible-extract; name one (--filter)" in said
    code, made = imported("lm-eval", GREEDY, "--filter", "strict-match", "--answer-after", "####")
    assert code == 0 and [one["correct"] for one in made["answers"]] == [[False], [False]]


def test_the_likeliest_option_is_the_answer_and_its_share_of_the_likelihood_the_confidence():
    code, made = imported("lm-eval", CAPITALS)
    assert code == 0 and [one["answers"] for one in made["answers"]] == [["B"], ["B"], ["A"], ["A"]]
    assert made["questions"][3]["choices"] == ["Abuja", "Niamey", "Bamako", "N'Djamena"]
    record = json.loads(CAPITALS.read_text().splitlines()[0])
    scores = [float(response[0][0]) for response in record["resps"]]
    share = math.exp(max(scores)) / sum(map(math.exp, scores))
    assert made["option_probability"][0]["confidence"] == pytest.approx(share)
    confidences = taken("given_option_probability")
    assert [one["correct"] for one in confidences] == [True, False, True, False]


def test_a_target_that_is_a_number_and_an_options_text_is_settled_by_acc(tmp_path, capsys):
    record = json.loads(CAPITALS.read_text().splitlines()[0])
    record["doc"] |= {"choices": ["2", "3", "1", "4"]}
    for arguments, text in zip(record["arguments"].values(), record["doc"]["choices"], strict=True):
        arguments["arg_1"] = f" {text}"
    files.write_jsonl("samples.jsonl", [record | {"target": "1", "acc": 1.0}])
    assert imported("lm-eval", "samples.jsonl")[1]["questions"][0]["reference"] == "B"
    files.write_jsonl("samples.jsonl", [record | {"target": "1", "acc": 0.0}])
    (tmp_path / "given").rename(tmp_path / "old")
    assert imported("lm-eval", "samples.jsonl")[1]["questions"][0]["reference"] == "C"
    del record["acc"]
    files.write_jsonl("samples.jsonl", [record | {"target": "1"}])
    (tmp_path / "given").rename(tmp_path / "older")
    assert imported("lm-eval", "samples.jsonl")[0] == 2
    assert "target is '1'; expected the number or the text of one of 2, 3, 1, 4" in capsys.readouterr().err


@pytest.mark.slow
def test_what_the_harness_writes_today_is_read(tmp_path):
    pytest.importorskip("lm_eval", reason="lm-eval is not installed (envs/test.txt)")
    rows = [json.loads(line)["doc"] for line in CAPITALS.read_text().splitlines()]
    files.write_jsonl("capitals.jsonl", rows)
    common = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(tmp_path / "capitals.jsonl")}},
              "test_split": "test", "doc_to_text": "Question: {{question}}\nAnswer:"}  # fmt: skip
    metric = {"aggregation": "mean", "higher_is_better": True}
    asked = {"doc_to_target": "{{choices[answer]}}", "output_type": "generate_until", "repeats": 2, "metric_list": [metric | {"metric": "exact_match"}]}  # fmt: skip
    chosen = {"doc_to_target": "answer", "doc_to_choice": "{{choices}}", "output_type": "multiple_choice", "metric_list": [metric | {"metric": "acc"}]}  # fmt: skip
    for name, task in (("asked", asked), ("chosen", chosen)):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(common | task | {"task": name}))
    command = [sys.executable, "-m", "lm_eval", "run", "--model", "dummy", "--tasks", "asked", "chosen", "--include_path", str(tmp_path), "--log_samples", "--output_path", "out"]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, env={"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "PATH": ""})  # fmt: skip
    (generated,), (scored,) = (list(tmp_path.glob(f"out/**/samples_{name}_*.jsonl")) for name in ("asked", "chosen"))
    code, made = imported("lm-eval", generated)
    assert code == 0 and [one["answers"] for one in made["answers"]] == [["lol"] * 2] * 4
    (tmp_path / "given").rename(tmp_path / "old")
    code, made = imported("lm-eval", scored)
    acc = [record["acc"] for record in files.read_jsonl(scored)]
    assert code == 0 and [one["correct"][0] for one in made["answers"]] == [value == 1 for value in acc]


# ---- RLCR


def test_each_method_of_rlcr_is_a_row_with_its_own_answers_confidences_and_judgements(capsys):
    code, made = imported("rlcr", RLCR, "--method", "RLVR")
    assert code == 0 and made.keys() == {
        "questions",
        "answers",
        "base",
        "rlvr",
        "rlvr_classifier",
        "answer_prob",
        "rlcr",
    }
    assert made["questions"][1]["choices"] == ["cry", "hear sounds", "singing", "arthritis", "making music"]
    assert (made["questions"][1]["reference"], [one["correct"] for one in made["answers"]]) == (
        "C",
        [[True], [True], [False]],
    )
    assert "1 are right by the file alone, 0 by our reading alone" in capsys.readouterr().err
    own = taken("given_rlcr")
    assert [one["confidence"] for one in own] == [0.6, 0.7, 0.7] and [one["correct"] for one in own] == [
        True,
        True,
        False,
    ]


def test_without_its_judgements_the_letters_of_rlcr_are_read():
    imported("rlcr", RLCR, "--method", "RLVR", "--judgements", "drop")
    assert [(one["answer"], one["correct"]) for one in taken("given_rlvr")] == [("A", True), ("E", False), ("D", False)]


@pytest.mark.slow
def test_an_imported_file_becomes_a_table_by_the_configuration_beside_it(tmp_path):
    imported("rlcr", RLCR)
    small = {"evaluation": {"bootstrap": 20}, "paper_tables": ["given"]}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(small))
    shutil.copy(ROOT / "config.yaml", tmp_path)
    files_ = ["--configfile", "given/config.yaml", "small.yaml"]
    snakemake("--cores", "1", *files_, "--", "paper_tables/given.tex", folder=tmp_path)
    assert "rlvr\\_classifier" in (tmp_path / "paper_tables" / "given.tex").read_text()


# ---- CSV

ROW = {"id": "a", "question": "Where?", "answer_1": "Lima", "answer_2": "Cusco", "reference": '["Lima", "Lima, Peru"]', "confidence": ""}  # fmt: skip


def test_a_csv_with_columns_of_samples_judgements_and_two_confidences():
    rows = [ROW | {"correct_1": "True", "correct_2": "0", "confidence_other": ".25"}, ROW | {"id": "b", "question": "Who?", "answer_2": "", "correct_1": "1.0", "correct_2": "false", "confidence": "1", "confidence_other": "0"}]  # fmt: skip
    code, made = imported("csv", table("x.csv", rows))
    assert code == 0 and made["answers"][1] == {"id": "b", "answers": ["Lima", None], "correct": [True, False]}
    assert [one["confidence"] for one in made["stated"]] == [None, 1.0]
    assert [one["confidence"] for one in made["other"]] == [0.25, 0.0]
    assert made["questions"][0]["reference"] == ["Lima", "Lima, Peru"]
    assert [one["correct"] for one in taken()] == [[True, False], [True, False]]


def test_a_mapping_of_confidences_is_a_method_for_each_of_its_names(capsys):
    row = {"id": "a", "answer": "B", "correct": True, "group": "x", "confidences": {"sft": 0.7, "sft:stated": None}}
    files.write_jsonl("x.jsonl", [row])
    code, made = imported("csv", "x.jsonl")
    assert code == 0 and "columns that are not read: group (" in capsys.readouterr().err
    assert (made["sft"], made["sft_stated"]) == ([{"id": "a", "confidence": 0.7}], [{"id": "a", "confidence": None}])
    shutil.rmtree("given")
    files.write_jsonl("x.jsonl", [row | {"confidences": {"sft": 70}}])
    assert (
        imported("csv", "x.jsonl")[0] == 2
        and "line 1: a confidence is 70; expected a number" in capsys.readouterr().err
    )
    files.write_jsonl("x.jsonl", [row | {"confidences": [0.7]}])
    assert (
        imported("csv", "x.jsonl")[0] == 2
        and "line 1: confidences is [0.7]; expected a mapping" in capsys.readouterr().err
    )


@pytest.mark.slow
def test_a_row_of_ones_own_stands_beside_the_released_items_as_their_page_says(tmp_path, capsys):
    page = ROOT / "docs" / "evidence" / "items.md"
    pages.write_files(page, tmp_path)
    heading = page.read_text().splitlines().index("## Your confidences beside ours")
    first, lines, last = (block.text for block in pages.blocks(page) if block.line > heading)
    assert len(lines.splitlines()) == 5 and (tmp_path / "mine.yaml").read_text() == lines
    shutil.copy(ROOT / "config.yaml", tmp_path)
    (tmp_path / "evidence").symlink_to(ROOT / "evidence")
    unpack, read = first.splitlines()
    subprocess.run(unpack, shell=True, check=True)
    assert main(shlex.split(read)[3:]) == 0
    ids = [one["id"] for one in files.read_jsonl("items.jsonl")]
    files.write_jsonl("mine.jsonl", [{"id": name, "confidence": i % 10 / 10} for i, name in enumerate(ids)])
    words = shlex.split(last)
    assert words[3] == "--configfile" and words[-1] == "paper_tables"
    Path("small.yaml").write_text(yaml.safe_dump({"evaluation": {"bootstrap": 20}}))
    snakemake("--cores", "2", *words[3:-2], "small.yaml", "--", "paper_tables/items.tex", folder=tmp_path)
    assert "Mine" in Path("paper_tables/items.tex").read_text()
    capsys.readouterr()
    assert main(["compare", "results/items/given", "--methods", "given_sft_all", "given_orce"]) == 0
    assert "given_orce - given_sft_all: +0.0609 " in capsys.readouterr().err, "the page's ORCE less SFT-all on exams-2"


def test_lines_of_one_question_are_its_samples_and_columns_may_have_other_names():
    rows = [{"prompt": "Where?", "reply": "Lima", "gold": "Lima"}, {"prompt": "Who?", "reply": "I", "gold": "You"},
            {"prompt": "Where?", "reply": "Cusco", "gold": "Lima"}]  # fmt: skip
    named = [
        f"--column={name}={column}"
        for name, column in [("question", "prompt"), ("answer", "reply"), ("reference", "gold")]
    ]
    code, made = imported("csv", table("x.csv", rows), *named)
    assert code == 0 and [(one["id"], one["answers"]) for one in made["answers"]] == [
        ("q1", ["Lima", "Cusco"]),
        ("q2", ["I"]),
    ]
    assert [one["correct"] for one in taken()] == [[True, False], [False]]


CRUXEVAL = '{"id": 0, "question": "?", "answer": ["[(1, 2)]", null, 3], "correct": [true, false, false], "reference": "[(1, 2)]"}\n'


def test_lists_and_numbers_of_json_lines_are_samples_and_a_text_like_a_list_is_one_answer():
    Path("x.jsonl").write_text(CRUXEVAL)
    code, made = imported("csv", "x.jsonl")
    assert code == 0
    assert made["answers"] == [{"id": "0", "answers": ["[(1, 2)]", None, "3"], "correct": [True, False, False]}]
    rows = [{"question": "?", "answer": "[1, 2]", "correct": "[true]"}]
    shutil.rmtree("given")
    code, made = imported("csv", table("x.csv", rows))
    assert code == 0 and made["answers"] == [{"id": "q1", "answers": ["[1, 2]"], "correct": [True]}]


def test_an_id_that_stands_at_two_questions_is_refused(capsys):
    rows = [{"id": "1", "question": question, "answer": "x"} for question in ("Who?", "Where?")]
    code, _ = imported("csv", table("x.csv", rows))
    assert code == 2 and not Path("given").exists()
    assert "x.csv, line 3: id '1' is that of another question in line 2; name a column" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"confidence": "85"}, "x.csv, line 2: a confidence is '85'; expected a number from 0 to 1"),
        ({"correct_1": "yes", "correct_2": "0"}, "x.csv, line 2: a judgement is 'yes'; expected true or false"),
        ({"correct_1": "1"}, "x.csv, line 2: 1 judgements of 2 answers; expected one for each"),
        ({"choices": "Lima, Cusco", "reference": "A"}, "x.csv, line 2: choices is 'Lima, Cusco'; expected a JSON list of texts"),
        ({"choices": '["Lima", "Cusco"]', "reference": "C"}, "x.csv, line 2: reference is 'C'; expected A, B or a text of the options"),
        ({"question": "", "id": ""}, "x.csv, line 2: no question and no id"),
        ({"reference": ""},
         "x.csv, line 2: neither a judgement nor a reference says whether the answer is right, and 1 of 1 questions have neither"),
    ],
)  # fmt: skip
def test_what_a_csv_says_wrongly_is_refused_with_its_line(change, message, capsys):
    code, _ = imported("csv", table("x.csv", [ROW | change]))
    said = capsys.readouterr().err.strip().splitlines()
    assert code == 2 and message in said[-1] and not Path("given").exists()


@pytest.mark.parametrize(
    ("further", "said"),
    [
        ([{"Confidence": "0.9", "model": "m"}], "columns that are not read: Confidence, model (--column NAME=COLUMN)"),
        ([{"confidence": ""}, {"id": "b", "question": "Who?", "confidence": ".5"}], "1 of 2 confidences are empty: unread"),
        ([{"confidence": "0.9"}, {"confidence": "0.1"}], "1 lines are further samples of a question; the confidence of its first"),
    ],
)  # fmt: skip
def test_what_a_table_of_ones_own_may_mean_otherwise_is_said(further, said, capsys):
    rows = [ROW | {"confidence": "0.9", "Confidence": "", "model": ""} | one for one in further]
    kept = set(further[0]) | set(ROW)
    code, _ = imported("csv", table("x.csv", [{key: row[key] for key in row if key in kept} for row in rows]))
    assert code == 0 and said in capsys.readouterr().err


def test_the_next_command_quotes_its_path(tmp_path, capsys):
    assert main(["import", "csv", str(table("x.csv", [ROW])), "--out", "my answers"]) == 0
    assert "--configfile 'my answers/config.yaml' -- paper_tables" in capsys.readouterr().err


def test_a_column_that_is_not_there_and_a_folder_that_is_there_are_refused(capsys, tmp_path):
    assert imported("csv", table("x.csv", [ROW]), "--column", "answer=reply")[0] == 2
    assert "no column 'reply' for answer; columns are id, question, answer_1" in capsys.readouterr().err
    (tmp_path / "given").mkdir()
    assert imported("csv", "x.csv")[0] == 2 and "given exists; name a new folder" in capsys.readouterr().err


# ---- ids


def prompts(*examples: dict) -> str:
    whole = [{"context": None, "choices": None, "reference": ["x"], "equality": "normalised"} | one for one in examples]
    files.write_jsonl("test.jsonl", whole)
    return "test.jsonl"


def test_rows_get_the_ids_of_a_runs_prompts_by_their_question():
    path = prompts({"id": "town-7", "question": "Who  is\nit?"}, {"id": "town-8", "question": "Where?"})
    rows = [
        {"question": "where?", "answer": "Lima"},
        {"question": "Answer briefly. Who is it? Thank you.", "answer": "I"},
    ]
    code, made = imported("csv", table("x.csv", rows), "--prompts", path)
    assert code == 0 and [(one["id"], one["answers"]) for one in made["answers"]] == [
        ("town-8", ["Lima"]),
        ("town-7", ["I"]),
    ]
    assert made["questions"][0]["reference"] == ["x"], "the references are the prompts'"


def test_what_cannot_be_matched_is_counted_and_refused_unless_it_may_be_dropped(capsys):
    path = prompts({"id": "1", "question": "Where?"}, {"id": "2", "question": "Why?"}, {"id": "3", "question": "Who?"}, {"id": "4", "question": "Who?"})  # fmt: skip
    rows = [{"question": one, "answer": "Lima"} for one in ("Where?", "When?", "Who?")]
    code, _ = imported("csv", table("x.csv", rows), "--prompts", path)
    said = capsys.readouterr().err
    assert code == 2 and "2 of 3 rows have no prompt of test.jsonl by id or question (x.csv, line 3: 'When?'; " in said
    assert "and 3 of 4 prompts have no row (such as 2); --unmatched drop leaves them out" in said
    code, made = imported("csv", "x.csv", "--prompts", path, "--unmatched", "drop")
    assert (
        code == 0
        and [one["id"] for one in made["answers"]] == ["1"]
        and [one["id"] for one in made["questions"]] == ["1"]
    )


def test_letters_follow_the_options_of_the_prompts_where_these_are_shuffled():
    shuffled = {
        "id": "c",
        "question": "What is the capital of Peru?",
        "choices": ["Lima", "Quito", "Cusco", "Callao"],
        "reference": "A",
    }
    code, made = imported("lm-eval", CAPITALS, "--prompts", prompts(shuffled), "--unmatched", "drop")
    assert code == 0 and made["answers"] == [{"id": "c", "answers": ["A"], "correct": [True]}]
