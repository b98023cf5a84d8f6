"""The result of a measurement: one record a question, with the confidence by method."""

import csv
import textwrap
from pathlib import Path
from typing import Any

from orce.apps import given
from orce.artefacts import files, tables
from orce.errors import BadInput

SHOWN = 10  # records of a printed table
Record = dict[str, Any]


class Table(list[Record]):
    """Answers with their confidences, by `methods`.

    A record: {id, question, answer, correct, confidence: {method: 0 to 1, or None for unreadable},
    own: {method: {answer, correct}}}; `correct` only where there are labels, `own` for methods that
    judge another answer than the greedy one.
    """

    def __init__(self, records: list[Record], methods: list[str]):
        super().__init__(records)
        self.records = records
        self.methods = methods
        self.hints = list[str]()

    def confidence(self, method: str) -> list[float | None]:
        """The confidences of one method, in the order of the questions."""
        if method not in self.methods:
            raise BadInput(f"no method {method!r} in this table; it has {', '.join(self.methods)}")
        return [record["confidence"][method] for record in self]

    def correct(self, method: str) -> list[bool]:
        """Whether the answers that a method judges are right. Raises BadInput without labels."""
        if "correct" not in self[0]:
            raise BadInput("no labels, so nothing says which answers are right; give labels=[...]")
        return [bool(_judged(record, method)["correct"]) for record in self]

    def metrics(self) -> dict[str, Record]:
        """{method: its metrics with 95 % intervals}, as in the workflow's metrics.json; needs
        labels.
        """
        by_method = {}
        for method in self.methods:
            values = zip(self, self.correct(method), self.confidence(method), strict=True)
            rows = [
                _judged(line, method) | {"correct": right, "confidence": value}
                for line, right, value in values
            ]
            by_method[method] = given.metrics(rows)
        return by_method

    def to_pandas(self):
        """A DataFrame with a column for each method."""
        import pandas

        return pandas.DataFrame(map(_flat, self))

    def write(self, path: str | Path) -> None:
        """Write the records: CSV for a name in .csv, else JSON lines. Raises BadInput for the name
        of another kind of table.
        """
        if writable(path) != "csv":
            return files.write_jsonl(path, self)
        rows = [_flat(record) for record in self]
        with files.atomic(path) as handle:
            writer = csv.DictWriter(handle, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)

    def __repr__(self) -> str:
        labels = ["correct"] if self and "correct" in self[0] else []
        rows = [["question", "answer", *labels, *self.methods]]
        for record in self[:SHOWN]:
            answer = "-" if record["answer"] is None else _short(record["answer"], 20)
            values = [record["confidence"][name] for name in self.methods]
            marks = ["yes" if record["correct"] else "no" for _ in labels]
            numbers = ["-" if value is None else f"{value:.3f}" for value in values]
            rows.append([_short(record["question"], 44), answer, *marks, *numbers])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        layout = "  ".join(f"{{:{'<' if i < 2 else '>'}{width}}}" for i, width in enumerate(widths))
        more = [f"... {len(self) - SHOWN} more"] if len(self) > SHOWN else []
        return "\n".join([*(layout.format(*row) for row in rows), *more, *self.hints])


def writable(path: str | Path) -> str:
    """The kind that a file's name says. Raises BadInput for a kind that would be read otherwise
    than it is written.
    """
    kind = tables.kind(Path(path))
    if (
        kind in tables.KINDS
        and kind not in ("jsonl", "csv")
        or Path(path).suffix.lower() in tables.PACKED[1:]
    ):
        raise BadInput(
            f"{path}: results are written as JSON lines or CSV; name a file in .jsonl or .csv"
        )
    return kind


def _judged(record: Record, method: str) -> Record:
    """The mapping with the answer that a method judges and its `correct`: the method's own, or the
    record.
    """
    return record.get("own", {}).get(method, record)


def _short(text: str, width: int) -> str:
    return textwrap.shorten(text, width, placeholder="...") or text[:width]


def _flat(record: Record) -> Record:
    """A column for each method, and METHOD_answer and METHOD_correct for an answer of its own."""
    own = {
        f"{name}_{key}": value
        for name, its in record.get("own", {}).items()
        for key, value in its.items()
    }
    return (
        {key: record[key] for key in record if key not in ("confidence", "own")}
        | record["confidence"]
        | own
    )
