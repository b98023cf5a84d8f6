"""Confidences for question-answer pairs of your own, from a trained confidence LLM or from given samples. JSON lines in and out."""

import argparse
import itertools
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
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
    selection = chosen(args)
    if selection is not None:
        say(f"[score] {selection}")
    work = Work(args, selection)
    started = time.monotonic()
    total, broken = to_file(args, work) if args.out != "-" else to_handle(args, work, sys.stdout)
    work.closing()
    say(f"[score] {total} lines, {broken} broken, {time.monotonic() - started:.0f} s")
    if total and broken == total:
        raise BadInput(f"{work.place}: none of its {total} lines could be scored")
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
    if args.source != "-" and Path(args.source).is_file() and not is_table(args):
        with open(args.source, "rb") as handle:
            refuse_csv(args.source, handle.readline(4096))


def refuse_csv(place: str, line: bytes) -> None:
    """Raises BadInput if a file's first line is the header of a CSV file."""
    if re.search(rb"[,;\t]", line) and re.fullmatch(rb"(\xef\xbb\xbf)?[\w\"' ,;\t-]+", line.strip()):
        raise BadInput(f'{place}: this looks like CSV; expected JSON lines, as {{"question": "...", "answer": "..."}}')


def is_table(args) -> bool:
    """Whether the input is a file that is read as a whole, by columns that the command names."""
    return args.fields is not None and Path(args.source).suffix.lstrip(".") in tables.KINDS[1:]


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


def items(record: dict[str, Any]) -> set[tuple[str, str]]:
    """What a record is known by: its id or its question, each with an answer."""
    answers = {str(record[key]) for key in ("answer", "judged") if key in record}
    return {(str(record[key]), answer) for key in ("id", "question") if key in record for answer in answers}


def chosen(args) -> selective.Selection | None:
    """The threshold for the requested risk, chosen on the calibration file."""
    if args.calibration is None:
        return None
    records = files.read_jsonl(args.calibration, ("confidence", "correct"))
    pairs = [(record["confidence"], record["correct"]) for record in records]
    for line, (value, correct) in enumerate(pairs, 1):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (value is None or (number and 0 <= value <= 1)):
            raise BadInput(f"{args.calibration}, line {line}: 'confidence' is {value!r}; expected 0 to 1, or null")
        if correct not in (True, False):
            raise BadInput(f"{args.calibration}, line {line}: 'correct' is {correct!r}; expected true or false")
    confidence, correct = zip(*pairs, strict=True)
    return selective.threshold_for_risk(confidence, correct, args.threshold_for_risk, args.delta)


class NothingScored(Exception):
    """Every line of the input is broken: there is no output to write."""


class Work:
    """Turns numbered lines into scored records; loads the model for the first chunk."""

    def __init__(self, args, selection):
        self.args, self.selection = args, selection
        self.judge: judge.Judge | given.Samples | None = None
        self.fields = tables.fields(args.fields)
        self.place = "standard input" if args.source == "-" else args.source
        known = files.read_jsonl(args.calibration) if args.calibration else []
        self.calibrated = {item for record in known for item in items(record)}
        self.shared, self.errors = 0, Counter[str]()
        self.said: dict[str, int] = {}  # the last line that was named for an error

    def __call__(self, lines: Sequence[tuple[int, bytes]]) -> list[dict]:
        """One record per line: scored, or {line, error}."""
        loaded = self.judge = self.judge or self._load()
        read = [self.read(loaded, number, line) for number, line in lines]
        scored = iter(loaded.score([record for record in read if not isinstance(record, BadInput)]))
        found = [
            self.broken(number, record) if isinstance(record, BadInput) else self.decided(next(scored))
            for (number, _), record in zip(lines, read, strict=True)
        ]
        self.shared += sum(not self.calibrated.isdisjoint(items(record)) for record in found)
        return found

    def unless_all_broken(self, total: int) -> Callable:
        """This work, on a file of so many lines: raises NothingScored in place of the last chunk if all are broken."""

        def work(lines):
            found = self(lines)
            if self.errors.total() == total:
                raise NothingScored
            return found

        return work

    def _load(self) -> judge.Judge | given.Samples:
        if self.args.method is not None:
            return given.Samples(self.args.method, self.args.task)
        names = ("base", "device", "dtype", "template_kwargs", "task", "readout", "batch_tokens", "chunk")
        return judge.load(self.args.model, **{name: getattr(self.args, name) for name in names})

    def read(self, loaded: judge.Judge | given.Samples, number: int, line: bytes | tables.Row) -> dict | BadInput:
        """The record of a line, or of a table's row, or its error."""
        try:
            row = line if isinstance(line, tuple) else self.parsed(number, line)
            record = row[1] if self.fields is None else tables.record(row, self.fields)
            record = record if self.args.method else judge.with_answer(record)
            loaded.prompt(record)
            files.to_line(record).encode()
        except BadInput as error:
            where = f"{self.place}, line {number}: " if isinstance(line, bytes) else f"{line[0]}: "
            return BadInput(where + str(error).removeprefix(where))
        except (ValueError, RecursionError) as error:  # half a surrogate pair, a number of 5,000 digits, 5,000 brackets
            return BadInput(f"{self.place}, line {number}: {error}")
        return record

    def parsed(self, number: int, line: bytes) -> tables.Row:
        return f"{self.place}, line {number}", files.parse_line(self.place, number, line, hook=files.unique)

    def broken(self, number: int, error: BadInput) -> dict:
        kind = re.sub(r"\d+", "0", str(error))
        self.errors[kind] += 1
        if self.errors[kind] <= SAID:
            self.said[kind] = number
            say(f"orce score: {error}")
        return {"line": number, "error": str(error)}

    def closing(self) -> None:
        """What is said once, after all lines."""
        for kind, count in self.errors.items():
            if count > SAID:
                say(f"orce score: {self.place}: {count - SAID} more lines like line {self.said[kind]}")
        if self.shared:
            say(
                f"[score] {self.shared} of these records are in {self.args.calibration} too: the threshold was chosen on "
                "them, and what it ensures holds for others only"
            )

    def decided(self, record: dict[str, Any]) -> dict:
        return record if self.selection is None else record | {"kept": self.selection.keeps(record["confidence"])}


def to_file(args, work: Work) -> tuple[int, int]:
    """(lines, broken lines). With a file as input, a killed run resumes; with a pipe it starts again."""
    if args.source == "-" or not Path(args.source).is_file():
        with files.atomic(args.out) as handle:
            total, broken = to_handle(args, work, handle)
            if total and broken == total:
                raise BadInput(f"{work.place}: none of its {total} lines could be scored")
            return total, broken
    lines = [*enumerate(tables.read(Path(args.source)), 1)] if is_table(args) else files.Lines(args.source)
    progress = Progress("score", len(lines))
    try:
        for done in files.in_chunks(args.out, lines, args.chunk, tag(args), work.unless_all_broken(len(lines))):
            progress.update(done)
    except NothingScored:
        files.forget_chunks(args.out)
        return len(lines), len(lines)
    files.forget_chunks(args.out)
    with open(args.out, "rb") as handle:
        return len(lines), sum("confidence" not in json.loads(line) for line in handle)


def tag(args) -> str:
    """Digest of everything that the scores depend on."""
    options = {key: value for key, value in vars(args).items() if key not in ("source", "out")}
    manifest = Path(args.model or "", "manifest.json")
    weights = files.file_digest(manifest) if args.model and manifest.exists() else None
    calibration = files.file_digest(args.calibration) if args.calibration else None
    return files.digest(options, files.file_digest(args.source), weights, calibration)


def to_handle(args, work: Work, out) -> tuple[int, int]:
    """(lines, broken lines), written as they come."""
    total = broken = 0
    said = time.monotonic()
    with open(sys.stdin.fileno() if args.source == "-" else args.source, "rb", closefd=args.source != "-") as handle:
        numbered = enumerate(handle, 1)
        while lines := list(itertools.islice(numbered, args.chunk)):
            if lines[0][0] == 1:
                refuse_csv(work.place, lines[0][1][:4096])
            records = work(lines)
            out.write("".join(map(files.to_line, records)))
            out.flush()
            total, broken = total + len(lines), broken + sum("confidence" not in record for record in records)
            if time.monotonic() - said >= EVERY:
                said = time.monotonic()
                say(f"[score] {total} lines")
    return total, broken
