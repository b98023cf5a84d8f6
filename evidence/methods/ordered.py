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


def step_loss_trainer(step_loss):
    """A trainer that adds `step_loss`, of log P(c) [B, 101] and `correct` [B], of all examples of a step together.

    A step that is cut into micro-batches, or shared by processes, first computes log P(c) of all its examples without
    gradients, and d(step loss) / d(log P) from them. Each micro-batch then has the step's loss as its value, and its own
    rows of that derivative as the gradient.
    """
    import torch
    from accelerate.utils import gather_object

    from orce.training.tokenized_brier import BrierTrainer

    class StepLossTrainer(BrierTrainer):
        def step(self, model, parts, terms):
            if len(parts) > 1 or self.accelerator.num_processes > 1:
                parts = self.with_step_gradient(model, parts)
            return super().step(model, parts, terms)

        def distribution_loss(self, logprobs, inputs):
            loss = super().distribution_loss(logprobs, inputs)
            if "step_gradient" not in inputs:  # the only part of its step
                return loss + step_loss(logprobs, inputs["correct"].to(logprobs))
            linear = (inputs["step_gradient"] * logprobs).sum()
            return loss + linear - linear.detach() + inputs["step_loss"]

        def with_step_gradient(self, model, parts):
            """Attach to each micro-batch d(step loss) / d(log P) of its rows."""
            with torch.no_grad(), self.compute_loss_context_manager():
                own = [self.distributions(model, self._prepare_inputs(part))[0].float().cpu() for part in parts]
            correct = torch.cat([part["correct"] for part in parts])
            by_process = gather_object([(torch.cat(own), correct)])
            logprobs = torch.cat([values for values, _ in by_process]).requires_grad_()
            loss = step_loss(logprobs, torch.cat([labels for _, labels in by_process]).to(logprobs))
            (gradient,) = torch.autograd.grad(loss, logprobs)
            sizes = [len(values) for values, _ in by_process]
            rows = gradient.split(sizes)[self.accelerator.process_index].split([len(values) for values in own])
            # A part's loss will count by its share of the step's examples; the factor takes that back.
            return [
                part | {"step_gradient": part_rows * len(logprobs) / len(part_rows), "step_loss": loss.detach()}
                for part, part_rows in zip(parts, rows, strict=True)
            ]

    return StepLossTrainer


def train(pairs, settings, out):
    from orce.training import tokenized_brier

    stage = settings["stage"]

    def loss(logprobs, kappa):
        return -(targets(kappa, stage["answers"]) * logprobs.log_softmax(-1)).sum(-1).mean()

    def order(logprobs, kappa):
        return stage["rank_weight"] * disorder(logprobs, kappa)

    examples = [{"prompt": pair["prompt"], "correct": pair["kappa"]} for pair in pairs]
    tokenized_brier.train(examples, settings, out, loss, step_loss_trainer(order))
