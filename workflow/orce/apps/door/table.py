"""The result: one record a question, with the confidence by method, and what each method cost."""

import csv
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
        found = {}
        for method in self.methods:
            judged = zip(self.records, self.correct(method), self.confidence(method), strict=True)
            found[method] = given.metrics(
                [
                    {"answer": one.get("own", {}).get(method, one)["answer"], "correct": right, "confidence": value}
                    for one, right, value in judged
                ]
            )
        return found

    def to_pandas(self):
        """A DataFrame with a column for each method."""
        import pandas

        return pandas.DataFrame(map(_flat, self.records))

    def write(self, path: str | Path) -> None:
        """Write the records, which `orce compare` reads: CSV for a name in .csv, else JSON lines."""
        if Path(path).suffix != ".csv":
            return files.write_jsonl(path, self.records)
        rows = [_flat(record) for record in self.records]
        with files.atomic(path) as handle:
            writer = csv.DictWriter(handle, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)

    def __repr__(self) -> str:
        labels = ["correct"] if self.records and "correct" in self.records[0] else []
        rows = [["question", "answer", *labels, *self.methods]]
        for record in self.records[:SHOWN]:
            texts = ["-" if record[key] is None else _short(record[key], width) for key, width in WIDTHS.items()]
            values = [record["confidence"][name] for name in self.methods]
            marks = ["yes" if record["correct"] else "no" for _ in labels]
            rows.append([*texts, *marks, *("-" if value is None else f"{value:.3f}" for value in values)])
        more = [f"... {len(self.records) - SHOWN} more"] if len(self.records) > SHOWN else []
        costs = [["cost", *self.spent]]
        for name, cost in {**self.cost, "in all": self.spent}.items():
            shown = (f"{value:.1f}" if isinstance(value, float) else f"{value:,}" if value is not None else "-" for value in cost.values())  # fmt: skip
            costs.append([name, *shown])
        return "\n".join([*_aligned(rows, left=2), *more, "", *_aligned(costs, left=1)])


def _short(text: str, width: int) -> str:
    return textwrap.shorten(text, width, placeholder="...") or text[:width]


def _aligned(rows: list[list[str]], left: int) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = [
        [cell.ljust(width) if i < left else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths, strict=True))]
        for row in rows
    ]  # fmt: skip
    return ["  ".join(row).rstrip() for row in padded]


def _flat(record: Record) -> Record:
    own = {f"{name}_{key}": value for name, one in record.get("own", {}).items() for key, value in one.items()}
    kept = {key: value for key, value in record.items() if key not in ("confidence", "own")}
    return kept | record["confidence"] | own


def read(path: str | Path) -> list[Record]:
    """The records of a file that a table has written. Raises BadInput naming the line."""
    if Path(path).suffix != ".csv":
        return files.read_jsonl(path, ("confidence",))
    return [_nested(where, row) for where, row in tables.read(Path(path))]


def _nested(where: str, row: Record) -> Record:
    """The record of a line of CSV, where other columns than the answer's are methods."""
    record: Record = {"confidence": {}, "own": {}}
    for column, value in row.items():
        name, _, key = column.rpartition("_")
        if column == "correct" or (key == "correct" and name in row):
            if value.lower() not in ("true", "false"):
                raise BadInput(f"{where}, correct: {value!r}; expected True or False")
            value = value.lower() == "true"
        if name in row and key in ANSWERED:
            record["own"].setdefault(name, {})[key] = value
        elif column in ("id", "question", *ANSWERED):
            record[column] = value
        else:
            try:
                record["confidence"][column] = float(value) if value else None
            except ValueError:
                columns = "id, question, answer, correct, and one a method"
                raise BadInput(
                    f"{where}, {column}: {value!r} is not a confidence; a scored table has the columns {columns}"
                ) from None
    return record
