"""A model as transformers and peft load it, by plain forward passes and optimizer steps that share nothing with the library."""

import json
import math
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig


class Plain:
    """A model as transformers and peft load it, and what it says by plain forward passes over whole texts."""

    def __init__(self, folder, adapter=None, trained: bool = False):
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        if adapter is not None:
            from peft import PeftModel

            self.model = PeftModel.from_pretrained(self.model, str(adapter), is_trainable=trained)
        self.model.eval()

    def ids(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def prompt(self, content: str) -> list[int]:
        """A user's turn as the template of the small model writes it."""
        return self.ids(content) + [self.tokenizer.eos_token_id]

    def scores(self, content: str, continuations: list[list[int]]) -> torch.Tensor:
        """log P of every token at each place of the continuations of a prompt, and after their ends: [n, longest + 1, V]."""
        ids, longest = self.prompt(content), max(map(len, continuations))
        padded = [ids + after + [0] * (longest - len(after)) for after in continuations]
        return self.model(torch.tensor(padded)).logits[:, len(ids) - 1 :].log_softmax(-1)

    def logprobs(self, content: str, continuations: list[list[int]]) -> list[torch.Tensor]:
        """log P of each token of each continuation: n tensors [tokens]."""
        scores = self.scores(content, continuations)
        return [
            scores[i, torch.arange(len(after)), torch.tensor(after, dtype=torch.long)]
            for i, after in enumerate(continuations)
        ]

    @torch.no_grad()
    def next_scores(self, content: str, after=()) -> torch.Tensor:
        """Logits of the token that follows a prompt and some tokens of its reply, float64 [V]."""
        return self.model(torch.tensor([[*self.prompt(content), *after]])).logits[0, -1].double()

    def turns(self, content: str, percents) -> list[torch.Tensor]:
        """log P of each token of the turns that state some confidences, with their end."""
        whole = [[*self.ids(f"Confidence: {percent}"), self.tokenizer.eos_token_id] for percent in percents]
        return self.logprobs(content, whole)

    def following(self) -> list[set[int]]:
        """For each of the 101 values, the tokens that make it the beginning of a longer value: 7 of 70."""
        values = [self.ids(f"Confidence: {percent}") for percent in range(101)]
        return [{ids[len(own)] for ids in values if len(ids) > len(own) and ids[: len(own)] == own} for own in values]

    @torch.no_grad()
    def distribution(self, content: str) -> np.ndarray:
        """log P of the 101 turns, float64 [101]."""
        return np.array([tokens.double().sum().item() for tokens in self.turns(content, range(101))])

    @torch.no_grad()
    def before_ends(self, content: str) -> np.ndarray:
        """log P of stating each of the 101 values, whatever ends it but a digit that makes it a longer value."""
        values = [self.ids(f"Confidence: {percent}") for percent in range(101)]
        found, scores = [], self.scores(content, values).double()
        for i, (own, longer) in enumerate(zip(values, self.following(), strict=True)):
            stated = scores[i, torch.arange(len(own)), torch.tensor(own)].sum().item()
            found.append(stated + math.log1p(-scores[i, len(own), [*longer]].exp().sum().item()))
        return np.array(found)

    def written(self, content: str, tokens: int) -> str:
        """Greedy text of at most so many tokens."""
        return generated(self.model, self.tokenizer, self.prompt(content), tokens, [self.tokenizer.eos_token_id])


def generated(model, tokenizer, prompt: list[int], tokens: int, ends) -> str:
    """The greedy text after a prompt, by transformers' generate."""
    settings = GenerationConfig(max_new_tokens=tokens, do_sample=False, eos_token_id=sorted(ends), pad_token_id=0)
    ids = torch.tensor([prompt])
    made = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), generation_config=settings)
    return tokenizer.decode(made[0, len(prompt) :], skip_special_tokens=True)


def optimized(plain: Plain, loss, steps: int, rate=lambda step: 0.01, decay: float = 0.0) -> list[float]:
    """The losses of AdamW's steps on all examples, with gradients of at most norm 1; decay is of matrices that are no norms."""
    weights = [(name, weight) for name, weight in plain.model.named_parameters() if weight.requires_grad]
    groups = [
        {"params": [weight for name, weight in weights if "norm" not in name], "weight_decay": decay},
        {"params": [weight for name, weight in weights if "norm" in name], "weight_decay": 0.0},
    ]
    optimizer, losses = torch.optim.AdamW([group for group in groups if group["params"]], lr=1.0), []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        value = loss()
        losses.append(value.item())
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_([weight for _, weight in weights], 1.0)
        optimizer.step()
    return losses


def losses_of(folder) -> list[float]:
    return [entry["loss"] for entry in json.loads(Path(folder, "training_log.json").read_text())]
