"""Soft labels (soft.py) with an order-aware loss on the means of a batch's distributions. Not the paper's."""

LABEL, KIND = "Soft labels + order", "stated"
TEMPERATURE = 0.1  # of the order, in units of confidence
SETTINGS = {
    "format_weight": 1.0,  # weight of stating a value at all
    "rank_weight": 1.0,  # weight of the order
    "answers": 16,  # that a label is worth
}


def targets(kappa, answers):
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
    gaps = (kappa.unsqueeze(1) - kappa).clamp(min=0)
    return (gaps * softplus((means - means.unsqueeze(1)) / TEMPERATURE)).sum() / gaps.sum().clamp(min=1e-6)


def train(pairs, settings, out):
    from orce.training import tokenized_brier

    stage = settings["stage"]

    def loss(logprobs, kappa):
        return -(targets(kappa, stage["answers"]) * logprobs.log_softmax(-1)).sum(-1).mean()

    def order(logprobs, kappa):
        return stage["rank_weight"] * disorder(logprobs, kappa)

    examples = [{"prompt": pair["prompt"], "correct": pair["kappa"]} for pair in pairs]
    tokenized_brier.train(examples, settings, out, loss, order)
