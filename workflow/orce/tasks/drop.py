"""DROP (Dua et al., 2019): numbers, dates and spans from a passage; 77,409 / 9,536 questions, no
public test set.

Scored by the benchmark's official rules: normalised bags of words, aligned one to one, the best
over all annotators' answers. `correct` is exact match; F1 is reported beside it. An answer is one
text with ';' between its spans; a list in prose ("A, B and C") is one span, since the official rule
separates nothing in a text.
"""

import re
from collections.abc import Mapping
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


def load(source: Mapping[str, Any], split: str, seed: int = 0) -> list[Example]:
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
        records = sources.read_hub(source, {"dev": "validation"}.get(name, name))
    else:
        (path,) = sources.find_files(source, [f"drop_dataset_{name}.json"])
        records = []
        passages = tables.read_json(path)
        if not isinstance(passages, dict) or not passages:
            raise BadInput(f"{path}: expected an object {{passage id: {{passage, qa_pairs}}}}")
        for key, passage in passages.items():
            where = f"{path}, passage {key}"
            shown = values.required_text((where, passage), "passage")
            pairs = tables.value((where, passage), "", "qa_pairs")
            records += [
                (f"{where}, question {i}", {**pair, "passage": shown})
                for i, pair in enumerate(pairs)
            ]
    return unique_ids([_example(row) for row in records], [where for where, _ in records])


def _example(row: Row) -> Example:
    annotated = row[1].get("validated_answers") or []
    # the hub stores a record of lists, and the list of workers' ids is empty
    if isinstance(annotated, dict):
        columns = [annotated[key] for key in ANSWER]
        annotated = [
            dict(zip(ANSWER, values, strict=True)) for values in zip(*columns, strict=True)
        ]
    spans = [_spans(row[0], answer) for answer in (tables.value(row, "", "answer"), *annotated)]
    references = dict.fromkeys(
        tuple(answer) for answer in spans if any(span.strip() for span in answer)
    )
    return {
        "id": values.required_text(row, "query_id"),
        "question": values.required_text(row, "question"),
        "context": values.required_text(row, "passage"),
        "choices": None,
        "reference": [list(answer) for answer in references],
    }


def _spans(where: str, answer: dict) -> list[str]:
    if not isinstance(answer, dict) or not {*ANSWER} & answer.keys():
        raise BadInput(
            f"{where}: the answer is {answer!r}; expected a record of number, date and spans"
        )
    number = answer.get("number")
    if number not in (None, ""):
        return [_text(where, "number", number)]
    if spans := answer.get("spans"):
        listed = spans if isinstance(spans, list) else [spans]
        return [_text(where, "spans", span) for span in listed]
    date = answer.get("date") or {}
    units = [_text(where, unit, date.get(unit) or "") for unit in ("day", "month", "year")]
    return [" ".join(units).strip()]


def _text(where: str, name: str, cell: Any) -> str:
    """A cell as a text. Raises BadInput for one that is neither a text nor a number."""
    text = None if isinstance(cell, bool) else tables.written(cell)
    if text is None:
        raise BadInput(f"{where}: {name} holds {cell!r}; expected a text or a number")
    return text


def question(example: Example) -> str:
    return f"Passage: {example['context']}\n\nQuestion: {example['question']}"


def prompt(example: Example, shots: int | None = None) -> list[dict]:
    return rows.zero_shot("drop", question(example), shots)


# "Sure!" and "The capital is:" on a line of their own.
_BEFORE_ANSWER = re.compile(
    r"(?i)(?:sure|ok(?:ay)?|certainly|of course|absolutely|alright)[!.,]*|.*\b(?:is|was)\s*:"
)


@own_reply
def extract(text: str, example: Example) -> str | None:
    """The short answer, or None: the last 'Answer: ...', else the first line; a list of bullets is
    joined by '; '. A first line that ends with a colon is not an answer where a list follows: 'The
    members are:'.
    """
    for statement in statements(plain(text)):
        text_lines = lines(statement)
        if len(text_lines) > 1 and _BEFORE_ANSWER.fullmatch(text_lines[0]):
            text_lines = text_lines[1:]
        bare = [re.sub(r"^(?:[-*\u2022]|\d+[.)])\s+", "", line) for line in text_lines]
        marked = [item != line for item, line in zip(bare, text_lines, strict=True)]
        if text_lines and text_lines[0].endswith(":") and any(marked[1:2]):
            end = marked.index(False, 1) if False in marked[1:] else len(bare)
            bullets = bare[1:end]
            form = "list after a colon"
        elif len(text_lines) > 1 and all(marked):
            bullets = bare
            form = "list"
        else:
            bullets = text_lines[:1]
            form = "first line"
        if answer := "; ".join(map(trim, bullets)):
            return Read.of(answer, statement.by, form)
    return None


def trim(line: str) -> str:
    return re.sub(r"^(?:[-*\u2022]\s+|[\s\"':])+", "", line).rstrip(" \t\r\n\"';,:.")


def key(answer: str, example: Example) -> str:
    """Equal for two answers if the metric calls them an exact match: the same number of spans and
    the same set.
    """
    spans = [normalise(span) for span in _split(answer)]
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
        em_and_f1(_split(answer), [ascii_signs(span) for span in gold])
        for gold in example["reference"]
    ]
    return {"correct": any(em for em, _ in scores), "f1": max(f1 for _, f1 in scores)}


def _split(answer: str) -> list[str]:
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
    from scipy.optimize import (
        linear_sum_assignment,  # here, since it takes longer to import than all of orce.judge.judge
    )

    predicted = [normalise(span) for span in predicted]
    right = [normalise(span) for span in gold]
    em = set(predicted) == set(right) and len(predicted) == len(right)
    scores = np.array(
        [[_bag_f1(set(span.split()), set(ref.split())) for span in predicted] for ref in right]
    )
    rows, columns = linear_sum_assignment(-scores)
    f1 = scores[rows, columns].sum() / max(scores.shape)
    return em, float(round(f1, 2))


def normalise(span: str) -> str:
    """Lower case, no punctuation of any script and no articles, numbers as floats; words split at
    spaces and hyphens.
    """
    words = []
    for word in re.split(" |-", span.lower()):
        if not _is_number(word):
            word = unpunctuated(word)
        word = str(float(word)) if _is_number(word) else word
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
