"""The method at a glance (the paper's Figure 1), in boxes and arrows."""

from dataclasses import dataclass
from itertools import chain, pairwise

from orce.reports.figures import palette

WIDTH, HEIGHT = palette.PAGE, 2.4  # inches, which are also the units of the drawing
BOX_WIDTH, GAP = 1.16, 0.245
TOP, BOTTOM = 1.8, 0.62  # centres of the two rows
DATA, ANSWER, CONFIDENCE, SCORE = "#ffffff", "#dcebf5", "#fbe3d3", "#ededed"


@dataclass(frozen=True)
class Box:
    column: int
    row: float
    title: str
    text: str
    fill: str
    height: float = 0.66

    @property
    def left(self) -> float:
        return 0.06 + self.column * (BOX_WIDTH + GAP)

    @property
    def right(self) -> float:
        return self.left + BOX_WIDTH

    @property
    def middle(self) -> float:
        return self.left + BOX_WIDTH / 2

    @property
    def top(self) -> float:
        return self.row + self.height / 2

    @property
    def bottom(self) -> float:
        return self.row - self.height / 2


QUESTION = Box(0, TOP, "Question $x$", "and its reference\nanswer $y^{*}$", DATA)
ANSWERS = Box(1, TOP, "Answer LLM", "never trained here,\nsampled $K$ times", ANSWER)
SAMPLES = Box(2, TOP, "$K$ answers", "✓  ✗  ✓  ✓\nright or wrong", DATA)
KAPPA = Box(3, TOP, r"Surrogate $\kappa_s(x)$", "share of correct\nanswers: 3/4", SCORE)
STATED = Box(4, TOP, "“Confidence: 73”", "stated for the\ngreedy answer", DATA)
PAIR = Box(0, BOTTOM, "Pair $(x, y)$", "$y$ correct if $\\kappa_s\\geq 1/2$,\nelse incorrect", DATA)
SFT = Box(1, BOTTOM, "Confidence LLM", "warm start: SFT on $\\kappa_s$", CONFIDENCE)
CANDIDATES = Box(2, BOTTOM, "$M$ candidates", "$c$ = 40, 75, 90, …\nfor the same pair", DATA)
REWARD = Box(3, BOTTOM, "Spearman reward", "$r_s(C\\cup c,\\,K\\cup\\kappa)$\n$-\\;r_s(C,\\,K)$", SCORE)
DPO = Box(4, BOTTOM, "Confidence LLM", "aligned: DPO on highest\nover lowest reward", CONFIDENCE)
BOXES = ((QUESTION, ANSWERS, SAMPLES, KAPPA, STATED), (PAIR, SFT, CANDIDATES, REWARD, DPO))


def draw():
    """Boxes in two rows: answers above, confidence below."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, HEIGHT))
    figure.set_layout_engine("none")  # the drawing sets its own positions
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(0, HEIGHT))
    axes.axis("off")
    axes.text(0.06, HEIGHT - 0.13, "Stage 1: answer", fontsize=8, fontweight="bold", va="center")
    axes.text(0.06, 0.1, "Stage 2: confidence", fontsize=8, fontweight="bold", va="center")
    for box in chain(*BOXES):
        _box(axes, box)
    _arrows(axes)
    return figure


def _box(axes, box: Box) -> None:
    from matplotlib.patches import FancyBboxPatch

    axes.add_patch(
        FancyBboxPatch(
            (box.left, box.bottom), BOX_WIDTH, box.height,
            boxstyle="round,pad=0,rounding_size=0.06", facecolor=box.fill, edgecolor=palette.BLACK, linewidth=0.7,
        )
    )  # fmt: skip
    axes.text(box.middle, box.top - 0.14, box.title, ha="center", va="center", fontsize=8, fontweight="bold")
    axes.text(box.middle, box.row - 0.1, box.text, ha="center", va="center", fontsize=7, linespacing=1.25)


def _arrows(axes) -> None:
    for box, following in chain(pairwise(BOXES[0][:-1]), pairwise(BOXES[1])):
        _arrow(axes, [(box.right, box.row), (following.left, following.row)])
    # Two levels between the rows, so that the two paths to the left do not cross.
    upper, lower = BOTTOM + 0.67, BOTTOM + 0.5
    _arrow(axes, _elbow(SAMPLES.middle, SAMPLES.bottom, upper, PAIR.middle, PAIR.top))
    _arrow(axes, _elbow(KAPPA.middle - 0.2, KAPPA.bottom, lower, SFT.middle, SFT.top))
    _arrow(axes, [(KAPPA.middle + 0.2, KAPPA.bottom), (KAPPA.middle + 0.2, REWARD.top)])
    _arrow(axes, [(DPO.middle, DPO.top), (DPO.middle, STATED.bottom)])
    axes.text(PAIR.middle + 0.06, upper + 0.07, "one of them", fontsize=7, va="center")
    axes.text(DPO.middle + 0.06, (lower + upper) / 2, "at test time", fontsize=7, va="center")
    below = BOTTOM - 0.48
    again = _elbow(DPO.middle, DPO.bottom, below, CANDIDATES.middle, CANDIDATES.bottom)
    _arrow(axes, again, linestyle=(0, (3, 2)))
    axes.text(REWARD.middle, below, "further rounds", fontsize=7, ha="center", va="center", backgroundcolor="white")


def _elbow(x: float, y: float, level: float, to_x: float, to_y: float) -> list[tuple[float, float]]:
    return [(x, y), (x, level), (to_x, level), (to_x, to_y)]


def _arrow(axes, points: list[tuple[float, float]], linestyle: str | tuple = "-") -> None:
    line, (start, end) = points[:-1], points[-2:]
    style = {"color": palette.BLACK, "linewidth": 0.9}
    axes.plot(*zip(*line, strict=True), linestyle=linestyle, solid_joinstyle="round", **style)
    axes.annotate(
        "", end, start, arrowprops={"arrowstyle": "-|>", "mutation_scale": 7, "shrinkA": 0, "shrinkB": 0,
                                    "linestyle": linestyle, **style},
    )  # fmt: skip
