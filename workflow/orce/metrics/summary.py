"""From a method's confidences.jsonl to the contents of its metrics.json and extra.json."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET
from numpy.typing import ArrayLike

from orce.artefacts import store
from orce.artefacts.records import Confidence, Number
from orce.errors import BadInput
from orce.metrics.counts import Cells, Metric, probability_cells, tabulate
from orce.metrics.definitions import EXTRA, METRICS, accuracy, log10_p, p_value, rank_correlation
from orce.metrics.resampling import N_RESAMPLES, intervals

CORRELATIONS = ("spearman", "spearman_surrogate")
Part = tuple[Mapping[str, Metric], Cells]  # metrics by name, and what they measure


@dataclass(frozen=True)
class Stated:
    """A method's statements on the n test items."""

    ids: list[str]
    answers: list[str | Number | None]  # None where one could not be read
    confidence: np.ndarray  # [n], in [0, 1]
    correct: np.ndarray  # bool [n]
    f1: np.ndarray | None  # [n]; None where the task has none
    as_stated: np.ndarray | None  # [n], of a confidence LLM, whatever `confidence` is
    mean: np.ndarray | None  # [n], of the distributions; None where there are none
    mass: float | None  # the 101 values' probability, on average; None where it was not kept
    unread: int  # confidences that could not be read and hold the default
    distinct: int  # values among the others
    retried: int  # confidences that were read at a second try, or not even then


def read_stated(path: str | Path, unparsed: float) -> Stated:
    """The statements in a file, as `stated_records` reads it; `unparsed` replaces a confidence that
    could not be read.
    """
    records = stated_records(path)
    confidences = [record.confidence for record in records]
    mass = _column(records, "mass")
    read_or_default = [unparsed if value is None else value for value in confidences]
    return Stated(
        ids=[record.id for record in records],
        answers=[record.answer for record in records],
        confidence=np.array(read_or_default, dtype=float),
        correct=np.array([record.correct for record in records], dtype=bool),
        f1=_column(records, "f1"),
        as_stated=_column(records, "stated"),
        mean=_column(records, "mean"),
        mass=None if mass is None else float(mass.mean()),
        unread=confidences.count(None),
        distinct=len({*confidences} - {None}),
        retried=[record.retried for record in records].count(True),
    )


def _column(records: list[Confidence], field: str) -> np.ndarray | None:
    """A field of all records, as an array [n]; None where a record lacks it."""
    column = [getattr(record, field) for record in records]
    return None if None in column or UNSET in column else np.array(column, dtype=float)


def stated_records(path: str | Path) -> list[Confidence]:
    """The records of a file. Raises BadInput naming the line of a repeated id, or of a confidence
    or correctness out of range.
    """
    seen: dict[str, int] = {}
    records = store.records(path, Confidence)
    for line, record in enumerate(records, 1):
        where = f"{path}, line {line}"
        for name in ("confidence", "mean", "mode"):
            value = getattr(record, name)
            if value not in (None, UNSET) and not 0 <= value <= 1:
                raise BadInput(
                    f"{where}: {name} is {value!r}; expected a number from 0 to 1, or null"
                )
        if record.correct not in (0, 1):
            raise BadInput(f"{where}: correct is {record.correct!r}; expected true or false")
        if seen.setdefault(record.id, line) != line:
            raise BadInput(f"{where}: id {record.id!r} stands in line {seen[record.id]} already")
    return records


def summarise(
    confidence: ArrayLike,
    correct: ArrayLike,
    kappa=None,
    f1=None,
    n_unparsed=None,
    n_resamples=N_RESAMPLES,
    seed=0,
) -> dict[str, Any]:
    """Every metric of one cell of the tables, ready for JSON.

    confidence [n] in [0, 1], correct [n] of 0/1; kappa [n] and f1 [n], where they exist; n_unparsed
    {"answer", "confidence"}: how many were unreadable; if no confidence was read, all but accuracy
    and f1 is None. Keys: each name in METRICS, f1, n and n_unparsed; spearman and (with kappa)
    spearman_surrogate as {rho, p, log10_p}; intervals {metric: [low, high] or None}, of rho for the
    correlations; reasons {metric: text} for each metric that is None.
    """
    cells = probability_cells(confidence, correct)
    parts: list[Part] = [(METRICS, cells)]
    if kappa is not None:
        parts.append(({"spearman_surrogate": rank_correlation}, tabulate(confidence, kappa)))
    if f1 is not None:
        if np.shape(f1) != (cells.n,):
            raise ValueError(f"f1 must have one value an item, {cells.n}, not {np.size(f1)}")
        parts.append(({"f1": accuracy}, tabulate(np.zeros(cells.n), f1)))  # the mean of the targets
    unparsed = {"answer": 0, "confidence": 0}
    for key, count in (n_unparsed or {}).items():
        unparsed[key] = int(count)
    values = _measure(parts, n_resamples, seed, unparsed["confidence"])
    for name in CORRELATIONS:
        if name in values:
            values[name] = _with_p(values[name], cells.n)
            if values[name]["p"] == 0 and values[name]["log10_p"] is None:
                values["reasons"][f"{name} log10_p"] = "p is exactly 0"
    if f1 is None:
        values["f1"] = values["intervals"]["f1"] = None
        values["reasons"]["f1"] = "this task has no F1"
    return values | {"n_unparsed": unparsed}


def summarise_extra(
    confidence: ArrayLike, correct: ArrayLike, n_resamples=N_RESAMPLES, seed=0, unread: int = 0
) -> dict[str, Any]:
    """The metrics in EXTRA of one cell, ready for JSON: each name, n, intervals and reasons, as in
    `summarise`. unread: how many confidences could not be read.
    """
    parts = [(EXTRA, probability_cells(confidence, correct))]
    return _measure(parts, n_resamples, seed, unread)


def _measure(parts: Sequence[Part], n_resamples: int, seed: int, unread: int) -> dict[str, Any]:
    """{name: value} of the metrics of each part on its cells, with n, intervals {name: [low, high]}
    and reasons {name: text}.

    Where all confidences are unread, only what needs none has a value: all else would measure the
    default.
    """
    n = parts[0][1].n
    values: dict[str, Any] = {}
    bounds: dict[str, list[float] | None] = {}
    reasons: dict[str, str] = {}
    for metrics, cells in parts:
        defined = {}
        for name, metric in metrics.items():
            why = metric.why_undefined(cells)
            if n and unread == n and metric is not accuracy:
                why = "no confidence could be read"
            values[name] = bounds[name] = None
            if why:
                reasons[name] = why
                continue
            values[name] = metric.value(cells)
            defined[name] = metric
        drawn = intervals(defined, cells, n_resamples, seed) if defined else {}
        for name, interval in drawn.items():
            if interval is not None:
                bounds[name] = list(interval)
            elif defined[name].gaps:
                why = "noise makes it larger, so percentiles would miss its true value"
                reasons[f"{name} interval"] = why
            else:
                reasons[f"{name} interval"] = "it is undefined on more than half of the resamples"
    return values | {"n": n, "intervals": bounds, "reasons": reasons}


def _with_p(rho: float | None, n: int) -> dict[str, float | None]:
    """{rho, p, log10_p} of a rank correlation of n items."""
    if rho is None:
        return dict.fromkeys(("rho", "p", "log10_p"))
    return {"rho": rho, "p": p_value(rho, n), "log10_p": log10_p(rho, n)}
