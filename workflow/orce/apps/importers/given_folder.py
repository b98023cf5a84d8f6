"""The files of the given answers (docs/given.md) from the rows of a foreign file: questions.jsonl, answers.jsonl, one file for each
method that states confidences, and a config.yaml that makes a table of them."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from orce import tasks
from orce.apps.importers.row import Row, letter
from orce.artefacts import files
from orce.errors import BadInput
from orce.records import Example

Pairs = list[tuple[Row, Example]]  # rows with their questions
PAIRS = 25_000_000  # comparisons of a question with a prompt that are made before it is given up


def merged(rows: list[Row]) -> list[Row]:
    """One row for each question: the answers of its rows, in their order, are its samples.

    Raises BadInput where an id stands at two questions.
    """
    found: dict[str, Row] = {}
    for row in rows:
        first = found.setdefault(row.same, row)
        if row.id and _squeezed(row.question) != _squeezed(first.question):
            raise BadInput(f"{row.place}: id {row.id!r} is that of another question in {first.place.rpartition(', ')[2]}; name a column whose ids differ (csv: --column id=COLUMN, lm-eval: --id COLUMN)")  # fmt: skip
        if first is not row:
            first.answers = [*first.answers, *row.answers]
            judged = first.correct is not None and row.correct is not None
            first.correct = [*(first.correct or ()), *(row.correct or ())] if judged else None
    return list(found.values())


def examples(rows: list[Row], prompts: list[Example] | None) -> tuple[Pairs, list[Row]]:
    """Each row with its question as frozen prompts have it, {id, question, context, choices, reference}, and the rows without
    one. Without prompts the questions are the rows' own, and q1, q2, ... where they have no id."""
    if prompts is None:
        return [(row, _own(row, f"q{i}")) for i, row in enumerate(rows, 1)], []
    known = {example["id"]: example for example in prompts}
    texts = [_squeezed(example["question"]) for example in prompts]
    often = Counter(texts)
    by_text = {text: one for text, one in zip(texts, prompts, strict=True) if often[text] == 1}
    long = [*by_text.items()] if len(rows) * len(prompts) <= PAIRS else []
    pairs = [(row, known.get(row.id or "") or by_text.get(_squeezed(row.question)) or _held(row, long)) for row in rows]
    return [(row, one) for row, one in pairs if one], [row for row, one in pairs if not one]


def _own(row: Row, name: str) -> Example:
    reference: Any = row.reference if row.reference is not None else []
    return {"id": row.id or name, "question": row.question or row.id or "", "context": None, "choices": row.choices, "reference": reference}  # fmt: skip


def _squeezed(text: str) -> str:
    return " ".join(text.casefold().split())


def _held(row: Row, prompts: list[tuple[str, Example]]) -> Example | None:
    """The one prompt whose question and options all stand in the row's text; the longest, if one holds the others."""
    said = _squeezed(" ".join([row.question, *(row.choices or [])]))
    held = [
        (text, one)
        for text, one in prompts
        if text in said and all(_squeezed(option) in said for option in one["choices"] or [])
    ]
    longest = max(held, key=lambda pair: len(pair[0]), default=("", None))
    return longest[1] if all(text in longest[0] for text, _ in held) else None


def fitted(row: Row, example: Example) -> Row:
    """The row with its letters as the prompt's options have them, where these stand in another order."""
    shown = example["choices"]
    if row.choices is None or not shown or row.choices == shown:
        return row
    try:
        order = {letter(i): letter(shown.index(text)) for i, text in enumerate(row.choices)}
    except ValueError:
        raise BadInput(
            f"{row.place}: the options {row.choices} are not those of the prompt {example['id']!r}"
        ) from None
    if any(answer is not None and answer not in order for answer in row.answers):
        raise BadInput(
            f"{row.place}: the options of the prompt {example['id']!r} stand in another order, and the answers are texts; "
            "import them without --prompts"
        )
    row.answers = [answer and order[answer] for answer in row.answers]
    return row


def write(folder: Path, pairs: Pairs, greedy: dict[str, Row], chosen) -> dict[str, int]:
    """Fills the folder; what was written, by file. chosen: name, equality and answer_after of the command line."""
    tables: dict[str, list[Any]] = {"questions": [example for _, example in pairs], "answers": []}
    for row, example in pairs:
        tables["answers"].append(_answers(example["id"], row, greedy.get(row.same)))
        for method, stated in row.stated.items():
            tables.setdefault(_plain(method), []).append({"id": example["id"]} | stated)
    ids = Counter(example["id"] for _, example in pairs)
    if len(ids) < len(pairs):
        twice = ids.most_common(1)[0][0]
        raise BadInput(f"{len(pairs) - len(ids)} rows are of a question that another row has, such as id {twice!r}")
    for name, records in tables.items():
        files.write_jsonl(folder / f"{name}.jsonl", records)
    several = any(len(row.answers) > 1 for row, _ in pairs)
    config = _config(chosen, pairs[0][1], [name for name in tables if name not in ("questions", "answers")], several)
    with files.atomic(folder / "config.yaml") as handle:
        handle.write(yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
    return {f"{name}.jsonl": len(records) for name, records in tables.items()}


def _answers(name: str, row: Row, greedy: Row | None) -> dict:
    record: dict[str, Any] = {"id": name, "answers": row.answers}
    if greedy is not None:
        record["greedy"] = {"answer": greedy.answers[0]} | ({"correct": greedy.correct[0]} if greedy.correct else {})
    return record | ({"correct": row.correct} if row.correct is not None else {})


def _plain(method: str) -> str:
    return re.sub(r"[^a-z0-9_]+", "_", method.lower()).strip("_")


def _config(chosen, example: Example, methods: list[str], several: bool) -> dict:
    """A configuration for --configfile; paths are as on the command line, from the folder in which it ran."""
    name, place = chosen.name, Path(chosen.out)
    fields = {"id": "id", "question": "question"} | ({"answer": "reference"} if example["reference"] else {})
    asked: dict[str, Any] = {"task": "qa", "fields": fields}
    if example["choices"]:
        asked = {"task": "choice", "fields": fields | {"choices": "choices"}, "answer_is": "letter"}
    for key in ("equality", "answer_after"):
        if getattr(chosen, key) is not None:
            asked[key] = getattr(chosen, key)
    source = {"source": {"path": str(place / "questions.jsonl")}, "splits": {"test": {"from": "test"}}}
    rows = (["consistency"] if several or not methods else []) + [f"given_{method}" for method in methods]
    return {
        "datasets": {name: asked | source},
        "models": {"given": {"label": chosen.label, "source": {}}},
        "answers": {"path": str(place / "answers.jsonl")},
        "methods": {f"given_{one}": {"path": str(place / f"{one}.jsonl"), "label": one} for one in methods},
        "tables": {name: {"kind": "main", "dataset": name, "models": ["given"], "methods": rows}},
        "paper_tables": [name],
    }


def read_again(pairs: Pairs, chosen) -> tuple[int, int, int, int] | None:
    """(judgements, right by the file alone, right by our reading alone, unread by us) of judged answers that have references."""
    n = unread = 0
    judged = Counter[tuple[bool, bool]]()
    for row, example in pairs:
        task = tasks.get("choice" if example["choices"] else "qa")
        asked: Any = example | {"equality": chosen.equality or "normalised"}
        if chosen.answer_after and not example["choices"]:
            asked["reference"] = [one.rsplit(chosen.answer_after, 1)[-1].strip() for one in asked["reference"]]
        for text, given in zip(row.answers, row.correct or [], strict=False):
            if asked["reference"]:
                answer = task.extract(text, asked) if text else None
                judged[given, bool(task.score(answer, asked)["correct"])] += 1
                n, unread = n + 1, unread + (answer is None)
    return (n, judged[True, False], judged[False, True], unread) if n else None
