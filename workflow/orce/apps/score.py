"""Confidences for question-answer pairs of your own, from a trained confidence LLM or from given samples. JSON lines in and out."""

import functools
import itertools
import json
import re
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from orce import stages, tasks
from orce.apps import calibrate, given
from orce.artefacts import files, tables
from orce.errors import BadInput
from orce.judge import judge as judges
from orce.methods.samples import APART
from orce.metrics import signs
from orce.metrics.definitions import ON_SCREEN
from orce.runtime.process import Progress, say

NAMED = 5  # equal errors that are named one by one
EVERY = 10.0  # seconds between two lines of progress if the input's length is unknown
Lines = Sequence[tuple[int, bytes | tables.Row]]  # numbered from 1: of JSON, or rows of a table


def add_arguments(parser):
    stages.add_options(parser, judges.load_judge)
    parser.add_argument(
        "--method", choices=given.names(), help="without a model: from the `answers` of each record"
    )
    parser.add_argument(
        "--in", dest="source", default="-", help="records {question, answer, ...}; default: stdin"
    )
    parser.add_argument("--fields", **tables.OPTION)
    parser.add_argument("--out", default="-", help="file for the scored records; default: stdout")
    parser.add_argument(
        "--threshold-for-risk", type=float, metavar="RISK", help="mark answers to keep (`kept`)"
    )
    parser.add_argument(
        "--calibration", help="records {confidence, correct} that the threshold is chosen on"
    )
    parser.add_argument(
        "--metrics", metavar="FILE", help="of scored records that have `correct`; a JSON file"
    )
    parser.add_argument(
        "--delta", type=float, default=0.05, help="probability that the threshold may fail RISK"
    )


def run(args):
    check(args)
    work = Work(args)
    if args.out == "-":
        stream(work, sys.stdout)
    elif args.source == "-" or not Path(args.source).is_file():
        with files.atomic(args.out) as handle:
            stream(work, handle)
    else:
        resumable(work)
    if args.metrics is not None:
        if not work.total:
            raise BadInput(f"{work.input} is empty; expected one JSON object a line")
        values = given.metrics(
            [record for record in files.read_jsonl(args.out) if "confidence" in record]
        )
        files.write_json(args.metrics, values)
        shown = signs.shown(values, ON_SCREEN)
        say(f"[score] {values['n']} items: {shown}; {args.metrics} has all, with intervals")
    if work.broken:
        sys.exit(1)


def check(args) -> None:
    """Check the arguments before weights are loaded. Raises BadInput."""
    if args.task is not None:
        tasks.get(args.task)
    if min(args.chunk, args.batch_tokens) < 1:
        raise BadInput("--chunk and --batch-tokens: expected a number from 1")
    if args.model is None and args.base is None and args.method is None:
        untrained = "or --base, to ask it untrained; or --method, for records that have answers"
        raise BadInput(
            f"--model is missing: the folder or hub id of a confidence LLM ({untrained})"
        )
    if args.method is not None and (args.model or args.base):
        raise BadInput(f"--method {args.method} needs no model: name one or the other")
    if args.metrics is not None and args.out == "-":
        raise BadInput("--metrics needs --out FILE, whose records it reads")
    if (args.threshold_for_risk is None) != (args.calibration is None):
        raise BadInput(
            "--threshold-for-risk and --calibration go together: a bound, and labelled records to meet it on"
        )
    if (
        args.source != "-"
        and args.out != "-"
        and Path(args.source).resolve() == Path(args.out).resolve()
    ):
        raise BadInput(f"--out {args.out} is the input; name another file")


class NothingScored(BadInput):
    """No line of the input could be scored: there is no output to write."""


class Work:
    """Turns numbered lines into scored records; loads the model for the first chunk."""

    def __init__(self, args):
        self.args = args
        self.input = "standard input" if args.source == "-" else args.source
        self.started, self.total, self.broken, self.shared = time.monotonic(), 0, 0, 0
        self.errors: dict[str, list[int]] = {}  # the lines of each kind of error
        needed = ("confidence", "correct")
        known = [*tables.records(Path(args.calibration), None, *needed)] if args.calibration else []
        self.calibrated = {item for _, record in known for item in items(record)}
        self.selection = chosen(args, known) if known else None

    @functools.cached_property
    def judge(self) -> judges.Judge | given.Samples:
        if self.args.method is not None:
            return given.Samples(self.args.method, self.args.task)
        names = (
            "base",
            "device",
            "dtype",
            "template_kwargs",
            "task",
            "readout",
            "batch_tokens",
            "chunk",
        )
        return judges.load_judge(
            self.args.model, **{name: getattr(self.args, name) for name in names}
        )

    def __call__(self, lines: Lines) -> list[dict]:
        """One record a line: scored, or {line, error}."""
        read = [self.read(number, line) for number, line in lines]
        scored = iter(
            self.judge.score([record for record in read if not isinstance(record, BadInput)])
        )
        records = []
        for (number, _), record in zip(lines, read, strict=True):
            if isinstance(record, BadInput):
                alike = self.errors.setdefault(re.sub(r"\d+", "0", str(record)), [])
                alike.append(number)
                if len(alike) <= NAMED:
                    say(f"orce score: {record}")
                records.append({"line": number, "error": str(record)})
            else:
                made = next(scored)
                kept = (
                    {}
                    if self.selection is None
                    else {"kept": self.selection.keeps(made["confidence"])}
                )
                records.append(made | kept)
        self.shared += sum(not self.calibrated.isdisjoint(items(record)) for record in records)
        return records

    def read(self, number: int, line: bytes | tables.Row) -> dict | BadInput:
        """The record of a line, or its error."""
        row = line if isinstance(line, tuple) else (f"{self.input}, line {number}", line)
        try:
            if line is not row:
                row = row[0], files.parse_line(self.input, number, row[1])
            record = tables.record(row, self.args.fields)
            record = record if self.args.method else judges.with_answer(record)
            self.judge.prompt(record)
            files.to_line(record).encode()
        # half a surrogate pair, 5,000 digits, 5,000 brackets
        except (BadInput, ValueError, RecursionError) as error:
            return BadInput(
                f"{row[0]}: {str(error).removeprefix(f'{row[0]}: ').removeprefix('record: ')}"
            )
        return record

    def count(self, lines: Iterable[bytes | str]) -> None:
        """Count some lines of the output."""
        for line in lines:
            self.total, self.broken = (
                self.total + 1,
                self.broken + ("confidence" not in json.loads(line)),
            )

    def end(self) -> None:
        """Sum up, after all lines. Raises NothingScored if each of them is broken."""
        for alike in self.errors.values():
            if len(alike) > NAMED:
                say(
                    f"orce score: {self.input}: {len(alike) - NAMED} more lines like line {alike[NAMED - 1]}"
                )
        if self.shared:
            both = f"{self.shared} of these records are in {self.args.calibration} too"
            say(
                f"[score] {both}: the threshold was chosen on them, and what it ensures holds for others only"
            )
        if isinstance(self.judge, given.Samples) and self.judge.apart:
            say(f"[score] {self.args.method}: {APART}")
        say(
            f"[score] {self.total} lines, {self.broken} broken, {time.monotonic() - self.started:.0f} s"
        )
        if self.total and self.broken == self.total:
            raise NothingScored(f"{self.input}: none of its {self.total} lines could be scored")


def items(record: dict[str, Any]) -> set[tuple[str, ...]]:
    """What identifies a record: its id, or its question with options and references, each with an answer."""
    answers = {str(record[key]) for key in ("answer", "judged") if key in record}
    more = str([record.get(key) for key in ("choices", "references", "reference")])
    names = {
        (key, str(record[key]), more if key == "question" else "")
        for key in ("id", "question")
        if key in record
    }
    return {(*name, answer) for name in names for answer in answers}


def chosen(args, known: list[tuple[str, dict[str, Any]]]) -> calibrate.Selection:
    """The threshold for the requested risk, chosen on the calibration records."""
    for where, record in known:
        tables.probability(where, record["confidence"], "'confidence'")
        if record["correct"] not in (True, False):
            raise BadInput(f"{where}: 'correct' is {record['correct']!r}; expected true or false")
    confidence, correct = zip(
        *((record["confidence"], record["correct"]) for _, record in known), strict=True
    )
    selection = calibrate.threshold_for_risk(
        confidence, correct, args.threshold_for_risk, args.delta
    )
    say(f"[score] {selection}")
    return selection


def rows(source: str) -> Lines | None:
    """The rows of a file that is read as a whole; None for JSON lines, which are read a piece at a time."""
    whole = Path(source).is_file() and not tables.streams(Path(source))
    return [*enumerate(tables.read(Path(source)), 1)] if whole else None


def resumable(work: Work) -> None:
    """From a file into a file: a killed run goes on where it stopped."""
    args, lines = work.args, rows(work.args.source) or files.Lines(work.args.source)
    options = {key: value for key, value in vars(args).items() if key not in ("source", "out")}
    manifest = Path(args.model or "", "manifest.json")
    depends = [
        args.source,
        *([manifest] if args.model and manifest.exists() else []),
        args.calibration,
    ]
    tag = files.digest(options, *(files.file_digest(path) for path in depends if path))
    progress = Progress("score", len(lines))

    def finished(path: Path) -> None:
        with open(path, "rb") as handle:
            work.count(handle)
        work.end()

    try:
        for done in files.in_chunks(args.out, lines, args.chunk, tag, work, finished):
            progress.update(done)
    except NothingScored:
        files.forget_chunks(args.out)
        raise
    files.forget_chunks(args.out)


def stream(work: Work, out) -> None:
    """Records are written as they come; a killed run starts again."""
    args, shown = work.args, time.monotonic()
    with open(
        sys.stdin.fileno() if args.source == "-" else args.source, "rb", closefd=args.source != "-"
    ) as handle:
        numbered = iter(
            rows(args.source) or ((n, line) for n, line in enumerate(handle, 1) if line.strip())
        )
        while lines := [*itertools.islice(numbered, args.chunk)]:
            written = [files.to_line(record) for record in work(lines)]
            out.write("".join(written))
            out.flush()
            work.count(written)
            if time.monotonic() - shown >= EVERY:
                shown = time.monotonic()
                say(f"[score] {work.total} lines")
    work.end()
