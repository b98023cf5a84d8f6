"""Combine the tables: one LaTeX document, PDF and page, and the comparison with the published numbers."""

from orce.reports import tables
from orce.reports.tables import specs
from orce.runtime.progress import say
from orce.stage_settings import Tables

Settings = Tables
add_arguments = specs.add_arguments


def run(settings: Tables, args):
    document = tables.build_document(specs.content(settings, args), args.out)
    for name in ("tables.pdf", "tables.html"):
        say(f"[tables] {document[name]}")
