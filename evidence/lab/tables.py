"""The tables of the laboratory's pages, as Markdown."""

import itertools
from pathlib import Path

import numpy as np

from evidence.guarantee import DELTAS, RISKS, Kept, on_halves
from evidence.lab import arms, choices
from evidence.lab.experiments import Experiment
from evidence.lab.intervals import holm, interval, p_value, verdict
from evidence.lab.readings import LABELS, READINGS, Found, Reading
from orce.evaluation import metrics

MARGIN = 0.01
CONTRASTS = {  # the plan's five, in this order
    "SC - best other reward": ("sc", "other"),
    "SC - SFT-all": ("sc", "sft_all"),
    "SC - SFT": ("sc", "sft"),
    "SC - SFT-long": ("sc", "sft_long"),
    "Soft labels + order - SFT-all": ("ordered", "sft_all"),
}


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
        auroc = np.mean(np.array([metrics.METRICS["auroc"](one["stated"], one["correct"]) for one in cells], float))
        ece = np.mean(np.array([metrics.METRICS["ece"](one["stated"], one["correct"]) for one in cells], float))
        distinct = np.mean([len(np.unique(one["stated"])) for one in cells])
        lines.append(f"| {label} | {columns[0]} | {columns[1]} | {auroc:.3f} | {ece:.3f} | {distinct:.0f} |")
    return "\n".join(lines)


def contrasts(readings: dict[str, Reading]) -> dict[str, tuple[str, str]]:
    """Those of CONTRASTS whose arms were tested."""
    tested = set(readings["stated"].arms)
    return {name: pair for name, pair in CONTRASTS.items() if tested.issuperset(pair)}


def by_group(readings: dict[str, Reading]) -> dict[str, tuple[str, str]]:
    """The contrasts that are looked at within each group of answer models."""
    return {name: pair for name, pair in contrasts(readings).items() if name != "SC - SFT-long"}


def contrast_table(readings: dict[str, Reading]) -> str:
    lines = ["| reading | contrast | difference of E-AURC | Holm's p | verdict |", "| --- " * 5 + "|"]
    for reading in READINGS:
        resampled = {name: readings[reading].contrast(*pair) for name, pair in contrasts(readings).items()}
        adjusted = holm({name: p_value(drawn) for name, (_, drawn) in resampled.items()})
        for name, (value, drawn) in resampled.items():
            low, high = interval(drawn)
            said = verdict(low, high, adjusted[name], MARGIN)
            lines.append(f"| {reading} | {name} | {shown(float(value), low, high)} | {adjusted[name]:.3f} | {said} |")
    return "\n".join(lines)


def group_table(found: Found, readings: dict[str, Reading]) -> str:
    """The contrasts within each group of answer models."""
    names = list(by_group(readings))
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
    explored = [row for row in explored if "why" not in row]
    tried = {row["model"] for row in explored if row.get("reward") == "sc"}
    for numbers in dict.fromkeys(arms.numbers(model) for model in sorted(tried, reverse=True)):
        mine = [row for row in explored if arms.numbers(row["model"]) == numbers and row["model"] in tried]
        tested = sorted({row["beta"] for row in mine if "beta" in row})
        lines += ["", f"{numbers}, of {', '.join(sorted(tried & {row['model'] for row in mine}))}:", ""]
        lines += [
            "| arm | " + " | ".join(f"beta {beta:g}" for beta in tested) + " |",
            "| --- " * (1 + len(tested)) + "|",
        ]
        for reward in dict.fromkeys(row["reward"] for row in mine if "reward" in row):
            cells = [
                "; ".join(f"{lowest(mine, reading, reward=reward, beta=beta):.3f}" for reading in READINGS)
                for beta in tested
            ]
            lines.append(f"| {LABELS[reward]} | {' | '.join(cells)} |")
        trained = {row.get("method") for row in mine}
        for arm in ("sft", *(method for method in arms.TRAINED if method in trained)):
            own = [row for row in mine if row["arm"].startswith(f"{arm}-") and "rank_weight" not in row]
            cell = "; ".join(f"{lowest(own, reading):.3f}" for reading in READINGS)
            lines.append(f"| {LABELS[arm]} | {cell} |{' |' * (len(tested) - 1)}")
    return "\n".join(lines).strip()


def lowest(rows: list[dict], reading: str, **keys) -> float:
    """The lowest mean over cells among the trials whose rows have these keys."""
    trials: dict[str, list[float]] = {}
    for row in rows:
        if all(row.get(key) == value for key, value in keys.items()):
            trials.setdefault(row["arm"], []).append(row[f"{reading}_e_aurc"])
    return float(min(np.mean(values) for values in trials.values()))


def bound_table(found: Found) -> str:
    """The bound on the error rate of kept answers, on random halves of the test questions, each cell by itself."""
    lines = ["| task | arm | reading | promised with | " + " | ".join(f"at most {risk:g}" for risk in RISKS) + " |"]
    lines.append("| --- " * (4 + len(RISKS)) + "|")
    for model, seeds in found.items():
        for arm, reading in itertools.product(("sft", "sft_all", "sc", "ordered"), READINGS):
            cells = [one[arm] for one in seeds.values()]
            questions = np.arange(len(cells[0]["correct"]))
            for delta in DELTAS:
                shown_cells = [
                    kept([on_halves(one[reading], one["correct"], questions, risk, delta) for one in cells])
                    for risk in RISKS
                ]
                lines.append(f"| {model} | {LABELS[arm]} | {reading} | {1 - delta:g} | {' | '.join(shown_cells)} |")
    return "\n".join(lines)


def kept(found: list[Kept]) -> str:
    """'98 % (coverage 0.31)': of the halves, over all seeds, and the mean share of answers kept."""
    return f"{np.mean([one.under for one in found]):.0f} % (coverage {np.mean([one.coverage for one in found]):.2f})"


def facts_table(of: Experiment) -> str:
    lines = [
        "| answer model | cells | kappas strictly inside | mean kappa | accuracy of the majority |",
        "| --- " * 5 + "|",
    ]
    grouped: dict[str, list[dict]] = {}
    for part, cells in (("explore", of.explored), ("confirm", of.held_out)):
        for model, seed in cells:
            for row in arms.rows_of(of.folder / part / f"{model}-{seed}" / "results.jsonl"):
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
    names = arms.SCALED
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


def chosen_table(of: Experiment) -> str:
    """The settings of the arms that the experiment has."""
    shown = {"sft", *of.grid.rewards, *of.grid.trained, *of.tested}
    lines = ["| numbers | arm | setting |", "| --- " * 3 + "|"]
    for numbers, mine in of.settings().items():
        for arm, setting in mine.items():
            if arm not in shown:
                continue
            said = (
                LABELS[setting]
                if isinstance(setting, str)
                else ", ".join(f"{key} {value:g}" for key, value in setting.items())
            )
            lines.append(f"| {numbers} | {LABELS[arm]} | {said} |")
    return "\n".join(lines)


def shown(value: float, low: float, high: float, sign: str = "+") -> str:
    return f"{value:{sign}.3f} [{low:{sign}.3f}, {high:{sign}.3f}]"


def t_interval(values: np.ndarray) -> str:
    """The mean with its 95 % t-interval over cells."""
    from scipy import stats

    if len(values) < 2:
        return f"{values.mean():+.3f}" if len(values) else "--"
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return shown(values.mean(), values.mean() - half, values.mean() + half)
