"""A metrics.json, or the extra.json beside it, as tables and summaries read it."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import msgspec

from orce.artefacts import store
from orce.errors import BadInput
from orce.metrics import signs
from orce.metrics.summary import CORRELATIONS

READINGS = ("mean", "stated")  # of a confidence LLM's distribution, beside the configured one


@dataclass(frozen=True)
class CellMetrics:
    """The metrics of a row. values: each metric by name, None where it is undefined; a correlation
    has its rho, and `spearman` the two columns `rho` and `p` as well. mean, stated: the same items
    by the mean of each distribution, and by what the model states where `readout` is another. The
    rest as in metrics.json.
    """

    path: str
    values: dict[str, float | None]
    dataset: str = ""
    model: str = ""
    method: str = ""
    n: int = 0
    intervals: dict[str, tuple[float, float] | None] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    n_unparsed: dict[str, int] = field(default_factory=lambda: {"answer": 0, "confidence": 0})
    n_retried: int = 0
    n_distinct: int | None = None  # confidences, where there are fewer than three
    log10_p: float | None = None
    readout: str | None = None
    mean: "CellMetrics | None" = None
    stated: "CellMetrics | None" = None
    provenance: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, path: str, written: dict[str, Any]) -> Self:
        """The metrics in a JSON object as `orce.metrics.summary` makes it. Raises BadInput naming
        `path` for another.
        """
        try:
            alone = written | dict.fromkeys(READINGS)
            readings = {}
            for name in READINGS:
                if written.get(name):
                    reading = alone | {"n_distinct": None} | written[name]
                    readings[name] = cls._read(path, reading)
            return replace(cls._read(path, alone), **readings)
        except (AttributeError, KeyError, TypeError, msgspec.ValidationError) as error:
            raise BadInput(
                f"{path}: not as the step evaluate writes it ({error}); {store.remake_hint(path)}"
            ) from None

    @classmethod
    def _read(cls, path: str, written: dict[str, Any]) -> Self:
        """The metrics of one reading."""
        values = {}
        for name, value in written.items():
            if isinstance(value, int | float | None):
                values[name] = value
        for name in CORRELATIONS:
            if written.get(name):
                values[name] = written[name]["rho"]
        spearman = written.get("spearman") or {}
        values |= {name: spearman[name] for name in ("rho", "p") if name in spearman}
        fields = {"path": path, "values": values, "log10_p": spearman.get("log10_p")}
        return msgspec.convert(written | fields, cls)

    def value(self, key: str) -> float | None:
        """The number of a table's column. Raises BadInput for a missing one."""
        if key not in self.values:
            raise BadInput(f"{self.path}: no metric {key!r}")
        return self.values[key]

    @property
    def collapse(self) -> str | None:
        """Why the confidences say no more than a constant would, if so."""
        values = self.values
        return signs.collapse(self.n_distinct, values.get("brier"), values.get("accuracy"))

    @property
    def mostly_unread(self) -> bool:
        """Whether too many confidences took the default for the row to be ranked."""
        return signs.mostly_unread(self.n_unparsed["confidence"], self.n)

    @property
    def sign(self) -> str:
        """The dagger and double dagger of a row that is not ranked; empty for one that is."""
        return signs.UNREAD * self.mostly_unread + signs.COLLAPSED * bool(self.collapse)

    def interval(self, key: str) -> tuple[float, float] | None:
        """The bootstrap interval of a column's number, if there is one."""
        return self.intervals.get("spearman" if key == "rho" else key)

    def reason(self, key: str) -> str:
        """Why a column's number is undefined."""
        return self.reasons.get("spearman" if key in ("rho", "p") else key) or "undefined"


def read_metrics(path: str | Path) -> CellMetrics:
    """A metrics.json or extra.json, whose seal says that it belongs there."""
    try:
        return CellMetrics.of(str(path), store.read_object(path))
    except FileNotFoundError:
        raise BadInput(
            f"{path} does not exist: a table needs it; make it with `snakemake -- {path}`"
        ) from None


def read_all(paths: Iterable[str | Path]) -> dict[str, CellMetrics]:
    """The metrics in files, by path. Raises BadInput naming a missing or broken one."""
    return {str(path): read_metrics(path) for path in paths}
