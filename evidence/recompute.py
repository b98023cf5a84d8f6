"""Every table of docs/evidence that the released items and CSVs can give: ``python evidence/recompute.py``.

Compares them with docs/evidence/tables and the pages' own tables, and what the pages quote in prose with them; exits with 1 where
one says something else. ``python evidence/recompute.py write`` writes the CSV files anew.
"""

import csv
import gzip
import hashlib
import io
import json
import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from orce import metrics
from orce.metrics.counts import Tally
from orce.metrics.signs import COLLAPSED

ROOT = Path(__file__).resolve().parent.parent
DOCS, ITEMS = ROOT / "docs", ROOT / "evidence" / "items"
MARGIN, DRAWS = 0.01, 10_000
# p for which ten times as many are drawn, as its standard error is 0.002, and which gets a mark if it stays there.
CLOSE, MARK = (0.04, 0.06), " (p near .05)"
METRICS = {
    "auroc": metrics.auroc, "aurc": metrics.aurc, "e_aurc": metrics.e_aurc,
    "ece": metrics.expected_calibration_error, "brier": metrics.brier,
}  # fmt: skip
READINGS = ("stated", "mean")  # of a judge: the value that it states, and the mean of its distribution
Cell = tuple[pd.DataFrame, pd.DataFrame]  # its items, their confidences [items, arms]
Table = list[list[str]]  # its head, and its rows
Tables = dict[str, Table]  # {name of a file of docs/evidence/tables: its cells}


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    return [[*head], *map(list, rows)]


def as_csv(cells: Table) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(cells)
    return text.getvalue()


def as_markdown(cells: Table) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [cells[0], ["---"] * len(cells[0]), *cells[1:]])


def interval(value: float, low: float, high: float, digits: int = 3) -> str:
    return f"{value:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"


def holm(p: pd.Series) -> pd.Series:
    """Holm's adjusted p-values, one family."""
    ordered = p.sort_values()
    return (ordered * np.arange(len(ordered), 0, -1)).clip(upper=1).cummax().reindex(p.index)


def read(folder: Path) -> dict[str, Cell]:
    """{cell: (items, confidences)} of a folder of NAME.jsonl.gz."""
    cells = {}
    for path in sorted(folder.glob("*.jsonl.gz")):
        items = pd.DataFrame(map(json.loads, gzip.decompress(path.read_bytes()).splitlines()))
        cells[path.name.split(".")[0]] = items, pd.DataFrame([*items.confidences])
    return cells


# Real questions: docs/evidence/real-questions.md

MEANS = {
    "mean of seed 2": ("exams-2", "wikidata-2"),
    "mean of wikidata": ("wikidata-2", "wikidata-3"),
    "mean of 320 labels": ("wikidata-2", "wikidata-3", "wikidata-few-4"),
    "mean of 960 labels": ("wikidata-4", "wikidata-6"),
}
# Three and six times the labels.
CHANGES = {f"{cell} minus mean of wikidata": (cell, "mean of wikidata") for cell in ("wikidata-4", "wikidata-5")}
NESTED = "wikidata-4 by labels"  # the same questions and answers, judges of 960 labels and of 320
TRAINED = [f"{judge} - probe_judge" for judge in ("sft_all", "sft_probe", "soft", "ordered", "orce")]
LABELLED = [f"{judge}:960 - {judge}:320" for judge in ("sft_all", "sft", "soft", "ordered", "orce")]
TOLD = ["told - sft_all", "told_soft - soft"]
CONTRASTS = [
    *TRAINED, "best - probe_judge", "stack-best - free", "orce - sft_all", "ordered - soft", "orce - sft",
    "sft - sft_all", "probe_judge - free", "probe_judge - group_mean", "probe_judge - bag_of_words", *TOLD,
    "told - stack-sft_all", "told_soft - stack-soft", "told - free", "told - probe_and_probability",
    "probe_and_probability - probe", "probe_and_probability - free", *LABELLED,
    "probe_judge:960 - probe_judge:320", "probe:960 - probe:320",
    "sft_all_long - sft_all", "sft_all_long - probe_judge", "sft_all:960 - sft_all_long:320",
]  # fmt: skip
# An arm NAME is read by the mean of a judge's distribution, NAME:stated is the value that the judge states.
JUDGES = ("sft", "sft_all", "sft_probe", "sft_all_long", "soft", "ordered", "orce")
# Chosen or made by means, or released as means alone.
BY_THE_MEAN = ("best", "stack-", "told")


def as_stated(contrast: str) -> str:
    """The contrast with each judge read by the value that it states: orce - sft gives orce:stated - sft:stated."""
    return re.sub(rf"\b(?:{'|'.join(JUDGES)})\b", r"\g<0>:stated", contrast)


def contrast_reading(contrast: str) -> str:
    """How the judges of a contrast are read: stated, mean, or -- where it has no judge."""
    if ":stated" in contrast:
        return "stated"
    sides = (side.partition(":")[0] for side in contrast.split(" - "))
    return "mean" if any(side in JUDGES or side.startswith(BY_THE_MEAN) for side in sides) else "--"


OF_STATEMENTS = [
    as_stated(name)
    for name in CONTRASTS
    if as_stated(name) != name and not any(side.startswith(BY_THE_MEAN) for side in name.split(" - "))
]
EVERY_CONTRAST = [*CONTRASTS, *OF_STATEMENTS]
# Holm's, one for each reading; every other contrast has its own p.
FAMILIES = TRAINED, LABELLED, TOLD, [*map(as_stated, TRAINED)], [*map(as_stated, LABELLED)]
BY_LABELS = {"mean of 320 labels": "320 labels", "mean of 960 labels": "960", "wikidata-5": "2,000"}
IN_WORDS = {
    "orce - sft": "ORCE - its own warm start: what the reward adds",
    "orce - sft_all": "ORCE - SFT on all labels",
    "ordered - soft": "what the order term adds to soft labels",
    "orce - probe_judge": "ORCE - probe",
    "sft_all - probe_judge": "SFT on all labels - probe",
    "best - probe_judge": "judge that validation chose - probe",
    "stack-best - free": "free signal + best judge - free signal",
}


def real_questions(folder: Path) -> dict[str, Cell]:
    """The cells with their free signal; exams come twice, the second time as ranks within the exam."""
    cells = {}
    for cell, (items, arms) in read(folder).items():
        arms = arms.sort_index(axis=1).assign(free=arms.get("sequence_probability", arms.get("agreement")))
        cells[cell] = items, arms
        if "exams" in cell:
            half = 0.5 / items.groupby("group").id.transform("size")  # so that a tie of a whole exam is at 0.5
            cells[f"{cell} within exam"] = items, arms.groupby(items.group).rank(pct=True).sub(half, 0).round(9)
    return cells


def with_nested(cells: dict[str, Cell]) -> dict[str, Cell]:
    if not {"wikidata-4", "wikidata-few-4"} <= {*cells}:
        return cells
    items = cells["wikidata-4"][0]
    by_id = {960: cells["wikidata-4"], 320: cells["wikidata-few-4"]}
    arms = {
        f"{arm}:{labels}": own[arm].set_axis(questions.id)[items.id].to_numpy()
        for labels, (questions, own) in by_id.items() for arm in own
    }  # fmt: skip
    return cells | {NESTED: (items, pd.DataFrame(arms))}


def contrasts(cells: dict[str, Cell], draws: int = DRAWS) -> pd.DataFrame:
    """Differences of AURC by (cell, contrast), below zero where the first is better; of cells and of means over some.

    Columns: difference, low, high, p, holm, verdict, and which of the two rows are collapsed.
    """
    drawn: dict[str, pd.DataFrame] = {}  # a first row of the difference itself, then one for each draw
    finer: dict[str, dict[str, np.ndarray]] = {}  # draws of contrasts whose p is close to the level
    for cell, (items, arms) in with_nested(cells).items():
        counted, seed = {arm: metrics.aurc.read(arms[arm], items.correct) for arm in arms}, zlib.crc32(cell.encode())
        values = {arm: metrics.aurc.value(counts) or 0.0 for arm, counts in counted.items()}
        columns = {}
        for name in EVERY_CONTRAST:
            a, b = name.split(" - ")
            if a in counted and b in counted:
                sides = counted[a], counted[b]
                resampled = metrics.resample_differences(["aurc"], *sides, draws, seed)["aurc"]
                columns[name] = np.concatenate([[values[a] - values[b]], resampled])
                if CLOSE[0] < two_sided(resampled) < CLOSE[1]:
                    more = metrics.resample_differences(["aurc"], *sides, 10 * draws, seed)
                    finer.setdefault(cell, {})[name] = more["aurc"]
        drawn[cell] = pd.DataFrame(columns)
    for mean, averaged in MEANS.items():
        if {*averaged} <= {*drawn}:
            total = sum((drawn[cell] for cell in averaged[1:]), start=drawn[averaged[0]])
            drawn[mean] = (total / len(averaged)).dropna(axis=1).filter(EVERY_CONTRAST)
    for change, (more, fewer) in CHANGES.items():
        if {more, fewer} <= {*drawn}:
            drawn[change] = (drawn[more] - drawn[fewer]).dropna(axis=1).filter([*TRAINED, *map(as_stated, TRAINED)])
    marks = collapsed_arms(with_nested(cells))
    tested = {}
    for cell, frame in drawn.items():
        tested[cell] = summary(frame.iloc[0], dict(frame.iloc[1:]) | finer.get(cell, {}))
        tested[cell]["collapsed"] = [collapsed_sides(str(name), [marks[one] for one in parts(cell)]) for name in frame]
    return pd.concat(tested)


def parts(cell: str) -> list[str]:
    """The cells that a mean is over, or a change is of; of a cell itself alone."""
    if cell in CHANGES:
        more, fewer = CHANGES[cell]
        return [*parts(more), *parts(fewer)]
    return [*MEANS.get(cell, [cell])]


def collapsed(confidences: pd.Series, correct: pd.Series) -> str:
    """Why the confidences of a row say no more than one number would; empty if they say more."""
    brier, accuracy = metrics.brier(confidences, correct), correct.mean()
    return metrics.collapse(distinct=confidences.nunique(), brier=brier, accuracy=accuracy) or ""


def collapsed_arms(cells: dict[str, Cell]) -> dict[str, dict[str, str]]:
    """{cell: {arm: why it is collapsed, or ""}}. Ranks within an exam are no confidences: their arms are the exam's own."""
    marks = {}
    for cell in cells:
        items, arms = cells[cell.removesuffix(" within exam")]
        marks[cell] = {str(arm): collapsed(arms[arm], items.correct) for arm in arms}
    return marks


def collapsed_sides(contrast: str, marks: list[dict[str, str]]) -> str:
    """Which rows of a contrast are collapsed, in how many of its cells: both, first, second, both in 2 of 3, or none: ""."""
    a, b = contrast.split(" - ")
    first = [bool(arms[a]) for arms in marks]
    second = [bool(arms[b]) for arms in marks]
    both = [a_too and b_too for a_too, b_too in zip(first, second, strict=True)]
    for word, cells in (("both", both), ("first", first), ("second", second)):
        if any(cells):
            return word if all(cells) else f"{word} in {sum(cells)} of {len(cells)}"
    return ""


def two_sided(drawn) -> float:
    return min(1.0, 2 * (min((drawn <= 0).sum(), (drawn >= 0).sum()) + 1) / (len(drawn) + 1))


def summary(values: pd.Series, drawn: dict) -> pd.DataFrame:
    low, high = (pd.Series({name: np.quantile(some, q) for name, some in drawn.items()}) for q in (0.025, 0.975))
    p = pd.Series({name: two_sided(some) for name, some in drawn.items()})
    adjusted = pd.concat([holm(p.filter(family)) for family in FAMILIES]).reindex(p.index).fillna(p)
    kinds = [(adjusted < 0.05) & (high < 0), (adjusted < 0.05) & (low > 0), (-MARGIN < low) & (high < MARGIN)]
    verdict = np.select(kinds, ["better", "worse", "no difference that matters"], "open")
    verdict = np.where(adjusted.between(*CLOSE), np.char.add(verdict, MARK), verdict)
    return pd.DataFrame({"difference": values, "low": low, "high": high, "p": p, "holm": adjusted, "verdict": verdict})


def contrasts_table(differences: pd.DataFrame) -> Table:
    rows = []
    for cell, name, value, low, high, p, adjusted, verdict, marks in differences.reset_index().itertuples(index=False):
        contrast = [cell, name.replace(":stated", ""), contrast_reading(name), interval(value, low, high)]
        rows.append([*contrast, f"{p:.4f}", f"{adjusted:.4f}", verdict, marks])
    head = ["cell", "contrast", "reading", "difference of AURC", "p", "Holm's p", "verdict", "collapsed"]
    return table(head, rows)


def labels_table(differences: pd.DataFrame) -> Table:
    """The main contrasts by the number of labels, each by the value stated, where that was released, and by the mean."""
    text = {}
    for key, value, low, high, _, _, verdict, marks in differences.itertuples(name=None):
        text[key] = f"{interval(value, low, high)} {verdict}" + f" ({COLLAPSED} {marks})" * bool(marks)
    rows = []
    for name, words in IN_WORDS.items():
        for contrast in dict.fromkeys([as_stated(name), name]):
            if contrast in EVERY_CONTRAST:
                rows.append([words, contrast_reading(contrast), *(text[cell, contrast] for cell in BY_LABELS)])
    return table(["difference of AURC", "reading", *BY_LABELS.values()], rows)


def arms_table(cells: dict[str, Cell]) -> Table:
    """Every arm of every cell; ranks within an exam have no calibration. `collapsed` says why an arm is."""
    marks = collapsed_arms(cells)
    rows = []
    for cell, (items, arms) in cells.items():
        mixed = [group for _, group in items.groupby("group") if group.correct.nunique() > 1]
        for arm in arms.drop(columns="free"):
            values = {name: "--" for name in ("ece", "brier") if "within" in cell}
            values = {name: values.get(name) or f"{METRICS[name](arms[arm], items.correct):.3f}" for name in METRICS}
            inside = np.array([metrics.auroc(arms[arm][group.index], group.correct) for group in mixed], float)
            within = np.average(inside, weights=[*map(len, mixed)])
            numbers = [str(len(items)), *values.values(), f"{within:.3f}"]
            rows.append([cell, str(arm), *numbers, str(arms[arm].nunique()), marks[cell][str(arm)]])
    head = ["cell", "arm", "n", "AUROC", "AURC", "E-AURC", "ECE", "Brier", "AUROC within group"]
    return table([*head, "distinct values", "collapsed"], rows)


# The laboratory's second run: docs/evidence/laboratory.md

REWARDS = [("orce", "sft_all"), ("orce", "other"), ("soft", "sft_all"), ("ordered", "soft"), ("ordered", "sft_all")]
READOUT = [
    ("best", "sequence_probability"), ("best", "probe_judge"), ("probe_judge", "sequence_probability"),
    ("best", "agreement"),
]  # fmt: skip
BESIDE = [("orce", "sft"), *((arm, "sft_all_retuned") for arm in ("orce", "soft", "ordered"))]  # exploratory
ARMS = {
    "probe": "linear probe, answer's states", "sequence_probability": "product of token probabilities",
    "likelihood": "their geometric mean", "probe_judge": "linear probe, judge's prompt",
    "agreement": "agreement of 16 samples", "semantic_entropy": "semantic entropy", "best": "best trained judge",
    "ordered": "soft labels + order", "soft": "soft labels", "sft_all": "SFT-all",
    "sft_all_retuned": "SFT-all, rate chosen again", "orce": "ORCE", "other": "best other reward",
    "sft": "SFT (warm start)",
}  # fmt: skip


def levels(cells: dict[str, Cell], metric: str = "e_aurc") -> pd.DataFrame:
    """A metric of every arm [answer models, arms]; ARM is the mean of a judge's distribution, ARM:stated what it states."""
    values = {}
    for model, (items, arms) in cells.items():
        values[model] = {arm: METRICS[metric](arms[arm], items.correct) for arm in arms}
        for end in ("", ":stated"):  # where the rate was not tried again, SFT-all itself
            values[model].setdefault(f"sft_all_retuned{end}", values[model][f"sft_all{end}"])
    return pd.DataFrame(values).T


def second_marks(cells: dict[str, Cell]) -> dict[str, list[bool]]:
    """{arm: whether it is collapsed, for each answer model}; where the rate was not tried again, SFT-all itself."""
    marks = []
    for arms in collapsed_arms(cells).values():
        tried_again = {f"sft_all_retuned{end}": arms[f"sft_all{end}"] for end in ("", ":stated")}
        marks.append(tried_again | arms)
    return {arm: [bool(arms[arm]) for arms in marks] for arm in marks[0]}


def over_models(cells: dict[str, Cell], digits: int = 4) -> Table:
    e_aurc, marks = levels(cells), second_marks(cells)
    rows = []
    for reading, end, claimed, beside in (
        ("stated", ":stated", REWARDS, BESIDE), ("mean", "", REWARDS, BESIDE), ("", "", READOUT, []),
    ):  # fmt: skip
        pairs = {f"{a} - {b}": (e_aurc[a + end], e_aurc[b + end]) for a, b in [*claimed, *beside]}
        tested = {name: stats.ttest_rel(a, b)[1] for name, (a, b) in [*pairs.items()][: len(claimed)]}
        adjusted = holm(pd.Series(tested))
        for name, (a, b) in pairs.items():
            low, high = stats.ttest_1samp(a - b, 0).confidence_interval()
            p = f"{adjusted[name]:.4f}" if name in adjusted else "--"
            verdict = verdict_of(low, high, adjusted[name]) if name in adjusted else "exploratory"
            ratio = f"{100 * np.expm1(np.log(a / b).mean()):+.0f} %"
            rank = f"{stats.wilcoxon(a - b)[1]:.4f}"
            both = share(map(all, zip(*(marks[side + end] for side in name.split(" - ")), strict=True)))
            read_by = reading or contrast_reading(name)
            rows.append([read_by, name, interval((a - b).mean(), low, high, digits), p, rank, ratio, verdict, both])
    head = ["reading", "contrast", "difference of E-AURC", "Holm's p (t)", "signed rank's p", "ratio", "verdict"]
    return table([*head, "both collapsed"], rows)


def share(marks: Iterable[bool]) -> str:
    """16 of 27"""
    counted = [*marks]
    return f"{sum(counted)} of {len(counted)}"


def verdict_of(low: float, high: float, adjusted: float) -> str:
    if adjusted >= 0.05 or low <= 0 <= high:
        return "no difference that matters" if -MARGIN < low and high < MARGIN else "open"
    return ("better" if high < 0 else "worse") + (", by less than the margin" if max(-low, high) <= MARGIN else "")


def second_arms(cells: dict[str, Cell]) -> Table:
    names = ("e_aurc", "auroc", "ece", "brier")
    means = {name: levels(cells, name).mean() for name in names}
    marks = second_marks(cells)
    rows = []
    for arm, label in ARMS.items():
        stated = f"{arm}:stated"
        readings = {arm: "mean" if stated in marks or arm == "best" else "--", stated: "stated"}
        for key, reading in readings.items():
            if key in marks:
                numbers = [f"{means[name][key]:.3f}" for name in names]
                rows.append([label, reading, *numbers, share(marks[key])])
    return table(["confidence", "reading", "E-AURC", "AUROC", "ECE", "Brier", "collapsed"], rows)


def second_groups(e_aurc: pd.DataFrame) -> Table:
    pairs = [*REWARDS, *BESIDE[:2], *READOUT]
    rows = (
        [str(group), "mean", str(len(models)), *(f"{(models[a] - models[b]).mean():+.3f}" for a, b in pairs)]
        for group, models in e_aurc.groupby(e_aurc.index.map(group_of))
    )
    return table(["group", "reading", "models", *(f"{a} - {b}" for a, b in pairs)], rows)


def group_of(model: str) -> str:
    """sums-values of sums-values-3."""
    return model.rpartition("-")[0]


def second_cells(folder: Path) -> Table:
    """The answer models that count; where kappa is unreliable, one does not."""
    known = json.loads((folder / "cells.json").read_text())
    return table(
        ["answer model", "counts"], ([model, "yes" if facts["counts"] else "no"] for model, facts in known.items())
    )


# The laboratory's first run, from laboratory.csv: docs/evidence/laboratory.md

FIRST = {  # the plan's contrasts, in its order, and their names in laboratory-contrasts.csv
    ("sc", "other"): "SC - best other reward", ("sc", "sft_all"): "SC - SFT-all", ("sc", "sft"): "SC - SFT",
    ("sc", "sft_long"): "SC - SFT-long", ("ordered", "sft_all"): "Soft labels + order - SFT-all",
}  # fmt: skip
OTHER = {"digits": "sc-surrogate", "values": "numeric"}  # the best reward but SC, by exploration
NOT_COUNTED = ["sums-values-1", "sums-values-2", "sums-digits-1", "sums-digits-2"]  # below 40 % of kappas inside


def confirmed(path: Path) -> pd.DataFrame:
    """The lines of the held-out test questions, with `other`, the best other reward, as an arm of its own."""
    lines = pd.read_csv(path).query("part == 'confirm' and split == 'test'")
    best = lines[lines.arm == lines.model.str.split("-").str[1].map(OTHER)].assign(arm="other")
    return pd.concat([lines, best])


def first_run(path: Path, every: bool = False) -> pd.DataFrame:
    """Means over seeds, [answer models, (metric, arm)]; `every` has the excluded models too."""
    lines = confirmed(path)
    if not every:
        lines = lines[~lines.model.isin(NOT_COUNTED)]
    columns = [f"{reading}_{metric}" for reading in READINGS for metric in ("e_aurc", "ece", "brier")]
    return pd.DataFrame(lines.groupby(["model", "arm"])[columns].mean().unstack())


def first_models(values: pd.DataFrame) -> Table:
    rows = []
    for reading in READINGS:
        column = values[f"{reading}_e_aurc"]
        pairs = {f"{a} - {b}": (column[a], column[b]) for a, b in FIRST}
        adjusted = holm(pd.Series({name: stats.ttest_1samp(a - b, 0)[1] for name, (a, b) in pairs.items()}))
        for name, (a, b) in pairs.items():
            logs = np.log(a / b)
            low, high = stats.ttest_1samp(a - b, 0).confidence_interval()
            ratio = [100 * np.expm1(v) for v in (logs.mean(), *stats.ttest_1samp(logs, 0).confidence_interval())]
            shares = f"{ratio[0]:+.0f} % [{ratio[1]:+.0f}, {ratio[2]:+.0f}]"
            rank = f"{stats.wilcoxon(a - b)[1]:.4f}"
            rows.append([reading, name, interval((a - b).mean(), low, high), f"{adjusted[name]:.3f}", rank, shares])
    head = ["reading", "contrast", "difference of E-AURC, t over models", "Holm's p (t)", "signed rank's p", "ratio"]
    return table(head, rows)


def first_calibration(values: pd.DataFrame) -> Table:
    columns = [f"{reading}_{metric}" for metric in ("ece", "brier") for reading in READINGS]
    rows = (
        [arm, *(f"{values[column][arm].mean():.3f}" for column in columns)]
        for arm in ("sft", "sft_long", "sft_all", "ordered", "sc", "other")
    )
    return table(["arm", "ECE, stated", "ECE, mean", "Brier, stated", "Brier, mean"], rows)


def first_points(values: pd.DataFrame) -> Iterable[list[str]]:
    """Reading, contrast and difference of laboratory-contrasts.csv, whose intervals need the runs."""
    for reading in READINGS:
        column = values[f"{reading}_e_aurc"]
        for (a, b), name in FIRST.items():
            yield [reading, name, f"{(column[a] - column[b]).mean():+.3f}"]


# SmolLM2 over seeds, from metrics.csv: docs/evidence/smollm2.md

NAMES = {"ece": "ECE", "spearman": "Spearman", "aurc": "AURC", "e_aurc": "E-AURC", "auroc": "AUROC"}


def readings(path: Path) -> Table:
    """SFT and ORCE, what they state beside the mean of their distribution: mean and standard deviation over seeds."""
    lines = pd.read_csv(path).query("variant == 'base'")
    rows = []
    for dataset in ("arithmetic", "worldfacts", "mmlu-halves"):
        for method, label in (("sft", "SFT"), ("orce", "ORCE")):
            cell = lines[(lines.dataset == dataset) & (lines.method == method)]
            for reading in READINGS:
                values = [cell[f"{reading}_{name}"] for name in NAMES]
                some = "" if len(cell) == 3 else f" ({len(cell)} of 3)"
                rows.append([dataset, label, reading, *(f"{v.mean():.3f} ± {v.std():.3f}{some}" for v in values)])
    return table(["dataset", "method", "readout", *NAMES.values()], rows)


# Which rows of the laboratory's first run and of SmolLM2 are collapsed

ARM_OF = {
    "Consistency": "consistency", "SFT": "sft", "SFT-long": "sft_long", "SFT-all": "sft_all", "Soft labels + order": "ordered",
    "ORCE (SC)": "sc", "best other reward": "other",
}  # fmt: skip
TASKS = {"arithmetic-smollm2-0": "arithmetic", "worldfacts-smollm2-0": "worldfacts"}


def collapsed_lines(lines: pd.DataFrame, reading: str) -> list[bool]:
    """Whether each line of a CSV file of levels is collapsed, as far as its Brier score tells."""
    marks = []
    for brier, accuracy in zip(lines[f"{reading}_brier"], lines.accuracy, strict=True):
        known = None if np.isnan(brier) else brier
        marks.append(bool(metrics.collapse(distinct=None, brier=known, accuracy=accuracy)))
    return marks


def marked_lines(path: Path) -> Table:
    """A CSV file of levels, a column for each reading saying which lines are collapsed."""
    lines = pd.read_csv(path)
    columns = {}
    for reading in READINGS:
        columns[f"{reading}_collapsed"] = ["yes" if mark else "" for mark in collapsed_lines(lines, reading)]
    return with_columns(path, columns)


def with_columns(path: Path, columns: dict[str, list[str]]) -> Table:
    """A CSV file with these columns at its end, in place of those that it has. Its intervals need the runs."""
    head, *rows = csv.reader(io.StringIO(path.read_text(encoding="utf-8")))
    old = [i for i, name in enumerate(head) if name not in columns]
    kept = [[row[i] for i in old] for row in [head, *rows]]
    added = [[*columns], *map(list, zip(*columns.values(), strict=True))]
    return [left + right for left, right in zip(kept, added, strict=True)]


def arm_marks(lines: pd.DataFrame, reading: str, arms: Sequence[str]) -> str:
    """In how many cells, an answer model with a seed each, all of some arms are collapsed, by task where there are two.

    -- for arms that have no such reading.
    """
    marked = lines.assign(collapsed=collapsed_lines(lines, reading), task=lines.model.map(TASKS).fillna(""))
    if lines[lines.arm.isin(arms)][f"{reading}_brier"].isna().all():
        return "--"
    texts = []
    for task, own in marked.groupby("task"):
        by_arm = own.pivot(index=["model", "seed"], columns="arm", values="collapsed")
        texts.append(f"{task} {share(by_arm[[*arms]].all(axis=1))}".strip())
    return "; ".join(texts)


def marked_levels(path: Path, lines: pd.DataFrame) -> Table:
    """A table of the means of each arm, with how often it is collapsed by each reading."""
    labels = [row[0] for row in csv.reader(io.StringIO(path.read_text(encoding="utf-8")))][1:]
    columns = {}
    for reading in READINGS:
        columns[f"collapsed, {reading}"] = [
            arm_marks(lines, reading, [ARM_OF[label]]) if label in ARM_OF else "--" for label in labels
        ]
    return with_columns(path, columns)


def marked_contrasts(path: Path, lines: pd.DataFrame) -> Table:
    """A table of contrasts, with how often both of its arms are collapsed."""
    arms = {name: pair for pair, name in FIRST.items()}
    _, *rows = csv.reader(io.StringIO(path.read_text(encoding="utf-8")))
    return with_columns(path, {"both collapsed": [arm_marks(lines, reading, arms[name]) for reading, name, *_ in rows]})


def marked_groups(path: Path, lines: pd.DataFrame) -> Table:
    """A table of contrasts by groups of answer models, with how often both arms of each are collapsed."""
    head, *rows = csv.reader(io.StringIO(path.read_text(encoding="utf-8")))
    columns = {}
    for (a, b), name in FIRST.items():
        if name in head:
            columns[f"both collapsed, {name}"] = [
                arm_marks(lines[lines.model.map(group_of) == group], reading, [a, b]) for group, reading, *_ in rows
            ]
    return with_columns(path, columns)


def one_value(path: Path, runs: Path) -> Table:
    """The table of methods, with how many seeds state one value for every question: metrics.csv has no Brier score."""
    lines = pd.read_csv(runs).query("variant == 'base'")
    _, *rows = csv.reader(io.StringIO(path.read_text(encoding="utf-8")))
    counts = []
    for dataset, label, *_ in rows:
        own = lines[(lines.dataset == dataset) & (lines.method == label.lower().replace("-", ""))]
        counts.append(share(own.stated_spearman.isna()))
    return with_columns(path, {"one value": counts})


def over_seeds(path: Path) -> Table:
    """Differences of AURC as stated, t-intervals over three seeds: of each method, and of ORCE at beta 1."""
    lines = pd.read_csv(path)
    rows = []
    for variant, dataset in product(("base", "tethered"), ("arithmetic", "worldfacts")):
        own = lines[(lines.variant == variant) & (lines.dataset == dataset)]
        by_method = own.pivot(index="seed", columns="method", values="stated_aurc")
        for a, b in (("sft", "vanilla"), ("orce", "sft")):
            if b in by_method:
                difference = by_method[a] - by_method[b]
                low, high = stats.ttest_1samp(difference, 0).confidence_interval()
                verdict = "better" if high < 0 else "worse" if low > 0 else "open"
                rows.append(
                    ["stated", f"{variant}, {dataset}: {a} - {b}", interval(difference.mean(), low, high), verdict]
                )
    return table(["reading", "contrast", "difference of AURC", "verdict"], rows)


# An order to learn from: docs/evidence/order.md

ORDER_SETS, ORDER_SEEDS = ("arithmetic", "worldfacts"), (42, 1, 2, 3, 4)
ENDS = {"stated": ":stated", "mode": ":mode", "mean": ""}  # of the name of an arm of the items, by its reading
TRIED = ("sft", *(f"orce, C {c}, {epochs} epochs" for c in ("stated", "mean") for epochs in (3, 6)))
TESTED = ("sft", "sft_all", "orce, C stated", "orce, C mean", "W/o gen")
# The plan's contrasts without that of three rounds, which was not run; then two that the plan does not have.
PLANNED = [
    ("orce, C mean", "sft"),
    ("orce, C mean", "sft_all"),
    ("orce, C stated", "sft"),
    ("orce, C mean", "orce, C stated"),
    ("orce, C mean", "W/o gen"),
]
EXPLORED = [("orce, C stated", "sft_all"), ("orce, C stated", "W/o gen")]


def order_cells(cells: dict[str, Cell], name: str, *arms: str) -> list[Cell]:
    """The (items, confidences) of a set, one for each seed that has these arms."""
    own = [cells[f"{name}-{seed}"] for seed in ORDER_SEEDS if f"{name}-{seed}" in cells]
    return [cell for cell in own if {*arms} <= {*cell[1]}]


def order_level(cell: Cell, arm: str) -> tuple[float, str]:
    """AURC, and why the row is collapsed, if it is."""
    items, arms = cell
    return metrics.aurc(arms[arm], items.correct) or 0.0, collapsed(arms[arm], items.correct)


def order_levels(cells: dict[str, Cell], part: str, arms: Iterable[str], readings: tuple[str, ...]) -> Table:
    """AURC of each arm, set and reading: the mean over seeds, each seed, and with how many it is collapsed."""
    rows = []
    for reading, arm, name in product(readings, arms, ORDER_SETS):
        column = arm + ENDS[reading]
        known = [order_level(cell, column) for cell in order_cells(cells, name + part, column)]
        values = [aurc for aurc, _ in known]
        by_seed = ", ".join(f"{value:.3f}" for value in values)
        rows.append([arm, reading, name, f"{np.mean(values):.3f}", by_seed, share(bool(why) for _, why in known)])
    head = ["arm", "reading", "set", "AURC", "by seed", "collapsed"]
    return table(head, rows)


def multiplicities(n: int, seed: int) -> np.ndarray:
    """How often each of n questions is drawn, [DRAWS, n]."""
    return np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=DRAWS).astype(float)


def on_draws(cell: Cell, arm: str, drawn: np.ndarray) -> np.ndarray:
    """AURC of an arm on each draw of its questions, [DRAWS]."""
    items, arms = cell
    cells = metrics.aurc.read(arms[arm], items.correct)
    belongs = np.zeros((len(items), len(cells.count)))
    belongs[np.arange(len(items)), cells.item_cell] = 1
    counts = (drawn @ belongs).astype(np.int64)  # floats have a fast product, and hold these integers exactly
    return Tally(cells, counts).of(metrics.aurc)


def order_differences(
    every: dict[str, Cell], pairs: list[tuple[str, str]], reading: str
) -> dict[tuple[str, str, str], tuple[float, np.ndarray]]:
    """{(first, second, set or "both"): (difference of AURC, the same on each draw)}.

    A draw takes seeds of each set with replacement, and questions, the same for all seeds, since these share them.
    """
    found = {}
    for (place, name), (a, b) in product(enumerate(ORDER_SETS), pairs):
        first, second = a + ENDS[reading], b + ENDS[reading]
        cells = order_cells(every, name, first, second)
        drawn = multiplicities(len(cells[0][0]), place)
        taken = np.random.default_rng(10 + place).integers(0, len(cells), size=(DRAWS, len(cells)))
        values = [order_level(cell, first)[0] - order_level(cell, second)[0] for cell in cells]
        by_seed = np.array([on_draws(cell, first, drawn) - on_draws(cell, second, drawn) for cell in cells])
        found[a, b, name] = float(np.mean(values)), np.take_along_axis(by_seed.T, taken, axis=1).mean(axis=1)
    for a, b in pairs:
        parts = [found[a, b, name] for name in ORDER_SETS]
        found[a, b, "both"] = (
            float(np.mean([value for value, _ in parts])),
            np.mean([some for _, some in parts], axis=0),
        )
    return found


def order_contrasts(every: dict[str, Cell]) -> Table:
    """The plan's contrasts, of both sets, with Holm's p of each reading; each set by itself is exploratory."""
    rows = []
    for reading, end in ENDS.items():
        known = order_differences(every, [*PLANNED, *EXPLORED], reading)
        p = pd.Series({key: two_sided(some) for key, (_, some) in known.items()})
        adjusted = holm(p[[(*pair, "both") for pair in PLANNED]])
        for (a, b, name), (value, some) in known.items():
            low, high = np.quantile(some, [0.025, 0.975])
            sides = a + end, b + end
            cells = [cell for one in ORDER_SETS if name in (one, "both") for cell in order_cells(every, one, *sides)]
            both = [all(order_level(cell, side)[1] for side in sides) for cell in cells]
            planned = (a, b, name) in adjusted
            holms = float(adjusted.get((a, b, name), np.nan))
            verdict = verdict_of(low, high, holms) if planned else "exploratory"
            numbers = [f"{p[a, b, name]:.4f}", f"{holms:.4f}" if planned else "--", verdict]
            rows.append([name, f"{a} - {b}", reading, interval(value, low, high), *numbers, share(both)])
    head = ["set", "contrast", "reading", "difference of AURC", "p", "Holm's p", "verdict", "both collapsed"]
    rows.sort(key=lambda row: (row[6] == "exploratory", row[0] != "both"))
    return table(head, rows)


# The field's methods on a thousand questions, from docs/field/differences.csv: docs/field.md


def field_table(path: Path) -> Table:
    """Differences of AUROC, above zero where the first is better; each has its own interval."""
    rows = []
    for dataset, method, minus, value, low, high in pd.read_csv(path).itertuples(index=False):
        verdict = "better" if low > 0 else "worse" if high < 0 else "open"
        rows.append([dataset, f"{method} - {minus}", interval(value, low, high), verdict])
    return table(["dataset", "contrast", "difference of AUROC", "verdict"], rows)


OF_THEIR_OWN_ANSWERS = {"consistency", "topk", "cot"}
WITHOUT_CONFIDENCES = {"accuracy", "f1", "unparsed_answers", "unparsed_confidences"}


def field_faults(folder: Path) -> Iterable[str]:
    """Where the stored tables of the field contradict each other: a data set under two gradings, metrics of a row in which no
    confidence could be read, a difference that is not that of the two rows."""
    stored = pd.concat(pd.read_csv(folder / f"{name}.csv") for name in ("metrics", "wikidata", "generated"))
    method = stored["method"].str.partition("+")[0]
    same_answers = stored[(stored["metric"] == "accuracy") & ~method.isin(OF_THEIR_OWN_ANSWERS)]
    for dataset, accuracies in same_answers.groupby("dataset")["value"]:
        if accuracies.nunique() > 1:
            yield f"field: {dataset} has accuracies {sorted({*accuracies})} of the same answers"
    unread = stored[(stored["metric"] == "unparsed_confidences") & (stored["value"] == stored["n"])]
    for dataset, name in unread[["dataset", "method"]].itertuples(index=False):
        row = stored[(stored["dataset"] == dataset) & (stored["method"] == name)].set_index("metric")["value"]
        if names := sorted({*row.dropna().index} - WITHOUT_CONFIDENCES):
            yield f"field: {dataset}, {name} has {names[0]}, and no confidence could be read"
    area = stored[stored["metric"] == "auroc"].set_index(["dataset", "method"])["value"]
    for dataset, first, second, stated, *_ in pd.read_csv(folder / "differences.csv").itertuples(index=False):
        keys = (dataset, first), (dataset, second)
        if not {*keys} <= {*area.index}:
            yield f"field/differences.csv: {dataset}, {first} - {second}: no such rows"
        elif abs(area[keys[0]] - area[keys[1]] - stated) > 0.001:
            yield f"field/differences.csv: {dataset}, {first} - {second} is {stated}, and the rows differ by {area[keys[0]] - area[keys[1]]:.3f}"


# The pages

SOURCES = {"laboratory.csv": "laboratory.md", "smollm2-arms.csv": "smollm2.md"}  # the page that has the digest of each
SIGNED = r"[+-]\.\d{3}(?: \[[^\]]*\])?"  # of real questions: +.010 [+.003, +.017]; the laboratory's differences have their zero
IN_LABORATORY = r"[+-]0\.\d{3} \[[^\]]*\]"


def tables(items: Path = ITEMS, docs: Path = DOCS, draws: int = DRAWS) -> Tables:
    folder = docs / "evidence"
    asked, second, order = real_questions(items), read(items / "laboratory-2"), read(items / "order")
    differences, e_aurc = contrasts(asked, draws), levels(second)
    counted, every = (first_run(folder / "laboratory.csv", every=every) for every in (False, True))
    first = confirmed(folder / "laboratory.csv").query("model not in @NOT_COUNTED")
    seeds = confirmed(folder / "smollm2-arms.csv")
    own = folder / "tables"
    return {
        "labels": labels_table(differences),
        "decisive-contrasts": contrasts_table(differences),
        "decisive-arms": arms_table(asked),
        "laboratory-2-contrasts": over_models(second),
        "laboratory-2-cells": second_cells(items / "laboratory-2"),
        "laboratory-2-arms": second_arms(second),
        "laboratory-2-groups": second_groups(e_aurc),
        "laboratory-models": first_models(counted),
        "laboratory-models-all": first_models(every),
        "laboratory-calibration": first_calibration(counted),
        "laboratory-arms": marked_levels(own / "laboratory-arms.csv", first),
        "laboratory-contrasts": marked_contrasts(own / "laboratory-contrasts.csv", first),
        "laboratory-groups": marked_groups(own / "laboratory-groups.csv", first),
        "smollm2-arms-groups": marked_groups(own / "smollm2-arms-groups.csv", seeds),
        "smollm2-arms-levels": marked_levels(own / "smollm2-arms-levels.csv", seeds),
        "smollm2-arms-contrasts": marked_contrasts(own / "smollm2-arms-contrasts.csv", seeds),
        "smollm2-methods": one_value(own / "smollm2-methods.csv", folder / "metrics.csv"),
        "smollm2-readouts": readings(folder / "metrics.csv"),
        "over seeds": over_seeds(folder / "metrics.csv"),
        "points": [*first_points(counted)],
        "quoted": over_models(second, digits=3),
        "order-choice": order_levels(order, "-validation", TRIED, READINGS),
        "order-levels": order_levels(order, "", TESTED, tuple(ENDS)),
        "order-contrasts": order_contrasts(order),
        "../laboratory": marked_lines(folder / "laboratory.csv"),
        "../smollm2-arms": marked_lines(folder / "smollm2-arms.csv"),
    }


# Not files: a table of a page, the first columns of another file, its rounded numbers, differences that a page quotes.
SHOWN = {"labels", "points", "quoted", "over seeds"}


def prose(page: str) -> str:
    return re.sub(r"\s+", " ", page)


def differing(made: Tables, docs: Path = DOCS) -> list[str]:
    """What docs/ and README.md say and the items do not, a line each."""
    folder, lines = docs / "evidence", []
    paths = [docs.parent / "README.md", *docs.rglob("*.md")]
    pages = {path.name: path.read_text(encoding="utf-8") for path in sorted(paths)}
    files = {path.stem: path.read_text(encoding="utf-8") for path in (folder / "tables").glob("*.csv")}
    for name in made.keys() - SHOWN:
        if as_csv(made[name]) != (folder / "tables" / f"{name}.csv").read_text(encoding="utf-8"):
            lines.append(f"tables/{name}.csv")
    for name, text in files.items():
        if not head_has_reading([*csv.reader(io.StringIO(text))]):
            lines.append(f"tables/{name}.csv: no reading, stated, mean or mode, in its head")
    if as_markdown(made["labels"]) not in pages["evidence.md"]:
        lines.append("evidence.md: its table")
    stated = [row[:2] + [row[2].partition(" ")[0]] for row in csv.reader(io.StringIO(files["laboratory-contrasts"]))]
    lines += [f"tables/laboratory-contrasts.csv: {' '.join(row)}" for row in made["points"] if row not in stated]
    for name, page in SOURCES.items():
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() not in pages[page]:
            lines.append(f"{page}: the digest of {name}")
    lines += [f"{page}: not the headline of docs/evidence.md" for page in TOLD_ON if HEADLINE not in prose(pages[page])]
    lines += [
        f"README.md: not {span}"
        for span in ranges_of_seeds(made["order-levels"])
        if span not in prose(pages["README.md"])
    ]
    real = (as_csv(made["decisive-contrasts"]) + as_csv(made["order-contrasts"])).replace("0.", ".")
    laboratory = files["laboratory-contrasts"] + as_csv(made["quoted"])
    seeds = files["smollm2-arms-contrasts"] + files["smollm2-arms-groups"] + as_csv(made["over seeds"])
    field = field_table(docs / "field" / "differences.csv")
    for name, pattern, given in (
        ("README.md", SIGNED, real), ("evidence.md", SIGNED, real), ("real-questions.md", SIGNED, real),
        ("order.md", SIGNED, real),
        ("laboratory.md", IN_LABORATORY, laboratory), ("smollm2.md", IN_LABORATORY, seeds),
        ("field.md", QUOTED, as_csv(field).replace("0.", ".")),
    ):  # fmt: skip
        quoted = re.findall(pattern, prose(pages[name]))
        lines += [f"{name}: {number}" for number in dict.fromkeys(quoted) if number not in given]
        if not quoted:
            lines.append(f"{name}: nothing is quoted as {pattern}")
    known = contrasts_by_interval(
        [
            made["decisive-contrasts"],
            made["order-contrasts"],
            made["quoted"],
            made["over seeds"],
            field,
            *(csv.reader(io.StringIO(files[name])) for name in JUDGED),
        ]
    )
    for name, page in pages.items():
        lines += [f"{name}: {why}" for why in page_faults(page, known)]
    lines += field_faults(docs / "field")
    return [*lines, *before_the_reward(made["decisive-arms"], pages["real-questions.md"])]


def ranges_of_seeds(levels: Table) -> Iterator[str]:
    """Least to largest AURC of the seeds, by the mean, of SFT and ORCE on each set."""
    head, *rows = levels
    for row in rows:
        cells = dict(zip(head, row, strict=True))
        if cells["reading"] == "mean" and cells["arm"] in ("sft", "orce, C stated"):
            seeds = sorted(cells["by seed"].split(", "))
            yield f"{seeds[0]} to {seeds[-1]}".replace("0.", ".")


# What a sentence says of the numbers in it

HEADLINE = (
    "In most experiments DPO improved how the stated confidence ranks, but hardly how the mean of the distribution does. "
    "DPO's reward uses stated confidences, which often tie; with means instead, no gain was shown."
)
TOLD_ON = ("README.md", "evidence.md", "real-questions.md", "smollm2.md")
JUDGED = ("laboratory-contrasts", "smollm2-arms-contrasts")
VERDICTS = r"better|improves|worse|no difference that matters|open|exploratory"
QUOTED = r"[+-]0?\.\d{3} \[[^\]]*\]"
# A row of a trained judge, and a number of a metric, which has three digits where a setting or a p has one or two.
JUDGE_NAMED = (
    r"\bORCE\b|\bSFT\b|ConfTuner|\b(?:orce|sft|conftuner)(?:_\w+)?\b|\bNRD\b|\bSaySelf\b|W/o gen|\brewards?\b|"
    r"warm start|[Ss]oft labels|order term|\b[Jj]udges?\b(?!'s prompt)|\b[Aa]lignment\b"
)
MEASURED = r"(?<![\w.,:/-])[+-]?0?\.\d{3,4}\b"
NO_METRIC = r"(?:accuracy|\(p) 0?\.\d+|.*log-odds.*"
IN_WORDS_OF = {
    "stated": r"\bstated\b|\bstatements?\b|\b[Ww]hat [\w `]{1,20} states\b",
    "mean": r"\b(?:[Bb]y|of) (?:the|its|their) means?\b|\bmean of (?:the|its|their|a|each) (?:\S+ )?distributions?\b"
    r"|\bmean's\b|[|,;] mean\b(?! of)|\bmean reading",
    "mode": r"\bmode\b",
}


class Claim(NamedTuple):
    """A sentence, or a line of a table or of an output; what names its reading too: the heading above it, the bold start
    of its item, the head of its table, the paragraph before a table or an output, and the first sentence below it."""

    text: str
    around: str
    head: str = ""  # of its table


class Contrast(NamedTuple):
    """What a table says of an interval: how the judges are read (--: none is), the verdict, and which rows are collapsed."""

    reading: str
    verdicts: set[str]
    collapsed: str


def contrasts_by_interval(files: Iterable[Iterable[list[str]]]) -> dict[str, list[Contrast]]:
    """{interval: the contrasts that have it} of tables with a column `verdict`."""
    known: dict[str, list[Contrast]] = {}
    for head, *rows in files:
        for row in rows:
            cells = dict(zip(head, row, strict=True))
            marks = cells.get("collapsed") or cells.get("both collapsed") or ""
            contrast = Contrast(cells.get("reading", "--"), {*re.findall(VERDICTS, cells["verdict"])}, marks)
            for cell in filter(re.compile(QUOTED).fullmatch, row):
                known.setdefault(cell.replace("0.", "."), []).append(contrast)
    return known


def blocks(page: str) -> list[str]:
    """Paragraphs, lists, tables, headings and fenced outputs of a page, each whole, without its comments."""
    found = []
    page = re.sub(r"<!--.*?-->", "", page, flags=re.DOTALL)
    for part in re.split(r"^(```.*?^```)$", page, flags=re.MULTILINE | re.DOTALL):
        if part.startswith("```"):
            found.append(part)
        else:
            found += [block.strip("\n") for block in re.split(r"\n\s*\n", part) if block.strip()]
    return found


def claims(page: str) -> list[Claim]:
    heading, found = "", []
    every = ["", *blocks(page), ""]
    for before, block, after in zip(every, every[1:], every[2:], strict=False):
        if block.startswith("#"):
            heading = block
        elif block.startswith(("|", "```")):
            caption = sentences(after)[0] if block.startswith("```") or after.startswith("*") else ""
            beside = [text for text in (before, caption) if not text.startswith(("#", "|", "```"))]
            head = block.partition("\n")[0]
            around = prose(" ".join([heading, head, *beside]))
            found += [Claim(line, around, head) for line in block.splitlines()]
        else:
            for item in re.split(r"\n(?=- |\d+\. )", block):
                start = re.match(r"(?:- |\d+\. )?(\*\*.+?\*\*)", text := prose(item))
                around = f"{heading} {start[1] if start else ''}"
                found += [Claim(sentence, around) for sentence in sentences(text)]
    return found


def sentences(text: str) -> list[str]:
    return re.split(r"(?<=[\w)%*])\.\*{0,2} (?=[A-Z*`])", prose(text))


def page_faults(page: str, known: dict[str, list[Contrast]]) -> list[str]:
    """What is wrong with the sentences of a page, a line each: `faults`."""
    lines = []
    for claim in claims(page):
        lines += faults(claim, known)
    return lines


def faults(claim: Claim, known: dict[str, list[Contrast]]) -> Iterable[str]:
    """What is wrong with a sentence: a number of a judge without its reading or with another one, a verdict that is not
    the interval's, two collapsed rows compared without a word of it."""
    quoted = known_in(claim.text, known)
    of_judges = [contrasts for contrasts in quoted if all(one.reading != "--" for one in contrasts)]
    numbers = re.search(MEASURED, re.sub(NO_METRIC, "", claim.text))
    if of_judges or (numbers and re.search(JUDGE_NAMED, claim.head + claim.text)):
        said = said_readings(claim.text) or said_readings(claim.head) or said_readings(claim.around)
        if not said:
            yield f"no reading, stated, mean or mode, in: {claim.text}"
        elif not read_so(of_judges, said):
            yield f"another reading than the interval's in: {claim.text}"
    for part in re.split(r"(?<=\w)[.:]\*{0,2} |; ", claim.text):
        if not fits(part, known):
            yield f"another verdict than the interval's in: {part}"
        both = any(all(both_collapsed(one) for one in contrasts) for contrasts in known_in(part, known))
        marked = part if part.startswith("|") else f"{claim.around} {part}"
        if both and not re.search(rf"{COLLAPSED}|collapsed|one value|\b\d+ of \d+\b", marked):
            yield f"two collapsed rows without {COLLAPSED} in: {part}"


def head_has_reading(cells: Table) -> bool:
    """Whether a table of trained judges says how they are read: by a column, in its heads, or NAME:stated for each arm."""
    head, *rows = cells
    with_judges = any(re.search(JUDGE_NAMED, cell) for row in cells for cell in row)
    numbers = [cell for row in rows for cell in row if re.match(r"[+-]?0?\.\d{3}", cell)]
    if not with_judges or not numbers:
        return True
    by_row = {"reading", "readout"} & {*head} or any(":stated" in cell for row in rows for cell in row)
    return bool(by_row or said_readings(" | ".join(["", *head])))


def known_in(text: str, known: dict[str, list[Contrast]]) -> list[list[Contrast]]:
    """The contrasts of each interval of a text that some table has."""
    cells = (cell.replace("0.", ".") for cell in re.findall(QUOTED, text))
    return [known[cell] for cell in cells if cell in known]


def said_readings(text: str) -> list[str]:
    """The readings that a text names, in its order."""
    named = "|".join(f"(?P<{reading}>{pattern})" for reading, pattern in IN_WORDS_OF.items())
    return [found.lastgroup or "" for found in re.finditer(named, text)]


def read_so(quoted: list[list[Contrast]], said: list[str]) -> bool:
    """Whether intervals are of the readings named: one by one where there is one for each, else each of one of them."""
    readings = [{one.reading for one in contrasts} for contrasts in quoted]
    if len(readings) == len(said):
        return all(name in reading for name, reading in zip(said, readings, strict=True))
    return all(reading & {*said} for reading in readings)


def both_collapsed(contrast: Contrast) -> bool:
    """Whether both rows are collapsed, in most of the cells where there are several."""
    if contrast.collapsed.startswith(("first", "second")):
        return False
    counted = [(int(k), int(n)) for k, n in re.findall(r"(\d+) of (\d+)", contrast.collapsed)]
    if not counted:
        return contrast.collapsed == "both"
    return 2 * sum(k for k, _ in counted) > sum(n for _, n in counted)


def fits(sentence: str, known: dict[str, list[Contrast]]) -> bool:
    """Whether the words of a sentence are the verdicts on the intervals in it: one by one where it has one for each."""
    quoted = [set().union(*(one.verdicts for one in contrasts)) for contrasts in known_in(sentence, known)]
    said = [word.replace("improves", "better") for word in re.findall(rf"\b({VERDICTS})\b", sentence)]
    if not quoted or "exploratory" in set().union(*quoted):
        return not quoted or "exploratory" in said
    if len(quoted) == len(said):
        return all(word in verdict for word, verdict in zip(said, quoted, strict=True))
    return {*said} <= set().union(*quoted) and all(verdict & {*said} for verdict in quoted)


BEFORE_THE_REWARD = {
    "free: product of the token probabilities": "sequence_probability", "free: agreement of samples": "agreement",
    "linear probe on the judge's prompt": "probe_judge", "linear probe on the answer's own states": "probe",
    "SFT on all labels, read by its mean": "sft_all", "soft labels + order, read by its mean": "ordered",
    "ORCE, read by its mean": "orce", "mean of the question's relation, or exam": "group_mean",
}  # fmt: skip


def before_the_reward(arms: Table, page: str) -> Iterable[str]:
    """The lines of the table of free signals that differ: AUROC pooled and within groups, AURC of the exams."""
    auroc, within, aurc = ({tuple(row[:2]): row[column].lstrip("0") for row in arms} for column in (3, 8, 4))
    marks = {tuple(row[:2]): f" {COLLAPSED}" if row[-1] else "" for row in arms}
    pairs = [(auroc, within, cell, cell) for cell in ("wikidata-2", "wikidata-5", "exams-2")]
    pairs.append((aurc, aurc, "exams-2", "exams-2 within exam"))
    for words, arm in BEFORE_THE_REWARD.items():
        stated = re.search(rf"\n\| {re.escape(words)} \| (.*) \|\n", page)
        columns = stated[1].split(" | ") if stated else [""] * len(pairs)
        for given, (pooled, inside, cell, other) in zip(columns, pairs, strict=True):
            if (cell, arm) in pooled:
                expected = f"{pooled[cell, arm]}, {inside[other, arm]}{marks[cell, arm]}"
                if given != expected:
                    yield f"real-questions.md: {words}"


def main() -> int:
    made = tables()
    if sys.argv[1:] == ["write"]:
        for name in made.keys() - SHOWN:
            (DOCS / "evidence" / "tables" / f"{name}.csv").write_text(as_csv(made[name]), encoding="utf-8")
    lines = differing(made)
    for line in lines:
        print(f"not what the items give: {line}")
    print(f"{len(lines)} differences between docs/ and the items")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
