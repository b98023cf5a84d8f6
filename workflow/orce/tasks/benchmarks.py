"""MMLU, LogiQA 2.0 and ReClor: task `choice` with their publishers' files, fields and ids.

MMLU (Hendrycks et al., 2021): 57 subjects; 14,042 test questions, 99,842 of auxiliary_train. LogiQA
2.0 (Liu et al., 2023) and ReClor (Yu et al., 2020): logical reasoning over a passage; 12,567 /
1,569 / 1,572 and 4,638 / 500 questions with labels. A source is {hub} (cais/mmlu, baber/logiqa2;
tasksource/reclor or community-datasets/reclor) or {path}, a folder with the published files.
"""

from collections import Counter
from collections.abc import Callable, Iterable
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
    """A published data set as a task: `choice` with a `load` for its files."""

    title: str
    splits: dict[str, str]  # {as configurations name it: as the files do}
    files: tuple[str, ...]  # the first pattern that matches counts; {0} is the split
    fields: dict[str, str]
    # (columns, split, position of a row) -> the row's name; several may have the same
    name: Callable[[dict, str, int], str]
    # (name, how many rows before have it) -> the row's id
    id: Callable[[str, int], str] = lambda name, _: name
    config: str | None = None  # on the hub
    read: Callable[[Path, str], Iterable[Row]] = lambda path, _: tables.read(path)

    def load(self, source: sources.DataSource, split: str, seed: int = 0) -> list[Example]:
        """Examples of a split; `seed` has no effect. Raises BadInput naming the file and the line
        that is wrong.
        """
        if split not in self.splits:
            known = ", ".join(self.splits)
            raise BadInput(f"{self.title} has no split {split!r}; splits are {known}")
        split = self.splits[split]
        if "hub" in source:
            name = "validation" if split == self.splits["validation"] else split
            records = sources.read_hub(source, name, self.config)
        else:
            paths = sources.find_files(source, [pattern.format(split) for pattern in self.files])
            records = [*chain.from_iterable(self.read(path, split) for path in paths)]
        answer = self.fields["answer"]
        reading = {"fields": self.fields, "answer_is": "index"}
        seen = Counter[str]()
        examples = []
        for position, (where, columns) in enumerate(records):
            # A test set whose labels are hidden may lack the column.
            if isinstance(columns, dict) and {*self.fields.values()} - columns.keys() == {answer}:
                columns = {**columns, answer: None}
            row = (where, columns)
            asked = rows.question_of_row(row, position, reading, split)
            if "context" in self.fields:
                values.required_text(row, self.fields["context"])
            example = choice.example(asked, {}, seed)
            name = self.name(columns, split, position)
            example["id"] = self.id(name, seen[name])
            seen[name] += 1
            if "subject" in columns:
                example["subject"] = columns["subject"] or split
            examples.append(example)
        return unique_ids(examples, [where for where, _ in records])

    def __getattr__(self, name: str) -> Any:
        return getattr(choice, name)


def _mmlu(path: Path, split: str) -> Iterable[Row]:
    subject = path.stem.removesuffix(f"_{split}")
    names = "question, A, B, C, D, answer"
    for where, cells in tables.cells(path):
        if len(cells) != 6:
            raise BadInput(f"{where}: {len(cells)} columns; expected 6, without a header: {names}")
        question, *options, answer = cells
        if answer not in ("A", "B", "C", "D"):
            raise BadInput(f"{where}: answer is {answer!r}; expected A, B, C or D in column 6")
        index = "ABCD".index(answer)
        row = {"question": question, "choices": options, "answer": index, "subject": subject}
        yield where, row


PRESETS = {
    "mmlu": Benchmark(
        title="MMLU",
        splits={
            "test": "test",
            "validation": "val",
            "val": "val",
            "dev": "dev",
            "train": "auxiliary_train",
            "auxiliary_train": "auxiliary_train",
        },
        files=("data/{0}/*.csv", "{0}/*.csv", "*_{0}.csv"),
        fields={"question": "question", "choices": "choices", "answer": "answer"},
        name=lambda columns, split, position: f"{columns.get('subject') or split}-{split}",
        id=lambda name, before: f"{name}-{before}",
        config="all",
        read=_mmlu,
    ),
    "logiqa": Benchmark(
        title="LogiQA",
        splits={
            "train": "train",
            "validation": "dev",
            "test": "test",
            "dev": "dev",
            "val": "dev",
        },
        files=("{0}.txt", "{0}.jsonl"),
        fields={
            "question": "question",
            "context": "text",
            "choices": "options",
            "answer": "answer",
        },
        name=lambda columns, split, position: (
            f"{split}-{position if columns.get('id') is None else columns['id']}"
        ),
        # the published ids repeat
        id=lambda name, before: f"{name}-{before + 1}" if before else name,
        config="logiqa2",
    ),
    "reclor": Benchmark(
        title="ReClor",
        splits={
            "train": "train",
            "validation": "val",
            "test": "test",
            "dev": "val",
            "val": "val",
        },
        files=("{0}.json",),
        fields={
            "question": "question",
            "context": "context",
            "choices": "answers",
            "answer": "label",
        },
        # copies on the hub may lack the published ids, train_0, train_1, ...
        name=lambda columns, split, position: str(
            columns.get("id_string") or f"{split}_{position}"
        ),
    ),
}
