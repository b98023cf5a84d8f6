"""One SFT step and one DPO step, forward and backward: prompts packed in one row, against padded rows whose logits are
computed at the statements alone (twenty lines of peft), and against TRL's trainers."""

import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.timing import Row as Timed
from benchmarks.timing import compare
from orce.llm.chat import completion_ids, statement
from orce.llm.trie import TokenTrie
from orce.settings.stage import TrainingJob, parse_training_job
from orce.training import common, dpo, sft, stock
from orce.training.steps import Row

BATCH, TOKENS, SHARED = 4, 200, 60
TITLE = f"training steps on {BATCH} examples or pairs of {TOKENS} tokens (SmolLM2, LoRA, float32)"


def run(options) -> Iterator[Timed]:
    lm = adapted(options)
    for title, shared in (("prompts share nothing", 0), (f"prompts share {SHARED} tokens", SHARED)):
        prompts = token_ids(shared)
        statements = [completion_ids(lm.tokenizer, statement(6 * i)) for i in range(2 * BATCH)]
        both = [*zip(prompts, statements, strict=False)]
        rows = [Row(prompt_ids=a, trie=TokenTrie.of([b]), trie_tokens=len(b)) for a, b in both]
        packed = ours(sft.SftTrainer, lm, rows, options)
        yield side_by_side(f"SFT, {title}; padded rows", packed, padded(lm, both, sft_loss), options.repeats)
        plain = trls(stock.Sft, lm, rows, options)
        yield side_by_side(f"SFT, {title}; TRL", packed, plain, options.repeats)
        pairs, both, references = [], [], []
        for i, a in enumerate(prompts):
            sides, reference = [statements[i], statements[-1 - i]], (-20.0 - i, -21.5 + i)
            trie, more = TokenTrie.of(sides), sum(map(len, sides))
            pairs.append(dpo.PreferenceRow(prompt_ids=a, trie=trie, trie_tokens=more, reference=reference))
            both += [(a, side) for side in sides]
            references.append(reference)
        packed = ours(dpo.DpoTrainer, lm, pairs, options, 0.1)
        plain = padded(lm, both, functools.partial(dpo_loss, torch.tensor(references)))
        yield side_by_side(f"DPO, {title}; padded rows", packed, plain, options.repeats)
        plain = trls(stock.Dpo, lm, pairs, options, 0.1)
        yield side_by_side(f"DPO, {title}; TRL", packed, plain, options.repeats)


def settings(options) -> dict:
    """Settings of a training step as the workflow makes them; no dropout, so that both sides compute the same."""
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    lora = {"r": 16, "alpha": 32, "dropout": 0.0, "target_modules": targets, "last_layers": None}
    model = {"source": {"path": options.model}, "dtype": "float32", "device": "cpu", "template_kwargs": {}}
    stage = {
        "epochs": 1, "learning_rate": 1e-4, "batch_size": BATCH,
        "warmup_ratio": 0.0, "scheduler": "constant", "weight_decay": 0.0, "beta": 0.1, "format_weight": 1.0,
    }  # fmt: skip
    training = {"method": "lora", "lora": lora, "checkpointing": False, "save_steps": 100}
    return {"label": "benchmark", "model": model, "training": training, "stage": stage, "seed": 0}


def job(options) -> TrainingJob:
    return parse_training_job(settings(options))


def adapted(options):
    """SmolLM2 with an adapter whose weights are not zero."""
    torch.set_num_threads(options.threads)
    lm = common.trainable(job(options), None)
    torch.manual_seed(0)
    for name, parameter in lm.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.01)
    return lm


def token_ids(shared: int) -> list[list[int]]:
    """Prompts that share the first `shared` tokens."""
    draw = torch.Generator().manual_seed(0)
    first, *_ = rows = torch.randint(1000, 40_000, (BATCH, TOKENS), generator=draw).tolist()
    return [first[:shared] + row[shared:] for row in rows]


def ours(kind, lm, rows: list, options, *more):
    """A function that runs forward and backward on one batch, and returns the loss and all gradients as one vector."""
    trainer = kind(rows, *more, **common.trainer_arguments(lm, job(options), Path(tempfile.mkdtemp())))
    return step(trainer, trainer.collate(rows))


def padded(lm, both: list[tuple[list[int], list[int]]], loss):
    """The plain side: prompts with their statements, padded on the left, and logits where a statement is predicted.

    loss: of the log-probabilities of the statements' tokens [rows, tokens], 0 where there is none.
    """
    width, kept = max(len(a) + len(b) for a, b in both), max(len(b) for _, b in both)
    ids, mask = torch.zeros(2, len(both), width, dtype=torch.long)
    stated = torch.zeros(len(both), kept, dtype=torch.bool)
    for row, (a, b) in enumerate(both):
        ids[row, -len(a + b) :] = torch.tensor(a + b)
        mask[row, -len(a + b) :] = 1
        stated[row, -len(b) :] = True
    positions = (mask.cumsum(1) - 1).clamp(min=0)

    def run():
        lm.model.train()
        lm.model.zero_grad()
        logits = lm.model(ids, attention_mask=mask, position_ids=positions, logits_to_keep=kept + 1).logits[:, :-1]
        logprobs = logits.log_softmax(-1).gather(2, ids[:, -kept:, None])[..., 0] * stated
        found = loss(logprobs, stated)
        found.backward()
        return found.item(), gradients(lm.model)

    return run


def sft_loss(logprobs, stated):
    return -logprobs.sum() / stated.sum()


def dpo_loss(references, logprobs, stated):
    chosen, rejected = (logprobs.sum(1).view(-1, 2) - references).unbind(1)
    return -torch.nn.functional.logsigmoid(0.1 * (chosen - rejected)).mean()


def gradients(model) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def trls(kind, lm, rows: list, options, *more):
    """The same by a trainer of TRL."""
    args = common.trainer_arguments(lm, job(options), Path(tempfile.mkdtemp()))["args"]
    trainer = kind(lm.model, args, rows, lm.tokenizer, *more)
    return step(trainer, trainer.data_collator([*trainer.train_dataset]))


def step(trainer, batch):
    def run():
        trainer.model.train()
        trainer.model.zero_grad()
        loss = trainer.compute_loss(trainer.model, batch)
        loss.backward()
        return loss.item(), gradients(trainer.model)

    return run


def side_by_side(title: str, ours, plain, repeats: int) -> Timed:
    """A row with what both sides' losses and gradients differ by, relative to the plain side's."""
    (loss, gradient), (plain_loss, plain_gradient) = ours(), plain()
    notes = {
        "loss": f"{loss:.6f}, plain {plain_loss:.6f} (relative difference {abs(loss / plain_loss - 1):.1e})",
        "gradients": f"relative difference {((gradient - plain_gradient).norm() / plain_gradient.norm()).item():.1e}",
    }
    return compare(title, ours, plain, repeats, notes=notes, warm=False)
