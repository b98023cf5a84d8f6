"""The contrasts with the answer model as the unit, from docs/evidence/laboratory.csv alone: ``python -m evidence.lab.models``.

Beside the hierarchical bootstrap: t and Wilcoxon's signed rank over answer models, and differences on the log scale.
"""

import csv
from pathlib import Path

import numpy as np
from scipy import stats

from evidence.collect import fill
from evidence.lab.intervals import holm
from evidence.runs import ROOT

TABLE, PAGE = ROOT / "docs" / "evidence" / "laboratory.csv", ROOT / "docs" / "evidence" / "laboratory-models.md"
CONTRASTS = (("sc", "other"), ("sc", "sft_all"), ("sc", "sft"), ("sc", "sft_long"), ("ordered", "sft_all"))
OTHER = {"digits": "sc-surrogate", "values": "numeric"}  # evidence/lab/chosen.json
NOT_COUNTED = {
    f"sums-{name}" for name in ("values-1", "values-2", "digits-1", "digits-2")
}  # below 40 % of kappas inside
ARMS = ("sft", "sft_long", "sft_all", "ordered", "sc", "other")


def means(path: Path = TABLE, every: bool = False) -> dict[str, dict[tuple[str, str], float]]:
    """{answer model: {(arm, column): mean over seeds}} of the held-out cells' test questions; `every` keeps the excluded ones."""
    values: dict = {}
    with open(path, newline="", encoding="utf-8") as handle:
        for row in csv.DictReader(handle):
            if row["part"] != "confirm" or row["split"] != "test" or not (every or row["model"] not in NOT_COUNTED):
                continue
            for column, value in row.items():
                if column.startswith(("stated_", "mean_")) and value:
                    values.setdefault(row["model"], {}).setdefault((row["arm"], column), []).append(float(value))
    found = {model: {key: float(np.mean(one)) for key, one in of.items()} for model, of in values.items()}
    for model, of in found.items():
        best = OTHER[model.split("-")[1]]
        of |= {("other", column): value for (arm, column), value in of.items() if arm == best}
    return found


def contrasts(found: dict, reading: str) -> list[str]:
    """A line of the table for each contrast of E-AURC."""
    column, lines, tests = f"{reading}_e_aurc", [], {}
    for a, b in CONTRASTS:
        x, y = (np.array([of[arm, column] for of in found.values()]) for arm in (a, b))
        tests[f"{a} - {b}"] = x - y, np.log(x / y)
    adjusted = holm({name: float(np.asarray(stats.ttest_1samp(one, 0))[1]) for name, (one, _) in tests.items()})
    for name, (one, logs) in tests.items():
        low, high = stats.ttest_1samp(one, 0).confidence_interval()
        shares = [100 * np.expm1(v) for v in (logs.mean(), *stats.ttest_1samp(logs, 0).confidence_interval())]
        rank = stats.wilcoxon(one)[1]
        lines.append(
            f"| {reading} | {name} | {one.mean():+.3f} [{low:+.3f}, {high:+.3f}] | {adjusted[name]:.3f} | {rank:.4f} "
            f"| {shares[0]:+.0f} % [{shares[1]:+.0f}, {shares[2]:+.0f}] |"
        )
    return lines


def tables() -> dict[str, str]:
    """The page's parts."""
    head = [
        "| reading | contrast | difference of E-AURC, t over models | Holm's p (t) | signed rank's p | ratio |",
        "| --- " * 6 + "|",
    ]
    made = {name: "\n".join([*head, *(line for r in ("stated", "mean") for line in contrasts(means(every=all_), r))])
            for name, all_ in (("counted", False), ("every", True))}  # fmt: skip
    rows = ["| arm | ECE, stated | ECE, mean | Brier, stated | Brier, mean |", "| --- " * 5 + "|"]
    found = means()
    for arm in ARMS:
        four = [
            np.mean([of[arm, f"{r}_{m}"] for of in found.values()])
            for m in ("ece", "brier")
            for r in ("stated", "mean")
        ]
        rows.append(f"| {arm} | " + " | ".join(f"{value:.3f}" for value in four) + " |")
    return made | {"calibration": "\n".join(rows)}


if __name__ == "__main__":
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), tables(), PAGE), encoding="utf-8")
