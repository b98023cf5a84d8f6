"""DROP (Dua et al., 2019): numbers, dates and spans from a passage; 77,409 / 9,536 questions, no
public test set.

Scored by the benchmark's official rules: normalised bags of words, aligned one to one, the best
over all annotators' answers. `correct` is exact match; F1 is reported beside it. An answer is one
text with ';' between its spans; a list in prose ("A, B and C") is one span, since the official rule
separates nothing in a text.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from orce.artefacts import tables
from orce.artefacts.files import unique_ids
from orce.artefacts.records import Example, Score
from orce.artefacts.tables import Row
from orce.errors import BadInput
from orce.tasks import rows, sources, values
from orce.text import Read
from orce.text.marks import ascii_signs, lines, own_reply, plain, statements, unpunctuated

ANSWER_KIND = "short answer"
MAX_TOKENS = 48
METRIC = "f1"
ANSWER = ("number", "date", "spans")  # one of them has a value
SPLITS = {"train": "train", "validation": "dev", "dev": "dev", "val": "dev"}


def load(source: sources.DataSource, split: str, seed: int = 0) -> list[Example]:
    """Examples of a split: train or validation. `seed` has no effect. Raises BadInput naming what
    is wrong.

    The source is {hub: EleutherAI/drop} or {path}: a folder with drop_dataset_{train,dev}.json as
    published, or one such file. `reference` is a list of annotators' answers, each a list of spans.
    A few questions were published with empty answers: their list is empty, and every answer to them
    is wrong.
    """
    if split not in SPLITS:
        raise BadInput(f"DROP has no split {split!r}; splits are train, validation")
    name = SPLITS[split]
    if "hub" in source:
        records = sources.read_hub(source, "validation" if name == "dev" else name)
    else:
        (path,) = sources.find_files(source, [f"drop_dataset_{name}.json"])
        records = [*_published_rows(path)]
    return unique_ids([_example(row) for row in records], [where for where, _ in records])


def _published_rows(path: Path) -> Iterator[Row]:
    """The questions of a published file, each with its passage."""
    passages = tables.read_json(path)
    if not isinstance(passages, dict) or not passages:
        raise BadInput(f"{path}: expected an object {{passage id: {{passage, qa_pairs}}}}")
    for key, record in passages.items():
        where = f"{path}, passage {key}"
        passage = values.required_text((where, record), "passage")
        for i, pair in enumerate(tables.value((where, record), "", "qa_pairs")):
            yield f"{where}, question {i}", {**pair, "passage": passage}


def _example(row: Row) -> Example:
    where, record = row
    annotated = record.get("validated_answers") or []
    # On the hub: a record of lists, in which that of the workers' ids is empty.
    if isinstance(annotated, dict):
        columns = [annotated[key] for key in ANSWER]
        answers = zip(*columns, strict=True)
        annotated = [dict(zip(ANSWER, cells, strict=True)) for cells in answers]
    references = []
    for answer in (tables.value(row, "", "answer"), *annotated):
        spans = _spans(where, answer)
        if any(span.strip() for span in spans) and spans not in references:
            references.append(spans)
    return {
        "id": values.required_text(row, "query_id"),
        "question": values.required_text(row, "question"),
        "context": values.required_text(row, "passage"),
        "choices": None,
        "reference": references,
    }


def _spans(where: str, answer: dict) -> list[str]:
    """The spans of an annotator's answer; a number or a date is one span."""
    if not isinstance(answer, dict) or not {*ANSWER} & answer.keys():
        expected = "expected a record of number, date and spans"
        raise BadInput(f"{where}: the answer is {answer!r}; {expected}")
    number = answer.get("number")
    if number not in (None, ""):
        return [_cell_text(where, "number", number)]
    if spans := answer.get("spans"):
        return [_cell_text(where, "spans", span) for span in values.as_list(spans)]
    date = answer.get("date") or {}
    units = [_cell_text(where, unit, date.get(unit) or "") for unit in ("day", "month", "year")]
    return [" ".join(units).strip()]


def _cell_text(where: str, name: str, cell: Any) -> str:
    """The text or the number in a cell, as a text. Raises BadInput for anything else."""
    text = None if isinstance(cell, bool) else tables.written(cell)
    if text is None:
        raise BadInput(f"{where}: {name} holds {cell!r}; expected a text or a number")
    return text


def question(example: Example) -> str:
    return f"Passage: {example['context']}\n\nQuestion: {example['question']}"


def prompt(example: Example, shots: int | None = None) -> list[dict]:
    return rows.zero_shot("drop", question(example), shots)


# A line before that of the answer: "Sure!", "The capital is:".
_BEFORE_ANSWER = re.compile(
    r"(?i)(?:sure|ok(?:ay)?|certainly|of course|absolutely|alright)[!.,]*|.*\b(?:is|was)\s*:"
)


@own_reply
def extract(text: str, example: Example) -> str | None:
    """The short answer, or None: the last 'Answer: ...', else the first line; the items of a list are
    joined by '; '. A first line that ends with a colon is no answer where a list follows: 'The members
    are:'.
    """
    for statement in statements(plain(text)):
        text_lines = lines(statement)
        if len(text_lines) > 1 and _BEFORE_ANSWER.fullmatch(text_lines[0]):
            text_lines.pop(0)
        bare = [re.sub(r"^(?:[-*\u2022]|\d+[.)])\s+", "", line) for line in text_lines]
        is_item = [item != line for item, line in zip(bare, text_lines, strict=True)]
        spans = text_lines[:1]
        form = "first line"
        if spans and spans[0].endswith(":") and any(is_item[1:2]):
            spans = bare[1 : [*is_item, False].index(False, 1)]
            form = "list after a colon"
        elif len(text_lines) > 1 and all(is_item):
            spans = bare
            form = "list"
        if answer := "; ".join(map(trim, spans)):
            return Read.of(answer, statement.by, form)
    return None


def trim(line: str) -> str:
    return re.sub(r"^(?:[-*\u2022]\s+|[\s\"':])+", "", line).rstrip(" \t\r\n\"';,:.")


def key(answer: str, example: Example) -> str:
    """Equal for two answers if the metric calls them an exact match: the same number of spans and
    the same set.
    """
    spans = [normalise(span) for span in _split_spans(answer)]
    return f"{len(spans)}: {'; '.join(sorted(set(spans)))}"


def display(answer: str | None, example: Example) -> str:
    return "(no answer)" if answer is None else answer


def score(answer: str | None, example: Example) -> Score:
    """Exact match and F1 (two decimals), each the best over all references; an answer of None
    scores 0. The answer is split into spans without looking at the references, so no reference
    affects how it is read.
    """
    if answer is None or not example["reference"]:
        return {"correct": False, "f1": 0.0}
    scores = [
        em_and_f1(_split_spans(answer), [ascii_signs(span) for span in gold])
        for gold in example["reference"]
    ]
    matches, f1s = zip(*scores, strict=True)
    return {"correct": any(matches), "f1": max(f1s)}


def _split_spans(answer: str) -> list[str]:
    """The spans of an answer: the prompt asks for ';' between them, and nothing else separates
    them.
    """
    text = ascii_signs(answer)
    return [span.strip() for span in text.split(";") if span.strip()] or [text]


# The official metric


def em_and_f1(predicted: list[str], gold: list[str]) -> tuple[bool, float]:
    """Exact match and F1 of two lists of spans. As in allennlp's drop_eval.py: EM requires equal
    sets and equal counts; F1 is the mean over the longer list of the word-set F1 of spans aligned
    one to one.
    """
    # Imported here: it takes longer than all of orce.judge.judge.
    from scipy.optimize import linear_sum_assignment

    predicted = [normalise(span) for span in predicted]
    right = [normalise(span) for span in gold]
    em = set(predicted) == set(right) and len(predicted) == len(right)
    bags = [set(span.split()) for span in predicted]
    scores = []
    for span in right:
        words = set(span.split())
        scores.append([_bag_f1(bag, words) for bag in bags])
    scores = np.array(scores)
    aligned = linear_sum_assignment(-scores)
    f1 = scores[aligned].sum() / max(scores.shape)
    return em, float(round(f1, 2))


def normalise(span: str) -> str:
    """Lower case, no punctuation of any script and no articles, numbers as floats; words split at
    spaces and hyphens.
    """
    words = []
    for word in re.split(" |-", span.lower()):
        if not _is_number(word):
            word = unpunctuated(word)
        if _is_number(word):
            word = str(float(word))
        words += re.sub(r"\b(a|an|the)\b", " ", word).split()
    return " ".join(words)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _bag_f1(predicted: set[str], right: set[str]) -> float:
    """F1 of two word sets; 0 if the reference has numbers and the answer has none of them."""
    numbers = {word for word in right if _is_number(word)}
    if numbers and not numbers & predicted:
        return 0.0
    shared = len(predicted & right)
    precision = shared / len(predicted) if predicted else 1.0
    recall = shared / len(right) if right else 1.0
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
