"""What the held-out cells stated, and the resampled E-AURCs of every arm."""

from pathlib import Path

import numpy as np

from evidence.lab import arms
from evidence.lab.bench import TEST, VALIDATION, read
from evidence.lab.experiments import Experiment
from evidence.lab.intervals import Cells, Curve, e_aurcs, hierarchical, replicates
from orce.methods import isotonic as calibration

RESAMPLES, REDRAWS = 500, 20
READINGS = ("stated", "mean")
LABELS = {
    "vanilla": "Vanilla", "consistency": "Consistency", "sft": "SFT", "isotonic": "SFT + isotonic", "sft_long": "SFT-long",
    "sft_all": "SFT-all", "soft": "Soft labels", "ordered": "Soft labels + order", "sc": "ORCE (SC)", "nrd": "NRD",
    "numeric": "Numeric", "sayself": "SaySelf", "sc-surrogate": "W/o gen", "other": "best other reward",
}  # fmt: skip
Found = dict[str, dict[int, dict[str, dict[str, np.ndarray]]]]  # answer model -> seed -> arm -> {correct, stated, mean}


def held_out(of: Experiment) -> Found:
    """What every finished held-out cell that counts stated on the test questions."""
    found: Found = {}
    chosen = of.settings()
    for model, seed in of.held_out:
        place, best = of.folder / "confirm" / f"{model}-{seed}", chosen[arms.numbers(model)].get("other")
        written = arms.rows_of(place / "results.jsonl")
        rows = {row["arm"] for row in written if row["split"] == TEST}
        if any(row.get("inside", 1) < of.inside for row in written):
            continue
        if not {"sft", *(best if arm == "other" else arm for arm in of.tested)} <= rows:
            continue
        data = arms.group(model).partition("-")[0]
        where = place / "results" / data / model
        mine = {arm: read(where / arm / f"{TEST}.jsonl") for arm in sorted(rows)}
        mine["isotonic"] = isotonic(where / "sft" / f"{VALIDATION}.jsonl", mine["sft"])
        if best in mine:
            mine["other"] = mine[best]
        found.setdefault(model, {})[seed] = mine
    return found


def isotonic(validation: Path, test: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """SFT's statements through the isotonic map of `sft+isotonic`, fitted on the validation questions."""
    fitted, mapped = read(validation), {"correct": test["correct"]}
    for reading in READINGS:
        parameters = calibration.fit(fitted[reading].tolist(), fitted["correct"].tolist())
        mapped[reading] = np.asarray(calibration.apply(parameters, test[reading].tolist()))
    return mapped


def curves(found: Found, reading: str) -> tuple[Cells, list[str]]:
    """The curves of every arm that has this reading, and the arms."""
    every = [one for seeds in found.values() for one in seeds.values()]
    names = [arm for arm in LABELS if all(arm in one and reading in one[arm] for one in every)]
    cells = {
        model: {
            seed: {arm: Curve(one[arm][reading], one[arm]["correct"]) for arm in names} for seed, one in seeds.items()
        }
        for model, seeds in found.items()
    }
    return cells, names


class Reading:
    """The resampled E-AURCs of one reading of every arm."""

    def __init__(self, found: Found, reading: str, resamples: int = RESAMPLES):
        self.cells, self.arms = curves(found, reading)
        self.plain = e_aurcs(self.cells, self.arms)
        self.drawn = replicates(self.cells, self.arms, resamples)

    def column(self, arm: str) -> int:
        return self.arms.index(arm)

    def of(self, statistic, only: str | None = None):
        """(value, resampled) of a statistic over all answer models, or those of one group."""
        cells = {model: one for model, one in self.cells.items() if only in (None, arms.group(model))}
        return hierarchical(statistic, cells, self.arms, self.drawn, REDRAWS)

    def contrast(self, a: str, b: str, only: str | None = None):
        """(difference of E-AURC, resampled differences)."""
        i, j = self.column(a), self.column(b)
        return self.of(lambda values: values[:, i] - values[:, j], only)
