"""Answers and confidences in the forms that benchmarks ask for and models write, read by the table of marks."""

import json
import re
from collections import Counter

import pytest
from conftest import ARITHMETIC, WORLDFACTS, cases, prompts_words
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from stages_by_hand import stage
from test_linear import DOORS, SIZE, keeps, repeated

import orce
from orce import methods, tasks
from orce.__main__ import main
from orce.artefacts import files, records
from orce.judge.judge import AsGiven
from orce.llm.chat import statement
from orce.llm.engines import Text
from orce.settings.stage import Model, Source
from orce.tasks import choice
from orce.text import either, extract, marks

NO_MODEL = Model(source=Source(), dtype="float32", device="cpu")


QA, CHOICE = tasks.get("qa"), tasks.get("choice")
CAPITALS = {"question": "What is the capital of France?", "choices": ["Rome", "Paris", "Oslo", "Cairo"]}


def example(equality, *references):
    return {"question": "?", "context": None, "choices": None, "reference": [*references], "equality": equality}


def right(text, equality, *references):
    asked = example(equality, *references)
    return QA.score(QA.extract(text, asked), asked)["correct"]


@pytest.mark.parametrize("mark", [*marks.ENCLOSING, *marks.OPENING, marks.SHORT], ids=lambda mark: mark.name)
def test_each_mark_reads_its_example(mark):
    answer = extract.number(mark.example, conclusion=True)
    assert answer == mark.result and answer.by.startswith(f"{mark.name}: ")


@pytest.mark.parametrize("row", marks.BARED, ids=lambda row: row.name)
def test_each_form_of_markup_is_taken_from_its_example(row, monkeypatch):
    assert marks.plain(row.example) == row.result
    monkeypatch.setattr(marks, "BARED", [other for other in marks.BARED if other != row])
    assert marks.plain(row.example) != row.result, "by this row and by no other"


@pytest.mark.parametrize("row", marks.STATED, ids=lambda row: row.name)
def test_each_form_of_stating_a_confidence_is_taken_from_its_example(row):
    assert marks.without_confidence(row.example) == row.result
    others = [other for other in marks.STATED if other != row]
    assert not re.search(either(others), row.example, re.IGNORECASE | re.VERBOSE)


ROWS = extract.RULES


def without_signs(text: str) -> str:
    """Of a text in which numbers have one form: without the sign before one that was written in words."""
    return text.replace(extract.SPELLED, "")


# What the kinds of a row do with its example: make one number of it, or leave it unread.
ALONE = dict.fromkeys(
    ("rewriting", "continued", "spoilt", "undecided"),
    lambda row: (without_signs(extract.digits(row.example)), row.result),
)
ALONE |= {"none": lambda row: (extract.number(row.example), None)}
ALONE |= dict.fromkeys(("bound", "beside", "scaled", "rated"), lambda row: (extract.confidence(row.example), None))


@pytest.mark.parametrize(
    ("kind", "row"),
    [(kind, row) for kind in ALONE for row in ROWS[kind]],
    ids=lambda value: getattr(value, "name", value),
)
def test_each_row_of_numbers_reads_its_example_and_no_other_row_does(kind, row, monkeypatch):
    read, expected = ALONE[kind](row)
    assert read == expected
    others = [other for other in ROWS[kind] if other.pattern != row.pattern]
    monkeypatch.setitem(ROWS, kind, others)
    extract.any_of.cache_clear()
    try:
        read, expected = ALONE[kind](row)
        assert read != expected
    finally:
        extract.any_of.cache_clear()


CONCLUSIONS = [*ROWS["after"], *ROWS["form"], *choice.PROSE]


@pytest.mark.parametrize("row", CONCLUSIONS, ids=lambda row: row.name)
def test_each_form_of_a_conclusion_reads_its_example(row):
    if row in choice.PROSE:
        answer = CHOICE.extract(row.example, CAPITALS)
    else:
        answer = extract.number(row.example, conclusion=True)
    assert (answer, answer.by) == (row.result, f"unmarked: {row.name}")


def test_replies_that_nobody_here_wrote_are_read_whole_or_not_at_all(folder):
    """As after public reports, and further ones of their kinds: the answer that is read, or true for one that is right."""
    table = cases("replies")
    for has_choices, reference in ((True, "A"), (False, "1")):
        rows = [row for row in table if ("choices" in row) == has_choices]
        given = [{"question": "?", "references": reference, "confidence": 0.5} | row for row in rows]
        read = orce.confidence(None, given)
        for row, scored in zip(rows, read, strict=True):
            assert (scored["correct"] if row["expected"] is True else scored["answer"]) == row["expected"], row


FOUR = ["red car", "blue sky", "green leaf", "black cat"]
TEN = [f"{number} joules" for number in (11, 22, 33, 44, 55, 66, 77, 88, 99, 110)]


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
        read = CHOICE.extract(text, {"question": "?", "choices": {"choice": FOUR, "ten": TEN}[case["door"]]})
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


def test_numbers_agree_to_twelve_decimals_and_words_are_not_taken_for_calls():
    assert right("It is 0.6666666666666667.", "numeric", "0.6666666666666666")
    assert not right("It is 0.666667.", "numeric", "0.6666666666666666")
    assert not right("123456789012345678", "numeric", "123456789012345679")
    assert right("The answer(s): 18", "numeric", "18")
    assert CHOICE.extract("Answer: A and B", {"choices": ["Rome", "Paris", "A and B"]}) == "C"


def test_a_text_that_was_cut_off_has_no_last_line():
    text = Text("Kira bought 3 apples.\n180 * 3 = 54")
    assert QA.extract(text, example("numeric", "540")) == "54"
    text.cut = True
    assert QA.extract(text, example("numeric", "540")) is None
    marked = Text("Answer: 540\nTo check, 180 * 3 = 54")
    marked.cut = True
    assert QA.extract(marked, example("numeric", "540")) == "540"


@pytest.mark.parametrize(("text", "gold", "same"), cases("mathematics"))
def test_mathematics_is_read_with_its_value(text, gold, same):
    pytest.importorskip("math_verify")
    assert right(text, "math-verify", gold) is same


def sampled(raw, answers, correct):
    return records.Sample(id="1", split="rl", answers=answers, raw=raw, correct=correct)


def test_the_budget_says_how_many_texts_it_cut(tmp_path):
    from orce.stages import sample

    cut = Text("180 * 3 = 54")
    cut.cut = True
    line = sample.truncation_report([sampled([cut, Text("540")], [None, "540"], [False, True])], 48)
    assert line.startswith("1 of 2 texts ended at their budget of 48 tokens, 1 of them without an answer")
    assert json.dumps([cut]) == '["180 * 3 = 54"]'


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


def test_a_pattern_of_ones_own_and_answers_that_contain_the_reference(prompts):
    rows = [{"q": "What is the capital of Peru?", "a": ["Lima", "Lima, Peru"]}]
    (plain,), (contains,) = prompts(rows), prompts(rows, equality="contains")
    said = ["Lima is the capital of Peru.", "The capital is Lima.", "Lima"]
    assert [QA.score(QA.extract(text, plain), plain)["correct"] for text in said] == [False, False, True]
    assert [QA.score(QA.extract(text, contains), contains)["correct"] for text in said] == [True] * 3
    keys = [QA.key(QA.extract(text, contains), contains) for text in said]
    assert len({*keys}) == 3, "a reference that all of them contain does not make them agree"
    (other,) = prompts([rows[0] | {"a": "Quito"}], equality="contains")
    assert keys == [QA.key(QA.extract(text, other), other) for text in said], "nor does another one"
    assert not QA.score("Limassol", contains)["correct"]
    (asked,) = prompts([{"q": "6 * 3?", "a": "18"}], equality="numeric", answer_pattern=r"ANS\((.*?)\)")
    answer = QA.extract("First ANS(17), then ANS(18) of 20.", asked)
    assert (answer, answer.by) == ("18", "answer_pattern: unmarked: first")
    assert QA.extract("The answer is 18.", asked) is None, "what the pattern does not find is unread"
    (asked,) = prompts([{"q": "6 * 3?", "a": "18"}], equality="numeric", answer_marks=["Emaitza", "Vastaus"])
    answer = QA.extract("6 * 2 = 12\nemaitza 18, or 20", asked)
    assert (answer, answer.by) == ("18", "answer_marks: English: first")
    assert QA.extract("The answer is 18", asked).by == "English: first"
    options = {"options": ["Rome", "Paris"], "answer_is": "letter", "answer_pattern": r"=> ([A-D])"}
    (asked,) = prompts([{"q": "The capital of France?", "a": "B"}], task="choice", **options)
    assert CHOICE.extract("A is in Italy. => B", asked) == "B"
    from orce.stages import near_miss_report

    asked = example("normalised", "Paris")
    answers = ["The capital of France is Paris", "Rome", "Paris"]
    said = near_miss_report([sampled(answers, answers, [False, False, True])], [asked], QA)
    assert said.startswith("1 of 2 wrong answers contain an accepted answer")
    assert near_miss_report([sampled(["Paris"], ["Paris"], [True])], [asked], QA) is None


# A reply, and the rule that reads it: the mark, and the form of the number after it.
READ = cases("read_by")


def test_a_record_names_the_rule_that_read_each_answer(prompts):
    prompts([{"id": "a", "q": "6 + 12?", "a": "18"}], equality="numeric")
    given = {"id": "test-0", "answers": [text for text, _ in READ], "greedy": READ[1][0]}
    files.write_jsonl("given.jsonl", [given])
    settings = {"task": "qa", "label": "Given", "source": {"path": "given.jsonl"}}
    outputs = {"out": "samples.jsonl", "manifest": "samples.manifest.json"}
    stage("import-answers", settings, prompts={"test": "p.jsonl"}, **outputs)
    (record,) = files.read_jsonl("samples.jsonl")
    assert record["read_by"] == [rule for _, rule in READ]
    assert record["greedy"]["read_by"] == "box: first"


@pytest.mark.parametrize("task", [QA, CHOICE, tasks.get("drop")], ids=["qa", "choice", "drop"])
def test_a_reasoned_answer_is_the_marked_one(task):
    from orce.stages import answer_prompt, sample

    asked = example("numeric", "18") | CAPITALS if task is CHOICE else example("numeric", "18")
    sampled = {"samples": 1, "temperature": 1, "top_p": 1, "seed": 1, "label": "x", "engine": "none", "model": NO_MODEL}
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
TABLE = cases("extraction")


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
    return "choice" if row["task"] in ("mmlu", "logiqa", "reclor", "choice") else "free-form"


LINES = [f"line {i}-{row['task']}-{row['text'][:24]!r}" for i, row in enumerate(TABLE, 1)]  # of data/extraction.jsonl


@pytest.mark.parametrize("row", TABLE, ids=LINES)
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


FORMS = ["{}", "{}%", "**{}**", "{}/100", "about {}%", "{} out of 100", "`{}`."]


def test_the_statement_we_train_on_and_other_forms_of_a_percentage_are_read_back():
    for percent in range(101):
        stated = [statement(percent), *(f"Confidence: {form.format(percent)}" for form in FORMS)]
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


@pytest.mark.slow
@pytest.mark.parametrize("words", ["the ", "1 ", "one ", ". ", "\\boxed{", "1% ", "confidence "])
def test_repeated_words_are_read_in_linear_time(words):
    """Of single characters, and pairs of them: test_linear.py."""
    drop, asked = tasks.get("drop"), example("numeric", "18")
    readers = {"drop": lambda text: drop.extract(text, asked)}
    for door in ("numeric", "contains", "choice", "confidence", "cot", "topk"):
        readers[door] = DOORS[door]
    for read in readers.values():
        keeps(40, read, repeated(words, before="x", after="x"), SIZE)


def test_only_k_guesses_count():
    text = "".join(f"G{i}: answer {i}\nP{i}: {10 * i}%\n" for i in range(1, 7))
    assert [answer for answer, _ in extract.guesses(text, 3)] == ["answer 1", "answer 2", "answer 3"]
