"""Confidences that could not be read: every door says how many, and of a row without any there are no metrics of confidence."""

import json
from pathlib import Path

import pytest
from stages_by_hand import stage, stated, write

import orce
from orce.__main__ import main

ALL_UNREAD = "20 of 20 confidences unread: no metrics of confidence"
FEW_UNREAD = "4 of 20 confidences unread, which count as the default †"


def test_compare_says_how_many_were_unread(folder, capfd):
    rows = [{"id": str(i), "answer": "Paris", "confidence": None, "correct": i % 2 == 0} for i in range(20)]
    read = [row | {"confidence": 0.1 + 0.04 * i} for i, row in enumerate(rows)]
    write("cell/vanilla/confidences.jsonl", read)
    write("cell/cot/confidences.jsonl", rows)
    assert main(["compare", "cell", "--methods", "vanilla", "cot", "--resamples", "50"]) == 0
    said = capfd.readouterr().err
    assert f"cell: cot: {ALL_UNREAD}\n" in said and "cell: vanilla: " not in said
    assert "undefined, as no confidence of one of them could be read" in said


# A method of one's own that reads a percentage at the end of the first sample: of the questions here none has any, or most have.
PERCENT = """import re
KIND, LABEL = "measured", "Percent"
def measure(seen, example, task):
    said = re.search(r"(\\d+)%$", seen["raw"][0])
    return said and int(said[1]) / 100
"""
# Which of twenty questions no confidence is stated to, and what every door says of them.
DOORS = pytest.mark.parametrize(("lacking", "says"), [(range(20), ALL_UNREAD), (range(0, 20, 5), FEW_UNREAD), ((), "")])
OF_CONFIDENCE = ("ece", "brier", "auroc", "aurc", "spearman")


def without_metrics_where_all_are_unread(values: dict, says: str) -> None:
    """Accuracy stays; the rest is there unless nothing was read."""
    assert values["accuracy"] == 0.5
    for name in OF_CONFIDENCE:
        value = values[name]["rho"] if name == "spearman" else values[name]
        assert (value is None) == (says == ALL_UNREAD), name


@DOORS
def test_measure_and_confidence_say_how_many_were_unread(lacking, says, folder, capfd):
    Path("percent.py").write_text(PERCENT)
    rows = []
    for number in range(20):
        text = "Lima" if number in lacking else f"Lima {5 * number + 3}%"
        rows.append({"question": f"Question {number}?", "answers": [text, "Lima"], "correct": [number % 2 == 0] * 2})
    write("asked.jsonl", rows)
    named = ["--methods", "percent.py,agreement", "--out", "o.jsonl", "--metrics", "m.json"]
    assert main(["measure", "asked.jsonl", "--model", "", *named]) == 0
    out, said = capfd.readouterr()
    assert out.endswith(f"percent: {says}\n" if says else "\n") and "agreement: " not in out
    measured = {line.split()[1]: line for line in said.splitlines() if line.startswith("[measure] ")}
    assert measured["percent:"].startswith("[measure] percent: accuracy 0.5000")
    assert ("brier" in measured["percent:"]) == (says != ALL_UNREAD)
    assert measured["percent:"].endswith(f", {says}") if says else "unread" not in said
    assert "unread" not in measured["agreement:"]
    table = orce.confidence(None, rows, ["percent.py", "agreement"])
    assert [hint for hint in table.hints if "unread" in hint] == ([f"percent: {says}"] if says else [])
    assert not says or str(table).endswith(f"percent: {says}")
    for values in (json.loads(Path("m.json").read_text())["percent"], table.metrics()["percent"]):
        without_metrics_where_all_are_unread(values, says)
        assert values["n_unparsed"]["confidence"] == len(lacking)


@DOORS
def test_the_stage_counts_the_unread_on_its_screen_and_in_its_files(lacking, says, folder, capfd):
    rows = [stated(f"q{i}", i % 2 == 0, None if i in lacking else i / 20) for i in range(20)]
    head = "id,split,n_correct,n_samples,kappa,answer,answer_correct\n"
    Path("surrogate.csv").write_text(head + "".join(f"q{i},test,{i % 3},2,{i % 3 / 2},ant,1\n" for i in range(20)))
    settings = {"dataset": "words", "model": "m", "method": "cot", "unparsed_confidence": 0.5, "bootstrap": 50, "seed": 1}  # fmt: skip
    cell = Path("cells/words/m/cot")
    stage(
        "evaluate", settings, confidences=write(str(cell / "confidences.jsonl"), rows), surrogate="surrogate.csv",
        out=cell / "metrics.json", extra=cell / "extra.json",
    )  # fmt: skip
    said = capfd.readouterr().err.splitlines()
    (row,) = (line.split() for line in said if line.startswith("  cot"))
    assert row[-1] == str(len(lacking)) and ("†" in row) == bool(says)
    assert row.count("-") == (4 if says == ALL_UNREAD else 0)
    assert any(line.startswith("  † more than a tenth of the confidences") for line in said) == bool(says)
    values, more = (json.loads((cell / name).read_text()) for name in ("metrics.json", "extra.json"))
    without_metrics_where_all_are_unread(values, says)
    assert (more["nll"] is None) == (says == ALL_UNREAD)
    for found in (values, more):
        of_confidence = found["intervals"].keys() - {"accuracy", "f1"}
        assert len(of_confidence) >= 3
        reasons = {found["reasons"].get(name) for name in of_confidence}
        assert (reasons == {"no confidence could be read"}) == (says == ALL_UNREAD)
        assert says != ALL_UNREAD or all(found["intervals"][name] is None for name in of_confidence)
    assert values["intervals"]["accuracy"]
