"""Combine the tables: one LaTeX document, PDF and page, and the comparison with the published
numbers.
"""

from typing import Annotated

from orce.config.layout import Tables
from orce.reports import tables
from orce.runtime.process import say


def run(
    settings: Tables,
    metrics: list[str],
    out: Annotated[str, "folder of the tables"],
    confidences: Annotated[list[str], tables.CONFIDENCES] = [],  # noqa: B006
):
    content = tables.read_content(settings, metrics, confidences)
    document = tables.build_document(content, out)
    tables.seal_by_name(document, settings)
    for name in ("tables.pdf", "tables.html"):
        say(f"[tables] {document[name]}")
