"""Prompts as files: templates/NAME.j2, filled in with jinja2."""

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

TEMPLATES = Path(__file__).parent / "templates"


@cache
def environment(folder: Path = TEMPLATES) -> Environment:
    """Templates of a folder that write plain text."""
    # Values are passed through as they are: questions hold <, & and {{ of their own.
    return Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )


def render(name: str, **values) -> str:
    """Text of the prompt templates/`name`.j2. A variable that the template needs and does not get is an error."""
    return environment().get_template(f"{name}.j2").render(**values)
