"""The result of a measurement: one record a question, with the confidence by method."""

import csv
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orce.apps import given
from orce.artefacts import files
from orce.errors import BadInput

SHOWN = 10  # records of a printed table
Record = dict[str, Any]


@dataclass
class Table:
    """Answers with their confidences.

    records: {id, question, answer, correct, confidence: {method: 0 to 1, or None for unreadable}, own: {method: {answer,
    correct}}}; `correct` only where there are labels, `own` for methods that judge another answer than the greedy one.
    """

    records: list[Record]
    methods: list[str]

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __getitem__(self, place):
        return self.records[place]

    def confidence(self, method: str) -> list[float | None]:
        """The confidences of one method, in the order of the questions."""
        if method not in self.methods:
            raise BadInput(f"no method {method!r} in this table; it has {', '.join(self.methods)}")
        return [record["confidence"][method] for record in self.records]

    def correct(self, method: str) -> list[bool]:
        """Whether the answers that a method judges are right. Raises BadInput without labels."""
        if "correct" not in self.records[0]:
            raise BadInput("no labels, so nothing says which answers are right; give labels=[...]")
        return [bool(_judged(record, method)["correct"]) for record in self.records]

    def metrics(self) -> dict[str, Record]:
        """{method: its metrics with 95 % intervals}, as in the workflow's metrics.json; needs labels."""
        by_method = {}
        for method in self.methods:
            values = zip(self.records, self.correct(method), self.confidence(method), strict=True)
            rows = [{**_judged(one, method), "correct": right, "confidence": value} for one, right, value in values]
            by_method[method] = given.metrics(rows)
        return by_method

    def to_pandas(self):
        """A DataFrame with a column for each method."""
        import pandas

        return pandas.DataFrame(map(_flat, self.records))

    def write(self, path: str | Path) -> None:
        """Write the records: CSV for a name in .csv, else JSON lines."""
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
            answer = "-" if record["answer"] is None else _short(record["answer"], 20)
            values = [record["confidence"][name] for name in self.methods]
            marks = ["yes" if record["correct"] else "no" for _ in labels]
            numbers = ["-" if value is None else f"{value:.3f}" for value in values]
            rows.append([_short(record["question"], 44), answer, *marks, *numbers])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        layout = "  ".join(f"{{:{'<' if i < 2 else '>'}{width}}}" for i, width in enumerate(widths))
        more = [f"... {len(self.records) - SHOWN} more"] if len(self.records) > SHOWN else []
        return "\n".join([*(layout.format(*row) for row in rows), *more])


def _judged(record: Record, method: str) -> Record:
    """What has the answer that a method judges, with its `correct`: an answer of its own, or the record."""
    return record.get("own", {}).get(method, record)


def _short(text: str, width: int) -> str:
    return textwrap.shorten(text, width, placeholder="...") or text[:width]


def _flat(record: Record) -> Record:
    """A column for each method, and METHOD_answer and METHOD_correct for an answer of its own."""
    own = {f"{name}_{key}": value for name, one in record.get("own", {}).items() for key, value in one.items()}
    return {key: record[key] for key in record if key not in ("confidence", "own")} | record["confidence"] | own
