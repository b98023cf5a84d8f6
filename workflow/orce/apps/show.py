"""Show what a run says of one question: its answer, how it was read and judged, kappa, and every
confidence in it; or what a row of its tables is made of.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec import UNSET, UnsetType

from orce import tasks
from orce.align.surrogate import Row, read_surrogate
from orce.apps import row_provenance
from orce.apps.table import as_shown
from orce.artefacts import store
from orce.artefacts.records import Confidence, Example, Greedy, Pair, Sample
from orce.config.picking import TRAINING_SPLITS
from orce.errors import BadInput, did_you_mean, printable
from orce.llm.chat import to_percent
from orce.runtime.process import show
from orce.stages.sft import TARGETS
from orce.text import BY_TASK

WIDTH = 12  # of the column of names


def add_arguments(parser):
    parser.add_argument("cell", type=Path, help="folder results/{dataset}/{model}")
    parser.add_argument("ids", nargs="*", help="questions by their id")
    parser.add_argument(
        "--method", help="of --worst and --provenance: a row of the cell, such as orce"
    )
    parser.add_argument(
        "--worst", type=int, metavar="N", help="the N test questions with the largest errors"
    )
    parser.add_argument(
        "--provenance",
        action="store_true",
        help="what the row is made of: files, seals, settings that are not config.yaml's, packages, processor",
    )


def run(args):
    if args.provenance:
        if args.method is None:
            raise BadInput("--provenance needs --method, a row of the cell, such as orce")
        show(in_columns(row_provenance.describe(args.cell / args.method / "metrics.json")))
        return
    cell = Cell(args.cell)
    if args.worst is not None and args.worst < 1:
        raise BadInput(f"--worst is {args.worst}; expected a number of questions, from 1 on")
    if bool(args.ids) == (args.worst is not None):
        raise BadInput(
            "name questions by their ids, or the worst ones of a row (--worst N --method ROW)"
        )
    blocks = []
    if args.worst is None:
        asked = [sample for name in args.ids for sample in cell.find(name)]
    else:
        if args.method is None:
            raise BadInput(f"--worst needs --method; {args.cell} has {', '.join(cell.rows)}")
        asked, line = cell.worst(args.method, args.worst)
        blocks.append(line)
    for sample in asked:
        blocks.append(in_columns(cell.describe(sample)))
    show("\n\n".join(blocks))


def in_columns(lines: Iterable[tuple[str, str]]) -> str:
    """(title, text) of each line, as they are shown."""
    return "\n".join(f"{title:<{WIDTH}}{printable(text)}" for title, text in lines)


class Cell:
    """The files of a cell, each read once and verified. Raises BadInput naming the one that is
    missing or changed.

    Ids are unique in a split and not among the splits, so a question is found by both.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        path = folder / "samples.jsonl"
        if not path.exists():
            why = "no samples.jsonl in it" if folder.is_dir() else "no such folder"
            raise BadInput(f"{folder}: {why}; expected results/DATASET/MODEL of a finished run")
        self.samples = store.records(path, Sample)
        self.surrogate: dict[tuple[str, str], Row] = {}
        if (folder / "surrogate.csv").exists():
            self.surrogate = {row.key: row for row in read_surrogate(folder / "surrogate.csv")}
        self.rows = {
            path.parent.name: store.records(path, Confidence)
            for path in sorted(folder.glob("*/confidences.jsonl"))
        }
        self.sft_target = "kappa"
        if (folder / "sft" / "manifest.json").exists():
            facts = store.read_manifest(folder / "sft" / "manifest.json")
            self.sft_target = facts["settings"]["stage"]["target"]
        # of the RL questions: (the reward, and the round after the first; the pair)
        self.pairs: list[tuple[str, Pair]] = []
        for path in sorted(folder.glob("**/pairs/*.jsonl")):
            name = path.stem
            inside = path.relative_to(folder).parts[0]
            if inside.startswith("round"):
                name += f", {inside}"
            self.pairs += [(name, pair) for pair in store.records(path, Pair)]
        self._examples: dict[str, dict[str, Any]] = {}

    def prompts(self, split: str) -> Path:
        return self.folder.absolute().parent / "prompts" / f"{split}.jsonl"

    def example(self, sample: Sample) -> Example:
        path = self.prompts(sample.split)
        if sample.split not in self._examples:
            self._examples[sample.split] = {record["id"]: record for record in store.read(path)}
        example = self._examples[sample.split].get(sample.id)
        if example is None:
            raise BadInput(f"{path}: no question {sample.id!r}, which samples.jsonl answers")
        return example

    def find(self, name: str) -> list[Sample]:
        """The samples of a question, one for each split that has this id."""
        found = [sample for sample in self.samples if sample.id == name]
        if not found:
            hint = did_you_mean(name, (sample.id for sample in self.samples)).strip()
            end = f"; {hint}" if hint else ""
            raise BadInput(f"{self.folder}/samples.jsonl: no question {name!r}{end}")
        return found

    def worst(self, row: str, n: int) -> tuple[list[Sample], str]:
        """The test questions with the n largest |confidence - correct| of a row, largest first, and
        a line on what the order cannot tell.
        """
        if row not in self.rows:
            hint = did_you_mean(row, self.rows)
            raise BadInput(f"{self.folder}: no row {row!r}; {hint}It has {', '.join(self.rows)}")
        confidences = self.rows[row]
        read = [record for record in confidences if record.confidence is not None]
        shown = sorted(read, key=error, reverse=True)[:n]  # stable: ties stay in the file's order
        line = (
            f"{self.folder}: {row}: the {len(shown)} largest |confidence - correct| of {len(read)}"
        )
        unread = len(confidences) - len(read)
        if unread:
            line += f"; {unread} more could not be read"
        last = error(shown[-1]) if shown else None
        tied = sum(error(record) == last for record in read)
        if tied > 1:
            line += f"; {tied} have an error of {last:.2f}, in the order of the file"
        tested = {sample.id: sample for sample in self.samples if sample.split == "test"}
        return [tested[record.id] for record in shown], line

    def describe(self, sample: Sample) -> Iterator[tuple[str, str]]:
        """(title, text) of each line about a question."""
        example = self.example(sample)
        task = tasks.get(store.manifest_facts(self.prompts(sample.split))["settings"]["task"])
        yield "id", f"{sample.id}, split {sample.split}"
        for number, line in enumerate(task.question(example).splitlines()):
            yield "" if number else "question", line
        yield from self.answers(sample)
        yield "reference", reference(task, sample, example)
        yield from self.reliability(sample)
        if sample.split == "rl":
            for reward, pair in self.pairs:
                if pair.id == sample.id:
                    chosen = pair.chosen[-1]["content"]
                    rejected = pair.rejected[-1]["content"]
                    yield "pair", f"{chosen} before {rejected} ({reward})"
        if sample.split == "test":
            yield from self.statements(sample.id)

    def answers(self, sample: Sample) -> Iterator[tuple[str, str]]:
        """The greedy reply of a tested question, the samples, and what was read from each."""
        if isinstance(sample.greedy, Greedy):
            greedy = sample.greedy
            yield "reply", " ".join(greedy.raw.split())
            yield "answer", f"{text_of(greedy.answer)}: {verdict(bool(greedy.correct))}"
            if by := rule(greedy.read_by):
                yield "read by", by
        # a file of an earlier version does not say what read its answers
        rules = [UNSET] * len(sample.raw) if sample.read_by is UNSET else sample.read_by
        readings = zip(sample.answers, sample.correct, rules, sample.raw, strict=True)
        for number, (answer, correct, read_by, raw) in enumerate(readings, 1):
            reply = " ".join(raw.split())
            title = "samples" if number == 1 else ""
            by = rule(read_by)
            how = f"read by {by} from" if by else "read from"
            yield title, f"{number}. {text_of(answer)}: {verdict(correct)}, {how}: {reply}"

    def reliability(self, sample: Sample) -> Iterator[tuple[str, str]]:
        """Kappa (section 3.1), the realised answer, and the statement that the warm start learns
        (section 3.2).
        """
        row = self.surrogate.get(sample.key)
        if row is None:
            return
        yield "kappa", f"{row.kappa:.2f}, {row.n_correct} of {row.n_samples} samples are right"
        if sample.split in TRAINING_SPLITS:
            yield "realised", f"{text_of(row.answer or None)}: {verdict(bool(row.answer_correct))}"
        if sample.split == "sft":
            learned = TARGETS[self.sft_target](row.kappa)
            yield "target", f"Confidence: {to_percent(learned)}"
        elif sample.split == "rl":
            yield "target", "none: SFT learns from the split sft"

    def statements(self, name: str) -> Iterator[tuple[str, str]]:
        """Each row's confidence, with its answer where a method has one of its own."""
        title = "confidence"
        for row, confidences in self.rows.items():
            for record in confidences:
                if record.id == name:
                    yield title, f"{row}: {statement(record)}"
                    title = ""


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
    mean = "" if record.mean is UNSET else f", mean of the distribution {as_shown(record.mean)}"
    return f"{as_shown(record.confidence)} {answer}{mean}"


def error(record: Confidence) -> float:
    """|confidence - correct| of a confidence that could be read."""
    assert record.confidence is not None
    return round(abs(record.confidence - record.correct), 12)  # 1 - 0.7 is not exactly 0.3


def verdict(correct: bool) -> str:
    return "right" if correct else "wrong"


def rule(read_by: str | None | UnsetType) -> str:
    """The rule that read an answer, as it is shown; empty for an unread answer, and where the file
    does not say it.
    """
    if isinstance(read_by, str):
        return "the task itself" if read_by == BY_TASK else repr(read_by)
    return ""


def text_of(answer: str | float | None) -> str:
    return "unread" if answer is None else str(answer)
