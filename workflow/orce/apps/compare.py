"""Compare methods of a run on the same items: paired bootstrap of the difference in a metric."""

from pathlib import Path

from orce import metrics
from orce.errors import BadInput, did_you_mean
from orce.metrics import signs, summary
from orce.runtime.process import say

USUAL = ("vanilla", "sft", "orce")


def add_arguments(parser):
    parser.add_argument("cells", nargs="+", type=Path, help="folders results/{dataset}/{model}")
    default = f"(default: {', '.join(USUAL)})"
    parser.add_argument(
        "--methods", nargs="+", help=f"the first is compared with each of the others {default}"
    )
    parser.add_argument("--metric", default="aurc", choices=sorted(metrics.ALL))
    parser.add_argument("--resamples", type=int, default=10000)
    parser.add_argument(
        "--unparsed", type=float, default=0.5, help="confidence that replaces an unreadable one"
    )


def run(args):
    if args.resamples < 1:
        raise BadInput(f"--resamples is {args.resamples}; expected a whole number, from 1 on")
    if not 0 <= args.unparsed <= 1:
        raise BadInput(f"--unparsed is {args.unparsed:g}; expected a confidence from 0 to 1")
    for cell in args.cells:
        paths = {path.parent.name: path for path in sorted(cell.glob("*/confidences.jsonl"))}
        if not paths:
            why = "no confidences.jsonl in its folders" if cell.is_dir() else "no such folder"
            raise BadInput(f"{cell}: {why}; expected results/DATASET/MODEL of a finished run")
        usual = []
        for stem in USUAL:  # with those of other models: sft, sft-from-llama3-8b
            usual += [name for name in paths if name.partition("-from-")[0] == stem]
        names = args.methods or usual
        known = ", ".join(paths)
        for name in names:
            if name not in paths:
                hint = did_you_mean(name, paths)
                raise BadInput(f"{cell}: no method {name!r}; {hint}It has {known}")
        if len(names) < 2:
            raise BadInput(f"{cell}: name two methods to compare (--methods); it has {known}")
        rows = [(name, summary.read_stated(paths[name], args.unparsed)) for name in names]
        for name, row in rows:
            if unread := signs.unread_line(row.unread, len(row.ids)):
                say(f"{cell}: {name}: {unread}")
        for row in rows[1:]:
            say(f"{cell}: {difference(*rows[0], *row, args.metric, args.resamples)}")
        more = [name for name in paths if name not in usual]
        if more and not args.methods:
            say(f"{cell}: other methods of this cell, for --methods: {', '.join(more)}")


def difference(
    first: str, base: summary.Stated, name: str, row: summary.Stated, metric: str, resamples: int
) -> str:
    """The difference in words, with its interval, p, and whether the methods judge the same
    answers.
    """
    if row.ids != base.ids:
        raise BadInput(f"{name} and {first} were evaluated on different items")
    if len(row.ids) in (row.unread, base.unread):
        return f"{metric} of {name} - {first}: undefined, as no confidence of one of them could be read"
    values = metrics.paired_bootstrap(
        metric, row.confidence, row.correct, base.confidence, base.correct, resamples
    )
    if values["difference"] is None:  # as for a constant confidence
        words = f"undefined, as {metric} is for one of them, or on most resamples"
    elif values["p"] is None:
        words = f"{values['difference']:+z.4f}, without interval or p: noise biases differences of {metric}"
    else:
        # the sign stays also where a bound is nearly 0: it says whether 0 is inside
        words = "{difference:+.4f} [{low:+.4f}, {high:+.4f}], p = {p:.4g}".format(**values)
    same = "same answers" if row.answers == base.answers else "other answers"
    return f"{metric} of {name} - {first}: {words} (n = {len(base.ids)}, {same})"
