"""Metrics of one method on one test set, with bootstrap intervals, counts and provenance."""

from pathlib import Path
from typing import Annotated, Self

import numpy as np

from orce.align.surrogate import read_surrogate
from orce.artefacts import files, store
from orce.config import picking
from orce.errors import BadInput
from orce.metrics import summarise, summarise_extra
from orce.metrics.summary import read_stated
from orce.reports import metrics_file, provenance, screen
from orce.runtime.process import say
from orce.settings.schema import Config, Number
from orce.settings.stage import Settings as StageSettings
from orce.settings.stage import to_mapping


class EvaluateSettings(StageSettings, kw_only=True):
    dataset: str
    model: str
    method: str
    unparsed_confidence: Number
    bootstrap: int
    seed: int

    @classmethod
    def of(cls, config: Config, dataset: str, model: str, method: str) -> Self:
        return picking.pick(
            cls, config, "evaluate", dataset, model, config.evaluation, model=model, method=method
        )


def run(
    settings: EvaluateSettings,
    confidences: str,
    surrogate: Annotated[str, "for the correlation with kappa on the test set"],
    out: Annotated[str, "metrics.json: the paper's metrics"],
    extra: Annotated[str, "extra.json: metrics that others report and the paper does not"],
    manifests: Annotated[list[str], "manifests of the inputs of the confidences"] = [],  # noqa: B006
):
    """Reads confidences.jsonl and, for kappa, surrogate.csv; writes metrics.json (METRICS) and
    extra.json (EXTRA), each metric with its 95 % bootstrap interval.
    """
    stated = read_stated(confidences, settings.unparsed_confidence)
    kappa = {row.id: row.kappa for row in read_surrogate(surrogate) if row.split == "test"}
    check_ids(stated.ids, confidences, kappa, surrogate)
    options = {"f1": stated.f1, "n_resamples": settings.bootstrap, "seed": settings.seed}
    # Every item stays in n: an unreadable answer is wrong, an unreadable confidence takes the value
    # of the configuration.
    values = summarise(
        stated.confidence,
        stated.correct,
        kappa=np.array([kappa[name] for name in stated.ids]),
        n_unparsed={"answer": stated.answers.count(None), "confidence": stated.unread},
        **options,
    )
    if stated.unread < len(stated.ids):
        values |= few_distinct(stated.distinct)
    # the other readouts of the same distributions, for the tables' further blocks
    readout = store.manifest_facts(confidences).get("settings", {}).get("readout", "stated")
    if stated.mean is not None:
        by_mean = summarise(stated.mean, stated.correct, **options) | {"mass": stated.mass}
        values["mean"] = by_mean | few_distinct(len(np.unique(stated.mean)))
    if readout != "stated":
        values["readout"] = readout
    if readout != "stated" and stated.as_stated is not None:
        as_stated = summarise(stated.as_stated, stated.correct, **options)
        values["stated"] = as_stated | few_distinct(len(np.unique(stated.as_stated)))
    digest = files.file_digest(confidences)
    read = {path: store.read_manifest(path) for path in manifests}
    values["provenance"] = provenance.provenance_of(to_mapping(settings), read, digest)
    values["n_retried"] = stated.retried
    named = {"dataset": settings.dataset, "model": settings.model, "method": settings.method}
    store.write_object(out, named | values, settings)
    more = summarise_extra(
        stated.confidence, stated.correct, settings.bootstrap, settings.seed, stated.unread
    )
    store.write_object(extra, named | more | {"confidences": digest}, settings)
    if why := metrics_file.read_metrics(out).collapse:
        say(f"{out}: {why}")
    # the screen of a long run shows what there is
    for line in screen.rows_so_far(Path(out).parent.parent):
        say(line)


def check_ids(ids: list[str], confidences: str, kappa: dict[str, float], surrogate: str) -> None:
    """Raises BadInput where the two files are not of the same test questions."""
    for line, name in enumerate(ids, 1):
        if name not in kappa:
            none = f"id {name!r} has no test row in {surrogate}"
            raise BadInput(f"{confidences}, line {line}: {none}; make both again")
    if missing := sorted(set(kappa).difference(ids)):
        first = f"no line for id {missing[0]!r} of {surrogate}"
        counted = f"{len(missing)} of {len(kappa)} test ids have none"
        raise BadInput(f"{confidences}: {first}, and {counted}; {store.remake_hint(confidences)}")


def few_distinct(distinct: int) -> dict[str, int]:
    """`n_distinct` where there are fewer than three values, which says that a row is collapsed."""
    return {"n_distinct": distinct} if distinct < 3 else {}
