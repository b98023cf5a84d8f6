"""What others send is read in time that grows with its length and not with its square: replies, cells, headers, log-probabilities.

The limits are CPU seconds that only a linear reading keeps: by one that begins again at each character, each text here took minutes
to days, or for ever.
"""

import contextlib
import csv
import itertools
import math
import signal
import time
from collections.abc import Callable

import pytest
from conftest import cases

import orce
from orce import methods, tasks
from orce.artefacts import tables
from orce.errors import BadInput
from orce.given.grading import grade_form
from orce.text import extract, marks

SIZE = 200_000  # characters of a text


@contextlib.contextmanager
def within(seconds: float):
    """Fail after so many seconds of this process's CPU time."""

    def late(*_):
        raise TimeoutError(f"more than {seconds} s of CPU time")

    former = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, former)


def keeps(read: Callable[[str], object], text: Callable[[int], str], size: int) -> None:
    """Fail where a text of a size takes more than 40 CPU seconds: a short one first, and longer ones only if the square of its
    time would not keep the limit."""
    for share in (50, 10, 3, 1):
        started = time.process_time()
        with within(40):
            read(text(size // share))
        if (time.process_time() - started) * share**2 <= 40:
            return


def question(equality: str, reference: str = "x") -> dict:
    return {"equality": equality, "question": "q", "context": None, "choices": None, "reference": [reference]}


def graded(equality: str, text: str) -> None:
    task, asked = tasks.get("qa"), question(equality)
    task.score(task.extract(text, asked), asked)
    task.score(text, asked)
    task.score("x", question(equality, text))


def chosen(text: str) -> None:
    task = tasks.get("choice")
    task.extract(text, question("") | {"choices": ["red car", "blue sky", "green leaf", "black cat"]})
    task.extract("It is a car.", question("") | {"choices": [text, "blue sky"]})


def of_drop(text: str) -> None:
    task = tasks.get("drop")
    task.extract(text, question("numeric"))
    task.score(text, {"reference": [["x"]]})


def of_column(text: str) -> None:
    for kind in ("answers", "choices", "correct"):
        tables.record(("line 1", {kind: text}), None)


# Each reader of a text that others write: the reply to a prompt, an answer, a reference, an option, a cell.
DOORS = {
    "cot": lambda text: methods.known()["cot"].read(text, question("normalised"), tasks.get("qa"), {}),
    "topk": lambda text: methods.known()["topk"].read(text, question("normalised"), tasks.get("qa"), {"k": 4}),
    "linguistic": lambda text: methods.known()["linguistic"].read(text, {}),
    "confidence": extract.confidence,
    "contains": lambda text: graded("contains", text),
    "numeric": lambda text: graded("numeric", text),
    "choice": chosen,
    "drop": of_drop,
    "verdict": grade_form().verdict,
    "answer of another form": lambda text: marks.own_marks(text, ["Vastaus"]),
    "cell": of_column,
}
CLASSES = ["a", "A", "1", " ", "\n", "'", '"', "\\", "(", "]", ".", ",", ":", "-", "$", "*", "é", "中"]
WORDS = ["the ", "1 ", "one ", ". ", "\\boxed{", "1% ", "confidence "]


def repeated(*units: str, before: str = "", after: str = "") -> Callable[[int], str]:
    """A text of each unit again and again, as many characters of each as are asked for."""
    return lambda size: before + "".join(unit * (size // len(unit)) for unit in units) + after


@pytest.mark.slow
@pytest.mark.parametrize("door", DOORS)
def test_each_pair_of_classes_is_read_in_linear_time(door):
    for first, second in itertools.combinations_with_replacement(CLASSES, 2):
        keeps(DOORS[door], repeated(first + second), SIZE)
    for words in WORDS:
        keeps(DOORS[door], repeated(words, before="x", after="x"), SIZE)


# The pairs, and the beginnings before them, from which a search began again and again. Dense with numbers: linear, and yet seconds.
WORST = [
    pytest.param(*case, id=name, marks=[pytest.mark.slow] if name.startswith("results, ") else [])
    for name, *case in cases("worst_texts")
]


@pytest.mark.parametrize(("door", "units", "before", "after"), WORST)
def test_the_worst_texts_are_read_in_linear_time(door, units, before, after):
    keeps(DOORS[door], repeated(*units, before=before, after=after), SIZE)


def test_an_option_and_a_reply_that_almost_hold_each_other():
    def read(words: str) -> None:
        asked = question("") | {"choices": [f"{words}b", "no way", "never ever"]}
        assert tasks.get("choice").extract(f"{words}{words}", asked) is None

    keeps(read, repeated("a "), SIZE // 2)


@pytest.mark.parametrize("columns", [16_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_a_header_of_many_columns(tmp_path, columns):
    with (tmp_path / "wide.csv").open("w", newline="") as handle:
        csv.writer(handle).writerows([[f"column {i}" for i in range(columns)], ["1"] * columns])
    with within(20):
        ((_, row),) = tables.read(tmp_path / "wide.csv")
    assert len(row) == columns


def reply(text: str, tokens: list[str]) -> dict:
    logprobs = {"content": [{"token": token, "logprob": -0.1} for token in tokens]}
    return {"choices": [{"index": 0, "message": {"content": text}, "logprobs": logprobs}]}


# A reply, whose answer is found in its tokens in the last two alone.
REPLIES = {
    "one letter more than the tokens": lambda n: reply("a" * (2 * n + 1), ["aa"] * n),
    "within one token": lambda n: reply("b" * n, ["a" * n]),
    "an end that never comes": lambda n: reply("a" * n + "b", ["b", *["aa"] * n]),
    "between the tokens": lambda n: reply("ab" * n, ["ba"] * n),
    "of all tokens": lambda n: reply("ab" * n, ["ab"] * n),
    "of the last tokens": lambda n: reply("a" * n, ["<think>", *["a"] * n, "</think>", *["a"] * n]),
}


# The second number makes about 16 MiB of JSON, the most that a server may send.
@pytest.mark.parametrize("n", [20_000, pytest.param(300_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", REPLIES)
def test_log_probabilities_of_a_large_reply(name, n):
    sent = REPLIES[name](n)
    with within(60):
        if name in ("of all tokens", "of the last tokens"):
            assert orce.of_response(sent, "likelihood") == pytest.approx(math.exp(-0.1))
        else:
            with pytest.raises(BadInput, match="no log-probabilities"):
                orce.of_response(sent, "likelihood")
