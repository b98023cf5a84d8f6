"""The options of a question, and which of them an answer means: people write a position, a letter, a
label, a text, or 0 and 1.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from orce.artefacts import tables
from orce.artefacts.tables import written
from orce.errors import BadInput
from orce.tasks.values import is_blank, refuse_missing

TRUTHS = {
    "yes": ("true", "yes"),
    "true": ("true", "yes"),
    "no": ("false", "no"),
    "false": ("false", "no"),
}


def read_options(where: str, name: str | list[str], cell: Any) -> tuple[list[str], list]:
    """Option texts, at least two, without letters or numbers of their own, and their labels where
    the cell has other ones than letters. Empty texts pass: published sets have some.
    """
    labels = []
    cell = tables.decoded(cell)
    given = cell
    # a column each; a question may have fewer options, with its last columns empty
    if isinstance(name, list):
        while cell and is_blank(cell[-1]):
            cell.pop()
        for column, option in zip(name, cell, strict=False):
            refuse_missing(where, column, str(option))
        name = ", ".join(name)
    if isinstance(cell, dict):
        scores = _without_nulls(cell)
        # {option: 0 or 1} holds the options in its keys, {label: option} in its values
        if all(isinstance(score, int | float) and 0 <= score <= 1 for score in scores.values()):
            cell = [*scores]
        else:
            labels = [*cell]
            cell = [*cell.values()]
    texts = [written(option) for option in cell] if isinstance(cell, list) else []
    if len(texts) < 2 or None in texts:
        expected = "expected a list of at least two option texts"
        if isinstance(given, dict):
            expected += f" (texts in a part of it are named with a dot: {name}.NAME)"
        raise BadInput(f"{where}: {name!r} is {given!r}; {expected}")
    if len(texts) > 26:
        raise BadInput(f"{where}: {name!r} has {len(texts)} options; at most 26 have letters")
    shown = [str(option).strip() for option in texts]
    bare = [_without_label(i, text) for i, text in enumerate(shown)]
    if not all(len(text) < len(whole) for text, whole in zip(bare, shown, strict=True)):
        return [str(option) for option in texts], labels
    # every option begins with its own letter or number: answers then name them so too
    numbered = shown[0].lstrip("(").startswith("1")
    numbers = [str(number) for number in range(1, len(bare) + 1)] if numbered else []
    return bare, labels or numbers


def _without_label(i: int, text: str) -> str:
    """The text of option i without the letter or number that it may begin with: "B)21.5", "2.
    Paris".
    """
    return re.sub(rf"(?i)^\(?(?:{chr(ord('A') + i)}[).:]\s*|{i + 1}[).:]\s+)(?=\S)", "", text)


def letters(choices: list) -> str:
    return "".join(chr(ord("A") + i) for i in range(len(choices)))


def _without_nulls(scores: dict) -> dict:
    """A mapping of option to score without nulls: in Parquet each row has the options of all rows."""
    return {option: score for option, score in scores.items() if score is not None}


def letter_of_answer(
    where: str, name: str, answer: Any, choices: list[str], labels: list, source: Mapping[str, Any]
) -> str:
    """The letter of the option that an answer means: by its text, letter, label or position, by 0
    and 1 for each of the options, or as `answer_is` says. Raises BadInput for an answer that means
    none or several.
    """
    value = answer if answer in choices else tables.decoded(answer)
    labels = [*map(str, labels)]
    if isinstance(value, dict):  # of option to 0 or 1
        value = _as_mask(where, name, value, labels or choices)
    is_mask = isinstance(value, list) and len(value) == len(choices)
    is_mask = is_mask and all(flag in (0, 1) for flag in value)
    if is_mask and sum(value) == 1:
        return letters(choices)[value.index(1)]
    meant: set[int] = set()
    for item in value if isinstance(value, list) and not is_mask else [value]:
        meant |= _options_meant(item, choices, labels, source)
    if len(meant) == 1 and min(meant) < len(choices):
        return letters(choices)[min(meant)]
    expected = _what_was_expected(value, meant, choices, labels, source)
    raise BadInput(f"{where}: {name!r} is {answer!r}{expected}")


def _as_mask(where: str, name: str, value: dict, options: list[str]) -> list:
    """{option: 0 or 1} as the numbers alone, in the order of the options."""
    scores = {str(option).strip(): score for option, score in _without_nulls(value).items()}
    named = [option.strip() for option in options]
    if scores.keys() != {*named}:
        expected = f"expected 0 or 1 for each of the options {', '.join(named)}"
        raise BadInput(f"{where}: {name!r} is {value}; {expected}")
    if [score for score in scores.values() if score != 0] != [1]:
        expected = "expected 1 for the one right option, and 0 for the others"
        raise BadInput(f"{where}: {name!r} is {value}; {expected}")
    return [scores[option] for option in named]


def _options_meant(
    value: Any, choices: list[str], labels: list[str], source: Mapping[str, Any]
) -> set[int]:
    """The options that an answer may mean, by number."""
    meant = source.get("answer_is")
    stated = (written(value) or "").strip()
    index = [int(stated)] if stated.isdecimal() else []
    if isinstance(meant, dict):  # what each value means
        means = {str(label).casefold(): text for label, text in meant.items()}
        stated = means.get(stated.casefold(), "").strip()
    by_text = []
    if stated:
        for i, choice in enumerate(choices):
            if choice.strip() in (stated, _without_label(i, stated)):
                by_text.append(i)
    sign = stated.strip("()[]{}.:").upper()
    by_letter = [i for i, letter in enumerate(letters(choices)) if letter == sign]
    if meant is not None:  # the configuration says how an answer is written
        from_one = [i - 1 for i in index if i]
        kinds = {"letter": by_letter, "index": index, "index from 1": from_one}
        return {*kinds.get(str(meant), by_text[:1])}
    words = TRUTHS.get(stated.casefold(), ())
    by_truth = [i for i, choice in enumerate(choices) if choice.strip().casefold() in words]
    by_label = [i for i, label in enumerate(labels) if label == stated][:1]
    indices = {*((by_label if labels else by_text + by_letter) or by_text or by_letter)}
    if len(by_truth) == 1:
        indices.add(by_truth[0])
    columns = source.get("fields", {}).get("choices")
    if isinstance(columns, list) and value in columns:
        indices.add(columns.index(value))
    if labels:
        return indices
    if index in ([0], [1]) and _may_be_truth_or_index(choices, source) and not indices:
        return indices  # 0 may say no, or be the first option: nothing is guessed
    # a position counts beside other readings only where it is one of an option
    return indices | {i for i in index if i < len(choices) or not indices}


def _may_be_truth_or_index(choices: list[str], source: Mapping[str, Any]) -> bool:
    """Whether 0 and 1 may be what the two options say, and not their positions."""
    return len(choices) == 2 and (
        "options" in source or {text.strip().casefold() for text in choices} <= TRUTHS.keys()
    )


def _what_was_expected(
    value, indices: set[int], choices: list[str], labels: list[str], source: Mapping[str, Any]
) -> str:
    """What a valid answer would be, where an answer names no option or several."""
    meant = source.get("answer_is")
    bare = str(value).strip()
    n = len(choices)
    if isinstance(meant, dict):
        return f"; expected {' or '.join(map(str, meant))}, which answer_is explains by an option of the question"
    if len(indices) > 1:
        remedy = "name their labels (fields.labels), or say what it is (answer_is: index, letter or text)"
        return f"; it could mean several options; {remedy}"
    doubtful = bare.casefold() in ("0", "1", "true", "false") and _may_be_truth_or_index(
        choices, source
    )
    if doubtful and not (labels or meant):
        named = {
            TRUTHS[word][0]: json.dumps(text)
            for text in choices
            if (word := text.strip().casefold()) in TRUTHS
        }
        low, high = ("0", "1") if bare in ("0", "1") else ("false", "true")
        example = (
            f"{{{low}: {named.get('false', 'OPTION')}, {high}: {named.get('true', 'OPTION')}}}"
        )
        or_index = f", or answer_is: index if 0 is the first, {choices[0]}" if low == "0" else ""
        return f", and the options are {', '.join(choices)}; say which of them it is: answer_is: {example}{or_index}"
    positions = (
        "0 or 1 (an option's position)"
        if n == 2
        else f"a number from 0 to {n - 1} (an option's position)"
    )
    kinds = {
        None: f"{', '.join(labels) or f'{positions}, a letter or a text'} of its options",
        "index": positions,
        "index from 1": f"a number from 1 to {n} (an option's position)",
        "letter": "an option's letter",
        "text": "an option's text",
    }
    counted = (
        "; if positions count from 1, say so (answer_is: index from 1)" if indices == {n} else ""
    )
    hidden = (
        "; the benchmark hides the labels of its test set" if bare in ("", "-1", "None") else ""
    )
    return f"; expected {kinds[meant]}{counted}{hidden}"
