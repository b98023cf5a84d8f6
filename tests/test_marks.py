"""Answers and confidences in the forms that benchmarks ask for and models write, read by the table of marks."""

import json
import re

import pytest
from conftest import ARITHMETIC, WORLDFACTS, cases, prompts_words
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from stages_by_hand import stage

import orce
from orce import methods, tasks
from orce.__main__ import main
from orce.artefacts import files, records
from orce.judge.judge import AsGiven
from orce.llm.chat import statement
from orce.llm.engines import Text
from orce.settings.stage import Model, Source
from orce.stages import answer_prompt, near_miss_report, sample
from orce.tasks import choice
from orce.text import either, extract, marks

QA, CHOICE = tasks.get("qa"), tasks.get("choice")
CAPITALS = {"question": "What is the capital of France?", "choices": ["Rome", "Paris", "Oslo", "Cairo"]}


def example(equality, *references):
    return {"question": "?", "context": None, "choices": None, "reference": [*references], "equality": equality}


def right(text, equality, *references):
    asked = example(equality, *references)
    return QA.score(QA.extract(text, asked), asked)["correct"]


ROWS = {"bared": marks.BARED} | extract.RULES


def named(row):
    return getattr(row, "name", row)


MARKED = [*marks.ENCLOSING, *marks.OPENING, marks.SHORT]


@pytest.mark.parametrize("row", [*MARKED, *ROWS["after"], *ROWS["form"], *choice.PROSE], ids=named)
def test_each_mark_and_each_form_of_a_conclusion_reads_its_example(row):
    in_prose = row in choice.PROSE
    answer = CHOICE.extract(row.example, CAPITALS) if in_prose else extract.number(row.example, conclusion=True)
    rule = f"{row.name}: " if row in MARKED else f"unmarked: {row.name}"
    assert answer == row.result and answer.by.startswith(rule)


@pytest.mark.parametrize("row", marks.STATED, ids=named)
def test_each_form_of_stating_a_confidence_is_taken_from_its_example(row):
    assert marks.without_confidence(row.example) == row.result
    others = [other for other in marks.STATED if other != row]
    assert not re.search(either(others), row.example, re.IGNORECASE | re.VERBOSE)


def alone(kind, row):
    """What rows of a kind do with an example, and what it is to be: one number or a plain text is made of it, or it stays unread."""
    if kind == "bared":
        return marks.plain(row.example), row.result
    if kind == "none":
        return extract.number(row.example), None
    if kind in ("bound", "beside", "scaled", "rated"):
        return extract.confidence(row.example), None
    return extract.digits(row.example).replace(extract.SPELLED, ""), row.result  # without the sign before words


KINDS = ("bared", "none", "bound", "beside", "scaled", "rated", "rewriting", "continued", "spoilt", "undecided")


@pytest.mark.parametrize(("kind", "row"), [(kind, row) for kind in KINDS for row in ROWS[kind]], ids=named)
def test_each_row_of_signs_and_numbers_reads_its_example_and_no_other_row_does(kind, row, monkeypatch):
    read, expected = alone(kind, row)
    assert read == expected
    others = [other for other in ROWS[kind] if other.pattern != row.pattern]
    monkeypatch.setattr(marks, "BARED", others if kind == "bared" else marks.BARED)
    monkeypatch.setitem(extract.RULES, kind, others)
    extract.any_of.cache_clear()
    try:
        read, expected = alone(kind, row)
        assert read != expected
    finally:
        extract.any_of.cache_clear()


def test_replies_that_nobody_here_wrote_are_read_whole_or_not_at_all(folder):
    """As after public reports, and further ones of their kinds: the answer that is read, or true for one that is right."""
    table = cases("replies")
    for has_choices, reference in ((True, "A"), (False, "1")):
        rows = [row for row in table if ("choices" in row) == has_choices]
        given = [{"question": "?", "references": reference, "confidence": 0.5} | row for row in rows]
        read = orce.confidence(None, given)
        for row, scored in zip(rows, read, strict=True):
            assert (scored["correct"] if row["expected"] is True else scored["answer"]) == row["expected"], row


CHOICES = {
    "choice": ["red car", "blue sky", "green leaf", "black cat"],
    "ten": [f"{number} joules" for number in (11, 22, 33, 44, 55, 66, 77, 88, 99, 110)],
}


@pytest.mark.parametrize("case", cases("silent"), ids=lambda case: f"{case['kind']}-{case['text'][:40]}")
def test_a_text_that_can_be_read_in_two_ways_is_unread_and_not_one_of_them(case):
    """Three in four of them were read as something else without a word. expected: null where it is unread; for normalised
    answers, whether it is the reference."""
    text = case["text"]
    if case["door"] == "confidence":
        read = extract.confidence(text)
    elif case["door"] == "cot":
        read = [*methods.known()["cot"].read(text, example("normalised", "x"), QA, {})]
    elif case["door"] == "normalised":
        read = right(text, "normalised", case["reference"])
    elif case["door"] == "numeric":
        read = QA.extract(text, example("numeric", "1"))
    else:
        read = CHOICE.extract(text, {"question": "?", "choices": CHOICES[case["door"]]})
    assert read == case["expected"]


@pytest.mark.parametrize("thought", marks.THOUGHTS, ids=lambda thought: thought.begins)
def test_thoughts_are_no_answer(thought):
    assert extract.number(thought.example) == "18"
    assert re.search(thought.begins, thought.example) and re.search(thought.ends, thought.example)


@pytest.mark.parametrize("case", cases("own_confidence"), ids=lambda case: case["answer"][-40:])
def test_what_an_answer_says_of_its_own_confidence_is_not_judged(case):
    assert AsGiven.display(case["answer"], {"choices": None}) == case["shown"]


@pytest.mark.parametrize(("solution", "answer"), cases("gsm8k"))
@pytest.mark.parametrize(
    "ending", ["{}", "A: {answer}", "\\boxed{{{answer}}}", "The answer is {answer}.", "<answer>{answer}</answer>"]
)
def test_a_worked_solution_is_read_by_its_result(solution, answer, ending):
    text = solution if ending == "{}" else solution.replace(f"#### {answer}", ending.format(answer=answer))
    assert right(text, "numeric", answer)
    assert right(text + "\nConfidence: 85%", "numeric", answer)
    assert right(text.split("\n####")[0], "numeric", answer), "its last line is the conclusion"


@pytest.mark.parametrize(("text", "gold", "same"), cases("mathematics"))
def test_mathematics_is_read_with_its_value(text, gold, same):
    pytest.importorskip("math_verify")
    assert right(text, "math-verify", gold) is same


def sampled(raw, answers, correct):
    return [records.Sample(id="1", split="rl", answers=answers, raw=raw, correct=correct)]


def test_a_text_that_was_cut_off_has_no_last_line_and_is_counted():
    asked, text, marked = example("numeric", "540"), Text("180 * 3 = 54"), Text("Answer: 540\nTo check, 180 * 3 = 54")
    assert QA.extract(text, asked) == "54"
    text.cut = marked.cut = True
    assert (QA.extract(text, asked), QA.extract(marked, asked)) == (None, "540")
    assert QA.extract(text, asked | {"answer_marks": ["Vastaus"]}) is None
    said = sample.truncation_report(sampled([text, Text("540")], [None, "540"], [False, True]), 48)
    assert re.match("1 of 2 texts ended at their budget of 48 tokens, 1 of them without an answer .*--max-to", said)
    assert json.dumps([text]) == '["180 * 3 = 54"]'


@pytest.fixture
def prompts(folder):
    """A function that freezes a data set of one's own by the step of the workflow, and gives its examples."""

    def frozen(rows, task="qa", **more):
        files.write_jsonl("test.jsonl", rows)
        source = {"path": "test.jsonl", "fields": {"question": "q", "answer": "a"}} | more
        asked = {"task": task, "source": source, "splits": {"test": {"from": "test"}}, "dataset": "mine"}
        assert main(prompts_words(asked | {"seed": 1, "tests": []}, "p.jsonl")) == 0
        return files.read_jsonl("p.jsonl")

    return frozen


def test_answers_that_contain_the_reference_are_right_and_do_not_agree_for_it(prompts):
    rows = [{"q": "What is the capital of Peru?", "a": ["Lima", "Lima, Peru"]}]
    (plain,), (contains,) = prompts(rows), prompts(rows, equality="contains")
    said = ["Lima is the capital of Peru.", "The capital is Lima.", "Lima"]
    assert [QA.score(QA.extract(text, plain), plain)["correct"] for text in said] == [False, False, True]
    assert [QA.score(QA.extract(text, contains), contains)["correct"] for text in said] == [True] * 3
    keys = [QA.key(QA.extract(text, contains), contains) for text in said]
    (other,) = prompts([rows[0] | {"a": "Quito"}], equality="contains")
    assert len({*keys}) == 3 and keys == [QA.key(QA.extract(text, other), other) for text in said]
    assert not QA.score("Limassol", contains)["correct"]


def test_wrong_answers_that_contain_an_accepted_one_are_counted():
    asked, answers = [example("normalised", "Paris")], ["The capital of France is Paris", "Rome", "Paris"]
    said = near_miss_report(sampled(answers, answers, [False, False, True]), asked, QA)
    assert said.startswith("1 of 2 wrong answers contain an accepted answer")
    assert near_miss_report(sampled(["Paris"], ["Paris"], [True]), asked, QA) is None


@pytest.mark.parametrize(("more", "reference", "text", "answer", "rule"), cases("own_marks"))
def test_a_pattern_or_marks_of_ones_own_read_an_answer(prompts, more, reference, text, answer, rule):
    (asked,) = prompts([{"q": "6 * 3?", "a": reference}], **more)
    found = tasks.get(more.get("task", "qa")).extract(text, asked)
    assert (found, getattr(found, "by", None)) == (answer, rule)


def test_a_record_names_the_rule_that_read_each_answer(prompts):
    """The mark, and the form of the number after it."""
    replies, rules = zip(*cases("read_by"), strict=True)
    prompts([{"id": "a", "q": "6 + 12?", "a": "18"}], equality="numeric")
    files.write_jsonl("given.jsonl", [{"id": "test-0", "answers": replies, "greedy": replies[1]}])
    settings = {"task": "qa", "label": "Given", "source": {"path": "given.jsonl"}}
    outputs = {"out": "samples.jsonl", "manifest": "samples.manifest.json"}
    stage("import-answers", settings, prompts={"test": "p.jsonl"}, **outputs)
    (record,) = files.read_jsonl("samples.jsonl")
    assert (*record["read_by"], record["greedy"]["read_by"]) == (*rules, "box: first")


@pytest.mark.parametrize("task", [QA, CHOICE, tasks.get("drop")], ids=["qa", "choice", "drop"])
def test_a_reasoned_answer_is_the_marked_one(task):
    asked = example("numeric", "18") | (CAPITALS if task is CHOICE else {})
    model = Model(source=Source(), dtype="float32", device="cpu")
    sampled = {"samples": 1, "temperature": 1, "top_p": 1, "seed": 1, "label": "x", "engine": "none", "model": model}
    options = sample.SampleSettings(task="qa", shots=None, reasoning=True, max_tokens=None, **sampled)
    (turn,) = answer_prompt(task, asked, options)
    assert "step by step" in turn["content"] and f"Answer: <{task.ANSWER_KIND}>" in turn["content"]
    assert "Reply with only" not in turn["content"]
    right = "B" if task is CHOICE else "18"
    assert sample.read_answer(task, f"First 6 * 2 = 12, or A.\nAnswer: {right}", asked, options) == right
    assert sample.read_answer(task, f"6 * 3 = 18, so {right}", asked, options) is None, "not marked, so unread"
    assert sample.read_answer(task, right, asked, replace(options, reasoning=False)) == right
    assert sample.max_tokens(options) == sample.REASONING_TOKENS


DEMO = {"arithmetic": ARITHMETIC, "worldfacts": WORLDFACTS}


@pytest.mark.parametrize("row", cases("extraction"), ids=lambda row: f"{row['task']}-{row['text'][:24]!r}")
def test_every_labelled_output_is_read_as_a_person_reads_it(row):
    text, expected = row["text"], row["expected"]
    if row["read"] == "confidence":
        read = extract.confidence(text)
    elif row["read"] == "guesses":
        read = [list(guess) for guess in extract.guesses(text, row["k"])]
    elif row["read"] == "answer_and_confidence":
        read = list(extract.answer_and_confidence(text))
    else:
        read = tasks.get(DEMO.get(row["task"], row["task"])).extract(text, row)
    assert read == (pytest.approx(expected) if isinstance(expected, float) else expected)


def test_the_statement_we_train_on_and_other_forms_of_a_percentage_are_read_back():
    forms = ["{}", "{}%", "**{}**", "{}/100", "about {}%", "{} out of 100", "`{}`."]
    for percent in range(101):
        stated = [statement(percent), *(f"Confidence: {form.format(percent)}" for form in forms)]
        assert {extract.confidence(text) for text in stated} == {percent / 100}


@given(st.text(max_size=80))
@settings(deadline=None, max_examples=80)
def test_no_text_breaks_a_reader(text):
    value = extract.confidence(text)
    assert value is None or 0 <= value <= 1
    assert extract.number(text) is None or extract.to_number(extract.number(text)) == extract.number(text)
    _, value = extract.answer_and_confidence(text)
    assert value is None or 0 <= value <= 1
    assert len(extract.guesses(text, 4)) <= 4
    assert tasks.get("mmlu").extract(text, CAPITALS) in (None, "A", "B", "C", "D")
