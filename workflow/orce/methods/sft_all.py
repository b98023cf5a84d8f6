"""SFT-all: the warm start's training on the pairs of SFT and RL together. The control of every alignment: the same labels,
without a preference between statements."""

from collections.abc import Sequence

from orce.records import Lesson
from orce.stage_settings import TrainingSettings

LABEL, KIND = "SFT-all", "stated"
TRAINED_ON = ("sft", "rl")


def train(pairs: Sequence[Lesson], settings: TrainingSettings, out) -> None:
    """Cross-entropy of the statement of kappa, for every realised pair; see orce.training.sft."""
    from orce.llm.chat import to_percent
    from orce.training import sft

    sft.train([{"prompt": pair["prompt"], "percent": to_percent(pair["kappa"])} for pair in pairs], settings, out)
