"""Text in and out of a model: prompts as files, templates/NAME.j2 filled in with jinja2, and readers of a model's replies."""

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

TEMPLATES = Path(__file__).parent / "templates"


@cache
def environment(folder: Path = TEMPLATES) -> Environment:
    """The jinja2 environment for a folder of plain-text templates; nothing is escaped: questions may contain <, & and {{."""
    return Environment(loader=FileSystemLoader(folder), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def render(name: str, **values) -> str:
    """Text of the prompt templates/`name`.j2. Raises jinja2.UndefinedError if a variable is missing."""
    return environment().get_template(f"{name}.j2").render(**values)
