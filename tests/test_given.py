"""Answers and confidences made elsewhere: to a table through Snakemake without an engine, and through `orce measure`."""

import json
import shlex
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import dry_run
import numpy as np
import pages
import pytest
import yaml
from conftest import ROOT, cases, own_config, prompts_words
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
    greedy = f"Town {i}" if i % 3 else f"Town {i + 2}"
    return {"qid": f"q{i}", "question": f"Where is {i}?", "answers": answers, "greedy": greedy,
            "references": [f"Town {i}", f"Town  {i}!"], "id": f"q{i}", "confidence": None if i == 5 else round((i % 9) / 8, 3)}  # fmt: skip


def base(folder, rows, **fields) -> dict:
    """A configuration whose only model is a file of answers."""
    written(folder / "samples.jsonl", rows)
    spec = {"task": "qa", "source": {"path": "samples.jsonl"}, "fields": fields}
    theirs = {"theirs": {"path": "samples.jsonl", "label": "Their own"}}
    api = {"label": "An API", "source": {}, "answers": {"path": "samples.jsonl"}}
    return own_config(
        "towns", spec, {"api": api}, ["consistency", "theirs"], evaluation={"bootstrap": 100}, methods=theirs,
    )  # fmt: skip


@pytest.fixture(scope="module")
def towns(tmp_path_factory):
    root = tmp_path_factory.mktemp("given")
    config = base(root, [given(i) for i in range(N)], id="qid", question="question", answer="references")
    (root / "config.yaml").write_text(yaml.safe_dump(config))
    return root


@pytest.mark.slow
def test_given_samples_and_confidences_become_a_table_without_an_engine(towns):
    folder = towns
    counts = job_counts(plan("--cores", "1", "--", "paper_tables/towns.tex", folder=folder))
    assert counts["import_answers"] == counts["import_confidences"] == 1
    assert not {"sample", "elicit", "state", "sft"} & counts.keys()
    snakemake("--cores", "2", "--", "paper_tables/towns.tex", folder=folder)
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
    table = (folder / "paper_tables" / "towns.tex").read_text()
    assert "Their own" in table and "Consistency" in table
    written(folder / "samples.jsonl", [given(i) | {"greedy": "Nowhere"} for i in range(N)])
    files.fingerprint.cache_clear()  # a process of its own knows nothing yet
    counts = job_counts(plan("--cores", "1", "--", "paper_tables/towns.tex", folder=folder))
    assert counts["import_answers"] == counts["import_confidences"] == 1, "a replaced file is a changed setting"


OF_EVERY_KIND = ("consistency", "likelihood", "vanilla", "topk", "cot", "linguistic", "theirs", "both")


@pytest.mark.slow
def test_a_model_with_given_answers_has_rows_of_every_kind(small, tmp_path):
    """Its answers are given and never sampled; what else a row needs comes from its weights."""
    columns = {"id": "qid", "question": "question", "answer": "references"}
    config = base(tmp_path, [given(i) for i in range(6)], **columns)
    config["models"]["api"] |= {"label": "Ours", "source": {"path": str(small)}, "trains": False}
    config["engine"]["name"] = "transformers"
    both = {"of": ["agreement", "likelihood"], "fit": "product", "label": "Both"}
    few = {"max_tokens": 4}
    config["methods"] |= {"both": both, "topk": {"k": 2} | few, "cot": few, "linguistic": few}
    config["methods"]["vanilla"] = {"constrained": True}
    config["tables"]["towns"]["methods"] = list(OF_EVERY_KIND)
    cell = "results/towns/api"
    made = dry_run.make(tmp_path, config, *(f"{cell}/{row}/metrics.json" for row in OF_EVERY_KIND))
    stages = Counter(command.stage for command in made)
    assert stages == {
        "prompts": 1, "import-answers": 1, "surrogate": 1, "derive": 3, "likelihoods": 1, "state": 1, "elicit": 3,
        "import-confidences": 1, "fit": 1, "evaluate": 8,
    }  # fmt: skip
    for row in OF_EVERY_KIND:
        records = files.read_jsonl(tmp_path / cell / row / "confidences.jsonl")
        assert len(records) == 6, row
        assert json.loads((tmp_path / cell / row / "metrics.json").read_text())["n"] == 6


def test_the_plan_of_given_answers_loads_no_model(towns, monkeypatch, capsys):
    monkeypatch.chdir(towns)
    assert main(["plan"]) == 0
    assert capsys.readouterr().out == "No job of these tables loads a model.\n"


def take(step: str, *words: str, path: str = "samples.jsonl") -> int:
    """Exit code of a step that takes what a file has."""
    return main([step, "--settings", json.dumps({"task": "qa", "source": {"path": path}, "label": "here"}), *words])


def take_answers(out: str, *prompts: str) -> int:
    return take("import-answers", "--prompts", *prompts, "--out", f"{out}.jsonl", "--manifest", f"{out}.manifest.json")


def take_confidences(out: str, path: str = "samples.jsonl") -> int:
    return take("import-confidences", "--prompts", "test.jsonl", "--samples", "given.jsonl", "--out", out, path=path)


def imported(rows, what="answers", **fields):
    """(exit code, records) of the steps from the files to samples.jsonl, or on to confidences.jsonl."""
    written(Path("samples.jsonl"), rows)
    source = {"path": "samples.jsonl"}
    options = {"task": "qa", "source": source | {"fields": fields}, "dataset": "towns", "seed": 1, "tests": []}
    options["splits"] = {"test": {"from": "test"}}
    assert main(prompts_words(options, "test.jsonl")) == 0
    code = take_answers("given", "test=test.jsonl")
    if code or what == "answers":
        return code, code or files.read_jsonl("given.jsonl")
    code = take_confidences("confidences.jsonl")
    return code, code or files.read_jsonl("confidences.jsonl")


def test_judgements_that_come_with_the_answers_count_and_references_are_not_needed(folder):
    rows = [
        {"id": "a", "answers": ["x", "y", "x"], "correct": [1, 0, 1], "greedy": "x"},
        {"id": "b", "answers": ["x", "y"], "correct": [False, True], "greedy": {"answer": "z", "correct": True}},
        {"id": "c", "answers": ["", None], "correct": [False, False]},
        {"id": "d", "answer": "w", "correct": True},
    ]
    code, records = imported(rows, id="id")
    right = [[True, False, True], [False, True], [False] * 2, [True]]
    assert code == 0 and [one["correct"] for one in records] == right
    greedy = [(one["greedy"]["answer"], one["greedy"]["correct"]) for one in records]
    assert greedy == [("x", True), ("z", True), (None, False), ("w", True)]
    agree = ["derive", "--task", "qa", "--method", "consistency", "--prompts", "test.jsonl", "--samples", "given.jsonl"]
    assert main([*agree, "--out", "agreed.jsonl"]) == 0
    agreed = [(one["answer"], one["correct"]) for one in files.read_jsonl("agreed.jsonl")]
    assert agreed == [("x", True), ("x", False), (None, False), ("w", True)]


def test_a_validation_split_has_greedy_answers_too(folder):
    assert imported([{"id": "a", "answer": "x", "correct": True}], id="id")[0] == 0
    assert take_answers("more", "validation=test.jsonl", "sft=test.jsonl") == 0
    splits = [(one["split"], "greedy" in one) for one in files.read_jsonl("more.jsonl")]
    assert splits == [("validation", True), ("sft", False)]


def test_a_methods_own_answer_is_judged_and_without_one_it_is_the_greedy_one(folder):
    rows = [
        {"id": "a", "answers": ["Rome"], "references": ["Rome"], "confidence": 0.25},
        {"id": "b", "answers": ["Rome"], "answer": "the Rome", "references": ["Rome"], "confidence": 1},
        {"id": "c", "answers": ["Rome"], "answer": "Oslo", "references": ["Rome"], "confidence": 0.5},
    ]
    code, records = imported(rows, "confidences", id="id", answer="references")
    assert code == 0 and [one["correct"] for one in records] == [True, True, False]
    assert [one["confidence"] for one in records] == [0.25, 1, 0.5]


def test_confidences_for_other_questions_are_counted_and_left_out(folder, capfd):
    rows = [{"id": name, "question": "?", "answer": "x", "correct": True, "confidence": 0.5} for name in "ab"]
    code, _ = imported(rows, "confidences", id="id", question="question")
    assert code == 0 and "left out" not in capfd.readouterr().err
    written(folder / "more.jsonl", [{"id": name, "confidence": 0.5} for name in "abc"])
    assert take_confidences("c.jsonl", path="more.jsonl") == 0
    assert "2 confidences of more.jsonl, 0 of them unreadable; 1 for other questions left out" in capfd.readouterr().err


BAD = dict(cases("bad_given"))


@pytest.mark.parametrize("words", BAD)
def test_a_record_that_will_not_do_is_one_line(words, folder, capfd):
    prompts = [{"id": name, "question": "?", "context": None, "choices": None, "reference": [], "equality": "exact"}
               for name in "ab"]  # fmt: skip
    written(folder / "test.jsonl", prompts)
    written(folder / "samples.jsonl", BAD[words])
    code = take_answers("given", "test=test.jsonl") or take_confidences("c.jsonl")
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "orce import" in line]
    assert code == 2 and words in line and "samples.jsonl" in line


@pytest.mark.parametrize(("words", "over"), cases("wrong_rows"))
def test_the_check_says_what_a_row_lacks(words, over, tmp_path):
    config = base(tmp_path, [given(0)], id="qid", question="question", answer="references")
    with pytest.raises(BadInput) as error:
        configuration.check(merge(config, over))
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_data_set_without_a_column_of_questions_is_refused(tmp_path):
    with pytest.raises(BadInput, match="fields.question: missing"):
        configuration.check(base(tmp_path, [given(0)], answer="references"))


def test_a_file_of_answers_that_is_not_there_is_named(tmp_path, monkeypatch):
    config = base(tmp_path, [given(0)], id="qid")
    config["models"]["api"]["answers"] = {"path": "{dataset}/{model}.jsonl"}
    config["datasets"]["towns"]["fields"] = {"id": "qid"}
    checked = configuration.check(config)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=r"models.api.answers.path: towns/api.jsonl does not exist; expected JSON lines"):
        configuration.data(checked)


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


def test_measure_takes_confidences_and_gives_metrics(tmp_path, capfd):
    path = written(tmp_path / "samples.jsonl", [given(i) for i in range(N)])
    out = ["--out", str(tmp_path / "given.jsonl"), "--metrics", str(tmp_path / "given.json")]
    assert main(["measure", str(path), "--methods", "given", *out]) == 0
    theirs = files.read_jsonl(tmp_path / "given.jsonl")
    right = [i % 3 != 0 for i in range(N)]
    assert [one["correct"] for one in theirs] == right
    stated = [one["confidence"]["given"] for one in theirs]
    confidence = np.array([0.5 if value is None else value for value in stated])
    found = json.loads((tmp_path / "given.json").read_text())["given"]
    assert found["auroc"] == pytest.approx(metrics.auroc(confidence, right))
    assert found["n_unparsed"] == {"answer": 0, "confidence": 1}
    assert "given: 1 of 24 confidences unread" in capfd.readouterr().out


def test_measure_without_judgements_gives_confidences_alone(tmp_path):
    row = {"id": 1, "answers": ["a", "a", "b"], "greedy": {"answer": "c"}, "text": "more"}
    out, path = tmp_path / "out.jsonl", written(tmp_path / "in.jsonl", [row])
    assert main(["measure", str(path), "--methods", "consistency", "--out", str(out)]) == 0
    (first,) = files.read_jsonl(out)
    assert first["own"]["consistency"] == {"answer": "a"} and first["text"] == "more"
    assert first["confidence"] == {"consistency": pytest.approx(2 / 3)} and "correct" not in first


def test_a_judge_takes_records_of_samples(finished):
    from finished_run import CELL

    import orce

    judge = orce.load_judge(finished / CELL / "sft")
    records = [{"question": "What is 1 + 1?", "answers": ["2", "3"]}, {"question": "What is 1 + 1?", "greedy": "3"}]
    plain = [{"question": "What is 1 + 1?", "answer": answer} for answer in "23"]
    assert [one["mean"] for one in judge(records)] == [one["mean"] for one in judge(plain)]
