"""Combine the tables: one LaTeX document, PDF and page, and the comparison with the published numbers."""

from pathlib import Path

from orce.reports import tables
from orce.reports.tables import specs
from orce.runtime.progress import say
from orce.stage_settings import Tables

Settings = Tables


def add_arguments(parser):
    specs.add_arguments(parser)


def run(settings: Tables, args):
    metrics = specs.collected(args.metrics)
    chosen, facts = specs.specs(settings, args.confidences), specs.facts(settings, metrics)
    document = tables.build_document(chosen, settings.models, metrics, args.out, facts)
    for name in ("tables.pdf", "tables.html"):
        say(f"[tables] {Path(document[name])}")
