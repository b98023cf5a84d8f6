"""What the three training comparisons share: SmolLM2 with the config's adapter, prompts of 200 tokens, and one step."""

import tempfile
from pathlib import Path

import torch

from benchmarks.timing import Row, compare
from orce.training import common

PROMPT_TOKENS, SHARED_TOKENS, MICRO_BATCH = 200, 60, 4


def settings(options) -> dict:
    """Settings of a training step as the workflow makes them; no dropout, so that both sides compute the same."""
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    lora = {"r": 16, "alpha": 32, "dropout": 0.0, "target_modules": targets, "last_layers": None}
    model = {"source": {"path": options.model}, "dtype": "float32", "device": "cpu", "template_kwargs": {}}
    stage = {
        "epochs": 1, "learning_rate": 1e-4, "batch_size": MICRO_BATCH,
        "warmup_ratio": 0.0, "scheduler": "constant", "weight_decay": 0.0, "beta": 0.1, "format_weight": 1.0,
    }  # fmt: skip
    training = {"method": "lora", "lora": lora, "shared_prefix": True, "checkpointing": False, "save_steps": 100}
    return {"label": "benchmark", "model": model, "training": training, "stage": stage, "seed": 0}


def adapted(options):
    """SmolLM2 with an adapter whose weights are not zero: (language model, model)."""
    torch.set_num_threads(options.threads)
    lm = common.trainable(settings(options), None)
    torch.manual_seed(0)
    for name, parameter in lm.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.01)
    return lm, lm.model


def prompts(shared: int, count: int = MICRO_BATCH, tokens: int = PROMPT_TOKENS) -> list[list[int]]:
    """Token ids of `count` prompts of `tokens` tokens, of which they share the first `shared`."""
    draw = torch.Generator().manual_seed(0)
    first, *_ = rows = torch.randint(1000, 40_000, (count, tokens), generator=draw).tolist()
    return [first[:shared] + row[shared:] for row in rows]


def ours(kind, lm, rows: list, options, *more):
    """A function that runs forward and backward on one batch, and returns the loss and all gradients as one vector."""
    trainer = kind(rows, *more, **common.arguments(lm, settings(options), Path(tempfile.mkdtemp())))
    return step(trainer, trainer.collate(rows))


def trls(kind, arguments: type, lm, rows: list[dict], **more):
    """The same by a trainer of TRL."""
    from datasets import Dataset

    args = arguments(
        tempfile.mkdtemp(), use_cpu=True, bf16=False, gradient_checkpointing=False, max_length=None, **more
    )
    trainer = kind(model=lm.model, args=args, train_dataset=Dataset.from_list(rows), processing_class=lm.tokenizer)
    if "ref" in lm.model.peft_config:
        lm.model.delete_adapter("ref")
    return step(trainer, trainer.data_collator(rows))


def step(trainer, batch):
    def run():
        trainer.model.train()
        trainer.model.zero_grad()
        loss = trainer.compute_loss(trainer.model, batch)
        loss.backward()
        return loss.item(), torch.cat([p.grad.flatten() for p in trainer.model.parameters() if p.grad is not None])

    return run


def side_by_side(title: str, ours, plain, repeats: int, wanted: float | None) -> Row:
    """A row with what both sides' losses and gradients differ by, relative to the plain side's."""
    (loss, gradient), (plain_loss, plain_gradient) = ours(), plain()
    notes = {
        "loss": f"{loss:.6f}, plain {plain_loss:.6f} (relative difference {abs(loss / plain_loss - 1):.1e})",
        "gradients": f"relative difference {((gradient - plain_gradient).norm() / plain_gradient.norm()).item():.1e}",
    }
    return compare(title, ours, plain, repeats, wanted=wanted, notes=notes, warm=False)
