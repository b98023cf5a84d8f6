"""The registry of rewards: orce.alignment.rewards, and rewards that a config names by path.

A reward is one function of a reference set (C, K) and of the candidates of one or more prompts:

    reward(reference_confidence [n], reference_surrogate [n], confidence, surrogate, correct) -> array,

`confidence`, `surrogate` (kappa) and `correct` (of the shown answer) have one shape; so has the result, one reward per
candidate. Only the order of the rewards within a prompt matters. Your own file defines `reward` and LABEL, its row in
the ablation table. Nothing heavy is imported before `load`, because the Snakefile reads the names.
"""

from orce.errors import BadInput
from orce.runtime.modules import agreed, from_file, kept, require


def _one_for_each(value, arguments: tuple) -> bool:
    import numpy as np

    found = np.asarray(value, dtype=float)
    return found.shape == np.shape(arguments[2]) and bool(np.isfinite(found).all())


REWARD = agreed(
    "reward(reference_confidence, reference_surrogate, confidence, surrogate, correct) -> an array of the shape of confidence, "
    "all of it finite",
    _one_for_each,
)
PAPER = "sc"
LABELS = {  # the rows of the paper's ablation table, and the proper scoring rules that others train with
    "sc": "ORCE",
    "sayself": "SaySelf-inspired RL objective",
    "sc-surrogate": "W/o gen (SC)",
    "numeric": "Numeric dist",
    "nrd": "NRD",
    "rlcr": "Brier reward (RLCR)",
    "logscore": "Log-score reward",
}


class Registry:
    """The rewards of one configuration. given: the config's `rewards`, which maps NAME to the path of a Python file."""

    def __init__(self, given: dict | None = None):
        self.given = given or {}

    def names(self) -> list[str]:
        return [*LABELS, *(name for name in self.given if name not in LABELS)]

    def module(self, name: str) -> str:
        """The argument of `load` for a reward: its name, or its file's path. Raises BadInput that lists the rewards."""
        if name not in self.names():
            raise BadInput(f"unknown reward {name!r}; rewards are {', '.join(self.names())}")
        return self.given.get(name, name)

    def label(self, name: str) -> str:
        module = self.module(name)
        return own(module).LABEL if module.endswith(".py") else LABELS[name]


def own(path: str):
    """The module of the user's own reward."""
    module = from_file(path)
    require(module, path, ("LABEL", "reward"), "a reward")
    return kept(module, path, (REWARD,))


def load(module: str):
    """A reward's function, by its name here or by the path of its file."""
    if module.endswith(".py"):
        return own(module).reward
    from orce.alignment.rewards import REWARDS

    return REWARDS[module]
