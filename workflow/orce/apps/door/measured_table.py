"""The result: one record a question, with the confidence by method, and what each method cost."""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orce.apps import given
from orce.artefacts import files, tables
from orce.errors import BadInput

SHOWN = 10  # records of a printed table
WIDTHS = {"question": 44, "answer": 20}
ANSWERED = ("answer", "correct")
Record = dict[str, Any]


@dataclass
class Table:
    """Answers with their confidences.

    records: {id, question, answer, correct, confidence: {method: 0 to 1, or None for unreadable}, own: {method: {answer,
    correct}}}; `correct` only where there are labels, `own` for methods that judge another answer than the greedy one.
    cost: {method: {passes, prompt_tokens, generated_tokens, seconds}}, of everything that the method needs. Methods share
    the answers, so the whole, `spent`, is less than the sum.
    """

    records: list[Record]
    cost: dict[str, dict[str, float | None]]
    spent: dict[str, float | None]

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __getitem__(self, place):
        return self.records[place]

    @property
    def methods(self) -> list[str]:
        return list(self.cost)

    def confidence(self, method: str) -> list[float | None]:
        """The confidences of one method, in the order of the questions."""
        if method not in self.cost:
            raise BadInput(f"no method {method!r} in this table; it has {', '.join(self.methods)}")
        return [record["confidence"][method] for record in self.records]

    def correct(self, method: str) -> list[bool]:
        """Whether the answers that a method judges are right. Raises BadInput without labels."""
        if "correct" not in self.records[0]:
            raise BadInput("no labels, so nothing says which answers are right; give labels=[...]")
        return [bool(record.get("own", {}).get(method, record)["correct"]) for record in self.records]

    def metrics(self) -> dict[str, Record]:
        """{method: its metrics with 95 % intervals}, as in the workflow's metrics.json; needs labels."""
        return {method: given.metrics(self._judged(method)) for method in self.methods}

    def to_pandas(self):
        """A DataFrame with a column for each method."""
        import pandas

        return pandas.DataFrame([_flat(record) for record in self.records])

    def write(self, path: str | Path) -> None:
        """Write the records, which `orce compare` reads: CSV for a name in .csv, else JSON lines."""
        if Path(path).suffix != ".csv":
            return files.write_jsonl(path, self.records)
        import csv

        rows = [_flat(record) for record in self.records]
        with files.atomic(path) as handle:
            writer = csv.DictWriter(handle, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)

    def __repr__(self) -> str:
        labels = ["correct"] if self.records and "correct" in self.records[0] else []
        rows = [["question", "answer", *labels, *self.methods]]
        for record in self.records[:SHOWN]:
            texts = [_short(record[key], width) for key, width in WIDTHS.items()]
            marks = ["yes" if record["correct"] else "no" for _ in labels]
            rows.append([*texts, *marks, *(_number(record["confidence"][name]) for name in self.methods)])
        lines = _aligned(rows, left=2)
        if len(self.records) > SHOWN:
            lines.append(f"... {len(self.records) - SHOWN} more")
        costs = [["cost", *self.spent]]
        costs += [[name, *map(_cost, cost.values())] for name, cost in self.cost.items()]
        costs.append(["in all", *map(_cost, self.spent.values())])
        return "\n".join([*lines, "", *_aligned(costs, left=1)])

    def _judged(self, method: str) -> list[Record]:
        pairs = zip(self.records, self.correct(method), self.confidence(method), strict=True)
        return [
            {"answer": record.get("own", {}).get(method, record)["answer"], "correct": right, "confidence": value}
            for record, right, value in pairs
        ]


def _flat(record: Record) -> dict[str, Any]:
    own = {f"{name}_{key}": value for name, one in record.get("own", {}).items() for key, value in one.items()}
    return (
        {key: value for key, value in record.items() if key not in ("confidence", "own")} | record["confidence"] | own
    )


def read(path: str | Path) -> list[Record]:
    """The records of a file that a table has written. Raises BadInput naming the line."""
    if Path(path).suffix != ".csv":
        return files.read_jsonl(path, ("confidence",))
    return [_nested(where, row) for where, row in tables.read(Path(path))]


def _nested(where: str, row: Record) -> Record:
    """The record of a line of CSV: a column that is none of the answer's is a method's."""
    kept = {"id", "question", *ANSWERED}
    own = {f"{name}_{key}": (name, key) for name in row for key in ANSWERED if f"{name}_{key}" in row}
    record: Record = {key: value for key, value in row.items() if key in kept} | {"confidence": {}, "own": {}}
    for column, value in row.items():
        if column in own:
            name, key = own[column]
            record["own"].setdefault(name, {})[key] = value
        elif column not in kept:
            record["confidence"][column] = _confidence(f"{where}, {column}", value)
    for answered in (record, *record["own"].values()):
        if "correct" in answered:
            answered["correct"] = _truth(where, answered["correct"])
    return record


def _confidence(where: str, text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        columns = "id, question, answer, correct, and one a method"
        raise BadInput(f"{where}: {text!r} is not a confidence; a scored table has the columns {columns}") from None


def _truth(where: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise BadInput(f"{where}, correct: {text!r}; expected True or False")
    return text.lower() == "true"


def _short(text: str | None, width: int) -> str:
    return "-" if text is None else textwrap.shorten(text, width, placeholder="...") or text[:width]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _cost(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}" if isinstance(value, float) else f"{value:,}"


def _aligned(rows: list[list[str]], left: int) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(w) if i < left else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
