"""Put every metric of every method into one tidy table, one value a line."""

import csv
from dataclasses import asdict
from pathlib import Path

from orce.artefacts import files
from orce.metrics.definitions import EXTRA, METRICS
from orce.reports import metrics_file
from orce.reports.metrics_file import CellMetrics
from orce.runtime.progress import say
from orce.stage_settings import MetricsCsv

Settings = MetricsCsv
COLUMNS = ("dataset", "model", "method", "label", "metric", "value", "low", "high", "n", "reason")


def add_arguments(parser):
    parser.add_argument("--metrics", nargs="+", required=True, help="metrics.json files; extra.json is beside each")
    parser.add_argument("--out", required=True)


def run(settings: MetricsCsv, args):
    lines = []
    for path, metrics in metrics_file.collect(args.metrics).items():
        cell = (metrics.dataset, metrics.model, metrics.method, settings.labels.get(path, ""))
        extra = metrics_file.read(Path(path).with_name("extra.json"))
        values = [*of_file(metrics, [*METRICS, "spearman_surrogate", "f1"]), *of_file(extra, [*EXTRA])]
        values += [(f"unparsed_{name}s", float(n), None, None, None) for name, n in asdict(metrics.n_unparsed).items()]
        lines += [(*cell, *bounds, metrics.n, reason) for *bounds, reason in values]
    with files.atomic(args.out) as handle:
        csv.writer(handle, lineterminator="\n").writerows([COLUMNS, *lines])
    say(f"[metrics-csv] {len(lines)} values in {args.out}")


def of_file(source: CellMetrics, names: list[str]):
    """Name, value, low, high of the metrics that a file has, and why the value or its interval is undefined."""
    for name in (name for name in names if name in source.values):
        low, high = source.interval(name) or (None, None)
        why = source.reasons.get(name) or (source.reasons.get(f"{name} interval") if low is None else None)
        yield name, source.values[name], low, high, why
