"""Reading a confidence LLM: the value that it states, and its whole distribution over the 101 values it could state.

Both come from one computation of the prompt. The stated value is greedy, free text, read by orce.extract like any
other model output. The distribution is the probability that the statement begins with a number: for "7" that no
further digit follows, for "73" the product over its tokens, whatever way the tokenizer splits numbers.
"""

from dataclasses import dataclass

import numpy as np
import torch

from orce import extract
from orce.chat import Messages, prompt_ids, statement
from orce.engines.transformers import Drawer, grow
from orce.language_model import LanguageModel, Prefilled, by_length
from orce.prompting import render
from orce.tree import TokenTree, pick

PERCENTS = range(101)
STATEMENT_TOKENS = 12  # "Confidence: 100" and its end take 4 to 8 tokens with the tokenizers at hand


def messages(task, example: dict, answer: str | None) -> Messages:
    """The confidence LLM's prompt for a fixed question-answer pair: the same for every method that reads pairs."""
    content = render("confidence", question=task.question(example), answer=task.display(answer, example))
    return [{"role": "user", "content": content}]


def value_tree(tokenizer) -> TokenTree:
    """Token tree of the 101 statements, without end tokens: path c states c percent."""
    return TokenTree.of([tokenizer(statement(p), add_special_tokens=False)["input_ids"] for p in PERCENTS])


def value_logprobs(nodes: torch.Tensor, tree: TokenTree) -> torch.Tensor:
    """log P(c) of all 101 values from a value tree's node log-probabilities: [B, N] -> [B, 101]. Differentiable.

    Where a longer number continues a shorter one, the shorter is stated only if none of its continuations follows.
    """
    whole = torch.stack([nodes[:, path].sum(1) for path in tree.paths], dim=1)
    stops = []
    for path in tree.paths:
        children = tree.children(path[-1])
        going = nodes[:, children].exp().sum(1) if children else nodes.new_zeros(nodes.size(0))
        stops.append(torch.log1p(-going.clamp(max=1 - 1e-7)))
    return whole + torch.stack(stops, dim=1)


def greedy_value(nodes: torch.Tensor, tree: TokenTree) -> list[int]:
    """The percent that greedy decoding states if it is held to the tree: [B, N] -> B integers."""
    values = {path[-1]: percent for percent, path in enumerate(tree.paths)}
    return [_descend(row, tree, values) for row in nodes.exp().tolist()]


def _descend(probabilities, tree, values):
    node = -1
    while True:
        children = tree.children(node)
        best = max(children, key=lambda child: probabilities[child], default=None)
        stop = 1 - sum(probabilities[child] for child in children) if node in values else -1.0
        if best is None or stop > probabilities[best]:
            return values[node]
        node = best


@dataclass
class Reading:
    """logprobs: float32 [101], log P(c | question, answer); greedy: percent; text: what the model said, if asked."""

    logprobs: np.ndarray
    greedy: int
    text: str | None = None

    @property
    def mean(self) -> float:
        """Expected confidence in [0, 1] under the distribution, renormalised over the 101 values."""
        weights = np.exp(self.logprobs.astype(float) - self.logprobs.max())
        return float(weights @ np.arange(101) / weights.sum() / 100)

    @property
    def mass(self) -> float:
        """Probability that the model states one of the 101 values at all."""
        return float(np.exp(self.logprobs.astype(float)).sum())


class Reader:
    """Reads confidences for prompts from one confidence LLM."""

    def __init__(self, lm: LanguageModel, batch_size: int = 32):
        self.lm, self.batch_size = lm, batch_size
        self.tree = value_tree(lm.tokenizer)

    def read(self, prompts: list[Messages], state_text: bool = True) -> list[Reading]:
        """One Reading a prompt; with `state_text` also the greedy text."""
        ids = [prompt_ids(self.lm.tokenizer, messages, self.lm.template_kwargs) for messages in prompts]
        readings: list = [None] * len(ids)
        for batch in by_length(ids, self.batch_size):
            state = Prefilled(self.lm.model, [ids[i] for i in batch])
            nodes = self._nodes(state)
            texts = self._texts(state) if state_text else [None] * len(batch)
            rows = zip(
                value_logprobs(nodes, self.tree).cpu().numpy(), greedy_value(nodes, self.tree), texts, strict=True
            )
            for i, (logprobs, greedy, text) in zip(batch, rows, strict=True):
                readings[i] = Reading(logprobs.astype(np.float32), greedy, text)
        return readings

    def _nodes(self, state: Prefilled) -> torch.Tensor:
        tree, rows = self.tree, len(state.lengths)
        tokens = torch.tensor([tree.tokens[node] for node in tree.fed]).expand(rows, -1)
        depth = torch.tensor([tree.depth(node) for node in tree.fed]).expand(rows, -1)
        behind = state.extend(tokens, depth, tree.visibility().expand(rows, -1, -1))
        state.drop_grown()
        slot = torch.tensor(tree.slots, device=behind.device).expand(rows, -1)
        token = torch.tensor(tree.tokens, device=behind.device).expand(rows, -1)
        return pick(torch.cat([state.logits.unsqueeze(1), behind], dim=1), slot, token)

    def _texts(self, state: Prefilled) -> list[str]:
        drawers = [Drawer(0, 0, 1.0) for _ in state.lengths]
        branches = grow(state, drawers, 1, STATEMENT_TOKENS, self.lm.ends)
        return self.lm.tokenizer.batch_decode([one.tokens for (one,) in branches], skip_special_tokens=True)

    def force(self, prompts: list[Messages]) -> list[str]:
        """Second try for statements that could not be read: the model goes on from ``Confidence:``."""
        opening = self.lm.tokenizer("Confidence:", add_special_tokens=False)["input_ids"]
        ids = [prompt_ids(self.lm.tokenizer, m, self.lm.template_kwargs) + opening for m in prompts]
        texts: list = [None] * len(ids)
        for batch in by_length(ids, self.batch_size):
            for i, text in zip(batch, self._texts(Prefilled(self.lm.model, [ids[i] for i in batch])), strict=True):
                texts[i] = f"Confidence:{text}"
        return texts


def state(reader: Reader, prompts: list[Messages]) -> list[dict]:
    """Stated confidences with one retry: records {confidence in [0, 1] or null, mean, raw, retried}."""
    readings = reader.read(prompts)
    records = [
        {"confidence": extract.confidence(r.text), "mean": r.mean, "mass": r.mass, "raw": r.text, "retried": False}
        for r in readings
    ]
    unread = [i for i, record in enumerate(records) if record["confidence"] is None]
    for i, text in zip(unread, reader.force([prompts[i] for i in unread]), strict=True):
        records[i] |= {"confidence": extract.confidence(text), "raw": [records[i]["raw"], text], "retried": True}
    return records
