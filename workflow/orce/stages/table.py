"""Render one table from the metrics of its cells."""

from orce.reports import tables
from orce.stage_settings import Tables

Settings = Tables
add_arguments = tables.add_arguments


def run(settings: Tables, args):
    tables.build_tables(tables.Content.of(settings, args.metrics, args.confidences), args.out)
