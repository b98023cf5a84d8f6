"""Compare methods on the same test items: paired bootstrap of the difference in a metric, against the first method."""

from pathlib import Path

import numpy as np

from orce.evaluation import metrics
from orce.runtime import files
from orce.runtime.progress import say


def add_arguments(parser):
    parser.add_argument("cells", nargs="+", help="folders results/{dataset}/{model}")
    parser.add_argument("--methods", nargs="+", default=["vanilla", "sft", "orce"])
    parser.add_argument("--metric", default="aurc")
    parser.add_argument("--resamples", type=int, default=10000)
    parser.add_argument("--unparsed", type=float, default=0.5, help="confidence that stands for an unreadable one")


def run(args):
    for cell in args.cells:
        base, *others = [read(Path(cell) / method / "confidences.jsonl", args.unparsed) for method in args.methods]
        for method, other in zip(args.methods[1:], others, strict=True):
            if other["id"] != base["id"]:
                raise files.BadInput(f"{cell}: {method} and {args.methods[0]} were evaluated on different items")
            found = metrics.paired_bootstrap(
                args.metric, other["confidence"], other["correct"], base["confidence"], base["correct"], args.resamples
            )
            same = "same answers" if other["answer"] == base["answer"] else "other answers"
            say(
                f"{cell}: {args.metric} of {method} - {args.methods[0]}: {found['difference']:+.4f} "
                f"[{found['low']:+.4f}, {found['high']:+.4f}], p = {found['p']:.4f} (n = {len(base['id'])}, {same})"
            )


def read(path: Path, unparsed: float) -> dict:
    """ids, answers, confidence and correctness of a method's test items."""
    records = files.read_jsonl(path, ("id", "answer", "correct", "confidence"))
    stated = [unparsed if record["confidence"] is None else record["confidence"] for record in records]
    return {
        "id": [record["id"] for record in records],
        "answer": [record["answer"] for record in records],
        "confidence": np.array(stated),
        "correct": np.array([record["correct"] for record in records]),
    }
