"""Every contrast of docs/evidence/decisive.md from the released items: ``python evidence/decisive/contrasts.py [FOLDER]``."""

import gzip
import json
import sys
import zlib
from pathlib import Path

import numpy as np
import pandas as pd

from orce.evaluation.metrics import METRICS, resample_differences

ITEMS, MARGIN, AURC = Path(__file__).parent.parent / "items", 0.01, METRICS["aurc"]
MEANS = {
    "mean of seed 2": ("exams-2", "wikidata-2"),
    "mean of wikidata": ("wikidata-2", "wikidata-3"),
    "mean of 320 labels": ("wikidata-2", "wikidata-3", "wikidata-few-4"),
    "mean of 960 labels": ("wikidata-4", "wikidata-6"),
}
# Three and six times the labels.
CHANGES = {f"{cell} less mean of wikidata": (cell, "mean of wikidata") for cell in ("wikidata-4", "wikidata-5")}
NESTED = {"wikidata-4 by labels": {960: "wikidata-4", 320: "wikidata-few-4"}}  # the same questions and answers
TRAINED = [f"{judge} - probe_judge" for judge in ("sft_all", "sft_probe", "soft", "ordered", "orce")]
LABELLED = [f"{judge}:960 - {judge}:320" for judge in ("sft_all", "sft", "soft", "ordered", "orce")]
PROBES_LABELLED = [f"{probe}:960 - {probe}:320" for probe in ("probe_judge", "probe")]
TOLD = ["told - sft_all", "told_soft - soft"]
FAMILIES = TRAINED, LABELLED, TOLD  # Holm's; every other contrast has its own p
BESIDE_TOLD = [
    "told - stack-sft_all",
    "told_soft - stack-soft",
    "told - free",
    "told - probe_and_probability",
    "probe_and_probability - probe",
    "probe_and_probability - free",
]
STEPS = ["sft_all_long - sft_all", "sft_all_long - probe_judge", "sft_all:960 - sft_all_long:320"]
READ = [f"probe_judge - {other}" for other in ("free", "group_mean", "bag_of_words")]
CONTRASTS = [
    *TRAINED,
    "best - probe_judge",
    "stack-best - free",
    "orce - sft_all",
    "ordered - soft",
    "orce - sft",
    "sft - sft_all",
    *READ,
    *TOLD,
    *BESIDE_TOLD,
    *LABELLED,
    *PROBES_LABELLED,
    *STEPS,
]


def read(folder: Path = ITEMS) -> dict[str, tuple[pd.DataFrame, pd.DataFrame]]:
    """{cell: (its items, confidences [items, arms])}; exams come twice, the second time as ranks within the exam."""
    cells = {}
    for path in sorted(folder.glob("*.jsonl.gz")):
        items = pd.DataFrame(map(json.loads, gzip.decompress(path.read_bytes()).splitlines()))
        said, cell = pd.DataFrame([*items.confidences]).sort_index(axis=1), path.name.split(".")[0]
        cells[cell] = items, said.assign(free=said.get("sequence_probability", said.agreement))
        if "exams" in cell:
            half = 0.5 / items.groupby("group").id.transform("size")  # so that a tie of a whole exam is at 0.5
            cells[f"{cell} within exam"] = (
                items,
                cells[cell][1].groupby(items.group).rank(pct=True).sub(half, 0).round(9),
            )
    return cells


def nested(cells: dict) -> dict[str, tuple[pd.DataFrame, pd.DataFrame]]:
    """{name: (items, confidences of the arms with each number of labels)} of cells with the same test questions."""
    made = {}
    for name, parts in NESTED.items():
        if {*parts.values()} <= {*cells}:
            items = cells[parts[max(parts)]][0]
            said = {
                f"{arm}:{labels}": cells[cell][1][arm].set_axis(cells[cell][0].id)[items.id].to_numpy()
                for labels, cell in parts.items() for arm in cells[cell][1]
            }  # fmt: skip
            made[name] = items, pd.DataFrame(said)
    return made


def contrasts(folder: Path = ITEMS, draws: int = 10_000) -> pd.DataFrame:
    """Differences of AURC, below zero if the first is better, of each cell and of the means over some."""
    tests = {}
    cells = read(folder)
    for cell, (items, said) in (cells | nested(cells)).items():
        of, seed = {arm: AURC.read(said[arm], items.correct) for arm in said}, zlib.crc32(cell.encode())
        pairs = {name: pair for name in CONTRASTS if {*(pair := name.split(" - "))} <= {*said}}
        drawn = {
            name: resample_differences(["aurc"], of[a], of[b], draws, seed)["aurc"] for name, (a, b) in pairs.items()
        }
        levels = pd.Series({arm: AURC.value(of[arm]) for arm in of})
        values = pd.DataFrame([{name: levels[a] - levels[b] for name, (a, b) in pairs.items()}])
        tests[cell] = pd.concat([values, pd.DataFrame(drawn)])
    for mean, parts in MEANS.items():
        if {*parts} <= {*tests}:
            total = sum((tests[part] for part in parts[1:]), start=tests[parts[0]])
            tests[mean] = (total / len(parts)).dropna(axis=1).filter(CONTRASTS)
    for change, (more, fewer) in CHANGES.items():
        if {more, fewer} <= {*tests}:
            tests[change] = (tests[more] - tests[fewer]).dropna(axis=1).filter(TRAINED)
    return pd.concat({cell: summary(test.iloc[0], test.iloc[1:]) for cell, test in tests.items()})


def summary(values: pd.Series, drawn: pd.DataFrame) -> pd.DataFrame:
    low, high = (drawn.quantile(share) for share in (0.025, 0.975))
    sides = np.minimum((drawn <= 0).sum(), (drawn >= 0).sum())
    p = pd.Series(2 * (sides + 1) / (len(drawn) + 1)).clip(upper=1)
    families = [p.filter(family).sort_values() for family in FAMILIES]
    corrected = [(of * np.arange(len(of), 0, -1)).clip(upper=1).cummax() for of in families]
    holm = pd.concat(corrected).reindex(p.index).fillna(p)
    kinds = [(holm < 0.05) & (high < 0), (holm < 0.05) & (low > 0), (-MARGIN < low) & (high < MARGIN)]
    verdict = np.select(kinds, ["better", "worse", "no difference that matters"], "open")
    return pd.DataFrame({"difference": values, "low": low, "high": high, "p": p, "holm": holm, "verdict": verdict})


if __name__ == "__main__":
    print(contrasts(Path(sys.argv[1]) if sys.argv[1:] else ITEMS).to_csv(float_format="%.4f"))
