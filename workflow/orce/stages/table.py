"""Render one table from the metrics of its cells."""

from orce.reports import tables
from orce.reports.tables import specs
from orce.stage_settings import Tables

Settings = Tables


def add_arguments(parser):
    specs.add_arguments(parser)


def run(settings: Tables, args):
    metrics = specs.collected(args.metrics)
    chosen, facts = specs.specs(settings, args.confidences), specs.facts(settings, metrics)
    tables.build_tables(chosen, settings.models, metrics, args.out, facts)
