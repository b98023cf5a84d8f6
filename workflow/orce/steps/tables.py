"""Render the tables, and the comparison with the published numbers, from the collected metrics."""

from pathlib import Path

from orce import tasks
from orce.reports import provenance, tables
from orce.runtime.files import BadInput, digest
from orce.runtime.progress import say
from orce.steps import add_settings, settings


def add_arguments(parser):
    add_settings(parser)
    parser.add_argument("--metrics", nargs="+", required=True)
    parser.add_argument("--out", required=True, help="folder of the tables")


def run(args):
    options = settings(args.settings)
    specs = {
        name: options["tables"][name]
        | {"metric": tasks.get(options["tasks"][options["tables"][name]["dataset"]]).METRIC}
        for name in options["order"]
    }
    collected = tables.collect(args.metrics)
    check(collected, options["lineage"])
    facts = {
        "config_digest": digest(options, [metrics["provenance"]["config_digest"] for metrics in collected.values()]),
        "git_commit": provenance.commit(),
        "packages": provenance.versions(),
    }
    written = tables.build(specs, options["models"], collected, args.out, facts)
    for name in ("tables.pdf", "tables.html"):
        say(f"[tables] {Path(written[name])}")


def check(collected: dict[str, dict], lineage: dict[str, str]) -> None:
    """Metrics made with other settings than the config's would make a table that no run can reproduce."""
    for path, metrics in collected.items():
        if not {"n", "provenance"} <= metrics.keys():
            raise BadInput(f"{path}: not all of a metrics file; make it again with `snakemake -f -- {path}`")
        if metrics["provenance"]["settings"].get("lineage") != lineage.get(path):
            raise BadInput(
                f"{path}: made with other settings than the configuration has now; run the same command again"
            )
