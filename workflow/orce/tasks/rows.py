"""Questions as people bring them: rows of a data set, records of given answers and
of `orce measure`. Their values are read by one rule.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from orce.artefacts import tables
from orce.artefacts.files import unique_ids
from orce.artefacts.records import Example
from orce.artefacts.tables import Row, written
from orce.errors import BadInput
from orce.runtime.modules import short
from orce.tasks import options, sources
from orce.tasks.values import accepted_answers, as_list, is_blank, required_text
from orce.text import Read, read_by, render
from orce.text.marks import own_marks

UNNUMBERED = ", or leave out fields.id to number the rows"
GIVEN = {"answer", "answers", "greedy"}  # keys of answers already made
# tasks with a letter as reference; None: of no particular task
LETTERED = {None, "choice", "mmlu", "logiqa", "reclor"}
Record = dict[str, Any]  # a line of a user's file


class Question(msgspec.Struct, kw_only=True):
    """What is known of a question. reference: the accepted answers; of options, the letter of the
    right one; empty without any.

    samples: answers already made, None where none is; judgements: of each sample. greedy, own: the
    greedy answer, and the answer of a method itself, with their judgements. A judgement is None
    where there is none. more: what else its example has.
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
        """With judgements; without labels all are false, and are dropped in the end."""
        if self.labelled or self.samples is None:
            return self
        greedy = None if self.greedy is None else (self.greedy[0], False)
        return msgspec.structs.replace(self, judgements=[False] * len(self.samples), greedy=greedy)

    def example(self, task: str | None, **more: Any) -> Any:
        """The example that a task shows and compares with; without a reference no answer is right."""
        kept = {
            key: value
            for key, value in self.more.items()
            if key not in {"references", "correct", *GIVEN}
        }
        known = {
            "id": self.id,
            "question": self.text,
            "context": self.context,
            "choices": self.options,
        }
        return kept | known | more | {"reference": self.reference or ([""] if task == "qa" else "")}


def load_examples(
    source: Mapping[str, Any], split: str, first: int | None, example: Callable[[Question], Example]
) -> list[Example]:
    """The examples that a task makes of the rows of a split, or of the first of them, with ids that
    differ.
    """
    asked = [
        question_of_row(row, i, source, split)
        for i, row in enumerate(sources.load_rows(source, split, first))
    ]
    return unique_ids([*map(example, asked)], [question.where for question in asked], UNNUMBERED)


def question_of_row(row: Row, position: int, source: Mapping[str, Any], split: str) -> Question:
    """The question of a row of a data set; its id is the row's number where the source names no
    field for it.

    `ask` is a line after each question's text, for sets whose text does not say what is asked.
    """
    fields = source["fields"]
    cells = tables.record(row, source["fields"])

    def needed(name: str) -> str:
        return required_text(row, fields[name], name)

    asked = Question(
        where=row[0],
        more={key: source[key] for key in ("answer_pattern", "answer_marks") if key in source},
        id=needed("id") if "id" in fields else f"{split}-{position}",
        text=needed("question" if "question" in fields else "id")
        + (f"\n{source['ask']}" if "ask" in source else ""),
        context=None if is_blank(cells.get("context")) else needed("context"),
    )
    columns = fields.get("choices")
    accepted = fields.get("answer")
    # this column is right in every row
    if isinstance(columns, list) and accepted in columns and needed("answer"):
        cells["answer"] = columns.index(accepted)
        source = {**source, "answer_is": "index"}
    return _with_reference(asked, cells, "answer", source)


def question_of_record(where: str, record: Record, task: str | None = None) -> Question:
    """The question of a record with the keys question, id, context, choices, labels, reference or
    references, answer_is, and those of `answered`. Raises BadInput for a value of another form.
    """
    asked = read_answers(where, record)
    name = "reference" if record.get("references") is None else "references"
    first, every = (
        [] if is_blank(cell) else as_list(cell)
        for cell in (record.get("reference"), record.get("references"))
    )
    if every and not all(item in every for item in first):
        raise BadInput(
            f"{where}: it has a reference and other references; keep one of the two keys"
        )
    asked.id = written(record.get("id"))
    asked.text = record.get("question", "")
    asked.context = None if is_blank(record.get("context")) else written(record["context"])
    if asked.context is None and not is_blank(record.get("context")):
        raise BadInput(f"{where}: context is {short(record['context'])}; expected a text")
    return _with_reference(asked, record, name, {"answer_is": record.get("answer_is")}, task)


def _with_reference(
    asked: Question, cells: Record, key: str, source: Mapping[str, Any], task: str | None = None
) -> Question:
    """The question with its options and its reference, which stands in the cell `key`."""
    where = asked.where
    names = source.get("fields", {})
    cell = cells.get(key)
    labels = tables.decoded(cells.get("labels")) or []
    asked.options = source.get("options")
    if "choices" in names or not is_blank(cells.get("choices")):
        asked.options, named = options.read_options(
            where, names.get("choices", "choices"), cells["choices"]
        )
        labels = labels or named
    if not isinstance(labels, list):
        raise BadInput(
            f"{where}: {names.get('labels', 'labels')!r} is {labels!r}; expected a list (fields.labels)"
        )
    name = names.get(key, key)
    if asked.options and task in LETTERED:
        if names or not is_blank(cell):
            asked.reference = options.letter_of_answer(
                where, name, cell, asked.options, labels, source
            )
    elif task in ("qa", None):
        asked.reference = accepted_answers(where, name, cell, source.get("answer_after"))
    else:  # of a task with a form of its own; DROP's is a list of lists of texts
        several = [] if is_blank(cell) else as_list(cell)
        asked.reference = [
            [written(x)] if task == "drop" and not isinstance(x, list) else x for x in several
        ]
    return asked


def read_answers(where: str, record: Record) -> Question:
    """The answers of a record: `answers`, or one `answer`, or `greedy` alone; `correct` of each.
    Beside answers, a single `correct` is of the `answer`.
    """
    given = Question(where=where, more=record)
    greedy = record.get("greedy")
    correct = record.get("correct")
    stated = greedy if isinstance(greedy, dict) else {"answer": greedy}
    text = written(stated.get("answer"))
    right = stated.get("correct")
    if text is None is not stated.get("answer") or right not in (None, 0, 1):
        raise BadInput(
            f"{where}: greedy is {short(greedy)}; expected a text, or an object with answer and correct"
        )
    several = record.get("answers") is not None
    if not several and "answer" not in record:
        if greedy is None:
            return given
        record = {"answer": text}
        correct = right
    cells = as_list(tables.decoded(record["answers"])) if several else [record["answer"]]
    given.samples = [*map(written, cells)]
    if not cells or given.samples.count(None) > cells.count(None):
        name, expected = (
            ("answers", "a list of texts") if several else ("answer", "a text, or null for none")
        )
        raise BadInput(f"{where}: {name} is {short(record[name])}; expected {expected}")
    marks = as_list(correct)
    own = several and "answer" in record and not isinstance(correct, list)
    if correct is not None:
        if len(marks) != (1 if own else len(cells)) or not all(mark in (0, 1) for mark in marks):
            each = f" for each of {len(cells)} answers" if several and not own else ""
            raise BadInput(f"{where}: correct is {short(correct)}; expected true or false{each}")
        given.judgements = None if own else [*map(bool, marks)]
    # of equal samples
    first = dict(zip(reversed(given.samples), reversed(given.judgements or []), strict=False))
    if greedy is not None:
        given.greedy = text, first.get(text) if right is None else bool(right)
    answer = written(record.get("answer"))
    given.own = answer, bool(correct) if own and correct is not None else first.get(answer)
    return given


def zero_shot(template: str, question: str, shots: int | None) -> list[dict]:
    """The prompt of a task without worked examples: one user turn."""
    if shots:
        raise BadInput(f"shots is {shots}, but this task has no worked examples; use 0")
    return [{"role": "user", "content": render(template, question=question)}]


def matched_text(text: str, example: Example) -> str:
    """What the example's own pattern finds in a text: the first group of its last match; without a
    pattern, the text, with its own marks as "Answer:".

    A text that the pattern does not match is empty, so it has no answer.
    """
    if "answer_pattern" not in example:
        return own_marks(text, example.get("answer_marks", []))
    *_, last = [None, *re.finditer(example["answer_pattern"], text)]
    return next(filter(None, [*last.groups(), last[0]]), "") if last else ""


def named_by(answer: str | None, text: str, matched: str, example: Example) -> str | None:
    """An answer that was read in the matched text, with the name of the data set's own key that found that in the text."""
    own = "answer_pattern" in example
    if answer is None or not (own or matched != text):
        return answer
    return Read.of(answer, "answer_pattern" if own else "answer_marks", read_by(answer) or "")
