"""Combine the confidences of several rows that judge the same answers. What is fitted, is fitted on another data set's items."""

from typing import Any

from orce import methods, tasks
from orce.artefacts import store
from orce.errors import BadInput
from orce.metrics.calibrate import in_both, require_both
from orce.metrics.summary import stated_records
from orce.records import Confidence
from orce.runtime.progress import say
from orce.stage_settings import Combine

Settings = Combine


def add_arguments(parser):
    parser.add_argument(
        "--fit-prompts", nargs="*", help="frozen prompts of the data set to fit on, if something is fitted"
    )
    parser.add_argument("--fit-confidences", nargs="*", default=[], help="the rows' confidences there, in their order")
    parser.add_argument("--prompts", required=True, help="frozen test prompts")
    parser.add_argument("--confidences", nargs="+", required=True, help="each row's confidences in the test answers")
    parser.add_argument("--out", required=True)
    parser.add_argument("--fit", required=True, help="written: the parameters, and what they were fitted on")


def run(settings: Combine, args):
    combination, default = methods.load(settings.module), settings.unparsed_confidence
    found: dict[str, Any] = {"of": settings.of, "parameters": {}}
    if args.fit_confidences:
        shared = in_both(tasks.get(settings.task), args.prompts, *args.fit_prompts)
        items = [item for item in together(args.fit_confidences) if item[0].id not in shared and readable(item)]
        correct = [bool(item[0].correct) for item in items]
        require_both(correct, args.fit_confidences[0])
        found["parameters"] = combination.fit([filled(item, default) for item in items], correct)
        found |= {"fitted_on": args.fit_confidences, "n": len(items), "n_in_test_set": len(shared)}
    items = together(args.confidences)
    records = [combined(item, combination, found["parameters"], default) for item in items]
    unread = [sum(part.confidence is None for part in parts) for parts in zip(*items, strict=True)]
    found["n_unparsed"] = dict(zip(settings.of, unread, strict=True))
    say(f"[{settings.label}] {settings.combination}: {found}")
    store.write(args.out, records, settings)
    store.write_object(args.fit, {"combination": settings.combination} | found, settings)


def together(paths: list[str]) -> list[tuple[Confidence, ...]]:
    """The records of several rows, item by item in the order of the first.

    Raises BadInput for an item that a row lacks, or whose answer in it is another one.
    """
    rows = [stated_records(path) for path in paths]
    by_id = [{record.id: record for record in row} for row in rows]
    for path, row in zip(paths, by_id, strict=True):
        for first in rows[0]:
            other = row.get(first.id)
            if len(row) != len(rows[0]) or other is None:
                raise BadInput(
                    f"{path}: not the items of {paths[0]} (id {first.id!r}); combine rows of the same questions"
                )
            if other.answer != first.answer:
                raise BadInput(
                    f"{path}: judges {other.answer!r} for id {first.id!r}, and {paths[0]} judges {first.answer!r}; "
                    "combine rows that judge the same answers"
                )
    return [tuple(row[first.id] for row in by_id) for first in rows[0]]


def readable(item: tuple[Confidence, ...]) -> bool:
    """Whether a row at least has a confidence in the item."""
    return any(part.confidence is not None for part in item)


def filled(item: tuple[Confidence, ...], default: float) -> list[float]:
    """The rows' confidences in an item, `default` for one that could not be read."""
    return [default if part.confidence is None else part.confidence for part in item]


def combined(item: tuple[Confidence, ...], combination, parameters: dict[str, Any], default: float) -> Confidence:
    """The record of an item; `raw` has the rows' confidences. One that no row has stays unread, for evaluate to count."""
    confidence = float(combination.apply(parameters, [filled(item, default)])[0]) if readable(item) else None
    retried = any(part.retried is True for part in item)
    return item[0].mapped(confidence, [part.confidence for part in item], retried)
