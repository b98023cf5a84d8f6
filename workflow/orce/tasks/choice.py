"""Multiple choice from any data set: the configuration's `fields` say where question, options and answer stand.

fields: question; choices, a list of option texts, a mapping of label to text, a mapping of option to 0 or 1, or several
columns with an option each (unless the dataset gives `options`); answer; and optional id, context, labels (the published
names of the options). `answer_is` says how to read an answer that could mean several options. Answers are letters, from 'A' to the
last option's.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from orce.artefacts import tables
from orce.artefacts.tables import Row
from orce.errors import BadInput
from orce.records import Example, Score
from orce.tasks import rows
from orce.tasks.examples import unique_ids
from orce.text.marks import lines, own_reply, plain, squeeze, statements

ANSWER_KIND = "option letter"
MAX_TOKENS = 16
METRIC = "accuracy"
FIELDS = {"question": True, "answer": True, "choices": False, "labels": False, "id": False, "context": False}
OPTIONS = ("options", "shuffle", "answer_is", "answer_pattern", "answer_marks", "ask")
_SURELY = r"(?:definitely|certainly|clearly|surely|probably|most likely|likely)"
TRUTHS = {"yes": ("true", "yes"), "true": ("true", "yes"), "no": ("false", "no"), "false": ("false", "no")}


def load(source: Mapping[str, Any], split: str, seed: int = 0, first: int | None = None) -> list[Example]:
    """Examples of a split, or of its first rows. `source` has fields, options, shuffle, answer_is and ask (docs/extending.md) beside
    hub or path. Raises BadInput naming the row."""
    records = rows.load(source, split, first)
    made = [example(row, i, source, split, seed) for i, row in enumerate(records)]
    return unique_ids(made, [where for where, _ in records], rows.UNNUMBERED)


def example(row: Row, position: int, source: Mapping[str, Any], split: str, seed: int) -> Example:
    """The example of a row, the `position`-th of its split."""
    made, names = rows.base(row, position, source, split), source["fields"]
    columns = names.get("choices")
    of_columns = isinstance(columns, list) and names["answer"] in columns  # one of them is right in every row
    if of_columns:
        rows.text(row, names["answer"], "answer")
    choices, labels = _choices(row, source)
    if "labels" in names:
        labels = tables.decoded(tables.value(row, "labels", names["labels"]))
        if not isinstance(labels, list):
            raise BadInput(f"{row[0]}: {names['labels']!r} is {labels!r}; expected a list (fields.labels)")
    right = columns.index(names["answer"]) if of_columns else _right(row, choices, [*map(str, labels)], source)
    order = [*range(len(choices))]
    if source.get("shuffle"):
        order.sort(key=lambda i: hashlib.sha256(f"{seed} {made['id']} {i}".encode()).digest())
    return made | {"choices": [choices[i] for i in order], "reference": letters(choices)[order.index(right)]}


def _choices(row: Row, source: Mapping[str, Any]) -> tuple[list[str], list]:
    """Option texts, at least two, and their labels where the row names them. Empty texts pass: published sets have some."""
    if "options" in source:
        return list(source["options"]), []
    name, labels = source["fields"]["choices"], []
    if isinstance(name, list):  # a column each; a question may have fewer options, with its last columns empty
        texts = [tables.value(row, "choices", column) for column in name]
        while texts and (texts[-1] is None or not str(texts[-1]).strip()):
            texts.pop()
        texts = [str(cell) if isinstance(cell, int | float) and not isinstance(cell, bool) else cell for cell in texts]
        for column, text in zip(name, texts, strict=False):
            rows.present(row[0], column, str(text))
        name = ", ".join(name)
    else:
        texts = tables.decoded(tables.value(row, "choices", name))
        if isinstance(texts, dict):
            scores = _without_nulls(texts)
            scored = all(isinstance(score, int | float) for score in scores.values())
            texts, labels = ([*scores], []) if scored else ([*texts.values()], [*texts])
    if not isinstance(texts, list | tuple) or len(texts) < 2 or not all(isinstance(text, str) for text in texts):
        raise BadInput(f"{row[0]}: {name!r} is {texts!r}; expected a list of at least two option texts")
    if len(texts) > 26:
        raise BadInput(f"{row[0]}: {name!r} has {len(texts)} options; at most 26 have letters")
    return list(texts), labels


def _without_nulls(scores: dict) -> dict:
    """A mapping of option to score without nulls: in Parquet each row has the options of all rows."""
    return {option: score for option, score in scores.items() if score is not None}


def _right(row: Row, choices: list[str], labels: list[str], source: Mapping[str, Any]) -> int:
    """The number of the right option."""
    name = source["fields"]["answer"]
    answer = tables.value(row, "answer", name)
    value = answer if answer in choices else tables.decoded(answer)
    if isinstance(value, dict):  # of option to 0 or 1
        scores = {str(option).strip(): score for option, score in _without_nulls(value).items()}
        given, options = f"{row[0]}: {name!r} is {value}", labels or choices
        if scores.keys() != {option.strip() for option in options}:
            raise BadInput(f"{given}; expected 0 or 1 for each of the options {', '.join(options)}")
        if not all(score in (0, 1) for score in scores.values()) or sum(scores.values()) != 1:
            raise BadInput(f"{given}; expected 1 for the one right option, and 0 for the others")
        value = [scores[option.strip()] for option in options]
    indices = _meant_options(value, choices, labels, source)
    if len(indices) == 1 and (index := min(indices)) < len(choices):
        return index
    raise BadInput(f"{row[0]}: {name!r} is {answer!r}{_expected(value, indices, choices, labels, source)}")


def _meant_options(value, choices: list[str], labels: list[str], source: Mapping[str, Any]) -> set[int]:
    """The options that an answer may mean, by number."""
    meant, columns, bare = source.get("answer_is"), source["fields"].get("choices"), str(value).strip()
    if isinstance(meant, dict):
        value = {str(label).casefold(): text for label, text in meant.items()}.get(bare.casefold())
    stated = value.strip() if isinstance(value, str) else None
    text = [i for i, choice in enumerate(choices) if choice.strip() == stated][:1]
    letter = [i for i, char in enumerate(letters(choices)) if stated and char == stated.strip("().").upper()]
    index = [int(bare)] if bare.isdecimal() else []
    if meant is not None:
        kinds = {"letter": letter, "index": index, "index from 1": [i - 1 for i in index if i]}
        return {*kinds.get(str(meant), text)}
    mask = isinstance(value, list) and len(value) == len(choices) and all(flag in (0, 1) for flag in value)
    truth = [i for i, choice in enumerate(choices) if choice.strip().casefold() in TRUTHS.get(bare.casefold(), ())]
    named = [i for i, label in enumerate(labels) if label == str(value)][:1] if labels else text or letter
    indices = {*named, *(truth if len(truth) == 1 else []), *([value.index(1)] if mask and sum(value) == 1 else [])}
    if isinstance(columns, list) and value in columns:
        indices.add(columns.index(value))
    unclear = index in ([0], [1]) and _truth_or_index(choices, source) and not indices
    return indices if labels or unclear else indices | {*index}


def _truth_or_index(choices: list[str], source: Mapping[str, Any]) -> bool:
    """Whether 0 and 1 may be what the two options say, and not their positions."""
    return len(choices) == 2 and ("options" in source or {text.strip().casefold() for text in choices} <= TRUTHS.keys())


def _expected(value, indices: set[int], choices: list[str], labels: list[str], source: Mapping[str, Any]) -> str:
    """What a valid answer would be, where an answer names no option or several."""
    meant, bare, n = source.get("answer_is"), str(value).strip(), len(choices)
    if isinstance(meant, dict):
        return f"; expected {' or '.join(map(str, meant))}, which answer_is explains by an option of the question"
    if len(indices) > 1:
        remedy = "name their labels (fields.labels), or say what it is (answer_is: index, letter or text)"
        return f"; it could mean several options; {remedy}"
    doubtful = bare.casefold() in ("0", "1", "true", "false") and _truth_or_index(choices, source)
    if doubtful and not (labels or meant):
        named = {TRUTHS[word][0]: json.dumps(text) for text in choices if (word := text.strip().casefold()) in TRUTHS}
        low, high = ("0", "1") if bare in ("0", "1") else ("false", "true")
        example = f"{{{low}: {named.get('false', 'OPTION')}, {high}: {named.get('true', 'OPTION')}}}"
        or_index = f", or answer_is: index if 0 is the first, {choices[0]}" if low == "0" else ""
        return f", and the options are {', '.join(choices)}; say which of them it is: answer_is: {example}{or_index}"
    positions = "0 or 1 (an option's position)" if n == 2 else f"a number from 0 to {n - 1} (an option's position)"
    kinds = {
        None: f"{', '.join(labels) or f'{positions}, a letter or a text'} of its options",
        "index": positions,
        "index from 1": f"a number from 1 to {n} (an option's position)",
        "letter": "an option's letter",
        "text": "an option's text",
    }
    counted = "; if positions count from 1, say so (answer_is: index from 1)" if indices == {n} else ""
    hidden = "; the benchmark hides the labels of its test set" if bare in ("", "-1", "None") else ""
    return f"; expected {kinds[meant]}{counted}{hidden}"


# Asking and scoring


def letters(choices: list) -> str:
    return "".join(chr(ord("A") + i) for i in range(len(choices)))


def question(example: Example) -> str:
    """The passage if there is one, the question, and one lettered option per line."""
    choices, context = example["choices"], [example["context"], ""] if example["context"] else []
    lettered = [f"{letter}. {choice}" for letter, choice in zip(letters(choices), choices, strict=True)]
    return "\n".join([*context, example["question"], *lettered])


def prompt(example: Example, shots: int | None = None) -> list[dict]:
    """Zero-shot: the benchmark's training questions are the method's training data, so none serve as examples."""
    return rows.zero_shot("choice", question(example), shots)


def extract(text: str, example: Example) -> str | None:
    """The option that a text chooses, or the part of the text that the dataset's own pattern finds."""
    return chosen(rows.matched(text, example), example)


def score(answer: str | None, example: Example) -> Score:
    return {"correct": answer == example["reference"], "f1": None}


def key(answer: str, example: Example) -> str:
    return answer


def display(answer: str | None, example: Example) -> str:
    """'B. Paris', or '(no answer)'."""
    if answer is None:
        return "(no answer)"
    return f"{answer}. {example['choices'][ord(answer) - ord('A')].strip()}"


# Reading the letter


@own_reply
def chosen(text: str, example: Example) -> str | None:
    """The letter of the option that a text chooses, or None if it chooses none or several.

    The last 'Answer: ...' that names an option counts; without one, the whole text. An option is named by its text, or
    by its letter where that is an answer (alone, in brackets, before '.', ')' or ':', after 'option') and not a word of
    a sentence. A copy of the list of options is not a choice.
    """
    # After a word, because '#' and '-' mark a heading or a bullet only at the start of a line.
    choices = [plain(f"A {choice}")[2:] for choice in example["choices"]]
    before_cjk = rf"(?<![A-Za-z])([{letters(choices)}])(?=[\u3040-\u9fff\uac00-\ud7af])"  # Bです
    for statement in statements(re.sub(before_cjk, r"\1 ", plain(text)), short=False):
        text_lines = lines(statement)
        if len(text_lines) == 1 and _several(text_lines[0], choices) and not _same_text(text_lines[0], choices):
            return None  # "A or B" and "none of these" choose none, whatever came before
        # Letters that are denied do not count: "not A but B".
        statement = re.sub(r"(?:\bnot|n't)\s+(?:option\s+)?[(\"']*[A-Z](?![\w'])[)\"']*", " ", statement)
        if letter := _read(_without_echo(statement, choices), choices):
            return letter
    return None


def _read(text: str, choices: list) -> str | None:
    text_lines, every = lines(text), letters(choices)
    if not text_lines:
        return None
    # Full texts come before letters: "C. difficile" can be an option, and "A only" begins with a letter.
    readers = (_same_text, _leading_text, _leading_letter, _named_letter)
    discussed = {line[1] for line in map(re.compile(rf"\(?([{every}])[).:]\s+\S").match, text_lines) if line}
    opening = [read(text_lines[0], choices) for read in readers] if len(discussed) < 2 else []
    # A letter alone on the last line, after the reasoning, or the one that a last line like 'Therefore, ...' names.
    alone = re.fullmatch(rf"\W*([{every}])\W*", text_lines[-1])
    concluding = r"(?:therefore|thus|hence|so|overall|based on|given|considering|in conclusion)\b"
    concluded = _named_letter if re.match(concluding, text_lines[-1], re.IGNORECASE) else _leading_text
    last = alone[1] if alone else concluded(text_lines[-1], choices)
    named = next((letter for letter in [*opening, last, _named_letter(text, choices)] if letter), None)
    return named if named or re.search(rf"\b[{every}][).:]\s", text) else _contained_text(text, choices)


def _same_text(line: str, choices: list) -> str | None:
    form = squeeze(line)
    if form.upper() in line and form.upper() in letters(choices):
        return None  # 'C' is the requested letter, even if some option's text is 'C'
    same = [i for i, choice in enumerate(choices) if choice.strip() == line]
    same = same or [i for i, choice in enumerate(choices) if form and squeeze(choice) == form]
    return _single(same or [i for i, choice in enumerate(choices) if _bare(form) and _bare(choice) == _bare(form)])


def _bare(text: str) -> str:
    """A text without spaces and a sign of 'about' before it: '~ 3.2' and '3.2', 'kq^2 R/d' and 'k q^2 R / d'."""
    return re.sub(r"\s", "", squeeze(text)).lstrip("~\u2248")


def _leading_text(line: str, choices: list) -> str | None:
    """The option whose text opens a line and is set off there: 'No. They are ...', 'Likely no'; not 'No. 5', 'No one'."""
    opening = re.match(r"[^\w\-]*+(?:\w+ly\s+)?(.+?)(?:$|[.,;:!](?!\s*\d))", line)
    form = squeeze(opening[1].rstrip("\"')]")) if opening else None
    worded = ((i, squeeze(choice)) for i, choice in enumerate(choices) if re.search(r"[^\W\d_]{2}", choice))
    return _single([i for i, words in worded if words == form])


def _leading_letter(line: str, choices: list) -> str | None:
    """The letter that opens a line: 'B', '(B) Paris', 'B: Paris', 'B Paris', 'B because ...'; not 'A company ...'."""
    start = rf"[^\w]*+(?:\d{{1,2}}[.)]\s+)?(?:{_SURELY}\s+)?(?:option |choice )?[\"'(\[]*"
    match = re.match(rf"{start}([{letters(choices)}])([)\].:,;\"']*)(?![\w'/])", line, re.IGNORECASE)
    if not match:
        return None
    letter, rest = match[1].upper(), line[match.end() :].strip()
    bare = "" if re.search(r"[.):\]]", match[2]) else "?"
    if re.match(rf"(?:(?:and|or|&|,|/)\s*){bare}[(\"']*[{letters(choices)}](?![\w'])", rest):
        return None
    own = choices[ord(letter) - ord("A")].strip().casefold()
    reason = re.match(r"[-\u2013\u2014=(]|because|since|is (?:the )?(?:correct|right|best)|です|だ|입니다|이다|है", rest)
    return letter if match[2] or reason or not rest or (own and rest.casefold().startswith(own)) else None


def _named_letter(text: str, choices: list) -> str | None:
    """The one letter that prose marks as an option: 'option B', 'I choose B', 'B is correct', 'so B', 'it is B', '(B)'."""
    letter = f"([{letters(choices)}])"
    marks = (
        rf"\b(?i:option|choice|letter|answer|choose|select|pick|go with)\s+(?:(?:is|-)\s+)?[(\"']*{letter}(?![\w'])(?!\s+[a-z])",
        rf"\b(?i:(?:it|that|this)(?:'s|\s+is|\s+must\s+be|\s+would\s+be))\s+(?i:{_SURELY}\s+)?[(\"']*{letter}(?=\W*$|[.,;:)](?:\s|$))",
        rf"(?:^|[\s,;])(?i:so|therefore|thus|hence|but)\b,?\s+[(\"']*{letter}(?=\W*$|[.,;:)](?:\s|$))",
        rf"\b{letter}(?:[)\"']+\s+[^.,;()]{{1,60}}|[)\"']*)\s+is\s+(?:the\s+)?(?:correct|right|best)\b",
        rf"\bis:?\s+{letter}[).:]\s",
        rf"[(\[]{letter}[)\]]",
        rf"[:】]\s*[(\"']*{letter}[)\"'.]*\s*\Z",
    )
    named = (set(re.findall(mark, text)) for mark in marks)
    return next((matches.pop() for matches in named if len(matches) == 1), None)


def _several(line: str, choices: list) -> bool:
    """Whether a line lists options, or denies them all, and says nothing else: 'A or B', '(D) attic or (E) cupboard', 'none of these'."""
    if re.match(r"none of (?:the|these|them)\b", line, re.IGNORECASE):
        return True
    label = "|".join(
        rf"[\"'(]*{letter}(?![\w'])[\"')]*(?:\s*{re.escape(choice.strip())})?+"
        for letter, choice in zip(letters(choices), choices, strict=True)
    )
    listed = rf"(?:either|both)?\s*(?:{label})(?:(?:[\s,/&]|\bor\b|\band\b)+(?:{label}))+"
    return re.fullmatch(listed, line.strip(" ."), re.IGNORECASE) is not None


def _without_echo(text: str, choices: list) -> str:
    """The text without a copy of the list of options: at least two of them in order; the last may be cut off."""
    start = end = count = 0
    for letter, choice in zip(letters(choices), choices, strict=True):
        option = r"\s+".join(map(re.escape, choice.strip(" .").split()))
        label = rf"\(?\b{letter}[).:][\s.]*"
        opening = re.compile(rf"(?i)\s*{label}").match(text, end) if count else re.search(f"(?i){label}", text)
        if opening is None:
            break
        whole = re.compile(rf"(?i){option}(?:\s?[.,;])*(?!\w)").match(text, opening.end())
        if not whole and not (
            count and squeeze(choice).startswith(squeeze(text[opening.end() :]))
        ):  # the last, cut off
            break
        start = start if count else opening.start()
        end, count = whole.end() if whole else len(text), count + 1
    return f"{text[:start]}\n{text[end:]}" if count > 1 else text


def _contained_text(text: str, choices: list) -> str | None:
    """The one option whose text the answer contains, or that begins with the answer (cut off by the token budget)."""
    form, texts = squeeze(text), [squeeze(choice) for choice in choices]
    if any(len(option) <= 2 and option.isalpha() for option in texts):
        return None  # "no" occurs in any sentence, so "yes" cannot be distinguished
    # Digits and very short words occur in any sentence.
    said = [(i, option) for i, option in enumerate(texts) if len(option) > 2 and re.search(r"[^\W\d]", option)]
    if held := [i for i, option in said if re.search(rf"(?<!\w){re.escape(option)}(?!\w)", form)]:
        return _single([i for i in held if not any(texts[i] != texts[j] and texts[i] in texts[j] for j in held)])
    return _single([i for i, option in enumerate(texts) if len(form) >= 8 and option.startswith(form)])


def _single(indices: list[int]) -> str | None:
    return chr(ord("A") + indices[0]) if len(indices) == 1 else None
