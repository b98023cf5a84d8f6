"""What eliciting needs of the module of a prompted or an asked method. Defined here because orce.methods imports this package."""

from typing import Any, Protocol

from orce.records import Example
from orce.tasks import Task


class Prompted(Protocol):
    """A prompted method: how it asks for answer and confidence, and how it reads the reply.

    settings: the method's settings from the config, over the defaults of its SETTINGS.
    """

    def prompt(self, example: Example, task: Task, settings: dict[str, Any]) -> list[dict]:
        """The conversation, as chat messages."""
        ...

    def read(
        self, text: str, example: Example, task: Task, settings: dict[str, Any]
    ) -> tuple[str | None, float | None]:
        """(answer, confidence in [0, 1]) of a reply; None for what cannot be read."""
        ...


class Asked(Protocol):
    """An asked method: how it asks the answer LLM for its confidence in its own greedy answer, and reads the reply."""

    def ask(self, example: Example, answer: str | None, task: Task, settings: dict[str, Any]) -> list[dict]:
        """The conversation, as chat messages."""
        ...

    def read(self, text: str, settings: dict[str, Any]) -> float | None:
        """The confidence in [0, 1] of a reply; None for what cannot be read."""
        ...
