"""Answers and confidences made elsewhere: to a table through Snakemake without an engine, and through `orce measure`."""

import json
import shlex
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import dry_run
import pages
import pytest
import yaml
from conftest import ROOT, cases, own_config, prompts_words
from dry_run import called
from test_any_data import written
from test_workflow import job_counts, plan, snakemake

from orce import metrics
from orce.__main__ import main
from orce.artefacts import files
from orce.config import check as configuration
from orce.errors import BadInput
from orce.settings.load import merge

N = 24


def given(i: int) -> dict:
    """A record of a black box: four samples, the greedy answer, what it is judged by, and somebody's confidence."""
    wrong = [f"Town {i + 1}"] * (i % 5)
    answers = ([f"the town {i}."] * 4 + wrong)[-4:]
    asked = {"qid": f"q{i}", "id": f"q{i}", "question": f"Where is {i}?", "references": [f"Town {i}", f"Town  {i}!"]}
    greedy, sure = f"Town {i}" if i % 3 else f"Town {i + 2}", None if i == 5 else round((i % 9) / 8, 3)
    return asked | {"answers": answers, "greedy": greedy, "confidence": sure}


def base(folder, n: int) -> dict:
    """A configuration whose only model is a file of answers."""
    written(folder / "samples.jsonl", [given(i) for i in range(n)])
    fields = {"id": "qid", "question": "question", "answer": "references"}
    spec = {"task": "qa", "source": {"path": "samples.jsonl"}, "fields": fields}
    theirs = {"theirs": {"path": "samples.jsonl", "label": "Their own"}}
    api = {"label": "An API", "source": {}, "answers": {"path": "samples.jsonl"}}
    rows = ["consistency", "theirs"]
    return own_config("towns", spec, {"api": api}, rows, evaluation={"bootstrap": 100}, methods=theirs)


def test_the_plan_of_given_answers_loads_no_model(folder):
    (folder / "config.yaml").write_text(yaml.safe_dump(base(folder, N)))
    assert called(main, ["plan"]) == (0, "No job of these tables loads a model.\n")


@pytest.mark.slow
def test_given_samples_and_confidences_become_a_table_without_an_engine(folder):
    (folder / "config.yaml").write_text(yaml.safe_dump(base(folder, N)))
    wanted = "paper_tables/towns.tex"
    counts = job_counts(plan("--cores", "1", "--", wanted, folder=folder))
    assert counts["import_answers"] == counts["import_confidences"] == 1
    assert not {"sample", "elicit", "state", "sft"} & counts.keys()
    snakemake("--cores", "2", "--", wanted, folder=folder)
    cell = folder / "results" / "towns" / "api"
    right = [i % 3 != 0 for i in range(N)]
    theirs = files.read_jsonl(cell / "theirs" / "confidences.jsonl")
    assert [one["correct"] for one in theirs] == right and theirs[5]["confidence"] is None
    found = json.loads((cell / "theirs" / "metrics.json").read_text())
    confidence = [0.5 if one["confidence"] is None else one["confidence"] for one in theirs]
    assert found["aurc"] == pytest.approx(metrics.aurc(confidence, right)) and found["n"] == N
    assert found["n_unparsed"]["confidence"] == 1, "an unreadable confidence is counted"
    consistency = files.read_jsonl(cell / "consistency" / "confidences.jsonl")
    third = consistency[3]
    assert third["answer"] == "Town 4" and third["confidence"] == 0.75 and not third["correct"]
    assert consistency[6]["confidence"] == 0.75 and consistency[6]["correct"], "the same town in other words"
    table = Path(wanted).read_text()
    assert "Their own" in table and "Consistency" in table
    written(folder / "samples.jsonl", [given(i) | {"greedy": "Nowhere"} for i in range(N)])
    files.fingerprint.cache_clear()  # a process of its own knows nothing yet
    counts = job_counts(plan("--cores", "1", "--", wanted, folder=folder))
    assert counts["import_answers"] == counts["import_confidences"] == 1, "a replaced file is a changed setting"


@pytest.mark.slow
def test_a_model_with_given_answers_has_rows_of_every_kind(small, tmp_path):
    """Its answers are given and never sampled; what else a row needs comes from its weights."""
    rows = ["consistency", "likelihood", "vanilla", "topk", "cot", "linguistic", "theirs", "both"]
    config = base(tmp_path, 6)
    config["models"]["api"] |= {"label": "Ours", "source": {"path": str(small)}, "trains": False}
    config["engine"]["name"] = "transformers"
    both = {"of": ["agreement", "likelihood"], "fit": "product", "label": "Both"}
    few = {"max_tokens": 4}
    config["methods"] |= {"both": both, "topk": {"k": 2} | few, "cot": few, "linguistic": few}
    config["methods"]["vanilla"] = {"constrained": True}
    config["tables"]["towns"]["methods"] = rows
    cell = "results/towns/api"
    made = dry_run.make(tmp_path, config, *(f"{cell}/{row}/metrics.json" for row in rows))
    assert Counter(command.stage for command in made) == {
        "prompts": 1, "import-answers": 1, "surrogate": 1, "derive": 3, "likelihoods": 1, "state": 1, "elicit": 3,
        "import-confidences": 1, "fit": 1, "evaluate": 8,
    }  # fmt: skip
    for row in rows:
        assert len(files.read_jsonl(tmp_path / cell / row / "confidences.jsonl")) == 6, row


def take(step: str, *words: str, path: str = "samples.jsonl") -> tuple[int, str]:
    """(exit code, what is said) of a step that takes what a file has."""
    settings = {"task": "qa", "source": {"path": path}, "label": "here"}
    return called(main, [step, "--settings", json.dumps(settings), *words])


def take_answers(*prompts: str, out: str = "given") -> tuple[int, str]:
    made = ["--out", f"{out}.jsonl", "--manifest", f"{out}.manifest.json"]
    return take("import-answers", "--prompts", *prompts, *made)


def take_confidences(path: str = "samples.jsonl") -> tuple[int, str]:
    words = ["--prompts", "test.jsonl", "--samples", "given.jsonl", "--out", "confidences.jsonl"]
    return take("import-confidences", *words, path=path)


def imported(rows, **fields) -> list[dict]:
    """Records of the steps from a file of questions and answers to samples.jsonl."""
    written(Path("samples.jsonl"), rows)
    source = {"path": "samples.jsonl", "fields": {"id": "id"} | fields}
    options = {"task": "qa", "source": source, "dataset": "towns", "seed": 1, "tests": []}
    assert main(prompts_words(options | {"splits": {"test": {"from": "test"}}}, "test.jsonl")) == 0
    code, said = take_answers("test=test.jsonl")
    assert code == 0, said
    return files.read_jsonl("given.jsonl")


def test_judgements_that_come_with_the_answers_count_and_references_are_not_needed(folder):
    rows = [
        {"id": "a", "answers": ["x", "y", "x"], "correct": [1, 0, 1], "greedy": "x"},
        {"id": "b", "answers": ["x", "y"], "correct": [False, True], "greedy": {"answer": "z", "correct": True}},
        {"id": "c", "answers": ["", None], "correct": [False, False]},
        {"id": "d", "answer": "w", "correct": True},
    ]
    records = imported(rows)
    assert [one["correct"] for one in records] == [[True, False, True], [False, True], [False] * 2, [True]]
    greedy = [(one["greedy"]["answer"], one["greedy"]["correct"]) for one in records]
    assert greedy == [("x", True), ("z", True), (None, False), ("w", True)]
    agree = ["derive", "--task", "qa", "--method", "consistency", "--prompts", "test.jsonl", "--samples", "given.jsonl"]
    assert main([*agree, "--out", "agreed.jsonl"]) == 0
    agreed = [(one["answer"], one["correct"]) for one in files.read_jsonl("agreed.jsonl")]
    assert agreed == [("x", True), ("x", False), (None, False), ("w", True)]
    assert take_answers("validation=test.jsonl", "sft=test.jsonl", out="more")[0] == 0
    with_greedy = [one["split"] for one in files.read_jsonl("more.jsonl") if "greedy" in one]
    assert with_greedy == ["validation"] * 4, "and no split to train on"


def test_a_methods_own_answer_is_judged_and_confidences_of_other_questions_are_counted(folder):
    rows = [
        {"id": "a", "answers": ["Rome"], "references": ["Rome"], "confidence": 0.25},
        {"id": "b", "answers": ["Rome"], "answer": "the Rome", "references": ["Rome"], "confidence": 1},
        {"id": "c", "answers": ["Rome"], "answer": "Oslo", "references": ["Rome"], "confidence": 0.5},
        {"id": "d", "answers": ["Rome"], "answer": None, "correct": False, "references": ["Rome"], "confidence": 0},
        {"id": "e", "answers": ["Rome"], "answer": "Rome", "correct": False, "references": ["Rome"], "confidence": 0.5},
    ]
    imported(rows, answer="references")
    code, said = take_confidences()
    assert code == 0 and "left out" not in said
    records = files.read_jsonl("confidences.jsonl")
    found = [(one["answer"], one["correct"], one["confidence"]) for one in records]
    assert found == [
        ("Rome", True, 0.25),
        ("the Rome", True, 1),
        ("Oslo", False, 0.5),
        (None, False, 0),
        ("Rome", False, 0.5),
    ]
    written(folder / "more.jsonl", [{"id": name, "confidence": 0.5} for name in "abcdef"])
    code, said = take_confidences("more.jsonl")
    assert code == 0 and "5 confidences of more.jsonl, 0 of them unreadable; 1 for other questions left out" in said


@pytest.mark.parametrize(("words", "rows"), cases("bad_given"))
def test_a_record_that_will_not_do_is_one_line(words, rows, folder):
    asked = {"question": "?", "context": None, "choices": None, "reference": [], "equality": "exact"}
    written(folder / "test.jsonl", [asked | {"id": name} for name in "ab"])
    written(folder / "samples.jsonl", rows)
    code, said = take_answers("test=test.jsonl")
    code, said = (code, said) if code else take_confidences()
    (line,) = [line for line in said.splitlines() if "orce import" in line]
    assert code == 2 and words in line and "samples.jsonl" in line


@pytest.mark.parametrize(("words", "over"), cases("wrong_rows"))
def test_the_check_says_what_a_row_lacks(words, over, tmp_path):
    with pytest.raises(BadInput) as error:
        configuration.check(merge(base(tmp_path, 1), over))
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_file_of_answers_that_is_not_there_is_named(folder):
    config = base(folder, 1)
    config["models"]["api"]["answers"] = {"path": "{dataset}/{model}.jsonl"}
    with pytest.raises(BadInput, match=r"models.api.answers.path: towns/api.jsonl does not exist; expected JSON lines"):
        configuration.data(configuration.check(config))


@pytest.mark.slow
def test_the_page_runs_as_it_stands(tmp_path, monkeypatch):
    """Its files, its tables, its row of one's own beside others, and its lines without Snakemake."""
    page = ROOT / "docs" / "given.md"
    pages.write_files(page, tmp_path)
    shutil.copy(ROOT / "config.yaml", tmp_path)
    texts = [block.text for block in pages.blocks(page)]
    ((table, without),) = (text.splitlines() for text in texts if text.startswith("snakemake"))
    (harness,) = (text.splitlines() for text in texts if text.startswith("grep"))
    assert harness[1].split() == ["gsm8k.yaml" if word == "given.yaml" else word for word in table.split()]
    shutil.copy(ROOT / "tests" / "data" / "imports" / "samples_gsm8k.jsonl", tmp_path / "samples_gsm8k_2026.jsonl")
    subprocess.run(harness[0], shell=True, check=True, cwd=tmp_path)
    monkeypatch.chdir(tmp_path)
    wanted = [f"paper_tables/{name}.tex" for name in ("capitals", "gsm8k", "sheet")]
    snakemake("--cores", "2", "--configfile", "given.yaml", "gsm8k.yaml", "sheet.yaml", "--", *wanted, folder=tmp_path)
    shown = Path(wanted[0]).read_text()
    assert all(row in shown for row in ("Consistency", "Semantic entropy", "Their own"))
    paths = ("harness/samples.jsonl", "prompts/test.jsonl")
    first, asked = (files.read_jsonl(f"results/gsm8k/{path}")[0] for path in paths)
    assert first["raw"][0].startswith("To solve this puzzle") and first["answers"][2] == "45"
    assert asked["reference"] == ["20"]
    stated = files.read_jsonl("results/sheet/sheet/sure/confidences.jsonl")
    asked = [(f"What is the capital of {land}?", *rest) for land, *rest in (("Peru", 0.8, True), ("Chad", 0.3, False))]
    assert [(one["id"], one["confidence"], one["correct"]) for one in stated] == asked
    judged = [one["correct"] for one in files.read_jsonl("results/sheet/sheet/samples.jsonl")]
    assert judged == [[True, False], [False, True]]
    row = next(text for text in texts if "mine/{dataset}.jsonl" in text)
    assert len(row.splitlines()) == 4
    own = yaml.safe_load(row)
    own["tables"] = {"capitals": {"methods": [*yaml.safe_load((tmp_path / "given.yaml").read_text())["tables"]["capitals"]["methods"], "mine"]}}  # fmt: skip
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(own))
    (tmp_path / "mine").mkdir()
    written(tmp_path / "mine" / "capitals.jsonl", [{"id": f"q{i}", "confidence": i / 4} for i in (1, 2, 3)])
    wanted = ["given.yaml", "mine.yaml", "--", "results/capitals/api/mine/metrics.json"]
    files.fingerprint.cache_clear()  # of the other tests' samples.jsonl
    planned = job_counts(plan("--cores", "1", "--configfile", *wanted, folder=tmp_path))
    assert planned == {"import_confidences": 1, "evaluate": 1}
    for line in (without, *(text for text in texts if text.startswith("python -m orce measure"))):
        assert main(shlex.split(line)[3:]) == 0
    assert json.loads(Path("metrics.json").read_text())["consistency"]["n"] == 3
    line = files.read_jsonl("scored-sheet.jsonl")[1]
    assert (line["answer"], line["confidence"], line["correct"]) == ("Abuja", {"given": 0.3}, False)


@pytest.mark.slow
def test_a_row_of_ones_own_stands_beside_the_released_items_as_their_page_says(tmp_path, monkeypatch, capsys):
    page = ROOT / "docs" / "evidence" / "items.md"
    pages.write_files(page, tmp_path)
    shutil.copy(ROOT / "config.yaml", tmp_path)
    (tmp_path / "evidence").symlink_to(ROOT / "evidence")
    monkeypatch.chdir(tmp_path)
    unpack, table = next(one.text for one in pages.blocks(page) if one.text.startswith("gunzip")).splitlines()
    subprocess.run(unpack, shell=True, check=True)
    ids = [one["id"] for one in files.read_jsonl("items.jsonl")]
    files.write_jsonl("mine.jsonl", [{"id": name, "confidence": i % 10 / 10} for i, name in enumerate(ids)])
    written_ = yaml.safe_load(Path("items.yaml").read_text()) | {"evaluation": {"bootstrap": 20}}
    Path("items.yaml").write_text(yaml.safe_dump(written_))
    words = shlex.split(table)
    assert words[:3] == ["snakemake", "--cores", "all"] and words[-1] == "paper_tables"
    snakemake("--cores", "2", *words[3:-1], "paper_tables/items.tex", folder=tmp_path)
    assert "Mine" in Path("paper_tables/items.tex").read_text()
    capsys.readouterr()
    assert main(["compare", "results/items/given", "--methods", "given_sft_all", "given_orce"]) == 0
    assert "given_orce - given_sft_all: +0.0609 " in capsys.readouterr().err, "the page's ORCE minus SFT-all on exams-2"
