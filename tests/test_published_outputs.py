"""The tables of docs/evidence/published.md: the program that makes them, on three real rows, and ECE's two ways of binning."""

import json

import numpy as np
import pytest
from conftest import ROOT
from evidence import published

from orce import metrics
from orce.artefacts import files

RLCR = ROOT / "tests" / "data" / "imports" / "rlcr-commonsenseqa.arrow"


def test_each_method_is_measured_by_the_released_and_by_the_read_labels(capsys):
    assert published.main(["rlcr", str(RLCR)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "rlcr-commonsenseqa.arrow: sha256 " in lines[0] and len(lines) == 1 + 5 * 3
    cells = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines[1:]]
    c, released, read = np.array([0.6, 0.7, 0.7]), np.array([1, 1, 0]), np.array([1, 0, 0])
    for labels, correct, row in (("released", released, cells[12]), ("read", read, cells[13])):
        assert row[:2] == ["RLCR", labels] and float(row[2]) == pytest.approx(correct.mean(), abs=1e-4)
        assert float(row[4]) == pytest.approx(np.mean((c - correct) ** 2), abs=1e-4)
    assert cells[14][2] == "1 right to wrong, 0 wrong to right, 0 unread"


def left_closed(confidence, correct) -> float:
    """ECE with ten bins [k/10, (k+1)/10), the last one closed, by whole percents."""
    bins = np.minimum(np.rint(100 * confidence).astype(int) // 10, 9)
    return sum(abs((confidence - correct)[bins == k].sum()) for k in range(10)) / len(bins)


def test_ece_of_the_mirror_image_has_bins_that_are_closed_on_the_left():
    # The case of docs/metrics.md: 0.3455 with bins closed on the right.
    confidence = np.array([0, 0.1, 0.2, 0.3, 0.55, 0.6, 0.7, 0.9, 0.95, 1, 1])
    correct = np.array([0, 0, 1, 0, 1, 1, 0, 1, 0, 1, 1])
    mirrored = metrics.expected_calibration_error(1 - confidence, 1 - correct)
    assert mirrored == pytest.approx(left_closed(confidence, correct)) and mirrored == pytest.approx(3.6 / 11)
    assert metrics.expected_calibration_error(confidence, correct) == pytest.approx(0.3455, abs=1e-4)


def test_the_reading_of_a_set_counts_agreement(tmp_path, capsys):
    lines = [{"answer": "3 + 4 = <<3+4=7>>7\n#### 7"}, {"answer": "He has 5.\n#### 6"}]
    files.write_jsonl(tmp_path / "test.jsonl", lines)
    assert published.main(["gsm8k", str(tmp_path / "test.jsonl")]) == 0
    said = capsys.readouterr().out
    assert (
        "| solutions | 2 | 2 | 2 | 2 | 1.0000 |" in said
        and "| solutions without their mark | 2 | 2 | 1 | 1 | 0.5000 |" in said
    )


def test_the_sets_of_three_repositories_are_read_as_they_are_released(tmp_path, capsys):
    both = {"vanilla": {"generation": ["\\boxed{9}"], "score": 0}, "cot": {"generation": None, "score": 0}}
    lines = [{"target": 7, **both}, {"answerKey": "A", "question": {"choices": [{"text": "9"}, {"text": "8"}]}, **both}]
    files.write_jsonl(tmp_path / "gsm.jsonl", lines)
    asked = [
        ("2 + 2?", "4.0", "Answer: 4"),
        ("Which? (A) Rome (B) Oslo", "B", "(B)"),
        ("Can it fly?", "no", "It cannot."),
    ]
    plans = [{"question": q, "answer": gold, "chain-of-thought": text, "ans": True} for q, gold, text in asked]
    (tmp_path / "plans.json").write_text(json.dumps(plans))
    for name, kind in published.FAITHFUL.items():
        gold = {"numbers": "#### 1,200", "options": "B", "yes or no": True}[kind]
        for folder in (tmp_path / "data" / name, tmp_path / "output_dir" / name / "test" / "gpt4_COT"):
            folder.mkdir(parents=True)
        options = {"options": ["A)Rome", "B)Oslo"]} if kind == "options" else {}
        files.write_jsonl(tmp_path / "data" / name / "test.jsonl", [{"id": 0, "answer": gold} | options])
        reply = {"numbers": "The answer is $1 200.", "options": "(A) Rome", "yes or no": "Yes, it is."}[kind]
        theirs = {"numbers": "1 200", "options": "A", "yes or no": "[invalid]"}[kind]
        answered = [{"id": 0, "completion": reply, "answer": theirs}]
        files.write_jsonl(tmp_path / "output_dir" / name / "test" / "gpt4_COT" / "predictions.jsonl", answered)
    for name, path in (("reread", "gsm.jsonl"), ("plan-and-solve", "plans.json"), ("faithful", "")):
        assert published.main([name, str(tmp_path / path)]) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert said == [
        "| numbers | 1 | 0 | 0 | 0 | 1.0000 |", "| options | 1 | 0 | 1 | 0 | 0.0000 |",
        "| numbers | 1 | 1 | 1 | 1 | 1.0000 |", "| options | 1 | 1 | 1 | 1 | 1.0000 |", "| yes or no | 1 | 1 | 0 | 0 | 0.0000 |",
        "| numbers | 3 | 3 | 3 | 3 | 1.0000 |", "| options | 1 | 0 | 0 | 0 | 1.0000 |", "| yes or no | 2 | 0 | 2 | 0 | 0.0000 |",
    ]  # fmt: skip


def test_a_file_that_is_not_the_sets_is_one_line(tmp_path, capsys):
    (tmp_path / "x.arrow").write_text("no")
    for name in ("rlcr", "gsm8k"):
        assert published.main([name, str(tmp_path / "x.arrow")]) == 2
        assert f"x.arrow: not as {name} has it (" in capsys.readouterr().err
