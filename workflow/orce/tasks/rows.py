"""Questions as people bring them: the rows of a data set, from files (orce.artefacts.tables) or the
hub, and the records of given answers, and of `orce measure`. Their values are read
by one rule.

The hub's Parquet files are read by name, so a loading script beside them does not matter
(baber/logiqa2 has one, and `datasets` refuses scripts since version 4); the `datasets` library
reads repositories in other formats. Where a revision has a script alone, the hub's conversion of it
is read.
"""

import itertools
import json
import re
from collections.abc import Callable, Mapping
from glob import escape
from pathlib import Path
from typing import Any

import msgspec

from orce.artefacts import tables
from orce.artefacts.files import unique_ids
from orce.artefacts.records import Example
from orce.artefacts.tables import KINDS, PACKED, Row, written
from orce.errors import BadInput, one_line
from orce.runtime.hub import raise_refusal
from orce.runtime.modules import short
from orce.runtime.process import say
from orce.text import render
from orce.text.marks import own_marks

# a branch that the hub makes of every data set, CONFIG/SPLIT/0000.parquet
CONVERTED = "refs/convert/parquet"
NOTHING = ("nan", "NaN", "NAN")  # how programs write a missing value into a text
UNNUMBERED = ", or leave out fields.id to number the rows"
TRUTHS = {
    "yes": ("true", "yes"),
    "true": ("true", "yes"),
    "no": ("false", "no"),
    "false": ("false", "no"),
}
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


def examples(
    source: Mapping[str, Any], split: str, first: int | None, example: Callable[[Question], Example]
) -> list[Example]:
    """The examples that a task makes of the rows of a split, or of the first of them, with ids that
    differ.
    """
    asked = [from_row(row, i, source, split) for i, row in enumerate(load(source, split, first))]
    return unique_ids([*map(example, asked)], [question.where for question in asked], UNNUMBERED)


def from_row(row: Row, position: int, source: Mapping[str, Any], split: str) -> Question:
    """The question of a row of a data set; its id is the row's number where the source names no
    field for it.

    `ask` is a line after each question's text, for sets whose text does not say what is asked.
    """
    fields = source["fields"]
    cells = tables.record(row, source["fields"])

    def needed(name: str) -> str:
        return text(row, fields[name], name)

    asked = Question(
        where=row[0],
        more={key: source[key] for key in ("answer_pattern", "answer_marks") if key in source},
        id=needed("id") if "id" in fields else f"{split}-{position}",
        text=needed("question" if "question" in fields else "id")
        + (f"\n{source['ask']}" if "ask" in source else ""),
        context=None if blank(cells.get("context")) else needed("context"),
    )
    columns = fields.get("choices")
    accepted = fields.get("answer")
    # this column is right in every row
    if isinstance(columns, list) and accepted in columns and needed("answer"):
        cells["answer"] = columns.index(accepted)
        source = {**source, "answer_is": "index"}
    return _accepted(asked, cells, "answer", source)


def from_record(where: str, record: Record, task: str | None = None) -> Question:
    """The question of a record with the keys question, id, context, choices, labels, reference or
    references, answer_is, and those of `answered`. Raises BadInput for a value of another form.
    """
    asked = answered(where, record)
    name = "reference" if record.get("references") is None else "references"
    first, every = (
        [] if blank(cell) else listed(cell)
        for cell in (record.get("reference"), record.get("references"))
    )
    if every and not all(item in every for item in first):
        raise BadInput(
            f"{where}: it has a reference and other references; keep one of the two keys"
        )
    asked.id = written(record.get("id"))
    asked.text = record.get("question", "")
    asked.context = None if blank(record.get("context")) else written(record["context"])
    if asked.context is None and not blank(record.get("context")):
        raise BadInput(f"{where}: context is {short(record['context'])}; expected a text")
    return _accepted(asked, record, name, {"answer_is": record.get("answer_is")}, task)


def _accepted(
    asked: Question, cells: Record, key: str, source: Mapping[str, Any], task: str | None = None
) -> Question:
    """The question with its options and its reference, which stands in the cell `key`."""
    where = asked.where
    names = source.get("fields", {})
    cell = cells.get(key)
    labels = tables.decoded(cells.get("labels")) or []
    asked.options = source.get("options")
    if "choices" in names or not blank(cells.get("choices")):
        asked.options, named = options(where, names.get("choices", "choices"), cells["choices"])
        labels = labels or named
    if not isinstance(labels, list):
        raise BadInput(
            f"{where}: {names.get('labels', 'labels')!r} is {labels!r}; expected a list (fields.labels)"
        )
    name = names.get(key, key)
    if asked.options and task in LETTERED:
        if names or not blank(cell):
            asked.reference = letter(where, name, cell, asked.options, labels, source)
    elif task in ("qa", None):
        asked.reference = references(where, name, cell, source.get("answer_after"))
    else:  # of a task with a form of its own; DROP's is a list of lists of texts
        several = [] if blank(cell) else listed(cell)
        asked.reference = [
            [written(x)] if task == "drop" and not isinstance(x, list) else x for x in several
        ]
    return asked


def answered(where: str, record: Record) -> Question:
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
    cells = listed(tables.decoded(record["answers"])) if several else [record["answer"]]
    given.samples = [*map(written, cells)]
    if not cells or given.samples.count(None) > cells.count(None):
        name, expected = (
            ("answers", "a list of texts") if several else ("answer", "a text, or null for none")
        )
        raise BadInput(f"{where}: {name} is {short(record[name])}; expected {expected}")
    marks = listed(correct)
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


# Values


def blank(cell: Any) -> bool:
    """Whether a cell says nothing: no value, no text, or an empty list."""
    return cell is None or cell == [] or not str(cell).strip()


def listed(cell: Any) -> list:
    return cell if isinstance(cell, list) else [cell]


def text(row: Row, path: str, field: str = "") -> str:
    """A text that is not empty; a number is written out. field: where the configuration names the
    path.
    """
    cell = tables.value(row, field, path)
    if isinstance(cell, bool) or written(cell) is None or blank(cell):
        shown = cell if len(repr(cell)) <= 60 else f"{str(cell)[:57]}..."
        named = f" (fields.{field})" if field else ""
        raise BadInput(f"{row[0]}: {path!r} is {shown!r}; expected a text that is not empty{named}")
    return str(written(cell))


def present(where: str, name: str, text: str, otherwise: str = "") -> str:
    """The text of a reference or an option. Raises BadInput for one that stands for a missing
    value.
    """
    if text.strip() in NOTHING:
        missing = f"{name!r} is {text.strip()!r}, which stands for a missing value"
        raise BadInput(f"{where}: {missing}; fill it in, or leave the row out{otherwise}")
    return text


def references(where: str, name: str | list[str], cell: Any, after: str | None = None) -> list[str]:
    """The accepted answers in a cell, or in several: a text, a number or a boolean, or a list of
    them, which a text may hold too. after: the signs before an answer.
    """
    if isinstance(name, list):
        every = [references(where, *column, after) for column in zip(name, cell, strict=True)]
        return [*dict.fromkeys(itertools.chain(*every))]
    if isinstance(cell, str) and after is None:
        read = tables.decoded(cell)  # [0, 1] may be an interval, ["0", "1"] is a list of answers
        texts = isinstance(read, list) and (not read or any(isinstance(item, str) for item in read))
        # JSON may be an answer, as it stands
        pythons = isinstance(read, dict) and not cell.lstrip().startswith('{"')
        cell = (
            read if texts or pythons else present(where, name, cell, '; ["nan"] is the word itself')
        )
    given = [item for item in listed(cell) if item is not None]
    for item in given:
        if written(item) is None:
            hint = f"a part of a record is named with a dot: {name}.NAME"
            raise BadInput(
                f"{where}: {name!r} holds {item!r}; expected a text, a number or a list of them ({hint})"
            )
    answers = [str(written(item)) for item in given]
    if after is not None:
        if not all(after in answer for answer in answers):
            raise BadInput(f"{where}: {name!r} has no {after!r}, which answer_after names")
        answers = [answer.rsplit(after, 1)[1] for answer in answers]
    return list(dict.fromkeys(answer.strip() for answer in answers if answer.strip()))


def options(where: str, name: str | list[str], cell: Any) -> tuple[list[str], list]:
    """Option texts, at least two, without letters or numbers of their own, and their labels where
    the cell has other ones than letters. Empty texts pass: published sets have some.
    """
    labels = []
    cell = tables.decoded(cell)
    given = cell
    # a column each; a question may have fewer options, with its last columns empty
    if isinstance(name, list):
        while cell and blank(cell[-1]):
            cell.pop()
        for column, option in zip(name, cell, strict=False):
            present(where, column, str(option))
        name = ", ".join(name)
    if isinstance(cell, dict):
        scores = _without_nulls(cell)
        scored = all(
            isinstance(score, int | float) and 0 <= score <= 1 for score in scores.values()
        )
        cell, labels = ([*scores], []) if scored else ([*cell.values()], [*cell])
    texts = [written(option) for option in cell] if isinstance(cell, list) else []
    if len(texts) < 2 or None in texts:
        hint = (
            f" (texts in a part of it are named with a dot: {name}.NAME)"
            if isinstance(given, dict)
            else ""
        )
        raise BadInput(
            f"{where}: {name!r} is {given!r}; expected a list of at least two option texts{hint}"
        )
    if len(texts) > 26:
        raise BadInput(f"{where}: {name!r} has {len(texts)} options; at most 26 have letters")
    shown = [str(option).strip() for option in texts]
    bare = [_unlabelled(i, text) for i, text in enumerate(shown)]
    if all(len(text) < len(whole) for text, whole in zip(bare, shown, strict=True)):
        numbers = (
            [str(i) for i in range(1, len(bare) + 1)]
            if shown[0].lstrip("(").startswith("1")
            else []
        )
        return bare, labels or numbers
    return [str(option) for option in texts], labels


def _unlabelled(i: int, text: str) -> str:
    """The text of option i without the letter or number that it may begin with: "B)21.5", "2.
    Paris".
    """
    return re.sub(rf"(?i)^\(?(?:{chr(ord('A') + i)}[).:]\s*|{i + 1}[).:]\s+)(?=\S)", "", text)


def letters(choices: list) -> str:
    return "".join(chr(ord("A") + i) for i in range(len(choices)))


def _without_nulls(scores: dict) -> dict:
    """A mapping of option to score without nulls: in Parquet each row has the options of all rows."""
    return {option: score for option, score in scores.items() if score is not None}


def letter(
    where: str, name: str, answer: Any, choices: list[str], labels: list, source: Mapping[str, Any]
) -> str:
    """The letter of the option that an answer means: by its text, letter, label or position, by 0
    and 1 for each of the options, or as `answer_is` says. Raises BadInput for an answer that means
    none or several.
    """
    value = answer if answer in choices else tables.decoded(answer)
    labels = [*map(str, labels)]
    if isinstance(value, dict):  # of option to 0 or 1
        scores = {str(option).strip(): score for option, score in _without_nulls(value).items()}
        named = [option.strip() for option in labels or choices]
        if scores.keys() != {*named}:
            raise BadInput(
                f"{where}: {name!r} is {value}; expected 0 or 1 for each of the options {', '.join(named)}"
            )
        if [score for score in scores.values() if score != 0] != [1]:
            raise BadInput(
                f"{where}: {name!r} is {value}; expected 1 for the one right option, and 0 for the others"
            )
        value = [scores[option] for option in named]
    mask = (
        isinstance(value, list)
        and len(value) == len(choices)
        and all(flag in (0, 1) for flag in value)
    )
    if mask and sum(value) == 1:
        return letters(choices)[value.index(1)]
    several = value if isinstance(value, list) and not mask else [value]
    meant = {index for item in several for index in _meant(item, choices, labels, source)}
    if len(meant) == 1 and (index := min(meant)) < len(choices):
        return letters(choices)[index]
    raise BadInput(
        f"{where}: {name!r} is {answer!r}{_expected(value, meant, choices, labels, source)}"
    )


def _meant(
    value: Any, choices: list[str], labels: list[str], source: Mapping[str, Any]
) -> set[int]:
    """The options that an answer may mean, by number."""
    meant = source.get("answer_is")
    columns = source.get("fields", {}).get("choices")
    every = letters(choices)
    stated = (written(value) or "").strip()
    index = [int(stated)] if stated.isdecimal() else []
    if isinstance(meant, dict):
        stated = {str(label).casefold(): text for label, text in meant.items()}.get(
            stated.casefold(), ""
        ).strip()
    text = [
        i
        for i, choice in enumerate(choices)
        if stated and choice.strip() in (stated, _unlabelled(i, stated))
    ]
    lettered = [i for i, sign in enumerate(every) if sign == stated.strip("()[]{}.:").upper()]
    if meant is not None:
        kinds = {"letter": lettered, "index": index, "index from 1": [i - 1 for i in index if i]}
        return {*kinds.get(str(meant), text[:1])}
    truth = [
        i
        for i, choice in enumerate(choices)
        if choice.strip().casefold() in TRUTHS.get(stated.casefold(), ())
    ]
    named = (
        [i for i, label in enumerate(labels) if label == stated][:1] if labels else text + lettered
    )
    indices = {*(named or text or lettered), *(truth if len(truth) == 1 else [])}
    if isinstance(columns, list) and value in columns:
        indices.add(columns.index(value))
    unclear = index in ([0], [1]) and _truth_or_index(choices, source) and not indices
    inside = {i for i in index if i < len(choices) or not indices}
    return indices if labels or unclear else indices | inside


def _truth_or_index(choices: list[str], source: Mapping[str, Any]) -> bool:
    """Whether 0 and 1 may be what the two options say, and not their positions."""
    return len(choices) == 2 and (
        "options" in source or {text.strip().casefold() for text in choices} <= TRUTHS.keys()
    )


def _expected(
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
    doubtful = bare.casefold() in ("0", "1", "true", "false") and _truth_or_index(choices, source)
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


# Files


def load(source: Mapping[str, Any], split: str, first: int | None = None) -> list[Row]:
    """The rows of a split, or the first of them: of the hub's, or of the file SPLIT.jsonl (or
    another of KINDS) in a folder.
    """
    return from_hub(source, split) if "hub" in source else tables.read(local(source, split), first)


def local(source: Mapping[str, Any], split: str) -> Path:
    """The file of a split. Raises BadInput if it is not there."""
    return find(source, [f"{escape(split)}.{kind}" for kind in KINDS])[0]


def find(source: Mapping[str, Any], patterns: list[str]) -> list[Path]:
    """The files of the first pattern that matches any in the source's folder, plain or packed and
    with an ending in capitals or not; or its path itself if that is a file.
    """
    if "path" not in source:
        raise BadInput(
            f"source: {dict(source)} names neither hub nor path; this task needs one of them"
        )
    path = Path(source["path"])
    if not path.exists():
        raise BadInput(
            f"{path}: does not exist; source.path is a folder with the publisher's files"
        )
    if path.is_file():
        return [path]
    for pattern in patterns:
        stem, _, ending = pattern.rpartition(".")
        for packed in PACKED:
            capitals = re.sub(
                r"[a-z]", lambda sign: f"[{sign[0]}{sign[0].upper()}]", f".{ending}{packed}"
            )
            if files := sorted(path.glob(stem + capitals)):
                return files
    raise BadInput(
        f"{path}: found none of {', '.join(patterns)}; expected the publisher's files in this folder"
    )


# Prompts and answers


def zero_shot(template: str, question: str, shots: int | None) -> list[dict]:
    """The prompt of a task without worked examples: one user turn."""
    if shots:
        raise BadInput(f"shots is {shots}, but this task has no worked examples; use 0")
    return [{"role": "user", "content": render(template, question=question)}]


def matched(text: str, example: Example) -> str:
    """What the example's own pattern finds in a text: the first group of its last match; without a
    pattern, the text, with its own marks as "Answer:".

    A text that the pattern does not match is empty, so it has no answer.
    """
    if "answer_pattern" not in example:
        return own_marks(text, example.get("answer_marks", []))
    *_, last = [None, *re.finditer(example["answer_pattern"], text)]
    return next(filter(None, [*last.groups(), last[0]]), "") if last else ""


# The hub


def from_hub(source: Mapping[str, Any], split: str, config: str | None = None) -> list[Row]:
    """Rows of a split. `source` is {hub, config, revision}; `config` is the task's default.

    Raises BadInput in one line: what the hub refused, or why each of the three ways of reading
    failed.
    """
    source = {"config": config, **source}
    where = f"{source['hub']} ({source['config'] or 'default'}) {split}"
    failed = []
    ways = {
        "its Parquet files by name": (_by_name, source),
        "the datasets library": (_datasets, source),
        f"the hub's own conversion ({CONVERTED})": (_by_name, source | {"revision": CONVERTED}),
    }
    for way, (read, at) in ways.items():
        try:
            rows = [(f"{where}, row {i}", row) for i, row in enumerate(read(at, split))]
        except Exception as error:  # noqa: BLE001 - the two libraries and those below them have no common class
            if at is source:
                raise_refusal(error, "data set", source["hub"], source.get("revision"))
            failed.append(f"{way}: {one_line(error)}")
            continue
        if at is not source:
            say(f"[prompts] {where}: read from {way}, as {'; '.join(failed)}")
        return rows
    raise BadInput(
        f"{where}: cannot be read from the hub; tried {'; then '.join(failed)}. Name a revision with Parquet files, "
        "or source: {path: FOLDER} with the publisher's files"
    )


def _by_name(source: Mapping[str, Any], split: str) -> list[dict]:
    """Rows of a split in the hub's usual layouts: CONFIG/SPLIT-*.parquet and
    CONFIG/SPLIT/*.parquet.
    """
    import pyarrow.parquet
    from huggingface_hub import snapshot_download

    configs = [source["config"]] if source["config"] else ["data", "default"]
    patterns = [
        f"{config}/{name}"
        for config in configs
        for name in (f"{split}-*.parquet", f"{split}/*.parquet")
    ]
    revision = source.get("revision")
    folder = snapshot_download(
        source["hub"], repo_type="dataset", revision=revision, allow_patterns=patterns
    )
    for pattern in patterns:
        if files := sorted(Path(folder).glob(pattern)):
            return [row for file in files for row in pyarrow.parquet.read_table(file).to_pylist()]
    raise FileNotFoundError(f"none of {', '.join(patterns)} in the repository")


def _datasets(source: Mapping[str, Any], split: str) -> list[dict]:
    from datasets import load_dataset

    origin = {"path": source["hub"], "name": source["config"], "revision": source.get("revision")}
    return load_dataset(**origin, split=split, trust_remote_code=False).to_list()


def pinned(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """The source with its revision resolved to a commit; unchanged if there is no connection."""
    if "hub" not in source or re.fullmatch(r"[0-9a-f]{40}", source.get("revision") or ""):
        return source
    from huggingface_hub import HfApi

    try:
        return {
            **source,
            "revision": HfApi().dataset_info(source["hub"], revision=source.get("revision")).sha,
        }
    except Exception as error:  # noqa: BLE001 - without a connection the loader tries the cache, and reports what is missing
        raise_refusal(error, "data set", source["hub"], source.get("revision"))
        return source
