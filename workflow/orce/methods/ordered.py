"""Soft labels with order: `soft` with its order-aware loss on the means of a batch's distributions. Not the paper's."""

from orce.methods import soft
from orce.methods.soft import train

LABEL, KIND = "Soft labels + order", "stated"
TRAINED_ON = soft.TRAINED_ON
SETTINGS = soft.SETTINGS | {"rank_weight": soft.SETTINGS["rank_weight"] | {"default": 1.0}}
__all__ = ["train"]
