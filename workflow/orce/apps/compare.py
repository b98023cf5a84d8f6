"""Compare methods on the same items, of a run or of scored files: paired bootstrap of the difference in a metric."""

import difflib
from collections.abc import Iterable
from pathlib import Path

from orce import metrics
from orce.apps.door import table as scored_table
from orce.artefacts import files
from orce.errors import BadInput
from orce.metrics import summary
from orce.records import Confidence
from orce.runtime.process import say

USUAL = ("vanilla", "sft", "orce")


def add_arguments(parser):
    parser.add_argument("cells", nargs="+", help="folders results/{dataset}/{model}; or scored files")
    default = f"(default: {', '.join(USUAL)})"
    parser.add_argument("--methods", nargs="+", help=f"the first is compared with each of the others {default}")
    parser.add_argument("--metric", default="aurc", choices=sorted(metrics.ALL))
    parser.add_argument("--resamples", type=int, default=10000)
    parser.add_argument("--unparsed", type=float, default=0.5, help="confidence that replaces an unreadable one")


def run(args):
    scored = [path for path in args.cells if Path(path).is_file()]
    if scored:
        place, methods = " and ".join(scored), dict(of_files(scored, args.unparsed))
        report(place, {name: methods[name] for name in known(place, args.methods or [*methods], methods)}, args)
    for cell in (Path(path) for path in args.cells if path not in scored):
        paths = {path.parent.name: path for path in sorted(cell.glob("*/confidences.jsonl"))}
        if not paths:
            why = "no confidences.jsonl in its folders" if cell.is_dir() else "no such folder"
            raise BadInput(f"{cell}: {why}; expected results/DATASET/MODEL of a finished run")
        usual = [name for stem in USUAL for name in paths if name.partition("-from-")[0] == stem]
        names = known(str(cell), args.methods or usual, paths)
        report(str(cell), {name: summary.read_stated(paths[name], args.unparsed) for name in names}, args)
        if not args.methods and (others := [name for name in paths if name not in usual]):
            say(f"{cell}: other methods of this cell, for --methods: {', '.join(others)}")


def of_files(paths: list[str], unparsed: float) -> Iterable[tuple[str, summary.Stated]]:
    """(method, its items by id) of scored files: of `orce measure`, or of `orce score`, whose method has the file's name."""
    seen = set()
    for path in paths:
        methods: dict[str, list[Confidence]] = {}
        for line, record in enumerate(scored_table.read(path), 1):
            several = record["confidence"]
            for name, value in (several if isinstance(several, dict) else {Path(path).stem: several}).items():
                judged = record | record.get("own", {}).get(name, {})
                if "correct" not in judged:
                    raise BadInput(
                        f"{path}, line {line}: no 'correct'; a comparison needs labels (a reference, or a judgement)"
                    )
                item = {"id": str(record.get("id") or record.get("question") or line), "confidence": value}
                item |= {"answer": judged.get("judged", judged.get("answer")), "correct": judged["correct"]}
                methods.setdefault(name, []).append(files.typed(f"{path}, line {line}", item, Confidence))
        if twice := seen.intersection(methods):
            both = f"{' and '.join(paths)}: both have {twice.pop()}"
            raise BadInput(f"{both}; compare files with different methods, or of different names")
        seen.update(methods)
        for name, items in methods.items():
            yield name, summary.stated_of(sorted(items, key=lambda item: item.id), path, unparsed)


def known(place: str, names: list[str], there: Iterable[str]) -> list[str]:
    """`names`, if all are there and at least two. Raises BadInput naming those that are."""
    for name in names:
        if name not in there:
            close = difflib.get_close_matches(name, there, 1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise BadInput(f"{place}: no method {name!r}; {hint}It has {', '.join(there)}")
    if len(names) < 2:
        raise BadInput(f"{place}: name two methods to compare (--methods); it has {', '.join(there)}")
    return names


def report(place: str, methods: dict[str, summary.Stated], args) -> None:
    """One line for each method after the first: the difference, its interval, p, and whether the answers are the same."""
    (first, base), *others = methods.items()
    for name, other in others:
        if other.ids != base.ids:
            raise BadInput(f"{place}: {name} and {first} were evaluated on different items")
        found = metrics.paired_bootstrap(
            args.metric, other.confidence, other.correct, base.confidence, base.correct, args.resamples
        )
        difference, low, high, p = (found[key] for key in ("difference", "low", "high", "p"))
        if difference is None:  # as for a constant confidence
            words = f"undefined, as {args.metric} is for one of them"
        elif p is None:
            words = f"{difference:+.4f}, without interval or p: noise biases differences of {args.metric}"
        else:
            words = f"{difference:+.4f} [{low:+.4f}, {high:+.4f}], p = {p:.4f}"
        same = "same answers" if other.answers == base.answers else "other answers"
        say(f"{place}: {args.metric} of {name} - {first}: {words} (n = {len(base.ids)}, {same})")
