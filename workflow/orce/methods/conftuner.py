"""ConfTuner (Li et al., 2025), adapted as in the paper: the tokenized Brier score, with the answer fixed."""

from collections.abc import Sequence

from orce.records import Labelled, Lesson
from orce.stage_settings import TrainingSettings

LABEL, KIND = "ConfTuner", "stated"
TRAINED_ON = ("sft", "rl")  # the pairs that ORCE sees
SETTINGS = {
    "format_weight": 1.0,  # weight of stating a confidence at all
}


def train(pairs: Sequence[Lesson], settings: TrainingSettings, out) -> None:
    """Train on the realised pairs, labelled by the correctness of the shown answer; see tokenized_brier.train."""
    from orce.training import tokenized_brier

    examples: list[Labelled] = [{"prompt": pair["prompt"], "correct": pair["correct"]} for pair in pairs]
    tokenized_brier.train(examples, settings, out)
