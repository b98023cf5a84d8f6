"""Soft labels: SFT-all with a distribution in place of the one value that kappa rounds to. Not the paper's.

kappa comes from K answers. A question's target is Beta(a kappa + 1, a (1 - kappa) + 1) over the 101 values, a = `answers`:
neighbouring values share what is learnt. With a = K it is the posterior of the true rate under a uniform prior.
"""

LABEL, KIND = "Soft labels", "stated"
SETTINGS = {
    "format_weight": 1.0,  # weight of stating a value at all
    "answers": 16,  # that a label is worth
}


def targets(kappa, answers):
    """The target distributions [B, 101] for kappa [B]."""
    import torch

    values = torch.linspace(0, 1, 101, device=kappa.device).clamp(0.0025, 0.9975)
    right = answers * kappa.unsqueeze(1)
    return (right * values.log() + (answers - right) * (1 - values).log()).softmax(-1)


def train(pairs, settings, out):
    from orce.training import tokenized_brier

    def loss(logprobs, kappa):
        return -(targets(kappa, settings["stage"]["answers"]) * logprobs.log_softmax(-1)).sum(-1).mean()

    examples = [{"prompt": pair["prompt"], "correct": pair["kappa"]} for pair in pairs]
    tokenized_brier.train(examples, settings, out, loss)
