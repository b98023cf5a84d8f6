"""Show what a run says of one question: its answer, how it was read and judged, kappa, and every confidence in it."""

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import UNSET

from orce import tasks
from orce.align.surrogate import Row, read_surrogate
from orce.artefacts import store
from orce.artefacts.records import Confidence, Example, Greedy, Pair, Sample
from orce.config.picking import TRAINING_SPLITS
from orce.errors import BadInput, printable
from orce.llm.chat import to_percent
from orce.runtime.process import show

WIDTH = 12  # of the column of names


def add_arguments(parser):
    parser.add_argument("cell", type=Path, help="folder results/{dataset}/{model}")
    parser.add_argument("ids", nargs="*", help="questions by their id")
    parser.add_argument("--method", help="of --worst: a row of the cell, such as orce")
    parser.add_argument(
        "--worst", type=int, metavar="N", help="the N test questions with the largest errors"
    )


def run(args):
    cell = Cell(args.cell)
    if bool(args.ids) == (args.worst is not None):
        raise BadInput(
            "name questions by their ids, or the worst ones of a row (--worst N --method ROW)"
        )
    blocks = []
    questions = args.ids
    if args.worst is not None:
        if args.method is None:
            raise BadInput(f"--worst needs --method; {args.cell} has {', '.join(cell.rows)}")
        questions, line = cell.worst(args.method, args.worst)
        blocks.append(line)
    for name in questions:
        lines = [f"{title:<{WIDTH}}{printable(text)}" for title, text in cell.describe(name)]
        blocks.append("\n".join(lines))
    show("\n\n".join(blocks))


class Cell:
    """The files of a cell, read and verified. Raises BadInput naming the file that is missing or changed."""

    def __init__(self, folder: Path):
        self.folder = folder
        path = folder / "samples.jsonl"
        if not path.exists():
            why = "no samples.jsonl in it" if folder.is_dir() else "no such folder"
            raise BadInput(f"{folder}: {why}; expected results/DATASET/MODEL of a finished run")
        self.samples = {record.id: record for record in store.records(path, Sample)}
        self.surrogate: dict[str, Row] = {}
        if (folder / "surrogate.csv").exists():
            self.surrogate = {row.id: row for row in read_surrogate(folder / "surrogate.csv")}
        self.rows = sorted(path.parent.name for path in folder.glob("*/confidences.jsonl"))

    def prompts(self, split: str) -> Path:
        return self.folder.parent / "prompts" / f"{split}.jsonl"

    def example(self, sample: Sample) -> Example:
        path = self.prompts(sample.split)
        found = (record for record in store.read(path) if record["id"] == sample.id)
        example: Any = next(found, None)
        if example is None:
            raise BadInput(f"{path}: no question {sample.id!r}, which samples.jsonl answers")
        return example

    def confidences(self, row: str) -> list[Confidence]:
        return store.records(self.folder / row / "confidences.jsonl", Confidence)

    def pairs(self, name: str) -> Iterator[tuple[str, Pair]]:
        """(its reward, and its round after the first; the pair) of each preference pair of a question."""
        for path in sorted(self.folder.glob("**/pairs/*.jsonl")):
            inside = path.relative_to(self.folder).parts
            round = f", {inside[0]}" if inside[0].startswith("round") else ""
            for pair in store.records(path, Pair):
                if pair.id == name:
                    yield f"{path.stem}{round}", pair

    def worst(self, row: str, n: int) -> tuple[list[str], str]:
        """Ids of the n largest |confidence - correct| of a row, largest first, and a line on what the order cannot tell."""
        if row not in self.rows:
            close = difflib.get_close_matches(row, self.rows, 1)
            hint = f"; did you mean {close[0]!r}?" if close else "."
            raise BadInput(f"{self.folder}: no row {row!r}{hint} It has {', '.join(self.rows)}")
        confidences = self.confidences(row)
        read = [record for record in confidences if record.confidence is not None]
        ranked = sorted(read, key=error, reverse=True)  # stable: ties stay in the file's order
        shown = ranked[:n]
        line = (
            f"{self.folder}: {row}: the {len(shown)} largest |confidence - correct| of {len(read)}"
        )
        unread = len(confidences) - len(read)
        line += f"; {unread} more could not be read" if unread else ""
        tied = sum(error(record) == error(shown[-1]) for record in read) if shown else 0
        if tied > 1:
            line += f"; {tied} have an error of {error(shown[-1]):.2f}, in the order of the file"
        return [record.id for record in shown], line

    def describe(self, name: str) -> Iterator[tuple[str, str]]:
        """(title, text) of each line about a question."""
        if name not in self.samples:
            close = difflib.get_close_matches(name, self.samples, 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise BadInput(f"{self.folder}/samples.jsonl: no question {name!r}{hint}")
        sample = self.samples[name]
        example = self.example(sample)
        task = tasks.get(store.manifest_facts(self.prompts(sample.split))["settings"]["task"])
        yield "id", f"{name}, split {sample.split}"
        for number, line in enumerate(task.question(example).splitlines()):
            yield "" if number else "question", line
        yield from self.answers(sample)
        yield "reference", reference(task, sample, example)
        yield from self.reliability(sample)
        for reward, pair in self.pairs(name):
            chosen, rejected = (turn[-1]["content"] for turn in (pair.chosen, pair.rejected))
            yield "pair", f"{chosen} before {rejected} ({reward})"
        yield from self.statements(name)

    def answers(self, sample: Sample) -> Iterator[tuple[str, str]]:
        """The greedy reply of a tested question, the samples, and what was read from each."""
        if isinstance(sample.greedy, Greedy):
            greedy = sample.greedy
            yield "reply", " ".join(greedy.raw.split())
            yield "answer", f"{text_of(greedy.answer)}: {verdict(bool(greedy.correct))}"
        readings = zip(sample.answers, sample.correct, sample.raw, strict=True)
        for number, (answer, correct, raw) in enumerate(readings, 1):
            reply = " ".join(raw.split())
            title = "samples" if number == 1 else ""
            yield title, f"{number}. {text_of(answer)}: {verdict(correct)}, read from: {reply}"

    def reliability(self, sample: Sample) -> Iterator[tuple[str, str]]:
        """Kappa (section 3.1), the realised answer, and the statement that the warm start learns (section 3.2)."""
        row = self.surrogate.get(sample.id)
        if row is None:
            return
        yield "kappa", f"{row.kappa:.2f}, {row.n_correct} of {row.n_samples} samples are right"
        if sample.split in TRAINING_SPLITS:
            yield "realised", f"{text_of(row.answer or None)}: {verdict(bool(row.answer_correct))}"
        if sample.split == "sft":
            yield "target", f"Confidence: {to_percent(row.kappa)}"

    def statements(self, name: str) -> Iterator[tuple[str, str]]:
        """Each row's confidence, with its answer where a method has one of its own."""
        for number, row in enumerate(self.rows):
            for record in self.confidences(row):
                if record.id == name:
                    title = "confidence" if number == 0 else ""
                    yield title, f"{row}: {statement(record)}"


def reference(task: tasks.Task, sample: Sample, example: Example) -> str:
    """Who judged the answers, and by what."""
    if sample.judged is True:
        return "none is used: the labels came with the answers"
    accepted = example["reference"]
    accepted = accepted if isinstance(accepted, list) else [accepted]
    texts = " or ".join(text_of(task.display(answer, example)) for answer in accepted)
    return f"{texts}, judged by a model" if sample.graded is True else texts


def statement(record: Confidence) -> str:
    if record.confidence is None:
        return f"unread, from: {record.raw}"
    answer = f"in {text_of(record.answer)} ({verdict(bool(record.correct))})"
    mean = "" if record.mean is UNSET else f", mean of the distribution {record.mean:.2f}"
    return f"{record.confidence:.2f} {answer}{mean}"


def error(record: Confidence) -> float:
    """|confidence - correct| of a confidence that could be read."""
    assert record.confidence is not None
    return abs(record.confidence - record.correct)


def verdict(correct: bool) -> str:
    return "right" if correct else "wrong"


def text_of(answer: str | float | None) -> str:
    return "unread" if answer is None else str(answer)
