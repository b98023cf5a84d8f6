"""Confidences for question-answer pairs of your own, from a trained confidence LLM or from given samples. JSON lines in and out."""

import argparse
import functools
import itertools
import json
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orce import tasks
from orce.apps import given
from orce.artefacts import files, tables
from orce.errors import BadInput
from orce.judging import judge
from orce.metrics import selective
from orce.runtime.process import USUAL, Progress, say

SAID = 5  # equal errors that are said one by one
HEADER = re.compile(rb"(\xef\xbb\xbf)?(?=.*[,;\t])[\w\"' ,;\t-]+")  # of a CSV file
EVERY = 10.0  # seconds between two lines of progress if the input's length is unknown


def add_arguments(parser):
    parser.add_argument("--model", help="folder of a confidence LLM, or its id on the hub (ID or ID@REVISION)")
    parser.add_argument("--base", help="the model under an adapter, if not the recorded one; alone: an untrained model")
    parser.add_argument("--method", choices=given.names(), help="without a model: from the `answers` of each record")
    parser.add_argument("--in", dest="source", default="-", help="records {question, answer, ...}; default: stdin")
    parser.add_argument("--fields", **tables.OPTION)
    parser.add_argument("--out", default="-", help="file for the scored records; default: stdout")
    parser.add_argument("--task", help="show records as this task does (default: by what they hold)")
    parser.add_argument("--readout", choices=judge.READOUTS, default="stated", help="what `confidence` is")
    parser.add_argument(
        "--batch-tokens", type=positive, default=USUAL["batch_tokens"], help="tokens of the prompts computed together"
    )
    parser.add_argument("--chunk", type=positive, default=512, help="lines in memory, and between two writes")
    parser.add_argument("--device", help="cpu, cuda (all visible GPUs), cuda:1, ... (default: one GPU if there is any)")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), help="default: as in training")
    parser.add_argument("--template-kwargs", type=json_object, help="a JSON object for the chat template")
    parser.add_argument("--threshold-for-risk", type=float, metavar="RISK", help="mark answers to keep (`kept`)")
    parser.add_argument("--calibration", help="records {confidence, correct} that the threshold is chosen on")
    parser.add_argument(
        "--metrics", metavar="FILE", help="of the scored records, where they have `correct`; a JSON file"
    )
    parser.add_argument("--delta", type=float, default=0.05, help="probability that the threshold may fail RISK")


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("expected a number from 1")
    return value


def json_object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError('expected a JSON object, for example {"enable_thinking": false}')
    return value


def run(args):
    check(args)
    work = Work(args)
    total, broken = to_file(args, work) if args.out != "-" else stream(args, work, sys.stdout)
    if args.metrics is not None:
        if not total:
            raise BadInput(f"{work.place} is empty; expected one JSON object a line")
        write_metrics(args)
    if broken:
        sys.exit(1)


def check(args) -> None:
    """Check the arguments before weights are loaded. Raises BadInput."""
    if args.task is not None:
        tasks.get(args.task)
    if args.model is None and args.base is None and args.method is None:
        raise BadInput(
            "--model is missing: the folder or hub id of a confidence LLM (or --base, to ask it untrained; or --method, "
            "for records that have answers)"
        )
    if args.method is not None and (args.model or args.base):
        raise BadInput(f"--method {args.method} needs no model: name one or the other")
    if args.metrics is not None and args.out == "-":
        raise BadInput("--metrics needs --out FILE, whose records it reads")
    if (args.threshold_for_risk is None) != (args.calibration is None):
        raise BadInput(
            "--threshold-for-risk and --calibration go together: a bound, and labelled records to meet it on"
        )
    if args.source != "-" and args.out != "-" and Path(args.source).resolve() == Path(args.out).resolve():
        raise BadInput(f"--out {args.out} is the input; name another file")


class NothingScored(BadInput):
    """No line of the input could be scored: there is no output to write."""


class Work:
    """Turns numbered lines into scored records; loads the model for the first chunk."""

    def __init__(self, args):
        self.args, self.fields = args, tables.fields(args.fields)
        self.place = "standard input" if args.source == "-" else args.source
        self.started, self.shared = time.monotonic(), 0
        self.errors: dict[str, list[int]] = {}  # the lines of each kind of error
        known = files.read_jsonl(args.calibration, ("confidence", "correct")) if args.calibration else []
        self.calibrated = {item for record in known for item in items(record)}
        self.selection = chosen(args, known) if known else None

    @functools.cached_property
    def judge(self) -> judge.Judge | given.Samples:
        if self.args.method is not None:
            return given.Samples(self.args.method, self.args.task)
        names = ("base", "device", "dtype", "template_kwargs", "task", "readout", "batch_tokens", "chunk")
        return judge.load(self.args.model, **{name: getattr(self.args, name) for name in names})

    def __call__(self, lines: Sequence[tuple[int, bytes | tables.Row]]) -> list[dict]:
        """One record a line, or row of a table: scored, or {line, error}."""
        number, first = lines[0]
        if number == 1 and isinstance(first, bytes) and HEADER.fullmatch(first[:4096].strip()):
            raise NothingScored(
                f'{self.place}: this looks like CSV; expected JSON lines, as {{"question": "...", "answer": "..."}}'
            )
        read = [self.read(number, line) for number, line in lines]
        scored = iter(self.judge.score([record for record in read if not isinstance(record, BadInput)]))
        found: list[dict] = []
        for (number, _), record in zip(lines, read, strict=True):
            if isinstance(record, BadInput):
                alike = self.errors.setdefault(re.sub(r"\d+", "0", str(record)), [])
                alike.append(number)
                if len(alike) <= SAID:
                    say(f"orce score: {record}")
                found.append({"line": number, "error": str(record)})
                continue
            made = next(scored)
            kept = {} if self.selection is None else {"kept": self.selection.keeps(made["confidence"])}
            found.append(made | kept)
        self.shared += sum(not self.calibrated.isdisjoint(items(record)) for record in found)
        return found

    def read(self, number: int, line: bytes | tables.Row) -> dict | BadInput:
        """The record of a line, or its error."""
        where = line[0] if isinstance(line, tuple) else f"{self.place}, line {number}"
        try:
            record = (
                line[1] if isinstance(line, tuple) else files.parse_line(self.place, number, line, hook=files.unique)
            )
            record = record if self.fields is None else tables.record((where, record), self.fields)
            record = record if self.args.method else judge.with_answer(record)
            self.judge.prompt(record)
            files.to_line(record).encode()
        except (BadInput, ValueError, RecursionError) as error:  # half a surrogate pair, 5,000 digits, 5,000 brackets
            return BadInput(f"{where}: {str(error).removeprefix(f'{where}: ')}")
        return record

    def ended(self, total: int, broken: int) -> tuple[int, int]:
        """Say what is said once, after all lines. Raises NothingScored if each of them is broken."""
        for alike in self.errors.values():
            if len(alike) > SAID:
                say(f"orce score: {self.place}: {len(alike) - SAID} more lines like line {alike[SAID - 1]}")
        if self.shared:
            say(
                f"[score] {self.shared} of these records are in {self.args.calibration} too: the threshold was chosen on "
                "them, and what it ensures holds for others only"
            )
        say(f"[score] {total} lines, {broken} broken, {time.monotonic() - self.started:.0f} s")
        if total and broken == total:
            raise NothingScored(f"{self.place}: none of its {total} lines could be scored")
        return total, broken


def items(record: dict[str, Any]) -> set[tuple[str, str]]:
    """What a record is known by: its id or its question, each with an answer."""
    answers = {str(record[key]) for key in ("answer", "judged") if key in record}
    return {(str(record[key]), answer) for key in ("id", "question") if key in record for answer in answers}


def chosen(args, known: list[dict[str, Any]]) -> selective.Selection:
    """The threshold for the requested risk, chosen on the calibration records."""
    for line, record in enumerate(known, 1):
        value, correct = record["confidence"], record["correct"]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (value is None or (number and 0 <= value <= 1)):
            raise BadInput(f"{args.calibration}, line {line}: 'confidence' is {value!r}; expected 0 to 1, or null")
        if correct not in (True, False):
            raise BadInput(f"{args.calibration}, line {line}: 'correct' is {correct!r}; expected true or false")
    confidence, correct = zip(*((record["confidence"], record["correct"]) for record in known), strict=True)
    selection = selective.threshold_for_risk(confidence, correct, args.threshold_for_risk, args.delta)
    say(f"[score] {selection}")
    return selection


def rows(args) -> list[tuple[int, tables.Row]] | None:
    """The numbered rows of a file that is read as a whole, by columns that the command names; None for JSON lines."""
    path = Path(args.source)
    table = args.fields is not None and path.suffix.lstrip(".") in tables.KINDS[1:]
    return [*enumerate(tables.read(path), 1)] if table else None


def to_file(args, work: Work) -> tuple[int, int]:
    """(lines, broken lines). With a file as input, a killed run resumes; with a pipe it starts again."""
    if args.source == "-" or not Path(args.source).is_file():
        with files.atomic(args.out) as handle:
            return stream(args, work, handle)
    lines, counted = rows(args) or files.Lines(args.source), (0, 0)
    progress = Progress("score", len(lines))

    def finished(path: Path) -> None:
        nonlocal counted
        with open(path, "rb") as handle:
            counted = work.ended(len(lines), sum("confidence" not in json.loads(line) for line in handle))

    try:
        for done in files.in_chunks(args.out, lines, args.chunk, tag(args), work, finished):
            progress.update(done)
    except NothingScored:
        files.forget_chunks(args.out)
        raise
    files.forget_chunks(args.out)
    return counted


def tag(args) -> str:
    """Digest of everything that the scores depend on."""
    options = {key: value for key, value in vars(args).items() if key not in ("source", "out")}
    manifest = Path(args.model or "", "manifest.json")
    weights = files.file_digest(manifest) if args.model and manifest.exists() else None
    calibration = files.file_digest(args.calibration) if args.calibration else None
    return files.digest(options, files.file_digest(args.source), weights, calibration)


def stream(args, work: Work, out) -> tuple[int, int]:
    """(lines, broken lines), written as they come."""
    total = broken = 0
    said = time.monotonic()
    with open(sys.stdin.fileno() if args.source == "-" else args.source, "rb", closefd=args.source != "-") as handle:
        numbered = iter(rows(args) or enumerate(handle, 1))
        while lines := [*itertools.islice(numbered, args.chunk)]:
            records = work(lines)
            out.write("".join(map(files.to_line, records)))
            out.flush()
            total, broken = total + len(lines), broken + sum("confidence" not in record for record in records)
            if time.monotonic() - said >= EVERY:
                said = time.monotonic()
                say(f"[score] {total} lines")
    return work.ended(total, broken)


def write_metrics(args) -> None:
    """The metrics of the scored file, as a JSON file, and its first values on the screen."""
    records = [one for one in files.read_jsonl(args.out) if "confidence" in one]
    values = given.metrics(records)
    files.write_json(args.metrics, values)
    names = ("ece", "brier", "auroc", "aurc", "accuracy")
    shown = (f"{name} {values[name]:.4f}" for name in names if values[name] is not None)
    say(f"[score] {values['n']} items: {', '.join(shown)}; {args.metrics} has all, with intervals")
    wrong = [one for one in records if one["correct"] is False and not one.get("choices")]
    near = sum(given.holds(one) for one in wrong)
    if near:
        say(
            f"[score] {near} of {len(wrong)} wrong answers contain an accepted answer; if they only say it in more words, "
            '"equality": "contains" in a line counts it as right'
        )
