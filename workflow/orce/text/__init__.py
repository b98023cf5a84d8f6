"""Text in and out of a model: prompts as files, templates/NAME.j2 filled in with jinja2, and readers of a
model's replies, with their tables, NAME.csv."""

import csv
import re
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, Self

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

TEMPLATES = Path(__file__).parent / "templates"


@cache
def environment(folder: Path = TEMPLATES) -> Environment:
    """The jinja2 environment for a folder of plain-text templates; nothing is escaped: questions may contain <, & and {{.

    A template of a user's own is text that fills in values: it reaches no file, no module and nothing else of Python.
    """
    options = {"undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    return ImmutableSandboxedEnvironment(loader=FileSystemLoader(folder), **options)


def render(name: str, **values) -> str:
    """Text of the prompt templates/`name`.j2. Raises jinja2.UndefinedError if a variable is missing."""
    return environment().get_template(f"{name}.j2").render(**values)


@cache
def table(name: str) -> list[dict[str, str]]:
    """The rows of the table NAME.csv beside this file, which is read once."""
    with open(Path(__file__).with_name(f"{name}.csv"), encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file)]


class Rule(NamedTuple):
    """A row of a table of reading rules. example: a text that it reads; result: what is read there, empty for nothing.

    new: of a rewriting, what takes the place of its match.
    """

    name: str
    pattern: str
    example: str
    result: str
    new: str = ""


def rules(**fragments: str) -> dict[str, list[Rule]]:
    """The rows of rules.csv by their kind, in their order. fragments: what stands for «NAME» in patterns, new and results."""

    def filled(text: str) -> str:
        return re.sub("«([^»]+)»", lambda name: fragments.get(name[1], name[0]), text)

    by_kind: dict[str, list[Rule]] = {}
    for kind, rows in groupby(table("rules"), key=itemgetter("kind")):
        by_kind[kind] = []
        for row in rows:
            parts = {
                field: row[field] if field in ("name", "example") else filled(row[field])
                for field in Rule._fields
            }
            by_kind[kind].append(Rule(**parts))
    return by_kind


def either(rows: Sequence[Rule]) -> str:
    """A pattern that matches where one of the rows does, the first that does."""
    return "|".join(f"(?:{row.pattern})" for row in rows)


@cache
def compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """A pattern, compiled as it is first used: a dry run imports the readers and reads nothing.

    It is kept, while the 512 patterns that `re` keeps make room for those of each question's options.
    """
    return re.compile(pattern, flags)


class Read(str):
    """A text that was read in another one. by: the names of the rules that read it, the mark first (orce.text.marks)."""

    by: str

    @classmethod
    def of(cls, text: str, *by: str) -> Self:
        made = cls(text)
        made.by = ": ".join(by)
        return made


BY_TASK = "task"  # in place of a rule's name, where a task read the answer by itself


def read_by(answer: str | None) -> str | None:
    """The names of the rules that read an answer, or BY_TASK; None for an unread answer."""
    return None if answer is None else getattr(answer, "by", BY_TASK)
