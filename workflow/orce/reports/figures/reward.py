"""What the rewards prefer (the paper's Figure 2): the Spearman reward and the numeric ranking difference (NRD).

Two candidates may be equally far from their rank, so that NRD cannot tell them apart, and yet only one of them improve
the order of the whole set. (a), (b): a small reference set made for the purpose, below; (c): the reference set and
the candidates of a run, if there is one.
"""

from pathlib import Path

import numpy as np

from orce.alignment import preferences, rewards
from orce.artefacts import store
from orce.records import Candidate
from orce.reports.figures import palette, panels
from orce.stage_settings import Pictured

# Synthetic: ten steps of kappa, confidences that follow it roughly. A new pair has kappa 0.45.
KAPPA = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
CONFIDENCE = np.array([0.15, 0.05, 0.2, 0.5, 0.7, 0.45, 0.6, 0.85, 0.8])
NEW_KAPPA = 0.45
CANDIDATES = {"a": 0.25, "b": 0.55}
LOOKS = {"a": (palette.VERMILLION, "o"), "b": (palette.BLUE, "s")}
PERCENTS = np.arange(101) / 100
KAPPA_LOOKS = ((palette.ORANGE, ":", "v"), (palette.GREEN, "--", "D"), (palette.PURPLE, "-", "^"))


def draw(cell: Pictured | None, results: Path):
    """cell: {dataset, model, label} whose candidates.jsonl gives panel (c); None leaves it out."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(palette.PAGE, 2.75))
    grid = figure.add_gridspec(2, 3)
    _reference(figure.add_subplot(grid[:, 0]))
    _curves_of_example([figure.add_subplot(grid[row, 1]) for row in range(2)])
    _curves_of_run([figure.add_subplot(grid[row, 2]) for row in range(2)], cell, results)
    figure.align_labels()
    return figure


def both(reference_confidence, reference_kappa, confidence, kappa):
    """SC and NRD rewards of candidates, each in the shape of `confidence`."""
    return (
        rewards.spearman_marginal(reference_confidence, reference_kappa, confidence, kappa),
        rewards.numeric_ranking_difference(reference_confidence, reference_kappa, confidence, kappa),
    )


def _reference(axes) -> None:
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel=r"Surrogate $\kappa$", ylabel="Stated confidence $c$")
    axes.set_title("(a) Two candidates for one answer")
    axes.scatter(KAPPA, CONFIDENCE, s=16, color=palette.GREY, label="reference set $(C, K)$")
    axes.axvline(NEW_KAPPA, color=palette.BLACK, linewidth=0.6, linestyle=(0, (1, 1)))
    sc, nrd = both(CONFIDENCE, KAPPA, np.array([*CANDIDATES.values()]), NEW_KAPPA)
    for (name, value), one_sc, one_nrd in zip(CANDIDATES.items(), sc, nrd, strict=True):
        color, marker = LOOKS[name]
        label = f"$c^{{({name})}}={value}$: NRD {_signed(one_nrd, 0)}, SC {_signed(one_sc, 4)}"
        axes.scatter([NEW_KAPPA], [value], s=34, color=color, marker=marker, zorder=3, label=label)
    axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.24), handletextpad=0.3, borderaxespad=0)


def _signed(value: float, decimals: int) -> str:
    return f"{value:+.{decimals}f}".replace("-", "−")


def _curves_of_example(axes) -> None:
    sc, nrd = both(CONFIDENCE, KAPPA, PERCENTS, NEW_KAPPA)
    axes[0].set_title(rf"(b) Every candidate at $\kappa={NEW_KAPPA}$")
    for one, values in zip(axes, (1000 * sc, nrd), strict=True):
        one.plot(PERCENTS, values, color=palette.BLACK, drawstyle="steps-mid", linewidth=1)
        for name, value in CANDIDATES.items():
            color, marker = LOOKS[name]
            one.plot(value, values[round(100 * value)], marker=marker, color=color, markersize=5)
    _finish(axes)


def _curves_of_run(axes, cell: Pictured | None, results: Path) -> None:
    path = Path(results) / cell.dataset / cell.model / "candidates.jsonl" if cell else None
    axes[0].set_title(f"(c) {cell.label}" if cell else "(c) Candidates of a run")
    if path is None or not path.exists():
        for one in axes:
            panels.say(one, "no candidates" if path is None else f"no {path.name}")
        return _finish(axes)
    records = store.records(path, Candidate)
    stated, kappa = preferences.reference_set(records, "stated")
    for value, (color, dash, marker) in zip(_low_middle_high(kappa), KAPPA_LOOKS, strict=False):
        drawn = np.unique(next(record.confidences for record in records if record.kappa == value))
        curves, points = both(stated, kappa, PERCENTS, value), both(stated, kappa, drawn, value)
        for one, curve, at, scale in zip(axes, curves, points, (1000, 1), strict=True):
            one.plot(PERCENTS, scale * curve, color=color, linestyle=dash, linewidth=1, drawstyle="steps-mid")
            one.plot(
                drawn, scale * at, color=color, marker=marker, linestyle="", markersize=3.5, clip_on=False, zorder=3
            )
            one.plot([], [], color=color, linestyle=dash, marker=marker, markersize=3.5, label=rf"$\kappa={value:g}$")
    _finish(axes)
    axes[1].legend(loc="upper center", bbox_to_anchor=(0.45, -0.52), ncols=3, columnspacing=0.8, borderaxespad=0)


def _low_middle_high(kappa: np.ndarray) -> list[float]:
    """Up to three distinct values: the lowest, one in the middle, the highest."""
    distinct = np.unique(kappa)
    return np.unique(distinct[[0, len(distinct) // 2, -1]]).tolist()


def _finish(axes) -> None:
    axes[0].set_ylabel(r"SC $\times\,10^{3}$")
    axes[1].set_ylabel("NRD")
    axes[1].set_xlabel("Candidate confidence $c$")
    axes[0].tick_params(labelbottom=False)
    axes[0].axhline(0, color=palette.GREY, linewidth=0.6)
    for one in axes:
        one.set(xlim=(-0.02, 1.02), xticks=[0, 0.25, 0.5, 0.75, 1])
        one.yaxis.get_major_locator().set_params(nbins=4)
