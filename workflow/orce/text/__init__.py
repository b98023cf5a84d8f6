"""Text in and out of a model: prompts as files, templates/NAME.j2 filled in with jinja2, and readers of a
model's replies, with their tables, NAME.csv."""

import csv
import re
from functools import cache
from pathlib import Path

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


def table(name: str) -> list[dict[str, str]]:
    """The rows of the table NAME.csv beside this file."""
    with open(Path(__file__).with_name(f"{name}.csv"), encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file)]


@cache
def compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """A pattern, compiled as it is first used: a dry run imports the readers and reads nothing.

    It is kept, while the 512 patterns that `re` keeps make room for those of each question's options.
    """
    return re.compile(pattern, flags)
