"""Confidences that could not be read: every door says how many, and of a row without any there are no metrics of confidence."""

from pathlib import Path

import pytest

from orce.__main__ import main
from orce.artefacts import files
from orce.metrics import summarise, summarise_extra

UNREAD = [{"id": str(i), "answer": "Paris", "confidence": None, "correct": i % 2 == 0} for i in range(20)]
SOME = [line | {"confidence": 0.5 + 0.02 * i if i % 5 else None} for i, line in enumerate(UNREAD)]


def test_a_row_without_a_readable_confidence_has_its_accuracy_and_no_metric_of_the_default():
    summary = summarise([0.5] * 20, [1, 0] * 10, n_unparsed={"confidence": 20}, n_resamples=20)
    extra = summarise_extra([0.5] * 20, [1, 0] * 10, 20, unread=20)
    assert summary["accuracy"] == 0.5 and summary["intervals"]["accuracy"]
    for values in (summary, extra):
        of_confidence = [name for name in values["intervals"] if name not in ("accuracy", "f1")]
        assert len(of_confidence) >= 3
        for name in of_confidence:
            value = values[name]
            assert (value["rho"] if isinstance(value, dict) else value) is None, name
            assert values["reasons"][name] == "no confidence could be read" and values["intervals"][name] is None
    assert summarise([0.5] * 20, [1, 0] * 10, n_unparsed={"confidence": 19}, n_resamples=20)["ece"] == 0


@pytest.mark.parametrize(
    ("stated", "says"),
    [
        (UNREAD, "cot: 20 of 20 confidences unread: no metrics of confidence"),
        (SOME, "cot: 4 of 20 confidences unread, which count as the default †"),
    ],
)
def test_compare_says_how_many_were_unread(stated, says, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    read = [line | {"confidence": 0.1 + 0.04 * i} for i, line in enumerate(UNREAD)]
    for method, rows in (("vanilla", read), ("cot", stated)):
        Path("cell", method).mkdir(parents=True)
        files.write_jsonl(f"cell/{method}/confidences.jsonl", rows)
    assert main(["compare", "cell", "--methods", "vanilla", "cot", "--resamples", "50"]) == 0
    said = capfd.readouterr().err
    assert f"cell: {says}\n" in said and "cell: vanilla: " not in said
    assert ("undefined, as no confidence of one of them could be read" in said) == (stated is UNREAD)
