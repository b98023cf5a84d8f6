"""The pictures of a run, as PDF and PNG: one module per picture; the plan lists them.

Every picture module has draw(...) -> matplotlib Figure. A missing or undefined result is named in the picture
and does not stop the others. Importing the package is cheap, as the Snakefile imports `orce.config.pictures`.
"""

import io
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import structs

from orce.artefacts.files import atomic
from orce.reports import fonts
from orce.stage_settings import Pictured, Pictures

STYLE = Path(__file__).with_name("paper.mplstyle")
# Without dates and versions, equal inputs give equal bytes.
METADATA = {"pdf": {"CreationDate": None}, "png": {"Software": None}}


def build(plan: Pictures, results: str | Path, out: str | Path) -> Iterator[Path]:
    """Draw every picture of a plan (`plan.settings`) from a results folder; yields each file written under `out`."""
    from matplotlib import style

    for name, draw in pictures(_literal(plan), Path(results)).items():
        with style.context([STYLE, {"font.family": fonts.families()}]):
            figure = draw()
            written = [save(figure, Path(out) / f"{name}.{kind}") for kind in METADATA]
        yield from written


def _literal(plan: Pictures) -> Pictures:
    """The plan with labels that matplotlib draws as they are."""
    return structs.replace(
        plan,
        cells=[_labelled(cell) for cell in plan.cells],
        reward=plan.reward and _labelled(plan.reward),
    )


def _labelled(cell: Pictured) -> Pictured:
    methods = [(name, fonts.unmarked(text)) for name, text in cell.methods]
    return structs.replace(cell, label=fonts.unmarked(cell.label), methods=methods)


def pictures(plan: Pictures, results: Path) -> dict[str, Callable]:
    """{name: function without arguments that draws it}, in the order of `plan.names`."""
    from orce.config.pictures import cell_name
    from orce.reports.figures import data, reliability, reward, risk_coverage

    found: dict[str, Callable] = {"reward": lambda: reward.draw(plan.reward, results)}
    for cell in plan.cells:
        stated = data.read_cell(cell, results, plan.unparsed_confidence)
        for kind, module in (("reliability", reliability), ("risk-coverage", risk_coverage)):
            found[cell_name(kind, cell)] = lambda module=module, cell=cell, stated=stated: module.draw(cell, stated)
    return found


def save(figure, path: Path) -> Path:
    """Write a figure in the format of the path's suffix, whole or not at all."""
    kind = path.suffix[1:]
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, metadata=METADATA[kind])
    with atomic(path, "wb") as handle:
        handle.write(buffer.getvalue())
    return path
