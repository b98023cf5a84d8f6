"""Readings of model output: a table of labelled texts, a third of them written by a real small model."""

import json
import time
from collections import Counter
from pathlib import Path

import pytest
from conftest import ARITHMETIC, WORLDFACTS
from hypothesis import given, settings
from hypothesis import strategies as st

from orce import tasks
from orce.llm.chat import statement
from orce.text import extract

DEMO = {"arithmetic": ARITHMETIC, "worldfacts": WORLDFACTS}
TABLE = [json.loads(line) for line in (Path(__file__).parent / "data/extraction.jsonl").open(encoding="utf-8")]
CAPITALS = {"question": "What is the capital of France?", "choices": ["Rome", "Paris", "Oslo", "Cairo"]}


def read(row: dict):
    if row["read"] == "confidence":
        return extract.confidence(row["text"])
    if row["read"] == "guesses":
        return [list(guess) for guess in extract.guesses(row["text"], row["k"])]
    if row["read"] == "answer_and_confidence":
        return list(extract.answer_and_confidence(row["text"]))
    return tasks.get(DEMO.get(row["task"], row["task"])).extract(row["text"], row)


def family(row: dict) -> str:
    if row["read"] != "answer":
        return "confidence"
    return "choice" if row["task"] in ("mmlu", "logiqa", "reclor") else "free-form"


@pytest.mark.parametrize("row", TABLE, ids=[f"{i}-{row['task']}-{row['text'][:24]!r}" for i, row in enumerate(TABLE)])
def test_every_labelled_output_is_read_as_a_person_reads_it(row):
    expected = row["expected"]
    assert read(row) == (pytest.approx(expected) if isinstance(expected, float) else expected)


def test_the_table_covers_all_tasks_and_holds_real_outputs():
    # Those for any data set read as mmlu and drop do (test_any_data.py).
    assert {row["task"] for row in TABLE} >= {*tasks.NAMES, *DEMO} - {"choice", "qa"}
    assert len({(row["task"], row["read"], row["text"], str(row.get("choices"))) for row in TABLE}) == len(TABLE)
    every = Counter(map(family, TABLE))
    assert set(every) == {"choice", "free-form", "confidence"} and min(every.values()) >= 150, every
    real = Counter(family(row) for row in TABLE if row.get("source") == "SmolLM2-135M-Instruct")
    assert min(real[name] for name in every) >= 60, real


@pytest.mark.parametrize("percent", range(101))
def test_the_statement_we_train_on_is_read_back(percent):
    assert extract.confidence(statement(percent)) == percent / 100


@given(st.integers(0, 100), st.sampled_from(["{}", "{}%", "**{}**", "{}/100", "about {}%", "{} out of 100", "`{}`."]))
@settings(deadline=None, max_examples=60)
def test_forms_of_a_percentage_agree(percent, form):
    assert extract.confidence("Confidence: " + form.format(percent)) == percent / 100


@given(st.text(max_size=80))
@settings(deadline=None, max_examples=150)
def test_no_text_breaks_a_reader(text):
    value = extract.confidence(text)
    assert value is None or 0 <= value <= 1
    assert extract.number(text) is None or extract.to_number(extract.number(text)) == extract.number(text)
    _, value = extract.answer_and_confidence(text)
    assert value is None or 0 <= value <= 1
    assert len(extract.guesses(text, 4)) <= 4
    assert tasks.get("mmlu").extract(text, CAPITALS) in (None, "A", "B", "C", "D")


def test_long_outputs_are_read_in_no_time():
    """Ten times the signs in a row take ten times as long: steps that grow with their square would need minutes."""
    long = "A. Rome " * 5000 + "the answer is " * 2000 + "(" * 30_000 + "1 " * 5000 + "<think>" * 500
    started = time.process_time()
    for reader in (extract.confidence, extract.number, extract.answer_and_confidence):
        reader(long)
        reader("yes and " * 20000)
    tasks.get("mmlu").extract(long, CAPITALS)
    assert time.process_time() - started < 20  # about 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("G1: Paris\nP1: 70%\nG2: Rome\nP2: 20%", [("Paris", 0.7), ("Rome", 0.2)]),
        ("G1: Paris\nP1: 0.7\nG2: Rome\nP2: 0.2", [("Paris", 0.7), ("Rome", 0.2)]),
        ("G1: B, P1: 70, G2: A, P2: 20", [("B", 0.7), ("A", 0.2)]),
        ("**G1:** B\n**P1:** 70%", [("B", 0.7)]),
        ("G1: Paris (70%)\nG2: Rome (20%)", [("Paris", 0.7), ("Rome", 0.2)]),
        ("Guess 1: Paris\nProbability 1: 70%", [("Paris", 0.7)]),
        ("G2: Rome\nP2: 20%\nG1: Paris\nP1: 70%", [("Paris", 0.7), ("Rome", 0.2)]),
        ("G1: Paris\nG2: Rome", [("Paris", None), ("Rome", None)]),
        ("G1: Paris\nP1: 170%", [("Paris", None)]),
        ("G1: A\nP1: 70%\nG1: C\nP1: 30%", [("A", 0.7)]),
        ("G1: 25%\nP1: 60%", [("25%", 0.6)]),
        ("G1: 1\nP1: 2%\nG5: 9\nP5: 9%", [("1", 0.02)]),
        ("<think>G1: Rome P1: 9%</think>G1: Paris\nP1: 70%", [("Paris", 0.7)]),
        ("The answer is Paris.", []),
        ("", []),
    ],
)
def test_guesses_of_a_top_k_reply(text, expected):
    assert extract.guesses(text, 4) == expected


def test_only_k_guesses_count():
    text = "".join(f"G{i}: answer {i}\nP{i}: {10 * i}%\n" for i in range(1, 7))
    assert [answer for answer, _ in extract.guesses(text, 3)] == ["answer 1", "answer 2", "answer 3"]


@pytest.mark.parametrize(
    ("text", "answer", "confidence"),
    [
        ("Explanation: It is on the Seine.\nAnswer: B\nConfidence: 85", "B", 0.85),
        ("Explanation: x\n**Answer:** B. Paris\n**Confidence:** 85%", "B. Paris", 0.85),
        ("Explanation: 12 + 5 = 17.\nAnswer: 17\nConfidence: 99", "17", 0.99),
        ("Answer: 25%", "25%", None),
        ("Answer: 25%\nConfidence: 60%", "25%", 0.6),
        ("Answer: A\nHm, no.\nAnswer: B\nConfidence: 85", "B", 0.85),
        ("Confidence: 85\nAnswer: B", "B", 0.85),
        ("B\nConfidence: 85", "B", 0.85),
        ("Answer: B, Confidence: 85%", "B", 0.85),
        ("Answer and Confidence (0-100): B, 85%", "B", 0.85),
        ("Explanation: I am lost\nConfidence: high", None, None),
        ("D. Urethra", "D. Urethra", None),
        ("Explanation: one thing.\nThen another, and here the budget", None, None),
        ("<think>Answer: A Confidence: 3</think>Answer: B\nConfidence: 85", "B", 0.85),
        ("", None, None),
    ],
)
def test_answer_and_confidence_of_a_chain_of_thought(text, answer, confidence):
    assert extract.answer_and_confidence(text) == (answer, confidence)
