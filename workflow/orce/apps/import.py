"""Answers in the files of other programs, as the files of the given answers: lm-evaluation-harness, RLCR, CSV."""  # noqa: N999

import argparse
import re
import shlex
from pathlib import Path

from orce.apps.importers import csv_columns, given_folder, lm_eval, rlcr
from orce.apps.importers.row import Row
from orce.artefacts import files
from orce.errors import BadInput
from orce.records import Example
from orce.runtime.progress import say
from orce.tasks import qa
from orce.tasks.parts.prompt_files import read_prompts

FORMATS = {"lm-eval": lm_eval, "rlcr": rlcr, "csv": csv_columns}
SHOWN = 3  # questions without a match that are named


def add_arguments(parser):
    parser.add_argument("format", choices=FORMATS)
    parser.add_argument("files", nargs="+", metavar="FILE", help="several files of one set: their answers are samples")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="the folder to make")
    parser.add_argument("--greedy", metavar="FILE", help="a file of the same format with the greedy answers")
    parser.add_argument("--judgements", choices=("keep", "drop"), default="keep", help="drop: references judge (default: keep)")  # fmt: skip
    parser.add_argument(
        "--prompts", metavar="FILE", help="a run's prompts/SPLIT.jsonl: ids and questions are then its own"
    )
    parser.add_argument("--unmatched", choices=("refuse", "drop"), default="refuse", help="rows of no prompt, prompts without a row (default: refuse)")  # fmt: skip
    parser.add_argument("--name", help="of the data set (default: the folder's)")
    parser.add_argument("--label", default="Given answers", help="of the model in tables")
    parser.add_argument(
        "--equality", choices=qa.EQUALITIES, help="how the references are compared (default: normalised)"
    )
    parser.add_argument("--answer-after", metavar="SIGN", help="a reference is what follows this sign, such as ####")
    parser.add_argument("--question", metavar="COLUMN", help="lm-eval, rlcr: the column of the question")
    parser.add_argument(
        "--choices", metavar="COLUMN", help="lm-eval: the column of the options' texts (default: choices)"
    )
    parser.add_argument("--id", metavar="COLUMN", help="lm-eval: a column of doc with an id")
    parser.add_argument("--filter", metavar="NAME", help="lm-eval: the filter whose judgements count")
    parser.add_argument("--metric", metavar="NAME", help="lm-eval: the metric that judges")
    parser.add_argument(
        "--method", metavar="NAME", help="rlcr: the method whose answers are the samples (default: the first)"
    )
    parser.add_argument("--column", action="append", default=[], type=_column, dest="columns", metavar="NAME=COLUMN", help=f"csv: the column of a part: {', '.join(csv_columns.NAMES)}")  # fmt: skip


def _column(text: str) -> tuple[str, str]:
    name, sign, column = text.partition("=")
    if not sign or not csv_columns.READ.fullmatch(name):
        raise argparse.ArgumentTypeError(f"expected NAME=COLUMN with a NAME of {', '.join(csv_columns.NAMES)}")
    return name, column


def run(args):
    out = Path(args.out)
    if out.exists():
        raise BadInput(f"{out} exists; name a new folder")
    args.columns, args.name = dict(args.columns), args.name or _name(out)
    lines = _read(args, args.files)
    notes = [note for note in (_further(lines), _second(lines), _empty(lines)) if note]
    rows = given_folder.merged(lines)
    prompts = read_prompts(args.prompts) if args.prompts else None
    pairs, left = given_folder.examples(rows, prompts)
    _matched(args, pairs, left, prompts)
    pairs = [(given_folder.fitted(row, example), example) for row, example in pairs]
    if unjudged := [row for row, example in pairs if row.correct is None and not example["reference"]]:
        raise BadInput(f"{unjudged[0].place}: neither a judgement nor a reference says whether the answer is right, and {len(unjudged)} of {len(pairs)} questions have neither (csv: --column correct=COLUMN or reference=COLUMN)")  # fmt: skip
    greedy = {row.same: row for row in given_folder.merged(_read(args, [args.greedy]))} if args.greedy else {}
    if missing := [row for row, _ in pairs if args.greedy and row.same not in greedy]:
        raise BadInput(f"{args.greedy}: no greedy answer to {len(missing)} of {len(pairs)} questions, such as {missing[0].question[:60]!r}")  # fmt: skip
    with files.new_folder(out) as work:
        written = given_folder.write(work, pairs, greedy, args)
    _report(args, out, pairs, written)
    for note in notes:
        say(f"[import] {note}")
    say(f"[import] next: snakemake --cores all --configfile {shlex.quote(str(out / 'config.yaml'))} -- paper_tables")


def _further(lines: list[Row]) -> str:
    """Columns that nothing reads: one with another name than it should have shows here."""
    columns = dict.fromkeys(name for row in lines for name in row.further)
    return f"columns that are not read: {', '.join(columns)} (--column NAME=COLUMN)" if columns else ""


def _second(lines: list[Row]) -> str:
    """Confidences that later lines of a question have: its first line's is that of the greedy answer."""
    first = {row.same: row for row in reversed(lines)}
    count = sum(bool(row.stated) and first[row.same] is not row for row in lines)
    return f"{count} lines are further samples of a question; the confidence of its first line counts" if count else ""


def _empty(lines: list[Row]) -> str:
    stated = [one["confidence"] for row in lines for one in row.stated.values()]
    count = sum(confidence is None for confidence in stated)
    return (
        f"{count} of {len(stated)} confidences are empty: unread, as a method's text that states none" if count else ""
    )


def _name(out: Path) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "_", out.resolve().name).strip("_") or "given"


def _read(args, paths: list[str]) -> list[Row]:
    return [row for path in paths for row in FORMATS[args.format].read(path, args)]


def _matched(args, pairs: given_folder.Pairs, left: list[Row], prompts: list[Example] | None) -> None:
    """Says which rows and prompts have no match. Raises BadInput unless they may be dropped, or where nothing matches."""
    ids = {example["id"] for _, example in pairs}
    without = [example["id"] for example in prompts or [] if example["id"] not in ids]
    if not left and not without:
        return
    named = "; ".join(f"{row.place}: {row.question[:60]!r}" for row in left[:SHOWN])
    line = (
        f"{len(left)} of {len(left) + len(pairs)} rows have no prompt of {args.prompts} by id or question"
        f"{f' ({named})' if left else ''}, and {len(without)} of {len(prompts or [])} prompts have no row"
        f"{f' (such as {without[0]})' if without else ''}"
    )
    if args.unmatched == "refuse" or not pairs:
        raise BadInput(f"{line}; --unmatched drop leaves them out")
    say(f"[import] {line}: left out")


def _report(args, out: Path, pairs: given_folder.Pairs, written: dict[str, int]) -> None:
    sizes = sorted({len(row.answers) for row, _ in pairs})
    say(f"[import] {out}: {', '.join(f'{name} {n}' for name, n in written.items())}; answers to a question: {'-'.join(map(str, sorted({sizes[0], sizes[-1]})))}")  # fmt: skip
    judged = sum(row.correct is not None for row, _ in pairs)
    if args.judgements == "keep" and judged < len(pairs):
        say(
            f"[import] {len(pairs) - judged} of {len(pairs)} questions came without judgements of each answer: references judge"
        )
    if again := given_folder.read_again(pairs, args):
        n, alone, ours, unread = again
        say(
            f"[import] of {n} judgements, {n - alone - ours} are those of our own reading; {alone} are right by the file alone, "
            f"{ours} by our reading alone ({unread} unread); --judgements drop takes our reading"
        )
