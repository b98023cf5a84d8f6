"""Multiple choice from any data set: the configuration's `fields` say where question, options and answer stand.

fields: question; choices, a list of option texts, a mapping of label to text, a mapping of option to 0 or 1, or several
columns with an option each (unless the dataset gives `options`); answer; and optional id, context, labels (the published
names of the options). `answer_is` says what an answer means that could mean several options.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from orce.artefacts import tables
from orce.artefacts.tables import Row
from orce.errors import BadInput
from orce.records import Example
from orce.tasks.parts import fields, multiple_choice
from orce.tasks.parts.multiple_choice import (
    ANSWER_KIND,
    MAX_TOKENS,
    METRIC,
    NEEDS,
    display,
    key,
    prompt,
    question,
    score,
)
from orce.tasks.parts.source import unique_ids

__all__ = [
    "ANSWER_KIND", "MAX_TOKENS", "METRIC", "NEEDS", "display", "extract", "key", "load", "prompt", "question", "score",
]  # fmt: skip
FIELDS = {"question": True, "answer": True, "choices": False, "labels": False, "id": False, "context": False}
OPTIONS = ("options", "shuffle", "answer_is", "answer_pattern", "ask")
TRUTHS = {"yes": ("true", "yes"), "true": ("true", "yes"), "no": ("false", "no"), "false": ("false", "no")}


def load(source: Mapping[str, Any], split: str, seed: int = 0, first: int | None = None) -> list[Example]:
    """Examples of a split, or of its first rows. `source` has the dataset's fields, options, shuffle, answer_is and ask
    beside hub or path.

    The answer is one of: a label of `labels`; a list of 0 and 1 with a single 1, one for each option, or a mapping of
    option to 0 or 1; true or false, with options yes and no (or true and false); a number from 0 on; a letter; an option's
    text, or its column. Where `fields.answer` is itself one of the columns of options, that option is right. 0 and 1 need `answer_is` where the two options may be what they mean: all questions have the same
    ones, or yes and no. With `shuffle` the options are in an order drawn from the seed, for sets whose right option always
    comes first. Raises BadInput naming the row.
    """
    found = fields.rows(source, split, first)
    made = [_example(row, i, source, split, seed) for i, row in enumerate(found)]
    return unique_ids(made, [where for where, _ in found], fields.UNNUMBERED)


def _example(row: Row, place: int, source: Mapping[str, Any], split: str, seed: int) -> Example:
    made, names = fields.base(row, place, source, split), source["fields"]
    if _own_column(source) is not None:
        fields.text(row, "answer", names)
    choices, labels = _choices(row, source)
    if "labels" in names:
        labels = [str(one) for one in _list(row, "labels", names)]
    right = _right(row, tables.value(row, "answer", names["answer"]), choices, labels, source)
    order = fields.order(seed, made["id"], len(choices)) if source.get("shuffle") else range(len(choices))
    shown = [choices[i] for i in order]
    made |= fields.pattern(source)
    return made | {"choices": shown, "reference": multiple_choice.letters(shown)[list(order).index(right)]}


def extract(text: str, example: Example) -> str | None:
    """The option that a text chooses (orce.tasks.parts.multiple_choice), or the part of it that the dataset's own pattern finds."""
    return multiple_choice.extract(fields.matched(text, example), example)


def _choices(row: Row, source: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Option texts, and their labels where the row names them."""
    if "options" in source:
        return list(source["options"]), []
    name = source["fields"]["choices"]
    if isinstance(name, list):
        return _columns(row, name), []
    texts, labels = tables.decoded(tables.value(row, "choices", name)), []
    if isinstance(texts, dict) and all(isinstance(one, int | float) for one in _told(texts).values()):
        texts = list(_told(texts))
    elif isinstance(texts, dict):
        texts, labels = list(texts.values()), [str(label) for label in texts]
    choices = multiple_choice.options((row[0], {name: texts}), name)
    if len(choices) > 26:
        raise BadInput(f"{row[0]}: {name!r} has {len(choices)} options; at most 26 have letters")
    return choices, labels


def _told(scores: dict) -> dict:
    """A mapping of option to score without nulls: in Parquet each row has the options of all rows."""
    return {option: score for option, score in scores.items() if score is not None}


def _columns(row: Row, names: list[str]) -> list[str]:
    """Options that have a column each; a question may have fewer of them, with its last columns empty."""
    found = [tables.value(row, "choices", name) for name in names]
    while found and (found[-1] is None or not str(found[-1]).strip()):
        found.pop()
    texts = [str(one) if isinstance(one, int | float) and not isinstance(one, bool) else one for one in found]
    choices = multiple_choice.options((row[0], {", ".join(names): texts}), ", ".join(names))
    return [fields.present(row[0], name, text) for name, text in zip(names, choices, strict=False)]


def _list(row: Row, name: str, names: dict) -> list:
    found = tables.decoded(tables.value(row, name, names[name]))
    if not isinstance(found, list):
        raise BadInput(f"{row[0]}: {names[name]!r} is {found!r}; expected a list (fields.{name})")
    return found


def _own_column(source: Mapping[str, Any]) -> int | None:
    """Which of the columns of options is the answer's own: the right option stands in it in every row."""
    columns, answer = source["fields"].get("choices"), source["fields"]["answer"]
    return columns.index(answer) if isinstance(columns, list) and answer in columns else None


def _right(row: Row, answer, choices: list[str], labels: list[str], source: Mapping[str, Any]) -> int:
    """The number of the right option."""
    if (own := _own_column(source)) is not None:
        return own
    name, said = source["fields"]["answer"], answer if answer in choices else tables.decoded(answer)
    if isinstance(said, dict):
        said = _mask(f"{row[0]}: {name!r}", said, labels or choices)
    places = _places(said, choices, labels, source)
    if len(places) == 1 and (place := min(places)) < len(choices):
        return place
    raise BadInput(f"{row[0]}: {name!r} is {answer!r}{_expected(said, places, choices, labels, source)}")


def _mask(where: str, scores: dict, names: list[str]) -> list:
    """The scores of a mapping in the order of the options."""
    told = {str(option).strip(): score for option, score in _told(scores).items()}
    if told.keys() != {name.strip() for name in names}:
        raise BadInput(f"{where} is {scores}; expected 0 or 1 for each of the options {', '.join(names)}")
    if not all(one in (0, 1) for one in told.values()) or sum(told.values()) != 1:
        raise BadInput(f"{where} is {scores}; expected 1 for the one right option, and 0 for the others")
    return [told[name.strip()] for name in names]


def _places(said, choices: list[str], labels: list[str], source: Mapping[str, Any]) -> set[int]:
    """The options that an answer may mean, by number."""
    meant, columns = source.get("answer_is"), source["fields"].get("choices")
    if isinstance(meant, dict):
        said = {str(one).casefold(): text for one, text in meant.items()}.get(str(said).strip().casefold())
        read = [_by_text]
    elif meant is not None:
        read = [MEANINGS[meant]]
    else:  # all that it may be
        read = [lambda said, _: labels.index(str(said)) if str(said) in labels else None, _by_mask, _by_truth]
        read += [] if labels else [_by_text_or_letter]
        read += [lambda said, _: columns.index(said) if said in columns else None] if isinstance(columns, list) else []
    places = {place for one in read if (place := one(said, choices)) is not None}
    position = None if labels or meant is not None else _by_index(said, choices)
    unclear = position in (0, 1) and _truth_or_place(choices, source) and not places
    return places if position is None or unclear else places | {position}


def _truth_or_place(choices: list[str], source: Mapping[str, Any]) -> bool:
    """Whether 0 and 1 may be what the two options say, and not their positions."""
    return len(choices) == 2 and ("options" in source or {one.strip().casefold() for one in choices} <= TRUTHS.keys())


def _expected(said, places: set[int], choices: list[str], labels: list[str], source: Mapping[str, Any]) -> str:
    """What would be right in place of an answer that names no option, or several."""
    meant = source.get("answer_is")
    if isinstance(meant, dict):
        return f"; expected {' or '.join(map(str, meant))}, which answer_is explains by an option of the question"
    if len(places) > 1:
        return (
            "; it could mean several options; name their labels (fields.labels), or say what it is (answer_is: index, letter "
            "or text)"
        )
    if (
        str(said).strip().casefold() in ("0", "1", "true", "false")
        and _truth_or_place(choices, source)
        and not (labels or meant)
    ):
        words = [one.strip().casefold() for one in choices]
        told = {TRUTHS[word][0]: json.dumps(one) for word, one in zip(words, choices, strict=True) if word in TRUTHS}
        low, high = ("0", "1") if str(said).strip() in ("0", "1") else ("false", "true")
        example = f"{{{low}: {told.get('false', 'OPTION')}, {high}: {told.get('true', 'OPTION')}}}"
        place = f", or answer_is: index if 0 is the first, {choices[0]}" if low == "0" else ""
        return f", and the options are {', '.join(choices)}; say which of them it is: answer_is: {example}{place}"
    n = len(choices)
    hidden = "; the benchmark hides the labels of its test set" if str(said).strip() in ("", "-1", "None") else ""
    positions = "0 or 1 (an option's position)" if n == 2 else f"a number from 0 to {n - 1} (an option's position)"
    kinds = {
        None: f"{', '.join(labels) or f'{positions}, a letter or a text'} of its options",
        "index": positions,
        "index from 1": f"a number from 1 to {n} (an option's position)",
        "letter": "an option's letter",
        "text": "an option's text",
    }
    counted = "; if positions count from 1, say so (answer_is: index from 1)" if places == {n} else ""
    return f"; expected {kinds[meant]}{counted}{hidden}"


Reader = Callable[[Any, list[str]], int | None]


def _by_mask(said, choices: list[str]) -> int | None:
    mask = isinstance(said, list) and len(said) == len(choices) and all(one in (0, 1) for one in said)
    return said.index(1) if mask and sum(said) == 1 else None


def _by_truth(said, choices: list[str]) -> int | None:
    same = TRUTHS.get(str(said).strip().casefold(), ())
    found = [i for i, text in enumerate(choices) if text.strip().casefold() in same]
    return found[0] if len(found) == 1 else None


def _by_index(said, choices: list[str]) -> int | None:
    return int(said) if not isinstance(said, bool) and str(said).strip().isdecimal() else None


def _from_one(said, choices: list[str]) -> int | None:
    place = _by_index(said, choices)
    return place - 1 if place else None


def _by_text(said, choices: list[str]) -> int | None:
    same = [i for i, text in enumerate(choices) if isinstance(said, str) and text.strip() == said.strip()]
    return same[0] if same else None


def _by_letter(said, choices: list[str]) -> int | None:
    letter = said.strip().strip("().").upper() if isinstance(said, str) else ""
    return (
        multiple_choice.letters(choices).index(letter)
        if len(letter) == 1 and letter in multiple_choice.letters(choices)
        else None
    )


def _by_text_or_letter(said, choices: list[str]) -> int | None:
    place = _by_text(said, choices)
    return _by_letter(said, choices) if place is None else place


MEANINGS: dict[str, Reader] = {"index": _by_index, "index from 1": _from_one, "letter": _by_letter, "text": _by_text}
