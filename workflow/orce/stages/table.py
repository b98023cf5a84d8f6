"""Render one table from the metrics of its cells."""

from orce.reports import tables
from orce.reports.tables import specs
from orce.stage_settings import Tables

Settings = Tables
add_arguments = specs.add_arguments


def run(settings: Tables, args):
    tables.build_tables(specs.content(settings, args), args.out)
