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
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from orce import metrics

ROOT = Path(__file__).resolve().parent.parent
DOCS, ITEMS = ROOT / "docs", ROOT / "evidence" / "items"
MARGIN, DRAWS = 0.01, 10_000
# p for which ten times as many are drawn, as its standard error is 0.002, and which gets a mark if it stays there.
CLOSE, MARK = (0.04, 0.06), " (p near .05)"
METRICS = {
    "auroc": metrics.auroc, "aurc": metrics.aurc, "e_aurc": metrics.e_aurc,
    "ece": metrics.expected_calibration_error, "brier": metrics.brier,
}  # fmt: skip
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
CHANGES = {f"{cell} less mean of wikidata": (cell, "mean of wikidata") for cell in ("wikidata-4", "wikidata-5")}
NESTED = "wikidata-4 by labels"  # the same questions and answers, judges of 960 labels and of 320
TRAINED = [f"{judge} - probe_judge" for judge in ("sft_all", "sft_probe", "soft", "ordered", "orce")]
LABELLED = [f"{judge}:960 - {judge}:320" for judge in ("sft_all", "sft", "soft", "ordered", "orce")]
TOLD = ["told - sft_all", "told_soft - soft"]
FAMILIES = TRAINED, LABELLED, TOLD  # Holm's; every other contrast has its own p
CONTRASTS = [
    *TRAINED, "best - probe_judge", "stack-best - free", "orce - sft_all", "ordered - soft", "orce - sft",
    "sft - sft_all", "probe_judge - free", "probe_judge - group_mean", "probe_judge - bag_of_words", *TOLD,
    "told - stack-sft_all", "told_soft - stack-soft", "told - free", "told - probe_and_probability",
    "probe_and_probability - probe", "probe_and_probability - free", *LABELLED,
    "probe_judge:960 - probe_judge:320", "probe:960 - probe:320",
    "sft_all_long - sft_all", "sft_all_long - probe_judge", "sft_all:960 - sft_all_long:320",
]  # fmt: skip
BY_LABELS = {"mean of 320 labels": "320 labels", "mean of 960 labels": "960", "wikidata-5": "2,000"}
IN_WORDS = {
    "sft_all - probe_judge": "SFT on all labels - probe",
    "soft - probe_judge": "soft labels - probe",
    "ordered - probe_judge": "soft labels + order - probe",
    "orce - probe_judge": "ORCE - probe",
    "best - probe_judge": "judge that validation chose - probe",
    "orce - sft_all": "ORCE - SFT on all labels",
    "orce - sft": "ORCE - its own warm start: what the reward adds",
    "sft - sft_all": "SFT on half of the labels - on all",
    "ordered - soft": "what the order term adds to soft labels",
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
    """Differences of AURC by (cell, contrast), below zero where the first is better; of cells and of means over some."""
    drawn: dict[str, pd.DataFrame] = {}  # a first row of the difference itself, then one for each draw
    finer: dict[str, dict[str, np.ndarray]] = {}  # draws of contrasts whose p is close to the level
    for cell, (items, arms) in with_nested(cells).items():
        counted, seed = {arm: metrics.aurc.read(arms[arm], items.correct) for arm in arms}, zlib.crc32(cell.encode())
        values = {arm: metrics.aurc.value(counts) or 0.0 for arm, counts in counted.items()}
        columns = {}
        for name in CONTRASTS:
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
            drawn[mean] = (total / len(averaged)).dropna(axis=1).filter(CONTRASTS)
    for change, (more, fewer) in CHANGES.items():
        if {more, fewer} <= {*drawn}:
            drawn[change] = (drawn[more] - drawn[fewer]).dropna(axis=1).filter(TRAINED)
    return pd.concat(
        {cell: summary(frame.iloc[0], dict(frame.iloc[1:]) | finer.get(cell, {})) for cell, frame in drawn.items()}
    )


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
    rows = (
        [cell, name, interval(value, low, high), f"{p:.4f}", f"{adjusted:.4f}", verdict]
        for cell, name, value, low, high, p, adjusted, verdict in differences.reset_index().itertuples(index=False)
    )
    return table(["cell", "contrast", "difference of AURC", "p", "Holm's p", "verdict"], rows)


def labels_table(differences: pd.DataFrame) -> Table:
    text = {key: f"{interval(*row[:3])} {row[-1]}" for key, *row in differences.itertuples(name=None)}
    rows = ([words, *(text[cell, name] for cell in BY_LABELS)] for name, words in IN_WORDS.items())
    return table(["difference of AURC", *BY_LABELS.values()], rows)


def arms_table(cells: dict[str, Cell]) -> Table:
    """Every arm of every cell; ranks within an exam have no calibration."""
    rows = []
    for cell, (items, arms) in cells.items():
        mixed = [group for _, group in items.groupby("group") if group.correct.nunique() > 1]
        for arm in arms.drop(columns="free"):
            values = {name: "--" for name in ("ece", "brier") if "within" in cell}
            values = {name: values.get(name) or f"{METRICS[name](arms[arm], items.correct):.3f}" for name in METRICS}
            inside = np.array([metrics.auroc(arms[arm][group.index], group.correct) for group in mixed], float)
            within = np.average(inside, weights=[*map(len, mixed)])
            rows.append([cell, str(arm), str(len(items)), *values.values(), f"{within:.3f}"])
    head = ["cell", "arm", "n", "AUROC", "AURC", "E-AURC", "ECE", "Brier", "AUROC within group"]
    return table(head, rows)


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


def over_models(e_aurc: pd.DataFrame, digits: int = 4) -> Table:
    rows = []
    for reading, end, claimed, beside in (
        ("stated", ":stated", REWARDS, BESIDE), ("mean", "", REWARDS, BESIDE), ("mean", "", READOUT, []),
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
            rows.append([reading, name, interval((a - b).mean(), low, high, digits), p, rank, ratio, verdict])
    head = ["reading", "contrast", "difference of E-AURC", "Holm's p (t)", "signed rank's p", "ratio", "verdict"]
    return table(head, rows)


def verdict_of(low: float, high: float, adjusted: float) -> str:
    if adjusted >= 0.05 or low <= 0 <= high:
        return "no difference that matters" if -MARGIN < low and high < MARGIN else "open"
    return ("better" if high < 0 else "worse") + (", by less than the margin" if max(-low, high) <= MARGIN else "")


def second_arms(cells: dict[str, Cell]) -> Table:
    names = ("e_aurc", "auroc", "ece", "brier")
    means = {name: levels(cells, name).mean() for name in names}
    trained = {arm.removesuffix(":stated") for arm in means["ece"].index if arm.endswith(":stated")}
    rows = []
    for arm, label in ARMS.items():
        reading = "mean" if arm in trained or arm == "best" else "--"
        rows.append([label, reading, *(f"{means[name][arm]:.3f}" for name in names)])
        if arm in trained:
            rows.append([label, "stated", *(f"{means[name][f'{arm}:stated']:.3f}" for name in names)])
    return table(["confidence", "reading", "E-AURC", "AUROC", "ECE", "Brier"], rows)


def second_groups(e_aurc: pd.DataFrame) -> Table:
    pairs = [*REWARDS, *BESIDE[:2], *READOUT]
    rows = (
        [str(group), str(len(models)), *(f"{(models[a] - models[b]).mean():+.3f}" for a, b in pairs)]
        for group, models in e_aurc.groupby(e_aurc.index.map(group_of))
    )
    return table(["group", "models", *(f"{a} - {b}" for a, b in pairs)], rows)


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


def first_run(path: Path, every: bool = False) -> pd.DataFrame:
    """Means over seeds of the held-out test questions, [answer models, (metric, arm)]; `every` has the excluded ones too."""
    lines = pd.read_csv(path).query("part == 'confirm' and split == 'test'")
    if not every:
        lines = lines[~lines.model.isin(NOT_COUNTED)]
    best = lines[lines.arm == lines.model.str.split("-").str[1].map(OTHER)].assign(arm="other")
    columns = [f"{reading}_{metric}" for reading in ("stated", "mean") for metric in ("e_aurc", "ece", "brier")]
    return pd.DataFrame(pd.concat([lines, best]).groupby(["model", "arm"])[columns].mean().unstack())


def first_models(values: pd.DataFrame) -> Table:
    rows = []
    for reading in ("stated", "mean"):
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
    columns = [f"{reading}_{metric}" for metric in ("ece", "brier") for reading in ("stated", "mean")]
    rows = (
        [arm, *(f"{values[column][arm].mean():.3f}" for column in columns)]
        for arm in ("sft", "sft_long", "sft_all", "ordered", "sc", "other")
    )
    return table(["arm", "ECE, stated", "ECE, mean", "Brier, stated", "Brier, mean"], rows)


def first_points(values: pd.DataFrame) -> Iterable[list[str]]:
    """Reading, contrast and difference of laboratory-contrasts.csv, whose intervals need the runs."""
    for reading in ("stated", "mean"):
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
            for reading in ("stated", "mean"):
                values = [cell[f"{reading}_{name}"] for name in NAMES]
                some = "" if len(cell) == 3 else f" ({len(cell)} of 3)"
                rows.append([dataset, label, reading, *(f"{v.mean():.3f} ± {v.std():.3f}{some}" for v in values)])
    return table(["dataset", "method", "readout", *NAMES.values()], rows)


# The field's methods on a thousand questions, from docs/field/differences.csv: docs/field.md


def field_table(path: Path) -> Table:
    """Differences of AUROC, above zero where the first is better; each has its own interval."""
    rows = []
    for dataset, method, less, value, low, high in pd.read_csv(path).itertuples(index=False):
        verdict = "better" if low > 0 else "worse" if high < 0 else "open"
        rows.append([dataset, f"{method} - {less}", interval(value, low, high), verdict])
    return table(["dataset", "contrast", "difference of AUROC", "verdict"], rows)


# The pages

SOURCES = {"laboratory.csv": "laboratory.md", "smollm2-arms.csv": "smollm2.md"}  # the page that has the digest of each
SIGNED = r"[+-]\.\d{3}(?: \[[^\]]*\])?"  # of real questions: +.010 [+.003, +.017]; the laboratory's differences have their zero
IN_LABORATORY = r"[+-]0\.\d{3} \[[^\]]*\]"


def tables(items: Path = ITEMS, docs: Path = DOCS, draws: int = DRAWS) -> Tables:
    asked, second = real_questions(items), read(items / "laboratory-2")
    differences, e_aurc = contrasts(asked, draws), levels(second)
    counted, every = (first_run(docs / "evidence" / "laboratory.csv", every=every) for every in (False, True))
    return {
        "labels": labels_table(differences), "decisive-contrasts": contrasts_table(differences),
        "decisive-arms": arms_table(asked), "laboratory-2-contrasts": over_models(e_aurc),
        "laboratory-2-cells": second_cells(items / "laboratory-2"), "laboratory-2-arms": second_arms(second), "laboratory-2-groups": second_groups(e_aurc),
        "laboratory-models": first_models(counted), "laboratory-models-all": first_models(every),
        "laboratory-calibration": first_calibration(counted), "points": [*first_points(counted)],
        "quoted": over_models(e_aurc, digits=3), "smollm2-readouts": readings(docs / "evidence" / "metrics.csv"),
    }  # fmt: skip


SHOWN = {
    "labels",
    "points",
    "quoted",
}  # not files: a table of a page, the first columns of another file, its rounded numbers


def prose(page: str) -> str:
    return re.sub(r"\s+", " ", page)


def differing(made: Tables, docs: Path = DOCS) -> list[str]:
    """What docs/ says and the items do not, a line each."""
    folder, lines = docs / "evidence", []
    paths = [docs / "evidence.md", docs / "field.md", *folder.glob("*.md")]
    pages = {path.name: path.read_text(encoding="utf-8") for path in paths}
    files = {path.stem: path.read_text(encoding="utf-8") for path in (folder / "tables").glob("*.csv")}
    lines += [f"tables/{name}.csv" for name in made.keys() - SHOWN if as_csv(made[name]) != files[name]]
    if as_markdown(made["labels"]) not in pages["evidence.md"]:
        lines.append("evidence.md: its table")
    stated = [row[:2] + [row[2].partition(" ")[0]] for row in csv.reader(io.StringIO(files["laboratory-contrasts"]))]
    lines += [f"tables/laboratory-contrasts.csv: {' '.join(row)}" for row in made["points"] if row not in stated]
    for name, page in SOURCES.items():
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() not in pages[page]:
            lines.append(f"{page}: the digest of {name}")
    real = as_csv(made["decisive-contrasts"]).replace("0.", ".")
    laboratory = files["laboratory-contrasts"] + as_csv(made["quoted"])
    field = field_table(docs / "field" / "differences.csv")
    for name, pattern, given in (
        ("evidence.md", SIGNED, real), ("real-questions.md", SIGNED, real), ("laboratory.md", IN_LABORATORY, laboratory),
        ("field.md", QUOTED, as_csv(field).replace("0.", ".")),
    ):  # fmt: skip
        quoted = re.findall(pattern, prose(pages[name]))
        lines += [f"{name}: {number}" for number in dict.fromkeys(quoted) if number not in given]
        if not quoted:
            lines.append(f"{name}: nothing is quoted as {pattern}")
    known = verdicts(
        [made["decisive-contrasts"], made["quoted"], field, *(csv.reader(io.StringIO(files[name])) for name in JUDGED)]
    )
    for name in ("evidence.md", "real-questions.md", "laboratory.md", "smollm2.md", "field.md"):
        lines += [f"{name}: {sentence}" for sentence in sentences(pages[name]) if not fits(sentence, known)]
    return [*lines, *before_the_reward(made["decisive-arms"], pages["real-questions.md"])]


# What a sentence says of the intervals that it quotes

JUDGED = ("laboratory-contrasts", "smollm2-arms-contrasts")
VERDICTS = r"better|improves|worse|no difference that matters|open|exploratory"
QUOTED = r"[+-]0?\.\d{3} \[[^\]]*\]"


def verdicts(files: Iterable[Iterable[list[str]]]) -> dict[str, set[str]]:
    """{interval: the verdicts on the contrasts that have it} of tables with a column `verdict`."""
    known: dict[str, set[str]] = {}
    for head, *rows in files:
        column = head.index("verdict")
        for row in rows:
            for cell in (cell for cell in row if re.fullmatch(QUOTED, cell)):
                known.setdefault(cell.replace("0.", "."), set()).update(re.findall(VERDICTS, row[column]))
    return known


def sentences(page: str) -> list[str]:
    """Sentences, lines of tables, and the parts before and after a semicolon."""
    lines = re.sub(r"(?<!\|)\n(?![-#|\n])", " ", page)
    return [prose(part).strip() for part in re.split(r"\n|(?<=\w)[.:]\*{0,2} |; ", lines)]


def fits(sentence: str, known: dict[str, set[str]]) -> bool:
    """Whether the words of a sentence are the verdicts on the intervals in it: one by one where it has one for each."""
    quoted = [known[text] for cell in re.findall(QUOTED, sentence) if (text := cell.replace("0.", ".")) in known]
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
    for words, arm in BEFORE_THE_REWARD.items():
        pairs = [(auroc, within, cell, cell) for cell in ("wikidata-2", "wikidata-5", "exams-2")]
        pairs += [(aurc, aurc, "exams-2", "exams-2 within exam")]
        expected = [
            f"{a[first, arm]}, {b[second, arm]}" if (first, arm) in a else None for a, b, first, second in pairs
        ]
        stated = re.search(rf"\n\| {re.escape(words)} \| (.*) \|\n", page)
        columns = stated[1].split(" | ") if stated else [""] * 4
        yield from (
            f"real-questions.md: {words}"
            for given, own in zip(columns, expected, strict=True)
            if own not in (None, given)
        )


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
