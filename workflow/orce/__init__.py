"""ORCE, reproduced: order-aware alignment of the confidence that a language model states."""

__version__ = "0.2.0"
