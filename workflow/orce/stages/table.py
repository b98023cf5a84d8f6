"""Render one table from the metrics of its cells."""

from typing import Annotated

from orce.config.layout import Tables
from orce.reports import tables


def run(
    settings: Tables,
    metrics: list[str],
    out: Annotated[str, "folder of the tables"],
    confidences: Annotated[list[str], tables.CONFIDENCES] = [],  # noqa: B006
):
    content = tables.read_content(settings, metrics, confidences)
    tables.seal_by_name(tables.build_tables(content, out), settings)
