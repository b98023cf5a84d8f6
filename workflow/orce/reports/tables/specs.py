"""The tables of a run's settings, their differences and their provenance, from the metrics of the cells."""

from msgspec import structs

from orce import tasks
from orce.artefacts.files import digest
from orce.config.cells import Cell
from orce.errors import BadInput
from orce.metrics import paired_bootstrap, summary
from orce.reports import cell_metrics, provenance
from orce.reports.tables import Content, render
from orce.stage_settings import Resolved, Tables, plain

RESAMPLES = 2000  # of the paired differences


def add_arguments(parser) -> None:
    """The arguments of the stages table and tables."""
    parser.add_argument("--metrics", nargs="+", required=True)
    parser.add_argument(
        "--confidences", nargs="*", default=[], help="of the rows of ablations, for differences on the same items"
    )
    parser.add_argument("--out", required=True, help="folder of the tables")


def specs(settings: Tables, confidences: list[str]) -> dict[str, Resolved]:
    """The tables to render, each with the last column of its dataset's task and, for an ablation, its differences."""
    chosen = {}
    for name in settings.order:
        spec = settings.tables[name]
        notes = differences(spec, set(confidences), settings.unparsed_confidence)
        chosen[name] = structs.replace(spec, metric=tasks.get(settings.tasks[spec.dataset]).METRIC, notes=notes)
    return chosen


def differences(spec: Resolved, given: set[str], unparsed: float) -> list[str]:
    """A note for each model of an ablation: the AURC of every row less ORCE's, on the same items."""
    parts_of: dict[str, list[str]] = {}
    for row in spec.rows if spec.kind == "ablation" else []:
        cell = Cell(spec.dataset, row.model)
        path, base = cell.confidences(row.method), cell.confidences("orce")
        if path != base and given.issuperset((path, base)):
            parts_of.setdefault(row.model, []).append(f"{row.label} {difference(path, base, unparsed)}")
    return [
        f"AURC less that of ORCE on the same items, with its paired 95 % interval: {', '.join(parts)}."
        for parts in parts_of.values()
    ]


def difference(path: str, base: str, unparsed: float) -> str:
    """The difference of AURC between two methods' confidences, with its interval."""
    one, other = (summary.read_stated(name, unparsed) for name in (path, base))
    if one.ids != other.ids:
        raise BadInput(f"{path}: not the items of {base}; make both again")
    measured = paired_bootstrap("aurc", one.confidence, one.correct, other.confidence, other.correct, RESAMPLES)
    if measured["difference"] is None:
        return "undefined"
    return f"{measured['difference']:+.3f} [{measured['low']:+.3f}, {measured['high']:+.3f}]"


def content(settings: Tables, args) -> Content:
    """What the stages table and tables print. Raises BadInput for an incomplete metrics file."""
    metrics, digests = cell_metrics.collect(args.metrics), []
    for path, one in metrics.items():
        if one.provenance is None:
            raise BadInput(f"{path}: not all of a metrics file; make it again with `snakemake -f -- {path}`")
        digests.append(one.provenance.config_digest)
    facts = render.Facts(digest(plain(settings), digests), provenance.commit(), provenance.versions())
    return Content(specs(settings, args.confidences), settings.models, metrics, facts)
