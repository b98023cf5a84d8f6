"""Put every metric of every method into one tidy table, one value a line."""

from pathlib import Path
from typing import Annotated, Self

from orce import methods
from orce.artefacts import store, tables
from orce.config import layout
from orce.metrics.definitions import EXTRA, METRICS
from orce.reports import metrics_file
from orce.reports.metrics_file import CellMetrics
from orce.runtime.process import say
from orce.settings.schema import Config
from orce.settings.stage import Settings as StageSettings

COLUMNS = ("dataset", "model", "method", "label", "metric", "value", "low", "high", "n", "reason")
# of a metric that the library has and a file lacks: Snakemake reruns nothing for new code
OLDER = "its file was made before this metric was added; snakemake -R evaluate makes it again"


class MetricsCsvSettings(StageSettings, kw_only=True):
    """labels: {path of metrics.json: label of its method}."""

    labels: dict[str, str]

    @classmethod
    def of(cls, config: Config) -> Self:
        registry = methods.of(config)
        labels = {}
        # the first table names a row that is in several
        for name in reversed(config.paper_tables):
            table = config.tables[name]
            for row in layout.table_rows(table, registry):
                labels[layout.metrics_path(table.dataset, row)] = row.label
        return cls(labels=labels)


def run(
    settings: MetricsCsvSettings,
    metrics: Annotated[list[str], "metrics.json files; extra.json is beside each"],
    out: str,
):
    """Reads metrics.json and extra.json of every row; writes metrics.csv, one value a line."""
    lines = []
    missing = 0
    for path, measured in metrics_file.read_all(metrics).items():
        label = settings.labels.get(path, "")
        cell = (measured.dataset, measured.model, measured.method, label)
        extra = metrics_file.read_metrics(Path(path).with_name("extra.json"))
        values = metric_lines(measured, [*METRICS, "spearman_surrogate", "f1"])
        values += metric_lines(extra, [*EXTRA])
        for name, count in measured.n_unparsed.items():
            values.append((f"unparsed_{name}s", float(count), None, None, None))
        missing += sum(why == OLDER for *_, why in values)
        lines += [(*cell, *bounds, measured.n, reason) for *bounds, reason in values]
    with store.writing(out, settings) as handle:
        tables.write_csv(handle, [COLUMNS, *lines])
    say(f"[metrics-csv] {len(lines)} values in {out}")
    if missing:
        say(f"[metrics-csv] {missing} values are missing: {OLDER}")


def metric_lines(source: CellMetrics, names: list[str]) -> list[tuple]:
    """Name, value, low, high of metrics in a file, and why the value or its interval is undefined
    or not there.
    """
    lines = []
    for name in names:
        low, high = source.interval(name) or (None, None)
        reason = source.reasons.get(name) or source.reasons.get(f"{name} interval")
        if name not in source.values:
            reason = OLDER
        lines.append((name, source.values.get(name), low, high, reason))
    return lines
