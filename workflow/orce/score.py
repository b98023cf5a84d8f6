"""Public name of orce.confidence.judge: confidence for anyone's (question, answer) pairs."""

from orce.confidence.judge import Judge, load

__all__ = ["Judge", "load"]
