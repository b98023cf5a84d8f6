"""lm-evaluation-harness: the files samples_TASK_*.jsonl that --log_samples writes.

Generated answers (generate_until): all responses of a question, so `repeats: 10` gives 10 samples. Multiple choice
(loglikelihood): the likeliest option, and as confidence its share of the options' likelihood.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from orce.apps.importers.row import Row, judgement, letter
from orce.artefacts.files import read_jsonl
from orce.errors import BadInput

QUESTIONS = ("question", "problem", "query", "input", "goal", "Question", "question_stem", "sentence", "ctx", "prompt")
KEYS = ("doc_id", "doc", "target", "resps")
SHARE = "option_probability"


@dataclass
class Line:
    """A line as the harness writes it, and its place for messages. given: the whole line, with a key for each metric."""

    place: str
    doc_id: Any
    doc: Any
    target: Any
    resps: list[Any]
    filter: str
    given: dict[str, Any]

    @classmethod
    def of(cls, place: str, given: dict[str, Any]) -> "Line":
        return cls(place, *(given[key] for key in KEYS), filter=given.get("filter", "none"), given=given)


def read(path: str, options) -> Iterator[Row]:
    """The rows of one file. options: question, id, filter, metric, judgements of the command line.

    The harness writes a question once for each filter; its judgements come from one filter and one metric.
    """
    lines = [Line.of(f"{path}, line {i}", record) for i, record in enumerate(read_jsonl(path, KEYS), 1)]
    filters = list(dict.fromkeys(line.filter for line in lines))
    if options.filter and options.filter not in filters:
        raise BadInput(f"{path}: no filter {options.filter!r}; there are {', '.join(filters)}")
    chosen = options.filter or filters[0]
    for line in lines:
        if line.filter == chosen:
            yield _choice(line, options) if _scored(line) else _generated(line, options, filters)


def _scored(line: Line) -> bool:
    """Whether the responses are log-likelihoods: [[["-6.5", "False"]], ...]."""
    first = line.resps[0] if line.resps else None
    return isinstance(first, list) and bool(first) and isinstance(first[0], list)


def _generated(line: Line, options, filters: list[str]) -> Row:
    if len(line.resps) != 1 or not all(isinstance(text, str) for text in line.resps[0]):
        raise BadInput(
            f"{line.place}: resps are neither texts nor log-likelihoods of options; this kind of task is not read"
        )
    answers = line.resps[0]
    row = _row(line, options, answers)
    row.reference = line.target if isinstance(line.target, list) else [str(line.target)]
    if len(answers) == 1 and options.judgements == "keep":
        if len(filters) > 1 and not options.filter:
            raise BadInput(
                f"{line.place}: judged after the filters {', '.join(filters)}; name one (--filter), or --judgements drop"
            )
        row.correct = [judgement(line.place, line.given[_metric(line, options)])]
    return row


def _choice(line: Line, options) -> Row:
    scores = [float(response[0][0]) for response in line.resps]
    said = [arguments["arg_1"].strip() for arguments in line.given["arguments"].values()]
    if len(set(said)) < len(said):
        raise BadInput(
            f"{line.place}: the options have the same text {said[0]!r}; a task whose options are contexts is not read"
        )
    given = line.doc.get(options.choices or "choices")
    choices = list(map(str, given)) if isinstance(given, list) and len(given) == len(said) else said
    best = max(range(len(scores)), key=scores.__getitem__)
    row = _row(line, options, [letter(best)])
    row.choices, row.reference = choices, _right(line, said, best)
    if options.judgements == "keep":
        row.correct = [
            judgement(line.place, line.given["acc"]) if "acc" in line.given else letter(best) == row.reference
        ]
    shares = [math.exp(score - scores[best]) for score in scores]
    row.stated[SHARE] = {"confidence": 1 / sum(shares)}
    return row


def _right(line: Line, said: list[str], best: int) -> str:
    """The letter of the right option: the target is its number or its text, which `acc` settles where it may be both."""
    target = str(line.target).strip()
    places = {said.index(target)} if target in said else set()
    if target.isdecimal() and int(target) < len(said):
        places.add(int(target))
    if len(places) > 1 and "acc" in line.given:
        places = {place for place in places if (place == best) == bool(line.given["acc"])}
    if len(places) != 1:
        raise BadInput(
            f"{line.place}: target is {target!r}; expected the number or the text of one of {', '.join(said)}"
        )
    return letter(places.pop())


def _row(line: Line, options, answers: list) -> Row:
    """The question comes from the document: the prompt may have worked examples in it."""
    doc = line.doc
    name = options.question or next((name for name in QUESTIONS if isinstance(doc.get(name), str)), None)
    for option, column in (("question", name), ("id", options.id)):
        if (option == "question" or column) and column not in doc:
            raise BadInput(
                f"{line.place}: no column {column or 'of the question'} in doc; name it (--{option}): {', '.join(doc)}"
            )
    known = str(doc[options.id]) if options.id else None
    return Row(line.place, str(doc[name]), answers, id=known, same=f"{line.doc_id} {doc[name]}")


def _metric(line: Line, options) -> str:
    names = line.given.get("metrics") or [name for name in ("exact_match", "acc") if name in line.given]
    if options.metric in names:
        return options.metric
    if options.metric or len(names) != 1:
        raise BadInput(
            f"{line.place}: metrics are {', '.join(names) or 'none'}; name the one that judges (--metric), or --judgements drop"
        )
    return names[0]
