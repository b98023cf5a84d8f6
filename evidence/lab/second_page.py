"""The tables of docs/evidence/laboratory-2.md from the released items alone: ``python -m evidence.lab.second report``."""

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from evidence.collect import fill
from evidence.decisive.report import table
from evidence.lab import arms
from evidence.lab.intervals import holm, verdict
from evidence.runs import ROOT
from orce.artefacts import files
from orce.evaluation.metrics import METRICS

ITEMS = ROOT / "evidence" / "items" / "laboratory-2"
PAGE = ROOT / "docs" / "evidence" / "laboratory-2.md"
MARGIN = 0.01
FREE, PROBE, JUDGE = "sequence_probability", "probe_judge", "best"
REWARDS = [("orce", "sft_all"), ("orce", "other"), ("soft", "sft_all"), ("ordered", "soft"), ("ordered", "sft_all")]
READOUT = [(JUDGE, FREE), (JUDGE, PROBE), (PROBE, FREE), (JUDGE, "agreement")]
FAMILIES = {"stated": REWARDS, "mean": REWARDS, "readout": READOUT}
RETUNED = (
    "sft_all_retuned"  # SFT-all at the rate that each cell's own validation questions choose, where that was tried
)
BESIDE = [("orce", "sft"), ("orce", RETUNED), ("soft", RETUNED), ("ordered", RETUNED)]
LABELS = {
    "probe": "linear probe, answer's states", FREE: "product of token probabilities", "likelihood": "their geometric mean",
    PROBE: "linear probe, judge's prompt", "agreement": "agreement of 16 samples", "semantic_entropy": "semantic entropy",
    JUDGE: "best trained judge", "ordered": "soft labels + order", "soft": "soft labels", "sft_all": "SFT-all", RETUNED: "SFT-all, rate chosen again",
    "orce": "ORCE", "other": "best other reward", "sft": "SFT (warm start)",
}  # fmt: skip
TRAINED = ("ordered", "soft", "sft_all", RETUNED, "orce", "other", "sft")


def read(folder: Path = ITEMS) -> dict[str, tuple[np.ndarray, pd.DataFrame]]:
    """{answer model: (correct [n], confidences [n, arms])}."""
    cells = {}
    for path in sorted(folder.glob("*.jsonl.gz")):
        lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        said = pd.DataFrame([line["confidences"] for line in lines])
        if RETUNED not in said:
            said = said.assign(**{RETUNED + end: said[f"sft_all{end}"] for end in ("", ":stated")})
        cells[path.name.split(".")[0]] = np.array([line["correct"] for line in lines]), said
    return cells


def levels(cells: dict, metric: str = "e_aurc") -> pd.DataFrame:
    """A metric of every arm [answer models, arms]; ARM is the mean of a judge's distribution, ARM:stated what it states."""
    values = {
        model: {arm: METRICS[metric](said[arm].to_numpy(), correct) for arm in said}
        for model, (correct, said) in cells.items()
    }
    return pd.DataFrame(values).T


def differences(e_aurc: pd.DataFrame, family: str) -> pd.DataFrame:
    """The contrasts of a family: difference, 95 % t interval, Holm's p, signed rank's p, ratio and verdict."""
    end, rows = ":stated" if family == "stated" else "", {}
    pairs = {f"{a} - {b}": (e_aurc[a + end], e_aurc[b + end]) for a, b in FAMILIES[family]}
    adjusted = holm({name: float(np.asarray(stats.ttest_rel(a, b))[1]) for name, (a, b) in pairs.items()})
    if family != "readout":
        pairs |= {f"{a} - {b}": (e_aurc[a + end], e_aurc[b + end]) for a, b in BESIDE}
    for name, (a, b) in pairs.items():
        low, high = stats.ttest_1samp(a - b, 0).confidence_interval()
        claimed = adjusted.get(name)
        rows[name] = {
            "difference": (a - b).mean(), "low": low, "high": high, "holm": claimed,
            "rank": float(np.asarray(stats.wilcoxon(a - b))[1]), "ratio": float(np.expm1(np.log(a / b).mean())),
            "verdict": "exploratory" if claimed is None else verdict(low, high, claimed, MARGIN),
        }  # fmt: skip
    return pd.DataFrame(rows).T


def contrast_tables(e_aurc: pd.DataFrame) -> str:
    head = ["reading", "contrast", "difference of E-AURC", "Holm's p (t)", "signed rank's p", "ratio", "verdict"]
    rows = []
    for family in FAMILIES:
        for name, of in differences(e_aurc, family).iterrows():
            p = "--" if of["holm"] is None else f"{of['holm']:.4f}"
            size = f"{of['difference']:+.4f} [{of['low']:+.4f}, {of['high']:+.4f}]"
            reading = "mean" if family == "readout" else family
            rows.append(
                [reading, str(name), size, p, f"{of['rank']:.4f}", f"{100 * of['ratio']:+.0f} %", of["verdict"]]
            )
    return table(head, rows)


def arm_table(cells: dict) -> str:
    names = ("e_aurc", "auroc", "ece", "brier")
    of = {name: levels(cells, name) for name in names}
    rows = []
    for arm, label in LABELS.items():
        rows.append([label, "mean" if arm in (*TRAINED, JUDGE) else "--", *(f"{of[n][arm].mean():.3f}" for n in names)])
        if arm in TRAINED:
            rows.append([label, "stated", *(f"{of[n][f'{arm}:stated'].mean():.3f}" for n in names)])
    return table(["confidence", "reading", "E-AURC", "AUROC", "ECE", "Brier"], rows)


def group_table(e_aurc: pd.DataFrame) -> str:
    pairs = [*REWARDS, *BESIDE[:2], *READOUT]
    rows = []
    for name, cells in e_aurc.groupby(e_aurc.index.map(arms.group)):
        values = [f"{(cells[a] - cells[b]).mean():+.3f}" for a, b in pairs]
        rows.append([str(name), str(len(cells)), *values])
    return table(["group", "models", *(f"{a} - {b}" for a, b in pairs)], rows)


def cells_line(e_aurc: pd.DataFrame, facts: dict[str, dict]) -> str:
    apart = [model for model, of in facts.items() if not of["counts"]]
    left = f"; {len(apart)} more do not, kappa being unreliable there ({', '.join(apart)})" if apart else ""
    return f"{len(e_aurc)} answer models count{left}. 2,000 test questions in each."


def write() -> Path:
    cells = read()
    e_aurc = levels(cells)
    parts = {
        "cells": cells_line(e_aurc, files.read_json(ITEMS / "cells.json")),
        "contrasts": contrast_tables(e_aurc),
        "arms": arm_table(cells),
        "groups": group_table(e_aurc),
    }
    text = fill(PAGE.read_text(encoding="utf-8"), parts, PAGE)
    with files.atomic(PAGE) as handle:
        handle.write(text)
    return PAGE
