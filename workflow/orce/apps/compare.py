"""Compare methods on the same items, of a run or of scored files: paired bootstrap of the difference in a metric."""

import difflib
from pathlib import Path

from orce import metrics
from orce.apps.door import measured_table
from orce.artefacts import files
from orce.errors import BadInput
from orce.metrics import summary
from orce.records import Confidence
from orce.runtime.progress import say

USUAL = ("vanilla", "sft", "orce")


def add_arguments(parser):
    parser.add_argument("cells", nargs="+", help="folders results/{dataset}/{model}; or scored files")
    default = f"(default: {', '.join(USUAL)})"
    parser.add_argument("--methods", nargs="+", help=f"the first is compared with each of the others {default}")
    parser.add_argument("--metric", default="aurc", choices=sorted(metrics.ALL))
    parser.add_argument("--resamples", type=int, default=10000)
    parser.add_argument("--unparsed", type=float, default=0.5, help="confidence that replaces an unreadable one")


def run(args):
    scored = [cell for cell in args.cells if Path(cell).is_file()]
    if scored:
        between_files(scored, args)
    for cell in map(Path, [cell for cell in args.cells if cell not in scored]):
        there = methods_of(cell)
        if args.methods:
            compare(cell, known(cell, args.methods, there), args)
            continue
        names = usual(there)
        compare(cell, names, args)
        if others := [name for name in there if name not in names]:
            say(f"{cell}: other methods of this cell, for --methods: {', '.join(others)}")


def methods_of(cell: Path) -> list[str]:
    """The methods whose test items a cell holds. Raises BadInput for a folder without any."""
    names = sorted(path.parent.name for path in cell.glob("*/confidences.jsonl"))
    if not names:
        why = "no confidences.jsonl in its folders" if cell.is_dir() else "no such folder"
        raise BadInput(f"{cell}: {why}; expected results/DATASET/MODEL of a finished run")
    return names


def known(cell: Path, names: list[str], there: list[str]) -> list[str]:
    """`names`, if the cell has them all. Raises BadInput naming those that it has."""
    for name in names:
        if name not in there:
            close = difflib.get_close_matches(name, there, 1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise BadInput(f"{cell}: no method {name!r}; {hint}It has {', '.join(there)}")
    return names


def usual(there: list[str]) -> list[str]:
    """The usual methods that a cell has, in their order, whichever model their confidence LLM comes from."""
    return [name for stem in USUAL for name in there if name.partition("-from-")[0] == stem]


def compare(cell: Path, names: list[str], args) -> None:
    """`report` of the methods of a cell."""
    if len(names) < 2:
        raise BadInput(f"{cell}: name two methods to compare (--methods); it has {', '.join(methods_of(cell))}")
    report(
        str(cell), {name: summary.read_stated(cell / name / "confidences.jsonl", args.unparsed) for name in names}, args
    )


def between_files(paths: list[str], args) -> None:
    """`report` of all methods in scored files, which must hold the same items, in whatever order."""
    methods: dict[str, summary.Stated] = {}
    place = " and ".join(paths)
    for path in paths:
        for name, records in scored_by(path).items():
            if name in methods:
                raise BadInput(
                    f"{place}: both have {name}; compare files with different methods, or of different names"
                )
            methods[name] = summary.stated_of(sorted(records, key=lambda record: record.id), path, args.unparsed)
    names = known(Path(place), args.methods, list(methods)) if args.methods else list(methods)
    if len(names) < 2:
        raise BadInput(f"{place}: nothing to compare; there is only {', '.join(methods)}")
    report(place, {name: methods[name] for name in names}, args)


def scored_by(path: str) -> dict[str, list[Confidence]]:
    """{method: records} of a scored file: of `orce measure`, or of `orce score`, whose one method has the file's name."""
    methods: dict[str, list[Confidence]] = {}
    for line, record in enumerate(measured_table.read(path), 1):
        several = record["confidence"]
        for name, value in (several if isinstance(several, dict) else {Path(path).stem: several}).items():
            judged = record | record.get("own", {}).get(name, {})
            if "correct" not in judged:
                raise BadInput(
                    f"{path}, line {line}: no 'correct'; a comparison needs labels (a reference, or a judgement)"
                )
            item = str(record.get("id") or record.get("question") or line)
            answer = judged.get("judged", judged.get("answer"))
            kept = {"id": item, "answer": answer, "correct": judged["correct"], "confidence": value}
            methods.setdefault(name, []).append(files.typed(f"{path}, line {line}", kept, Confidence))
    return methods


def report(place: str, methods: dict[str, summary.Stated], args) -> None:
    """One line for each method after the first: the difference, its interval, p, and whether the answers are the same."""
    (first, base), *others = methods.items()
    for name, other in others:
        if other.ids != base.ids:
            raise BadInput(f"{place}: {name} and {first} were evaluated on different items")
        difference = metrics.paired_bootstrap(
            args.metric, other.confidence, other.correct, base.confidence, base.correct, args.resamples
        )
        same = "same answers" if other.answers == base.answers else "other answers"
        words = in_words(difference, args.metric)
        say(f"{place}: {args.metric} of {name} - {first}: {words} (n = {len(base.ids)}, {same})")


def in_words(values: dict[str, float | None], metric: str) -> str:
    """Difference, interval and p; or that the metric is undefined on one side, as for a constant confidence."""
    difference, low, high, p = (values[key] for key in ("difference", "low", "high", "p"))
    if difference is None:
        return f"undefined, as {metric} is for one of them"
    if p is None:
        return f"{difference:+.4f}, without interval or p: noise biases differences of {metric}"
    return f"{difference:+.4f} [{low:+.4f}, {high:+.4f}], p = {p:.4f}"
