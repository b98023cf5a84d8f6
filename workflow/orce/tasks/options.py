"""The options of a question, and which of them is right: people write that as a position, a letter,
a label, a text, or 0 and 1.
"""

import json
import re
from typing import Any

from orce.artefacts import tables
from orce.artefacts.tables import written
from orce.errors import BadInput
from orce.tasks.sources import DataSource
from orce.tasks.values import as_list, is_blank, refuse_missing

# {an option or an answer: the words that mean the same}
TRUTHS = {
    "yes": ("true", "yes"),
    "true": ("true", "yes"),
    "no": ("false", "no"),
    "false": ("false", "no"),
}


def letters(choices: list) -> str:
    return "".join(chr(ord("A") + i) for i in range(len(choices)))


def with_letters(choices: list[str]) -> list[tuple[str, str]]:
    return [*zip(letters(choices), choices, strict=True)]


# Reading the options


def read_options(where: str, name: str | list[str], cell: Any) -> tuple[list[str], list]:
    """Option texts, at least two, without letters or numbers of their own; and their labels, if the
    cell has any but letters. Empty texts pass: published sets have some.
    """
    given = cell = tables.decoded(where, cell)
    labels = []
    if isinstance(name, list):  # a column each
        while cell and is_blank(cell[-1]):  # of a question with fewer options
            cell.pop()
        for column, option in zip(name, cell, strict=False):
            refuse_missing(where, column, str(option))
        name = ", ".join(name)
    if isinstance(cell, dict):
        scores = _without_nulls(cell)
        if all(isinstance(score, int | float) and 0 <= score <= 1 for score in scores.values()):
            cell = [*scores]  # {option: 0 or 1}
        else:
            labels = [*cell]  # {label: option}
            cell = [*cell.values()]
    texts = [written(option) for option in cell] if isinstance(cell, list) else []
    if len(texts) < 2 or None in texts:
        expected = "expected a list of at least two option texts"
        if isinstance(given, dict):
            expected += f" (texts in a part of it are named with a dot: {name}.NAME)"
        raise BadInput(f"{where}: {name!r} is {given!r}; {expected}")
    if len(texts) > 26:
        raise BadInput(f"{where}: {name!r} has {len(texts)} options; at most 26 have letters")
    stripped = [str(text).strip() for text in texts]
    bare = [_without_label(i, text) for i, text in enumerate(stripped)]
    if not all(len(text) < len(whole) for text, whole in zip(bare, stripped, strict=True)):
        return [str(text) for text in texts], labels
    # Every option begins with its own letter or number, and answers name it so too.
    is_numbered = stripped[0].lstrip("(").startswith("1")
    numbers = [str(number + 1) for number in range(len(bare))] if is_numbered else []
    return bare, labels or numbers


def _without_label(i: int, text: str) -> str:
    """The text of option i without the letter or number that it may begin with: "B)21.5", "2.
    Paris".
    """
    return re.sub(rf"(?i)^\(?(?:{chr(ord('A') + i)}[).:]\s*|{i + 1}[).:]\s+)(?=\S)", "", text)


def _without_nulls(scores: dict) -> dict:
    """{option: score} without nulls: in a Parquet file each row has the options of all rows."""
    return {option: score for option, score in scores.items() if score is not None}


# Reading which of them is right


def letter_of_answer(
    where: str, name: str, answer: Any, choices: list[str], labels: list, source: DataSource
) -> str:
    """The letter of the option that an answer means: by its text, letter, label or position, by 0
    and 1 for each of the options, or as `answer_is` says. Raises BadInput for an answer that means
    none or several.
    """
    labels = [*map(str, labels)]
    value = answer if answer in choices else tables.decoded(where, answer)
    if isinstance(value, dict):  # {option: 0 or 1}
        value = _as_mask(where, name, value, labels or choices)
    is_mask = isinstance(value, list) and len(value) == len(choices)
    is_mask = is_mask and all(flag in (0, 1) for flag in value)
    if is_mask and sum(value) == 1:
        return letters(choices)[value.index(1)]
    meant: set[int] = set()
    for item in [value] if is_mask else as_list(value):
        meant |= _options_meant(item, choices, labels, source)
    if len(meant) == 1 and min(meant) < len(choices):
        return letters(choices)[min(meant)]
    expected = _what_was_expected(value, meant, choices, labels, source)
    raise BadInput(f"{where}: {name!r} is {answer!r}{expected}")


def _as_mask(where: str, name: str, value: dict, options: list[str]) -> list:
    """{option: 0 or 1} as the numbers alone, in the order of the options."""
    scores = {str(option).strip(): score for option, score in _without_nulls(value).items()}
    named = [option.strip() for option in options]
    expected = ""
    if scores.keys() != {*named}:
        expected = f"expected 0 or 1 for each of the options {', '.join(named)}"
    elif [score for score in scores.values() if score != 0] != [1]:
        expected = "expected 1 for the one right option, and 0 for the others"
    if expected:
        raise BadInput(f"{where}: {name!r} is {value}; {expected}")
    return [scores[option] for option in named]


def _options_meant(
    value: Any, choices: list[str], labels: list[str], source: DataSource
) -> set[int]:
    """The options that an answer may mean, by number; a number may be too large."""
    answer_is = source.get("answer_is")
    stated = (written(value) or "").strip()
    index = {int(stated)} if stated.isdecimal() else set()
    if answer_is == "index":
        return index
    if answer_is == "index from 1":
        return {i - 1 for i in index if i}
    if isinstance(answer_is, dict):  # {value: option}
        meaning = {str(label).casefold(): text for label, text in answer_is.items()}
        stated = meaning.get(stated.casefold(), "").strip()
    by_text = []
    if stated:
        for i, choice in enumerate(choices):
            if choice.strip() in (stated, _without_label(i, stated)):
                by_text.append(i)
    sign = stated.strip("()[]{}.:").upper()
    by_letter = {i for i, letter in enumerate(letters(choices)) if letter == sign}
    if answer_is == "letter":
        return by_letter
    if answer_is is not None:
        return {*by_text[:1]}
    if stated in labels:
        found = {labels.index(stated)}
    elif labels:
        found = {*by_text} or by_letter
    else:
        found = {*by_text} | by_letter
    truths = TRUTHS.get(stated.casefold(), ())
    by_truth = [i for i, choice in enumerate(choices) if choice.strip().casefold() in truths]
    if len(by_truth) == 1:
        found.add(by_truth[0])
    columns = source.get("fields", {}).get("choices")
    if isinstance(columns, list) and value in columns:
        found.add(columns.index(value))
    if labels:
        return found
    if not found:
        # 0 may say no, or be the first option: nothing is guessed.
        doubtful = index in ({0}, {1}) and _may_be_truth_or_index(choices, source)
        return set() if doubtful else index
    # Beside other readings a position counts only where an option has it.
    return found | {i for i in index if i < len(choices)}


def _may_be_truth_or_index(choices: list[str], source: DataSource) -> bool:
    """Whether 0 and 1 may be what the two options say, and not their positions."""
    are_truths = {text.strip().casefold() for text in choices} <= TRUTHS.keys()
    return len(choices) == 2 and ("options" in source or are_truths)


def _what_was_expected(
    value, indices: set[int], choices: list[str], labels: list[str], source: DataSource
) -> str:
    """What a valid answer would be, where an answer names no option or several."""
    answer_is = source.get("answer_is")
    if isinstance(answer_is, dict):
        known = " or ".join(map(str, answer_is))
        return f"; expected {known}, which answer_is explains by an option of the question"
    if len(indices) > 1:
        remedy = "name their labels (fields.labels), or say what it is (answer_is: index, letter or text)"
        return f"; it could mean several options; {remedy}"
    bare = str(value).strip()
    is_truth = bare.casefold() in ("0", "1", "true", "false")
    if is_truth and not (labels or answer_is) and _may_be_truth_or_index(choices, source):
        return _truth_or_index(bare, choices)
    n = len(choices)
    positions = "0 or 1" if n == 2 else f"a number from 0 to {n - 1}"
    positions += " (an option's position)"
    kinds = {
        None: f"{', '.join(labels) or f'{positions}, a letter or a text'} of its options",
        "index": positions,
        "index from 1": f"a number from 1 to {n} (an option's position)",
        "letter": "an option's letter",
        "text": "an option's text",
    }
    expected = f"; expected {kinds[answer_is]}"
    if indices == {n}:
        expected += "; if positions count from 1, say so (answer_is: index from 1)"
    if bare in ("", "-1", "None"):
        expected += "; the benchmark hides the labels of its test set"
    return expected


def _truth_or_index(stated: str, choices: list[str]) -> str:
    """How to say which of the two options 0 and 1, or false and true, mean."""
    named = {"false": "OPTION", "true": "OPTION"}
    for text in choices:
        words = TRUTHS.get(text.strip().casefold())
        if words:
            named[words[0]] = json.dumps(text)
    low, high = ("0", "1") if stated in ("0", "1") else ("false", "true")
    example = f"{{{low}: {named['false']}, {high}: {named['true']}}}"
    or_index = f", or answer_is: index if 0 is the first, {choices[0]}" if low == "0" else ""
    are = f"and the options are {', '.join(choices)}"
    return f", {are}; say which of them it is: answer_is: {example}{or_index}"
