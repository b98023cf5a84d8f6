"""Soft labels: SFT-all with a distribution in the place of the one value that kappa rounds to. Not the paper's.

kappa is known from K answers only. The target of a question is Beta(a kappa + 1, a (1 - kappa) + 1) over the 101 values,
for a = `answers`, and the loss the cross-entropy to it, so that neighbouring values share what is learnt. With a = K it is
the posterior of the question's true rate under a uniform prior; the default, 16, does not follow `answers.samples`.
`rank_weight` adds an order-aware loss on the means of a batch's distributions (`ordered`, below).
"""

from collections.abc import Sequence

from orce.records import Labelled, Lesson
from orce.stage_settings import TrainingSettings

LABEL, KIND = "Soft labels", "stated"
TRAINED_ON = ("sft", "rl")
TEMPERATURE = 0.1  # of the order, in units of confidence
SETTINGS = {
    "format_weight": {
        "type": "number",
        "minimum": 0,
        "default": 1.0,
        "description": "weight of stating a value at all",
    },
    "rank_weight": {"type": "number", "minimum": 0, "default": 0.0, "description": "weight of the order"},
    "answers": {
        "type": "number",
        "exclusiveMinimum": 0,
        "default": 16,
        "description": "that a label is worth; K makes the target the posterior",
        "unit": "answers",
    },
}


def targets(kappa, answers: float):
    """Beta(answers kappa + 1, answers (1 - kappa) + 1) over the 101 values [B, 101], for kappa [B]."""
    import torch

    values = torch.linspace(0, 1, 101, device=kappa.device).clamp(0.0025, 0.9975)
    right = answers * kappa.unsqueeze(1)
    return (right * values.log() + (answers - right) * (1 - values).log()).softmax(-1)


def disorder(logprobs, kappa):
    """A smooth count of a batch's wrongly ordered pairs: log P(c) [B, 101], kappa [B]; a scalar.

    For kappas k_i > k_j and means m_i, m_j of the distributions: (k_i - k_j) log(1 + exp(-(m_i - m_j) / TEMPERATURE)), over
    the sum of the k_i - k_j; as CAPO's (2026, arXiv 2604.12632) for right and wrong answers.
    """
    import torch
    from torch.nn.functional import softplus

    means = logprobs.softmax(-1) @ torch.linspace(0, 1, 101, device=logprobs.device)
    apart = (kappa.unsqueeze(1) - kappa).clamp(min=0)
    loss = apart * softplus((means - means.unsqueeze(1)) / TEMPERATURE)
    return loss.sum() / apart.sum().clamp(min=1e-6)


def train(pairs: Sequence[Lesson], settings: TrainingSettings, out) -> None:
    """Train on the realised pairs; the confidence LLM is left in the folder `out`."""
    from orce.training import tokenized_brier

    stage = settings["stage"]
    answers, weight = stage["answers"], stage["rank_weight"]

    def loss(logprobs, kappa):
        return -(targets(kappa, answers) * logprobs.log_softmax(-1)).sum(-1).mean()

    def order(logprobs, kappa):
        return weight * disorder(logprobs, kappa)

    examples: list[Labelled] = [{"prompt": pair["prompt"], "correct": pair["kappa"]} for pair in pairs]
    tokenized_brier.train(examples, settings, out, loss, order if weight else None)
