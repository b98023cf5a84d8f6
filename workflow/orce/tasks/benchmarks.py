"""MMLU, LogiQA 2.0 and ReClor: task `choice` with their publishers' files, fields and ids.

MMLU (Hendrycks et al., 2021): 57 subjects; 14,042 test questions, 99,842 of auxiliary_train. LogiQA
2.0 (Liu et al., 2023) and ReClor (Yu et al., 2020): logical reasoning over a passage; 12,567 /
1,569 / 1,572 and 4,638 / 500 questions with labels. A source is {hub} (cais/mmlu, baber/logiqa2;
tasksource/reclor or community-datasets/reclor) or {path}, a folder with the published files.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from orce.artefacts import tables
from orce.artefacts.files import unique_ids
from orce.artefacts.records import Example
from orce.artefacts.tables import Row
from orce.errors import BadInput
from orce.tasks import choice, rows, sources, values


@dataclass(frozen=True, eq=False)
class Benchmark:
    title: str
    splits: dict[str, str]  # {as configurations name it: as the files do}
    files: tuple[str, ...]  # the first pattern that matches counts; {} is the split
    fields: dict[str, str]
    # of a row, by its columns, split and position; several may have the same
    name: Callable[[dict, str, int], str]
    id: Callable[[str, int], str]  # by the name and how many rows before have it
    config: str | None = None  # on the hub
    read: Callable[[Path, str], Iterable[Row]] = lambda path, _: tables.read(path)

    def load(self, source: Mapping[str, Any], split: str, seed: int = 0) -> list[Example]:
        """Examples of a split; `seed` has no effect. Raises BadInput naming the file and the line
        that is wrong.
        """
        if split not in self.splits:
            raise BadInput(
                f"{self.title} has no split {split!r}; splits are {', '.join(self.splits)}"
            )
        split = self.splits[split]
        fields = self.fields
        seen = Counter[str]()
        if "hub" in source:
            records = sources.read_hub(source, {"val": "validation"}.get(split, split), self.config)
        else:
            paths = sources.find_files(source, [pattern.format(split) for pattern in self.files])
            records = [*chain.from_iterable(self.read(path, split) for path in paths)]
        made: list[Any] = []
        for position, (where, columns) in enumerate(records):
            if isinstance(columns, dict) and {*fields.values()} - columns.keys() == {
                fields["answer"]
            }:
                columns = {**columns, fields["answer"]: None}  # the labels are hidden
            row = where, columns
            made.append(
                choice.example(
                    rows.question_of_row(
                        row, position, {"fields": fields, "answer_is": "index"}, split
                    ),
                    {},
                    seed,
                )
            )
            if "context" in fields:
                values.required_text(row, fields["context"])
            name = self.name(columns, split, position)
            made[-1]["id"] = self.id(name, seen[name])
            seen[name] += 1
            if "subject" in columns:
                made[-1]["subject"] = columns["subject"] or split
        return unique_ids(made, [where for where, _ in records])

    def __getattr__(self, name: str) -> Any:
        return getattr(choice, name)


def _mmlu(path: Path, split: str) -> Iterable[Row]:
    subject = path.stem.removesuffix(f"_{split}")
    names = "question, A, B, C, D, answer"
    for where, cells in tables.cells(path):
        if len(cells) != 6:
            raise BadInput(f"{where}: {len(cells)} columns; expected 6, without a header: {names}")
        if cells[5] not in ("A", "B", "C", "D"):
            raise BadInput(f"{where}: answer is {cells[5]!r}; expected A, B, C or D in column 6")
        yield (
            where,
            {
                "question": cells[0],
                "choices": cells[1:5],
                "answer": "ABCD".index(cells[5]),
                "subject": subject,
            },
        )


PRESETS = {
    "mmlu": Benchmark(
        "MMLU",
        {"test": "test", "validation": "val", "val": "val", "dev": "dev"} | dict.fromkeys(("train", "auxiliary_train"), "auxiliary_train"),
        ("data/{0}/*.csv", "{0}/*.csv", "*_{0}.csv"),
        {"question": "question", "choices": "choices", "answer": "answer"},
        lambda columns, split, position: f"{columns.get('subject') or split}-{split}",
        lambda name, before: f"{name}-{before}",
        "all", _mmlu,
    ),
    "logiqa": Benchmark(
        "LogiQA",
        {"train": "train", "validation": "dev", "test": "test", "dev": "dev", "val": "dev"},
        ("{0}.txt", "{0}.jsonl"),
        {"question": "question", "context": "text", "choices": "options", "answer": "answer"},
        lambda columns, split, position: f"{split}-{position if columns.get('id') is None else columns['id']}",
        lambda name, before: f"{name}-{before + 1}" if before else name,  # the published ids repeat
        "logiqa2",
    ),
    "reclor": Benchmark(
        "ReClor",
        {"train": "train", "validation": "val", "test": "test", "dev": "val", "val": "val"},
        ("{0}.json",),
        {"question": "question", "context": "context", "choices": "answers", "answer": "label"},
        lambda columns, split, position: str(columns.get("id_string") or f"{split}_{position}"),
        # copies on the hub may lack the published ids, train_0, train_1, ...
        lambda name, before: name,
    ),
}  # fmt: skip
