"""Public name of orce.llm.engines: text generators with one interface."""

from orce.llm.engines import generate_with_greedy, get, names

__all__ = ["generate_with_greedy", "get", "names"]
