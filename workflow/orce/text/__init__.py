"""Text in and out of a model: prompts as files, templates/NAME.j2 filled in with jinja2, and readers of a
model's replies, with their tables, NAME.csv."""

import csv
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, Self

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

TEMPLATES = Path(__file__).parent / "templates"


@cache
def environment(folder: Path = TEMPLATES) -> Environment:
    """The jinja2 environment of a folder of plain-text templates. Nothing is escaped: questions may contain <, & and {{.

    It is sandboxed, because a template may be a user's: it fills in values, and reaches no file, module or other part of Python.
    """
    options = {"undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    return ImmutableSandboxedEnvironment(loader=FileSystemLoader(folder), **options)


def render(name: str, **values) -> str:
    """Text of the prompt templates/`name`.j2. Raises jinja2.UndefinedError if a variable is missing."""
    return environment().get_template(f"{name}.j2").render(**values)


@cache
def table(name: str) -> list[dict[str, str]]:
    """The rows of the table NAME.csv beside this file."""
    with open(Path(__file__).with_name(f"{name}.csv"), encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file)]


class Rule(NamedTuple):
    """A row of a table of reading rules. example: a text that the rule reads; result: what it reads there, empty for nothing.

    new: what a rewriting rule puts in place of its match.
    """

    name: str
    pattern: str
    example: str
    result: str
    new: str = ""


def rules(**fragments: str) -> dict[str, list[Rule]]:
    """The rows of rules.csv by their kind, in the file's order. fragments: {NAME: what stands for «NAME» in the rows}; a name
    that is not among them stays."""

    def fill(cell: str) -> str:
        return re.sub("«([^»]+)»", lambda name: fragments.get(name[1], name[0]), cell)

    by_kind: dict[str, list[Rule]] = {}
    for row in table("rules"):
        rule = Rule(**{field: fill(row[field]) for field in Rule._fields})
        by_kind.setdefault(row["kind"], []).append(rule)
    return by_kind


def either(rows: Sequence[Rule]) -> str:
    """The patterns of some rows as alternatives; the first row that matches counts."""
    return "|".join(f"(?:{row.pattern})" for row in rows)


@cache
def compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """A pattern, compiled on first use, since a dry run imports the readers and reads nothing.

    The cache is our own: `re` keeps 512 patterns, and those of each question's options would push these out.
    """
    return re.compile(pattern, flags)


class Read(str):
    """A text that was read in a longer one. by: the names of the rules that read it, the mark's first (orce.text.marks)."""

    by: str

    @classmethod
    def of(cls, text: str, *by: str) -> Self:
        read = cls(text)
        read.by = ": ".join(by)
        return read


BY_TASK = "task"  # stands for the rule's name where a user's task read the answer itself


def read_by(answer: str | None) -> str | None:
    """The names of the rules that read an answer, or BY_TASK; None for an answer that could not be read."""
    return None if answer is None else getattr(answer, "by", BY_TASK)
