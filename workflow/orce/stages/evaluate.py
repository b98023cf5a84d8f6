"""Metrics of one method on one test set, with bootstrap intervals, counts and provenance."""

from collections.abc import Collection
from pathlib import Path

import numpy as np

from orce.answers.surrogate import read_surrogate
from orce.artefacts import files, store
from orce.config.cells import Cell
from orce.errors import BadInput
from orce.metrics import summarise, summarise_extra
from orce.metrics.summary import Stated, read_stated
from orce.reports import metrics_file, provenance
from orce.runtime.progress import say
from orce.stage_settings import Evaluate, plain

Settings = Evaluate


def add_arguments(parser):
    parser.add_argument("--confidences", required=True)
    parser.add_argument("--surrogate", required=True, help="for the correlation with kappa on the test set")
    parser.add_argument("--manifests", nargs="*", default=[], help="manifests of the inputs of the confidences")
    parser.add_argument("--out", required=True, help="metrics.json: the paper's metrics")
    parser.add_argument("--extra", required=True, help="extra.json: metrics that others report and the paper does not")


def run(settings: Evaluate, args):
    cell, method = Cell(settings.dataset, settings.model), settings.method
    require_cell(args.confidences, cell.confidences(method))
    require_cell(args.surrogate, cell.surrogate)
    found = read_stated(args.confidences, settings.unparsed_confidence)
    rows = {row.id: row.kappa for row in read_surrogate(args.surrogate) if row.split == "test"}
    require_ids(args.confidences, found.ids, args.surrogate, rows)
    made_from = {path: store.read_manifest(path) for path in args.manifests}
    digest = files.file_digest(args.confidences)
    record = provenance.collect(plain(settings), made_from, digest)
    named = {"dataset": settings.dataset, "model": settings.model, "method": settings.method}
    values = summary(found, np.array([rows[name] for name in found.ids]), settings)
    if found.mean is not None:
        values["mean"] = of_mean(found, found.mean, settings)
    values |= {"readout": "mode"} if found.of_mode else {}
    store.write_object(args.out, named | values | {"n_retried": found.retried, "provenance": plain(record)}, settings)
    extra = summarise_extra(found.confidence, found.correct, settings.bootstrap, settings.seed)
    store.write_object(args.extra, named | extra | {"confidences": digest}, settings)
    for line in metrics_file.rows_so_far(
        Path(args.out).parent.parent
    ):  # beside it: the screen of a long run shows what there is
        say(line)


def require_cell(path: str, expected: str) -> None:
    """Raises BadInput for a file that belongs to another cell than the settings name."""
    belongs = store.place(path) or store.facts(path).get("file", "")
    if store.place(belongs) not in (None, expected):
        raise BadInput(f"{path}: is {belongs}, and the settings ask for {expected}")


def require_ids(path: str, ids: list[str], surrogate: str, rows: Collection[str]) -> None:
    """Raises BadInput unless the ids, which are unique, are the test ids."""
    for line, name in enumerate(ids, 1):
        if name not in rows:
            raise BadInput(f"{path}, line {line}: id {name!r} has no test row in {surrogate}; make both again")
    if missing := sorted(set(rows).difference(ids)):
        raise BadInput(
            f"{path}: no line for id {missing[0]!r} of {surrogate}, and {len(missing)} of {len(rows)} test ids have none; "
            f"{store.again(path)}"
        )


def summary(found: Stated, kappa: np.ndarray, settings: Evaluate) -> dict:
    """Every item stays in n: an unreadable answer is wrong, an unreadable confidence takes the value of the config."""
    return summarise(
        found.confidence,
        found.correct,
        kappa=kappa,
        f1=found.f1,
        n_unparsed={"answer": found.answers.count(None), "confidence": found.unread},
        n_resamples=settings.bootstrap,
        seed=settings.seed,
    )


def of_mean(found: Stated, mean: np.ndarray, settings: Evaluate) -> dict:
    """The metrics of the mean of each distribution in place of the configured readout, for the tables' second block."""
    return summarise(mean, found.correct, f1=found.f1, n_resamples=settings.bootstrap, seed=settings.seed)
