"""tables.pdf, set by typst, whose wheel brings the compiler and its fonts. Equal input, equal bytes."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from orce.reports import fonts
from orce.reports.tables.comparison import Published
from orce.reports.tables.render import Facts, Table
from orce.stage_settings import Row

DOCUMENT = Path(__file__).with_name("templates") / "tables.typ"
LETTERS = "New Computer Modern"  # in the wheel; characters that it lacks come from orce.reports.fonts


def tables_pdf(tables: Sequence[Table], compared: list[Published], facts: Facts, summary: str) -> bytes:
    """The tables and the comparison (comparison.in_tables) as one PDF."""
    import typst

    data = {
        "fonts": [LETTERS, *fonts.families()],
        "facts": facts.named(),
        "summary": summary,
        "tables": [asdict(table) for table in tables],
        "compared": [asdict(table) for table in compared],
    }
    inputs = {"data": json.dumps(_printable(data))}
    return typst.compile(DOCUMENT, format="pdf", font_paths=[Path(fonts.folder())], sys_inputs=inputs)


def _printable(value):
    """The same with an en dash for --, and with code points for characters that no font here has."""
    if isinstance(value, str):
        return fonts.drawable(value).replace("--", "–")
    if isinstance(value, Row):
        value = value._asdict()
    if isinstance(value, dict):
        return {key: _printable(part) for key, part in value.items()}
    return [_printable(part) for part in value] if isinstance(value, list | tuple) else value
