"""Questions, answers, confidences and labels as people have them, for `orce.confidence` and
`orce measure`.
"""

import itertools
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

from msgspec import UNSET

from orce.artefacts import files, tables
from orce.errors import BadInput, did_you_mean
from orce.runtime.modules import short
from orce.runtime.process import say
from orce.settings.schema import Dataset
from orce.tasks import qa
from orce.tasks.rows import GIVEN, Question, Record, question_of_record
from orce.tasks.values import as_list, is_blank

EQUALITIES = get_args(get_args(get_type_hints(Dataset)["equality"])[0])
# What all questions have, or none: {its name in messages: its attribute of a question}.
PRESENT = {"answers": "samples", "choices": "options"}
# Judgements as people write them, which as accepted answers no answer would equal.
WORDS = {"yes", "no", "true", "false", "right", "wrong", "correct", "incorrect"}
NUMERALS = {"1", "0", "1.0", "0.0"}
# Names of columns that hold answers, references or confidences in the files of other programs, by
# the key that would read them.
ALIKE = {
    "answer": "answers|responses?|completions?|outputs?|predictions?|predicted|pred|reply|replies|resps"
    "|generations?|generated_text|model_answer|model_output|samples|sampled_answers",
    "reference": "references|targets?|golds?|golden|gold_answer|label|ground_?truth|truth|expected"
    "|solution|(expected|right|true)_answer|correct_answers?|accepted|accepted_answers|ideal",
    "correct": "is_correct|was_correct|judge?ments?|verdict|right",
    "confidence": "confidences|confidence_score|conf|certainty|prob|probability|score|sure|p_correct",
    "question": "questions|prompts?|query|input|instruction|problem",
    "choices": "options|candidates|alternatives|answer_choices|endings|[a-d]|option_?[a-d1-4]",
    "context": "passage|paragraph|background",
}
REFERENCES = {"reference", "references"}
# The keys of a record that are read; a table keeps the others as they are.
KEYS = {
    "id", "question", "context", "choices", "labels", "answer_is", "correct", "confidence", "equality", *REFERENCES, *GIVEN,
}  # fmt: skip
# Keys of a record that its task reads.
READ_BY_TASKS = {"answer_pattern", "answer_marks"}
# The keys that stand for the same: where one is read, a column that is like it is no loss.
SAME = {
    "answer": GIVEN,
    "reference": REFERENCES | {"correct"},
    "correct": REFERENCES | {"correct"},
}


def read(
    questions: Any,
    fields: tables.Fields | None,
    answers: Any = None,
    labels: Any = None,
    task: str | None = None,
    limit: int | None = None,
) -> list[Question]:
    """Every question, or the first `limit` of them, with its answers, its confidence and its
    reference where they are known.

    questions: texts, mappings, what holds rows in a program, or the path of a file. Raises BadInput
    naming the question.
    """
    if isinstance(questions, list) and questions and isinstance(questions[0], Question):
        return questions  # by the command line
    if limit is not None and limit < 1:
        raise BadInput(f"--limit (limit=) is {limit}; expected a number of questions, from 1 on")
    if fields is not None:
        _check_fields(fields, task)
    rows = _rows(questions)
    if not rows:
        raise BadInput(
            "no questions; expected a list of texts or of mappings, or the path of a file"
        )
    n = len(rows)
    given = [UNSET] * n if answers is None else _column("answers", answers, n)
    known = [None] * n if labels is None else _column("labels", labels, n)
    asked = [
        _question(row, answer, label, fields, task)
        for row, answer, label in itertools.islice(zip(rows, given, known, strict=True), limit)
    ]
    _refuse_words(asked, None if labels is None else known)
    _say_unread(asked)
    return asked


def _check_fields(fields: Any, task: str | None) -> None:
    """Raises BadInput for a name that is none of the keys, which would be read by nothing."""
    columns = fields.values() if isinstance(fields, Mapping) else [None]
    if not all(isinstance(column, str | list) for column in columns):
        raise BadInput(
            f"fields is {short(fields)}; expected the name of a column for each key: {{'question': 'prompt'}}"
        )
    unknown = [name for name in fields if name not in KEYS | READ_BY_TASKS]
    if unknown and not str(task).endswith(".py"):
        hint = did_you_mean(str(unknown[0]), KEYS)
        raise BadInput(
            f"--fields (fields=): unknown key {unknown[0]!r}; {hint}Keys are {', '.join(sorted(KEYS))}"
        )


def _rows(questions: Any) -> list[tables.Row]:
    """(where, row) of each question; where: for messages."""
    if not isinstance(questions, str | Path):
        held = None if _is_row(questions) else tables.held(questions)
        if not isinstance(held, list):
            raise BadInput(
                f"questions is {short(questions)}; a single question is a list of one, and several are "
                "a list, a data frame, a mapping of columns or the path of a file"
            )
        return [(f"question {number}", question) for number, question in enumerate(held, 1)]
    if os.path.isfile(questions):  # a long text is no path to pathlib, but an error
        return tables.read(Path(questions))
    if os.path.isdir(questions):
        raise BadInput(f"{questions}: is a folder; name the file of questions in it")
    raise BadInput(f"{short(str(questions))}: no such file of questions{_meant(str(questions))}")


def _is_row(questions: Any) -> bool:
    """Whether this is a row of a data frame, whose cells are not questions: a named tuple, a series."""
    if hasattr(questions, "to_frame"):
        return "question" in getattr(questions, "index", ())  # polars' series have none
    return hasattr(questions, "_asdict")


def _meant(questions: str) -> str:
    """What a text that is no file may have been meant for: a file with a name like it, or a
    question.
    """
    folder, name = os.path.split(questions)
    beside = os.listdir(folder or ".") if os.path.isdir(folder or ".") else []
    if meant := did_you_mean(name, beside).strip():
        return f"; {meant}"
    is_text = re.search(r"\s", questions) or "." not in name
    return f"; a single question is a list of one: [{short(questions)}]" if is_text else ""


def _column(name: str, values: Any, n: int) -> list[Any]:
    """Answers or labels, one for each of n questions."""
    held = tables.held(values)
    if isinstance(held, str):
        found = f"a text ({short(values)})"
    elif not isinstance(held, list):
        found = f"a {type(values).__name__} ({short(values)})"
    elif len(held) != n:
        found = str(len(held))
    else:
        return held
    raise BadInput(f"{name}: expected {n}, one for each question, found {found}")


def _question(
    row: tables.Row, answer: Any, label: Any, fields: tables.Fields | None, task: str | None
) -> Question:
    """answer: UNSET where none is given; None is an empty one. label: None where there is none."""
    where = row[0]
    record = _record(row, fields)
    if isinstance(answer, dict):
        if GIVEN.isdisjoint(answer):
            raise BadInput(
                f"{where}: answers has {', '.join(map(str, answer))}; "
                "expected a text, a list of texts, or a mapping with 'answer' or 'answers'"
            )
        record |= answer
    elif isinstance(answer, list):
        record["answers"] = answer or [None]
    elif answer is not UNSET:
        record["answer"] = answer
    is_given = "confidence" in record or not GIVEN.isdisjoint(record)
    _check_text(where, record, is_given)
    for key, value in [*record.items()]:
        # An empty cell says nothing, but as a confidence: that could not be read.
        if key != "confidence" and value in (None, ""):
            del record[key]
    if is_given and GIVEN.isdisjoint(record):
        record["answer"] = None
    if label is not None:
        _check_label(where, label, is_given, "choices" in record)
        is_judgement = all(isinstance(mark, bool) for mark in as_list(label))
        record["correct" if is_judgement else "reference"] = label
    if "correct" in record and not is_given:
        judged = f"correct is {short(record['correct'])}; true and false grade given answers, and none is given"
        raise BadInput(f"{where}: {judged}; an accepted answer is a reference")
    _check_confidence(where, record)
    question = question_of_record(where, record, task)
    _check_cells(where, record)
    if task == "choice" and not question.options:
        raise BadInput(f"{where}: task choice shows options, and it has no 'choices'")
    _take_its_own_answer(question)
    return question


def _record(row: tables.Row, fields: tables.Fields | None) -> Record:
    """The row under our names: `fields` name some of its columns, the others keep their own names."""
    where, cells = row
    if fields is None:
        return {"question": cells} if isinstance(cells, str) else tables.record(row, None)
    named = tables.record(row, fields)
    columns = set()
    for column in fields.values():
        columns.update(tables.several(cells, column))
    if not REFERENCES.isdisjoint(named):
        columns |= REFERENCES
    others = {key: value for key, value in cells.items() if key not in columns}
    return tables.record((where, others), None) | named


def _check_text(where: str, record: Record, is_given: bool) -> None:
    """Raises BadInput for a question without a text, which only answers that are made already can
    do without.
    """
    text = record.get("question")
    if (is_given and text is None) or (isinstance(text, str) and not is_blank(text)):
        return
    if "question" in record:
        raise BadInput(f"{where}: 'question' is {text!r}; expected a text that is not empty")
    alike = [name for name in record if _is_like("question", name)]
    remedy = f"name its column: --fields question={[*alike, 'COLUMN'][0]} (fields=)"
    raise BadInput(f"{where}: no 'question'; it has {', '.join(map(str, record))}; {remedy}")


def _check_label(where: str, label: Any, is_given: bool, has_choices: bool) -> None:
    """Raises BadInput for a label that is nothing, or a number that may mean right and wrong."""
    is_number = label in (0, 1) and not isinstance(label, bool)
    if is_blank(label) or (is_number and is_given and not has_choices):
        expected = (
            "expected the accepted answer, or a list of them; or True or False of a given answer"
        )
        raise BadInput(f"{where}: the label is {label!r}; {expected}")


def _check_confidence(where: str, record: Record) -> None:
    """Raises BadInput for a confidence that is none, or for the confidences of several methods."""
    confidence = record.get("confidence")
    if isinstance(confidence, dict):
        names = ", ".join(map(str, confidence))
        first = next(iter(confidence), "NAME")
        raise BadInput(
            f"{where}: confidence has those of {names}; name one: --fields confidence=confidence.{first}"
        )
    tables.probability(where, confidence)


def _check_cells(where: str, record: Record) -> None:
    """Raises BadInput for a cell that a line of JSON cannot hold, as of a picture's bytes."""
    for name, cell in record.items():
        if isinstance(name, str) and isinstance(cell, str | int | float | None):
            continue
        try:
            files.to_line({name: cell})
        except (TypeError, ValueError) as error:
            raise BadInput(
                f"{where}: the column {name!r} cannot be written as JSON ({error}); leave it out"
            ) from None


def _take_its_own_answer(question: Question) -> None:
    """Let `answer` be the greedy one where it stands beside `answers`: its user is given this one.

    Where only that answer is judged, other samples are called wrong; `judges_one` says so.
    """
    has_samples = question.more.get("answers") is not None
    if has_samples and question.greedy is None and question.own[0] is not None:
        question.greedy = question.own
    if question.samples and question.greedy is not None and not question.labelled:
        answer, right = question.greedy
        if right is not None:
            question.judgements = [text == answer and right for text in question.samples]


def judges_one(question: Question) -> bool:
    """Whether its labels say of one answer among several samples whether it is right, and nothing
    of the others.
    """
    if question.reference or question.greedy is None or len(question.samples or ()) < 2:
        return False
    return question.greedy[1] is not None and not isinstance(question.more.get("correct"), list)


def _refuse_words(asked: list[Question], labels: list[Any] | None) -> None:
    """Raises BadInput if labels, or the accepted answers of a column, are words or numerals for
    right and wrong: no answer would equal them.
    """
    is_column = labels is None
    cells = labels
    if is_column:
        cells = [text for question in asked for text in as_list(question.reference)]
    words = {cell.strip().casefold() for cell in cells or [] if isinstance(cell, str)}
    if asked[0].samples is None or not (words <= WORDS or words <= NUMERALS):
        return
    fewest = 2 if is_column else 1  # a column's one word may be the answer to every question
    if len(words) < fewest:
        return
    texts = str([(question.samples, question.greedy) for question in asked]).casefold()
    said = set(re.findall(r"\w+", texts))
    if words.isdisjoint(said) and (words <= WORDS or not re.search(r"\d", texts)):
        what = f"{asked[0].where}: references" if is_column else "labels"
        remedy = "; name their column: --fields correct=COLUMN (fields=)" if is_column else ""
        raise BadInput(
            f"{what} are {', '.join(sorted(words))}, which no answer says; "
            f"judgements of answers are True and False{remedy}"
        )


def _say_unread(asked: list[Question]) -> None:
    """One line about the columns that look like answers, references or confidences, and are none of
    the keys that are read.
    """
    filled = ((name, cell) for question in asked for name, cell in question.more.items())
    columns = dict.fromkeys(name for name, cell in filled if cell is not None)
    unread = {}
    for key in ALIKE:
        if SAME.get(key, {key}).isdisjoint(columns):
            unread |= {column: key for column in columns if _is_like(key, column)}
    if unread:
        names = ", ".join(map(str, unread))
        what = f"column {names} is not read; to read it"
        if len(unread) > 1:
            what = f"columns {names} are not read; to read them"
        ways = " ".join(f"{key}={column}" for column, key in unread.items())
        say(f"[measure] {what}: --fields {ways} (in Python fields=)")


def _is_like(key: str, column: Any) -> bool:
    """Whether other programs call a column of this key so."""
    name = re.sub(r"[\s-]+", "_", str(column).strip().casefold())
    return re.fullmatch(f"{key}|{ALIKE[key]}", name) is not None


def complete(
    asked: list[Question], known: list[Question], equality: str | None, task: str | None
) -> None:
    """Give ids and the equality to those without. known: the questions to fit on. Raises BadInput
    where questions lack what others have, or cannot be compared.
    """
    for split, questions in {"test": asked, "fit": known}.items():
        for number, question in enumerate(questions):
            question.id = question.id or f"{split}-{number}"
            if equality:
                question.more = {"equality": equality} | question.more
            _check_equality(question, equality, task)
    every = [*asked, *known]
    files.unique_ids(
        [{"id": question.id} for question in every], [question.where for question in every]
    )
    for what, attribute in PRESENT.items():
        lacking = [question.where for question in every if not getattr(question, attribute)]
        if 0 < len(lacking) < len(every):
            raise BadInput(
                f"{lacking[0]}: no {what}, and other questions have some; give them for all, or for none"
            )
    if lacking := [question.where for question in known if not question.labelled]:
        raise BadInput(f"{lacking[0]}: no reference; questions to fit on need one (fit)")


def _check_equality(question: Question, equality: str | None, task: str | None) -> None:
    kind = question.more.get("equality", "exact")
    if kind not in EQUALITIES:
        by_option = equality is not None and kind == equality
        where = "--equality (equality=)" if by_option else question.where
        raise BadInput(f"{where}: equality is {kind!r}; expected {', '.join(EQUALITIES)}")
    qa.require(kind)
    if task in (None, "qa") and question.reference and not question.options:
        qa.comparable(f"{question.where}: reference", question.reference, kind)


def name_the_nameless(asked: list[Question], are_shown: bool) -> None:
    """Give a text to questions without one, for the table; are_shown: to a model. Raises BadInput
    where one would see it.
    """
    for question in asked:
        if question.text:
            continue
        if are_shown:
            raise BadInput(
                f"{question.where}: no 'question', and a model is asked; name its column (--fields question=COLUMN)"
            )
        question.text = str(question.id)


def answers_given(question: Question) -> Record:
    """The record of answers already made, as orce.given.records reads it. Without labels all are
    wrong, and that is dropped in the end.
    """
    judged = question.judgeable()
    greedy = None
    if judged.greedy is not None:
        text, right = judged.greedy
        greedy = {"answer": text, "correct": right}
    return {
        "id": question.id,
        "answers": judged.samples,
        "greedy": greedy,
        "correct": judged.judgements,
    }


def confidence_given(question: Question) -> Record:
    """The record of a confidence already made, as orce.given.records reads it."""
    answer, right = question.own
    return {
        "id": question.id,
        "confidence": question.more.get("confidence"),
        "answer": answer,
        "correct": right,
    }
