"""Risk-coverage curves of all methods of a cell in one pair of axes, with a random and a perfect order."""

from collections import Counter

import numpy as np

from orce import metrics
from orce.reports.figures import palette, panels
from orce.reports.figures.data import Stated
from orce.stage_settings import Pictured

LABEL = 30  # characters of a label for which two columns are wide enough
OTHER = "\u2020"  # marks a method that judges other answers: its curve may lie below the grey perfect order


def draw(cell: Pictured, stated: list[Stated]):
    """Error rate among the most confident items; AURC, the area below, is in the legend."""
    from matplotlib.figure import Figure

    there = [one for one in stated if len(one.correct)]
    absent = [one.label for one in stated if not len(one.correct)]
    figure = Figure(figsize=(palette.COLUMN, palette.COLUMN))
    axes = figure.subplots()
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="Coverage", ylabel="Risk (error rate)", title=cell.label)
    if there:
        _baselines(axes, there)
    shared = judged(there).answers if there else ()
    for number, one in enumerate(there):
        _curve(axes, one, number, OTHER if one.answers != shared else "")
        if one.answers != shared:
            axes.plot(*oracle_curve(one), color=palette.look(one.method).color, linewidth=0.5, zorder=1.5)
    if absent:
        axes.plot([], [], " ", label=f"missing: {', '.join(absent)}")
    if not there:
        panels.say(axes, "no confidences")
    others = any(one.answers != shared for one in there)
    title = f"AURC ({OTHER} other answers; thin line: their perfect order)" if others else "AURC"
    columns = 2 if max(map(len, axes.get_legend_handles_labels()[1]), default=0) <= LABEL else 1
    figure.set_size_inches(palette.COLUMN, 2.75 + 0.23 / columns * (len(there) + len(absent)))
    figure.legend(loc="outside lower center", ncols=columns, columnspacing=1.0, title=title, title_fontsize=7)
    return figure


def curve(one: Stated):
    """Coverage [n] and expected risk [n]; their mean is the AURC of the tables."""
    return metrics.risk_coverage_curve(one.confidence, one.correct)


def random_curve(one: Stated):
    """The expectation over all orders: every item tied."""
    return metrics.risk_coverage_curve(np.zeros(len(one.correct)), one.correct)


def oracle_curve(one: Stated):
    """The best order there is: every right answer before every wrong one."""
    return metrics.risk_coverage_curve(one.correct, one.correct)


def judged(stated: list[Stated]) -> Stated:
    """A method with the answers that most methods share: the random and the perfect order are drawn for it."""
    most, _ = Counter(one.answers for one in stated).most_common(1)[0]
    return next(one for one in stated if one.answers == most)


def _baselines(axes, stated: list[Stated]) -> None:
    one = judged(stated)
    grey = {"color": palette.GREY, "linewidth": 0.8, "zorder": 1.5}
    for name, (coverage, risk), dash in (
        ("Random order", random_curve(one), (0, (1, 1))),
        ("Perfect order", oracle_curve(one), "-"),
    ):
        axes.plot(coverage, risk, linestyle=dash, label=f"{name} {risk.mean():.3f}", **grey)
    axes.fill_between(coverage, risk, color=palette.GREY, alpha=0.12, linewidth=0)


def _curve(axes, one: Stated, number: int, mark: str) -> None:
    coverage, risk = curve(one)
    look = palette.look(one.method)
    # Marks of different methods are at different coverages, so that one curve does not hide another's.
    at = np.unique((len(coverage) * (np.arange(4) + 0.35 + 0.08 * number) / 4).astype(int).clip(0, len(coverage) - 1))
    area = metrics.aurc(one.confidence, one.correct)
    unread = f" ({one.unread} unread)" if one.unread else ""
    axes.plot(
        coverage,
        risk,
        **look.line(marker=look.marker, markevery=at.tolist(), markersize=3.8, markeredgewidth=0),
        label=f"{one.label}{mark} {area:.3f}{unread}",
        zorder=3 if one.method.startswith("orce") else 2,
    )
