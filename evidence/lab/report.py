"""From the laboratory's cells to docs/evidence/laboratory.md and two pictures: ``python -m evidence.lab report``."""

import csv
import hashlib
import io
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from evidence.collect import fill
from evidence.lab import arms, choices
from evidence.lab.bench import TEST, VALIDATION, read
from evidence.lab.intervals import Cells, Curve, e_aurcs, hierarchical, holm, interval, p_value, replicates, verdict
from orce.evaluation import metrics
from orce.methods import isotonic as calibration
from orce.reports.figures import palette
from orce.runtime import files
from orce.runtime.files import BadInput

MARGIN = 0.01
RESAMPLES, REDRAWS = 500, 20
READINGS = ("stated", "mean")
LABELS = {
    "vanilla": "Vanilla", "consistency": "Consistency", "sft": "SFT", "isotonic": "SFT + isotonic", "sft_long": "SFT-long",
    "sft_all": "SFT-all", "soft": "Soft labels", "ordered": "Soft labels + order", "sc": "ORCE (SC)", "nrd": "NRD",
    "numeric": "Numeric", "sayself": "SaySelf", "sc-surrogate": "W/o gen", "other": "best other reward",
}  # fmt: skip
CONTRASTS = {  # the plan's five, in this order
    "SC - best other reward": ("sc", "other"),
    "SC - SFT-all": ("sc", "sft_all"),
    "SC - SFT": ("sc", "sft"),
    "SC - SFT-long": ("sc", "sft_long"),
    "Soft labels + order - SFT-all": ("ordered", "sft_all"),
}
Found = dict[str, dict[int, dict[str, dict[str, np.ndarray]]]]  # answer model -> seed -> arm -> {correct, stated, mean}


def held_out(folder: Path, cells: Iterable[tuple[str, int]], chosen: dict[str, dict]) -> Found:
    """What every finished held-out cell stated on the test questions."""
    found: Found = {}
    for model, seed in cells:
        place = folder / f"{model}-{seed}"
        rows = {row["arm"] for row in arms.rows_of(place / "results.jsonl") if row["split"] == TEST}
        if not {"sft", "sft_long", *arms.CONFIRMED, "sc", chosen[arms.numbers(model)]["other"]} <= rows:
            continue
        data = arms.group(model).partition("-")[0]
        where = place / "results" / data / model
        mine = {arm: read(where / arm / f"{TEST}.jsonl") for arm in sorted(rows)}
        mine["isotonic"] = isotonic(where / "sft" / f"{VALIDATION}.jsonl", mine["sft"])
        mine["other"] = mine[chosen[arms.numbers(model)]["other"]]
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


def shown(value: float, low: float, high: float, sign: str = "+") -> str:
    return f"{value:{sign}.3f} [{low:{sign}.3f}, {high:{sign}.3f}]"


def main_table(found: Found, readings: dict[str, Reading]) -> str:
    lines = [
        "| arm | E-AURC, stated | E-AURC, mean | AUROC, stated | ECE, stated | distinct values |",
        "| --- " * 6 + "|",
    ]
    for arm, label in LABELS.items():
        if arm not in readings["stated"].arms:
            continue
        cells = [one[arm] for seeds in found.values() for one in seeds.values()]
        columns = []
        for reading in READINGS:
            if arm in readings[reading].arms:
                column = readings[reading].column(arm)
                value, drawn = readings[reading].of(lambda values, column=column: values[:, column])
                columns.append(shown(float(value), *interval(drawn), sign=""))
            else:
                columns.append("--")
        auroc = np.mean([metrics.METRICS["auroc"](one["stated"], one["correct"]) for one in cells])
        ece = np.mean([metrics.METRICS["ece"](one["stated"], one["correct"]) for one in cells])
        distinct = np.mean([len(np.unique(one["stated"])) for one in cells])
        lines.append(f"| {label} | {columns[0]} | {columns[1]} | {auroc:.3f} | {ece:.3f} | {distinct:.0f} |")
    return "\n".join(lines)


def contrast_table(readings: dict[str, Reading]) -> str:
    lines = ["| reading | contrast | difference of E-AURC | Holm's p | verdict |", "| --- " * 5 + "|"]
    for reading in READINGS:
        resampled = {name: readings[reading].contrast(*pair) for name, pair in CONTRASTS.items()}
        adjusted = holm({name: p_value(drawn) for name, (_, drawn) in resampled.items()})
        for name, (value, drawn) in resampled.items():
            low, high = interval(drawn)
            said = verdict(low, high, adjusted[name], MARGIN)
            lines.append(f"| {reading} | {name} | {shown(float(value), low, high)} | {adjusted[name]:.3f} | {said} |")
    return "\n".join(lines)


def group_table(found: Found, readings: dict[str, Reading]) -> str:
    """The contrasts within each group of answer models."""
    names = [name for name in CONTRASTS if name != "SC - SFT-long"]
    lines = ["| questions, numbers | reading | " + " | ".join(names) + " |", "| --- " * (2 + len(names)) + "|"]
    for group in sorted({arms.group(model) for model in found}):
        for reading in READINGS:
            cells = []
            for name in names:
                value, drawn = readings[reading].contrast(*CONTRASTS[name], only=group)
                cells.append(shown(float(value), *interval(drawn)))
            lines.append(f"| {group} | {reading} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def beta_table(explored: list[dict]) -> str:
    """Validation E-AURC by reward and beta: stated; mean. The better learning rate of each; SFT and SFT-all of the same cells."""
    lines = []
    tried = {row["model"] for row in explored if row.get("reward") == "sc"}
    for numbers in ("values", "digits"):
        mine = [row for row in explored if arms.numbers(row["model"]) == numbers and row["model"] in tried]
        lines += ["", f"{numbers}, of {', '.join(sorted(tried & {row['model'] for row in mine}))}:", ""]
        lines += ["| arm | " + " | ".join(f"beta {beta:g}" for beta in BETAS) + " |", "| --- " * (1 + len(BETAS)) + "|"]
        for reward in arms.REWARDS:
            cells = [
                "; ".join(f"{lowest(mine, reading, reward=reward, beta=beta):.3f}" for reading in READINGS)
                for beta in BETAS
            ]
            lines.append(f"| {LABELS[reward]} | {' | '.join(cells)} |")
        for arm in ("sft", *arms.TRAINED):
            own = [row for row in mine if row["arm"].startswith(f"{arm}-") and "rank_weight" not in row]
            cell = "; ".join(f"{lowest(own, reading):.3f}" for reading in READINGS)
            lines.append(f"| {LABELS[arm]} | {cell} |{' |' * (len(BETAS) - 1)}")
    return "\n".join(lines).strip()


def facts_table(lab: Path, explored, cells) -> str:
    lines = [
        "| answer model | cells | kappas strictly inside | mean kappa | accuracy of the majority |",
        "| --- " * 5 + "|",
    ]
    grouped: dict[str, list[dict]] = {}
    for part, chosen in (("explore", explored), ("confirm", cells)):
        for model, seed in chosen:
            for row in arms.rows_of(lab / part / f"{model}-{seed}" / "results.jsonl"):
                if row["arm"] == "facts":
                    grouped.setdefault(model, []).append(row)
    for model, rows in sorted(grouped.items()):
        inside, kappa, right = (np.mean([row[key] for row in rows]) for key in ("inside", "kappa", "accuracy"))
        lines.append(f"| {model} | {len(rows)} | {inside:.0%} | {kappa:.3f} | {right:.3f} |")
    return "\n".join(lines)


def why_table(rows: list[dict]) -> str:
    """What one change makes of ORCE at beta 1: validation E-AURC, a mean over the cells, with the standard error over them."""
    lines = [
        "| change | E-AURC, stated | E-AURC, mean | less ORCE's, stated | less ORCE's, mean | cells |",
        "| --- " * 6 + "|",
    ]
    mine: dict[str, dict[str, dict]] = {}
    for row in rows:
        if "why" in row:
            mine.setdefault(row["why"], {})[row["model"]] = row
    base = mine.get("why-sc", {})
    for name, cells in mine.items():
        shared = [model for model in cells if model in base]
        parts = []
        for reading in READINGS:
            parts.append(f"{np.mean([cells[model][f'{reading}_e_aurc'] for model in cells]):.3f}")
        for reading in READINGS:
            apart = [cells[model][f"{reading}_e_aurc"] - base[model][f"{reading}_e_aurc"] for model in shared]
            parts.append(t_interval(np.array(apart)))
        lines.append(f"| {name.removeprefix('why-')} | {' | '.join(parts)} | {len(cells)} |")
    return "\n".join(lines)


def scale_table(rows: list[dict]) -> str:
    """Validation E-AURC by K and by the questions there are: stated; mean, averaged over cells."""
    names = ["sft", "sft_all", "sc", "nrd", "sayself"]
    lines = [
        "| K, questions of SFT and RL | "
        + " | ".join(LABELS[name] for name in names)
        + " | SC - SFT-all, stated | cells |"
    ]
    lines.append("| --- " * (3 + len(names)) + "|")
    for scale, (samples, sft, rl) in arms.SCALES.items():
        found = {
            name: {row["model"]: row for row in rows if row.get("scale") == scale and row["arm"] == name}
            for name in names
        }
        models = set.intersection(*(set(one) for one in found.values()))
        if not models:
            continue
        cells = [
            "; ".join(
                f"{np.mean([found[name][model][f'{reading}_e_aurc'] for model in models]):.3f}" for reading in READINGS
            )
            for name in names
        ]
        apart = [
            found["sc"][model]["stated_e_aurc"] - found["sft_all"][model]["stated_e_aurc"] for model in sorted(models)
        ]
        lines.append(
            f"| {samples}, {sft} and {rl:,} | {' | '.join(cells)} | {t_interval(np.array(apart))} | {len(models)} |"
        )
    return "\n".join(lines)


def choice_table(lab: Path) -> str:
    """What SC chooses among real candidates, by the warm start's r; intervals over prompts."""
    head = ["candidates of", "r", "prompts", "the candidate nearest to z_kappa / r"]
    head += [f"{LABELS[name]}'s choice" for name in choices.RIVALS]
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    for path in sorted(lab.glob("*/*/results/*/*/candidates.jsonl")):
        found = choices.of_candidates(path)
        shares = [found.formula, *found.rivals.values()]
        shown_shares = [f"{one:.2f} ± {1.96 * np.sqrt(one * (1 - one) / found.n):.2f}" for one in shares]
        cell = path.relative_to(lab).parts[:2]
        lines.append(f"| {', '.join(cell)} | {found.r:.2f} | {found.n:,} | {' | '.join(shown_shares)} |")
    return "\n".join(lines)


def t_interval(values: np.ndarray) -> str:
    """The mean with its 95 % t-interval over cells."""
    from scipy import stats

    if len(values) < 2:
        return f"{values.mean():+.3f}" if len(values) else "--"
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return shown(values.mean(), values.mean() - half, values.mean() + half)


def write(lab: Path, chosen: dict[str, dict], explored, cells, docs: Path) -> Iterator[Path]:
    """Write docs/evidence/laboratory.md, laboratory.csv and the pictures; yields each file."""
    from matplotlib import style

    from orce.reports import figures

    rows = arms.collected(lab / "explore")
    found = held_out(lab / "confirm", cells, chosen)
    if not found:
        raise BadInput(f"{lab}: no finished held-out cell; run first: python -m evidence.lab confirm")
    readings = {reading: Reading(found, reading) for reading in READINGS}
    parts = {
        "arms": main_table(found, readings),
        "contrasts": contrast_table(readings),
        "groups": group_table(found, readings),
        "beta": beta_table(rows),
        "why": why_table(rows),
        "choices": choice_table(lab),
        "scale": scale_table(arms.collected(lab / "scale")),
        "facts": facts_table(lab, explored, cells),
        "chosen": chosen_table(chosen),
    }
    table = csv_text(lab)
    page, answer = docs / "evidence" / "laboratory.md", docs / "evidence.md"
    yield _write(page, fill(page.read_text(encoding="utf-8"), parts, page))
    short = {"contrasts": contrast_table(readings), "cells": cells_line(found), "digest": digest_line(table)}
    yield _write(answer, fill(answer.read_text(encoding="utf-8"), short, answer))
    yield _write(docs / "evidence" / "laboratory.csv", table)
    with style.context(figures.STYLE):
        drawn = {"lab-contrasts": forest(found, readings), "lab-beta": betas(rows)}
        yield from [figures.save(one, docs / "images" / f"{name}.png") for name, one in drawn.items()]


def cells_line(found: Found) -> str:
    """How much the answer rests on."""
    seeds = [seed for one in found.values() for seed in one]
    questions = [len(cell["sft"]["correct"]) for one in found.values() for cell in one.values()]
    groups = {arms.group(model) for model in found}
    return (
        f"{len(found)} answer models in {len(groups)} groups, {len(seeds)} cells (answer model with seed), "
        f"{questions[0]:,} test questions in each; {sum(questions):,} judged answers for every arm."
    )


def digest_line(table: str) -> str:
    return f"SHA-256 of laboratory.csv: `{hashlib.sha256(table.encode()).hexdigest()}`"


def csv_text(lab: Path) -> str:
    """Every result of every cell, one a line; its digest says whether a rerun has the same numbers."""
    names = ["part", "model", "seed", "arm", "split", "n", "accuracy", "unread"]
    names += [
        f"{reading}_{metric}"
        for reading in READINGS
        for metric in ("e_aurc", "aurc", "auroc", "ece", "brier", "spearman")
    ]
    text = io.StringIO()
    table = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    for part in ("explore", "confirm"):
        for row in arms.collected(lab / part):
            table.writerow(
                {
                    key: f"{value:.6g}" if isinstance(value, float) else value
                    for key, value in ({"part": part} | row).items()
                }
            )
    return text.getvalue()


def chosen_table(chosen: dict[str, dict]) -> str:
    lines = ["| numbers | arm | setting |", "| --- " * 3 + "|"]
    for numbers, mine in chosen.items():
        for arm, setting in mine.items():
            said = (
                LABELS[setting] if arm == "other" else ", ".join(f"{key} {value:g}" for key, value in setting.items())
            )
            lines.append(f"| {numbers} | {LABELS[arm]} | {said} |")
    return "\n".join(lines)


def betas(rows: list[dict]):
    """E-AURC of each reward by beta on the validation questions, and that of SFT and SFT-all on the same cells."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(palette.PAGE, 2.9))
    every = figure.subplots(1, 4)
    tried = {row["model"] for row in rows if row.get("reward") == "sc" and "why" not in row}
    rows = [row for row in rows if row["model"] in tried and row["split"] == VALIDATION and "why" not in row]
    for place, axes in enumerate(every):
        numbers, reading = ("values", "digits")[place // 2], READINGS[place % 2]
        mine = [row for row in rows if arms.numbers(row["model"]) == numbers]
        for shift, reward in enumerate(arms.REWARDS):
            points = {beta: lowest(mine, reading, reward=reward, beta=beta) for beta in BETAS}
            look = palette.look("orce" if reward == "sc" else f"orce-{reward}")
            style = look.line(marker=look.marker, markersize=3.5)
            axes.plot([beta * 1.03**shift for beta in points], [*points.values()], **style, label=LABELS[reward])
        for arm, dash in (("sft", (0, (1, 1))), ("sft_all", "-")):
            level = lowest([row for row in mine if row["arm"].startswith(f"{arm}-")], reading)
            axes.axhline(level, color=palette.BLACK, linestyle=dash, linewidth=1, label=LABELS[arm])
        axes.set_xscale("log")
        axes.set_xticks(BETAS, [f"{beta:g}" for beta in BETAS])
        axes.set_xticks([], minor=True)
        axes.set_title(f"{numbers}, {reading}", fontsize=8)
        axes.set_xlabel("beta", fontsize=7)
        axes.tick_params(labelsize=6)
    for left, right in ((0, 1), (2, 3)):
        every[right].sharey(every[left])
    every[0].set_ylabel("E-AURC, validation", fontsize=7)
    figure.legend(*every[0].get_legend_handles_labels(), loc="outside lower center", ncols=7, fontsize=6)
    return figure


BETAS = sorted({beta for beta, _ in arms.GRID})


def lowest(rows: list[dict], reading: str, **keys) -> float:
    """The lowest mean over cells among the trials whose rows have these keys."""
    trials: dict[str, list[float]] = {}
    for row in rows:
        if all(row.get(key) == value for key, value in keys.items()):
            trials.setdefault(row["arm"], []).append(row[f"{reading}_e_aurc"])
    return float(min(np.mean(values) for values in trials.values()))


def _write(path: Path, text: str) -> Path:
    with files.atomic(path) as handle:
        handle.write(text)
    return path


def forest(found: Found, readings: dict[str, Reading]):
    """The five contrasts, over all and within each group of answer models, with their intervals and the margin."""
    from matplotlib.figure import Figure

    groups = [None, *sorted({arms.group(model) for model in found})]
    figure = Figure(figsize=(palette.PAGE, 3.4))
    every = figure.subplots(1, len(CONTRASTS), sharey=True)
    for axes, (name, pair) in zip(every, CONTRASTS.items(), strict=True):
        axes.axvspan(-MARGIN, MARGIN, color=palette.GREY, alpha=0.25, linewidth=0)
        axes.axvline(0, color=palette.GREY, linewidth=0.8)
        for number, (reading, color) in enumerate(zip(READINGS, (palette.BLUE, palette.VERMILLION), strict=True)):
            for place, group in enumerate(groups):
                value, drawn = readings[reading].contrast(*pair, only=group)
                y = place + (number - 0.5) * 0.3
                axes.plot(interval(drawn), [y, y], color=color, linewidth=1.2)
                marker = {"marker": "os"[number], "markersize": 5 if group is None else 3.5, "linestyle": ""}
                axes.plot(float(value), y, color=color, label=reading if place == 0 else None, **marker)
        axes.set_title(name.replace(" - ", "\n- "), fontsize=7)
        axes.tick_params(labelsize=6)
    every[0].set_yticks(range(len(groups)), ["all", *groups[1:]])
    every[0].invert_yaxis()
    figure.supxlabel("Difference of E-AURC; below zero the first is better; grey: the margin", fontsize=7)
    figure.legend(*every[0].get_legend_handles_labels(), loc="outside lower right", ncols=2, fontsize=7)
    return figure
