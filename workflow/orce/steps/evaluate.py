"""Metrics of one method on one test set, with bootstrap intervals, counts and provenance."""

import numpy as np

from orce.answers.surrogate import read_surrogate
from orce.evaluation import summary as cell_summary
from orce.reports import provenance
from orce.runtime import files
from orce.steps import add_settings, settings


def add_arguments(parser):
    add_settings(parser)
    parser.add_argument("--confidences", required=True)
    parser.add_argument("--surrogate", required=True, help="for the correlation with kappa on the test set")
    parser.add_argument("--manifests", nargs="*", default=[], help="manifests of the inputs of the confidences")
    parser.add_argument("--out", required=True)


def run(args):
    options = settings(args.settings)
    records = files.read_jsonl(args.confidences, ("id", "answer", "correct", "f1", "confidence"))
    kappa = {row["id"]: row["kappa"] for row in read_surrogate(args.surrogate) if row["split"] == "test"}
    for line, record in enumerate(records, 1):
        check(f"{args.confidences}, line {line}", record, kappa, args.surrogate)
    values = summary(records, kappa, options)
    made_from = {path: files.read_json(path) for path in args.manifests}
    record = provenance.collect(options, made_from, files.file_digest(args.confidences))
    cell = {key: options[key] for key in ("dataset", "model", "method")}
    retried = {"n_retried": sum(bool(one.get("retried")) for one in records)}  # read at a second try
    files.write_json(args.out, cell | values | retried | record)


def check(where: str, record: dict, known, surrogate: str) -> None:
    """Raise BadInput for a malformed record, or one of another test set."""
    stated = record["confidence"]
    if stated is not None and (isinstance(stated, bool) or not isinstance(stated, int | float) or not 0 <= stated <= 1):
        raise files.BadInput(f"{where}: confidence is {stated!r}; expected a number from 0 to 1, or null")
    if record["correct"] not in (0, 1):
        raise files.BadInput(f"{where}: correct is {record['correct']!r}; expected true or false")
    if record["id"] not in known:
        raise files.BadInput(f"{where}: id {record['id']!r} has no test row in {surrogate}; make both again")


def summary(records: list[dict], kappa: dict[str, float], options: dict) -> dict:
    """Every item stays in n: an unreadable answer is wrong, an unreadable confidence takes the value of the config."""
    stated = [record["confidence"] for record in records]
    f1 = [record["f1"] for record in records]
    return cell_summary.summarise(
        np.array([options["unparsed_confidence"] if value is None else value for value in stated], dtype=float),
        np.array([record["correct"] for record in records], dtype=bool),
        kappa=np.array([kappa[record["id"]] for record in records]),
        f1=None if None in f1 else np.array(f1, dtype=float),
        n_unparsed={
            "answer": sum(record["answer"] is None for record in records),
            "confidence": stated.count(None),
        },
        n_resamples=options["bootstrap"],
        seed=options["seed"],
    )
