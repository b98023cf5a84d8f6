"""Render one table from the metrics of its cells."""

from orce import tasks
from orce.reports import provenance, tables
from orce.runtime.files import BadInput, digest
from orce.steps import add_settings, settings


def add_arguments(parser):
    add_settings(parser)
    parser.add_argument("--metrics", nargs="+", required=True)
    parser.add_argument("--out", required=True, help="folder of the tables")


def run(args):
    options = settings(args.settings)
    metrics = collected(args.metrics)
    tables.build_tables(specs(options), options["models"], metrics, args.out, facts(options, metrics))


def specs(options: dict) -> dict[str, dict]:
    """The tables to render, each with the last column of its dataset's task."""
    chosen = {name: options["tables"][name] for name in options["order"]}
    return {
        name: spec | {"metric": tasks.get(options["tasks"][spec["dataset"]]).METRIC} for name, spec in chosen.items()
    }


def facts(options: dict, metrics: dict[str, dict]) -> dict:
    """Provenance printed on the pages."""
    return {
        "config_digest": digest(options, [one["provenance"]["config_digest"] for one in metrics.values()]),
        "git_commit": provenance.commit(),
        "packages": provenance.versions(),
    }


def collected(paths: list[str]) -> dict[str, dict]:
    """The metrics files by path. Raises BadInput for an incomplete file."""
    found = tables.collect(paths)
    for path, metrics in found.items():
        if not {"n", "provenance"} <= metrics.keys():
            raise BadInput(f"{path}: not all of a metrics file; make it again with `snakemake -f -- {path}`")
    return found
