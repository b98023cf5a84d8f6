"""Questions as people bring them: rows of a data set, records of given answers and
of `orce measure`. Their values are read by one rule.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from orce.artefacts import tables
from orce.artefacts.files import unique_ids
from orce.artefacts.records import Example
from orce.artefacts.tables import Row, written
from orce.errors import BadInput
from orce.runtime.modules import short
from orce.tasks import options, sources
from orce.tasks.values import accepted_answers, as_list, is_blank, list_or_empty, required_text
from orce.text import Read, read_by, render
from orce.text.marks import own_marks

UNNUMBERED = ", or leave out fields.id to number the rows"
GIVEN = {"answer", "answers", "greedy"}  # keys of answers already made
LABELS = {"references", "correct"}  # keys that say what is right
# Tasks whose reference is an option's letter; None is no particular task.
LETTERED = {None, "choice", "mmlu", "logiqa", "reclor"}
Record = dict[str, Any]  # a line of a user's file


class Question(msgspec.Struct, kw_only=True):
    """What a row or a record says of a question, and of answers to it that are already made.

    reference: the accepted answers; of options, the letter of the right one; empty without any.
    samples: the answers, None where there is none; judgements: whether each is right. greedy, own:
    the greedy answer, and the answer of a method itself, with their judgements. A judgement that is
    not there is None. more: what else the question's example has.
    """

    where: str
    id: str | None = None
    text: str = ""
    context: str | None = None
    options: list[str] | None = None
    reference: Any = ""
    samples: list[str | None] | None = None
    judgements: list[bool] | None = None
    greedy: tuple[str | None, bool | None] | None = None
    own: tuple[str | None, bool | None] = (None, None)
    more: Record = {}

    @property
    def labelled(self) -> bool:
        """Whether its answers can be graded, or were."""
        return bool(self.reference) or self.judgements is not None

    def judgeable(self) -> "Question":
        """The question with judgements: without labels all are false, and the caller drops them."""
        if self.labelled or self.samples is None:
            return self
        greedy = None if self.greedy is None else (self.greedy[0], False)
        return msgspec.structs.replace(self, judgements=[False] * len(self.samples), greedy=greedy)

    def example(self, task: str | None, **more: Any) -> Any:
        """The example of the question, for a task; without a reference no answer to it is right."""
        example = {**self.more}
        for key in GIVEN | LABELS:
            example.pop(key, None)
        example |= {"id": self.id, "question": self.text, "context": self.context}
        example |= {"choices": self.options, **more}
        nothing = [""] if task == "qa" else ""
        return example | {"reference": self.reference or nothing}


# Rows of a data set


def load_examples(
    source: sources.DataSource,
    split: str,
    first: int | None,
    example: Callable[[Question], Example],
) -> list[Example]:
    """The examples that a task makes of the rows of a split, or of the first of them, with ids that
    differ.
    """
    rows = sources.load_rows(source, split, first)
    asked = [question_of_row(row, i, source, split) for i, row in enumerate(rows)]
    places = [question.where for question in asked]
    return unique_ids([*map(example, asked)], places, UNNUMBERED)


def question_of_row(row: Row, position: int, source: sources.DataSource, split: str) -> Question:
    """The question of a row of a data set; its id is the row's number where the source names no
    field for it.

    `ask` is a line after each question's text, for sets whose text does not say what is asked.
    """
    fields = source["fields"]
    cells = tables.record(row, fields)

    def required(name: str) -> str:
        return required_text(row, fields[name], name)

    asked = Question(
        where=row[0],
        more={key: source[key] for key in ("answer_pattern", "answer_marks") if key in source},
        id=required("id") if "id" in fields else f"{split}-{position}",
        text=required("question" if "question" in fields else "id"),
        context=None if is_blank(cells.get("context")) else required("context"),
    )
    if "ask" in source:
        asked.text += f"\n{source['ask']}"
    columns = fields.get("choices")
    right = fields.get("answer")
    # One of the columns of options has the right one in every row.
    if isinstance(columns, list) and right in columns and required("answer"):
        cells["answer"] = columns.index(right)
        source = {**source, "answer_is": "index"}
    return _with_reference(asked, cells, "answer", source)


# Records of a user


def question_of_record(where: str, record: Record, task: str | None = None) -> Question:
    """The question of a record with the keys question, id, context, choices, labels, reference or
    references, answer_is, and those of `read_answers`. Raises BadInput for a value of another form.
    """
    asked = read_answers(where, record)
    accepted = list_or_empty(record.get("references"))
    if accepted and not all(item in accepted for item in list_or_empty(record.get("reference"))):
        both = "it has a reference and other references"
        raise BadInput(f"{where}: {both}; keep one of the two keys")
    asked.text = record.get("question", "")
    for name in ("id", "context"):
        if not is_blank(record.get(name)):
            text = written(record[name])
            if text is None:
                expected = "expected a text or a number"
                raise BadInput(f"{where}: {name} is {short(record[name])}; {expected}")
            setattr(asked, name, text)
    key = "references" if accepted else "reference"
    return _with_reference(asked, record, key, {"answer_is": record.get("answer_is")}, task)


def read_answers(where: str, record: Record) -> Question:
    """The answers of a record: `answers`, or one `answer`, or `greedy` alone; `correct` of each.
    Beside answers, a single `correct` is of the `answer`.
    """
    given = Question(where=where, more=record)
    correct = record.get("correct")
    has_greedy = record.get("greedy") is not None
    text, right = _read_greedy(where, record.get("greedy"))
    several = record.get("answers") is not None
    if not several and "answer" not in record:
        if not has_greedy:
            return given
        record = {"answer": text}
        correct = right
    cells = as_list(tables.decoded(where, record["answers"])) if several else [record["answer"]]
    samples = [*map(written, cells)]
    if not cells or samples.count(None) > cells.count(None):
        name = "answers" if several else "answer"
        expected = "a list of texts" if several else "a text, or null for none"
        raise BadInput(f"{where}: {name} is {short(record[name])}; expected {expected}")
    is_own = several and "answer" in record and not isinstance(correct, list)
    if correct is not None:
        marks = as_list(correct)
        number = 1 if is_own else len(cells)
        if len(marks) != number or not all(mark in (0, 1) for mark in marks):
            each = f" for each of {number} answers" if several and not is_own else ""
            raise BadInput(f"{where}: correct is {short(correct)}; expected true or false{each}")
        if not is_own:
            given.judgements = [*map(bool, marks)]
    given.samples = samples
    # Of equal samples the first one's judgement counts: a later item of a dict replaces an earlier one.
    judged = dict(zip(reversed(samples), reversed(given.judgements or []), strict=False))
    if has_greedy:
        given.greedy = (text, judged.get(text) if right is None else bool(right))
    answer = written(record.get("answer"))
    given.own = (answer, judged.get(answer))
    if is_own and correct is not None:
        given.own = (answer, bool(correct))
    return given


def _read_greedy(where: str, greedy: Any) -> tuple[str | None, Any]:
    """The text and the judgement of a greedy answer: a text, or {answer, correct}."""
    stated = greedy if isinstance(greedy, dict) else {"answer": greedy}
    answer = stated.get("answer")
    right = stated.get("correct")
    text = written(answer)
    if (text is None and answer is not None) or right not in (None, 0, 1):
        expected = "expected a text, or an object with answer and correct"
        raise BadInput(f"{where}: greedy is {short(greedy)}; {expected}")
    return text, right


def _with_reference(
    asked: Question, cells: Record, key: str, source: sources.DataSource, task: str | None = None
) -> Question:
    """The question with its options and its reference, which stands in the cell `key`."""
    where = asked.where
    names = source.get("fields", {})
    name = names.get(key, key)
    cell = cells.get(key)
    labels = tables.decoded(where, cells.get("labels")) or []
    asked.options = source.get("options")
    if "choices" in names or not is_blank(cells.get("choices")):
        column = names.get("choices", "choices")
        asked.options, own_labels = options.read_options(where, column, cells["choices"])
        labels = labels or own_labels
    if not isinstance(labels, list):
        column = names.get("labels", "labels")
        raise BadInput(f"{where}: {column!r} is {labels!r}; expected a list (fields.labels)")
    if asked.options and task in LETTERED:
        if names or not is_blank(cell):
            asked.reference = options.letter_of_answer(
                where, name, cell, asked.options, labels, source
            )
    elif task in ("qa", None):
        asked.reference = accepted_answers(where, name, cell, source.get("answer_after"))
    elif task == "drop":
        annotated = list_or_empty(tables.decoded(where, cell))
        asked.reference = [_spans(where, name, spans) for spans in annotated]
    elif key == "references":
        asked.reference = list_or_empty(tables.decoded(where, cell))
    elif not is_blank(cell):  # a user's task reads it, mostly as a text
        asked.reference = written(cell) or cell
    return asked


def _spans(where: str, name: str, spans: Any) -> list[str]:
    """The spans that an annotator of DROP accepts, of which one may stand alone."""
    texts = []
    for span in as_list(spans):
        text = written(span)
        if text is None:
            expected = "expected texts or numbers, or a list of them for each annotator"
            raise BadInput(f"{where}: {name!r} holds {short(span)}; {expected}")
        texts.append(text)
    return texts


# What tasks share


def zero_shot(template: str, question: str, shots: int | None) -> list[dict]:
    """The prompt of a task without worked examples: one user turn."""
    if shots:
        raise BadInput(f"shots is {shots}, but this task has no worked examples; use 0")
    return [{"role": "user", "content": render(template, question=question)}]


def read_by_own_form(text: str, example: Example, read: Callable[[str], str | None]) -> str | None:
    """The answer that `read` finds in a text, by the data set's own form of answers where it has one.

    answer_pattern: the last match alone is read, its first group that matched; without a match the
    text has no answer. answer_marks: each is read as "Answer:". An answer that was found by one of
    these keys has its name before the rule's.
    """
    if "answer_pattern" in example:
        key = "answer_pattern"
        part = ""
        for match in re.finditer(example[key], text):
            part = next(filter(None, match.groups()), match[0])
    else:
        key = "answer_marks"
        part = own_marks(text, example.get(key, []))
    answer = read(part)
    if answer is None or (key == "answer_marks" and part == text):
        return answer
    return Read.of(answer, key, str(read_by(answer)))
