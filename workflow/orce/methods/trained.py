"""Confidence LLMs: what each is trained on. orce.stages.state asks all of them in the same way."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from orce.methods.method import Method
from orce.settings.stage import TrainingSettings


def conftuner(pairs: Sequence[Mapping[str, Any]], settings: TrainingSettings, out) -> None:
    """ConfTuner (Li et al., 2025), adapted as in the paper: the tokenized Brier score, with the
    answer fixed.
    """
    from orce.training import tokenized_brier

    examples = [{"prompt": pair["prompt"], "correct": pair["correct"]} for pair in pairs]
    loss = partial(tokenized_brier.tokenized_brier, spread=settings["stage"]["spread"])
    tokenized_brier.train(examples, settings, out, loss)


def sft_all(pairs: Sequence[Mapping[str, Any]], settings: TrainingSettings, out) -> None:
    """The warm start's training on the pairs of SFT and RL together: the same labels as an
    alignment's, and no preference.
    """
    from orce.llm.chat import to_percent
    from orce.training import sft

    examples = [{"prompt": pair["prompt"], "percent": to_percent(pair["kappa"])} for pair in pairs]
    sft.train(examples, settings, out)


METHODS = {
    "vanilla": Method(
        "Vanilla", "stated",
        settings={
            # decode every statement constrained to the valid ones, for a model whose free text
            # never is one
            "constrained": False,
        },
    ),
    "sft": Method("SFT", "stated", weights="sft"),
    "orce": Method("ORCE", "stated", weights="dpo"),
    "sft_all": Method("SFT-all", "stated", train=sft_all),
    "conftuner": Method(
        "ConfTuner", "stated", train=conftuner,
        settings={
            "format_weight": 0.1,  # weight of stating a confidence at all
            "spread": 0.1,  # weight of keeping every value possible
        },
    ),
}  # fmt: skip
