"""Combine the tables: one LaTeX document, PDF and page, and the comparison with the published numbers."""

from orce.reports import tables
from orce.runtime.progress import say
from orce.stage_settings import Tables

Settings = Tables
add_arguments = tables.add_arguments


def run(settings: Tables, args):
    document = tables.build_document(tables.Content.of(settings, args.metrics, args.confidences), args.out)
    for name in ("tables.pdf", "tables.html"):
        say(f"[tables] {document[name]}")
