"""Sampling with transformers: each prompt is computed once, and each distinct beginning of an answer once.

n independent samples share a root. At every node the samples that reached it draw their next tokens together, so the
work is one row for each distinct prefix while the samples stay independent and identically distributed.
"""

from dataclasses import dataclass, field

import numpy as np
import torch

from orce.llm import language_model
from orce.llm.chat import prompt_ids
from orce.llm.kv_cache import Prefilled


def load(settings: dict, longest: int | None = None) -> "Engine":
    return Engine(language_model.load(settings), settings.get("batch_size", 32))


@dataclass
class Branch:
    """Samples that have drawn the same tokens so far: `count` random ones, and the greedy one if it is among them.

    `columns` are the tokens' places in the grown cache.
    """

    count: int
    greedy: bool = False
    tokens: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)


class Engine:
    def __init__(self, lm: language_model.LanguageModel, batch_size: int = 32):
        self.lm, self.batch_size = lm, batch_size

    def generate(self, prompts, n, temperature, max_tokens, seeds, top_p=1.0) -> list[list[str]]:
        """See orce.llm.engines. temperature 0 is greedy: all n are the same text."""
        both = self.generate_with_greedy(prompts, n, temperature, max_tokens, seeds, top_p)
        return [texts for texts, _ in both]

    def generate_with_greedy(
        self, prompts, n, temperature, max_tokens, seeds, top_p=1.0, greedy=frozenset()
    ) -> list[tuple[list[str], str | None]]:
        """See orce.llm.engines: the greedy text grows from the same prompt, and where samples agree with it, with them."""
        ids = [prompt_ids(self.lm.tokenizer, messages, self.lm.template_kwargs) for messages in prompts]
        found: list = [None] * len(ids)
        for batch in language_model.by_length(ids, self.batch_size):
            state = Prefilled(self.lm.model, [ids[i] for i in batch])
            drawers = [Drawer(seeds[i], temperature, top_p) for i in batch]
            rows = {row for row, i in enumerate(batch) if i in greedy}
            finished = grow(state, drawers, n, max_tokens, self.lm.ends, rows)
            for i, drawer, branches in zip(batch, drawers, finished, strict=True):
                found[i] = self._expand(branches, drawer)
        return found

    def close(self) -> None:
        """Let go of the model."""
        self.lm = None

    def _expand(self, branches: list[Branch], drawer: "Drawer") -> tuple[list[str], str | None]:
        """One text a sample, in an order that says nothing about the draw; and the greedy text, if there is one."""
        texts = self.lm.tokenizer.batch_decode([b.tokens for b in branches], skip_special_tokens=True)
        flat = [text for text, branch in zip(texts, branches, strict=True) for _ in range(branch.count)]
        greedy = next((text for text, branch in zip(texts, branches, strict=True) if branch.greedy), None)
        return [flat[i] for i in drawer.rng.permutation(len(flat))], greedy


class Drawer:
    """Draws next tokens for one prompt from its own random stream."""

    def __init__(self, seed: int, temperature: float, top_p: float):
        self.rng, self.temperature, self.top_p = np.random.default_rng(seed), temperature, top_p

    def draw(self, logits: torch.Tensor, count: int) -> list[tuple[int, int]]:
        """`count` draws from softmax(logits / temperature) as (token, how often), by token."""
        if self.temperature == 0:
            return [(int(logits.argmax()), count)]
        weights = torch.softmax(logits.double() / self.temperature, -1).cpu().numpy()
        tokens = np.arange(len(weights))
        if self.top_p < 1:
            tokens, weights = nucleus(weights, self.top_p)
        cumulative = np.cumsum(weights)
        places = np.searchsorted(cumulative, self.rng.random(count) * cumulative[-1], side="right")
        drawn, counts = np.unique(tokens[places], return_counts=True)
        return list(zip(drawn.tolist(), counts.tolist(), strict=True))


def nucleus(weights: np.ndarray, top_p: float) -> tuple[np.ndarray, np.ndarray]:
    """The smallest set of most probable tokens that holds `top_p` of the mass: (tokens, their weights)."""
    order = np.argsort(-weights, kind="stable")
    kept = order[: np.searchsorted(np.cumsum(weights[order]), top_p) + 1]
    return kept, weights[kept]


def grow(state, drawers: list[Drawer], n: int, max_tokens: int, ends: set[int], greedy=frozenset()):
    """Sample `n` continuations of every prompt in `state`; the finished branches of each prompt, list[list[Branch]].

    `greedy`: rows of the prompts that get a greedy continuation besides.
    """
    finished: list[list[Branch]] = [[] for _ in drawers]
    alive = list(range(len(drawers)))
    growing = [[Branch(n, row in greedy)] for row in alive]
    logits = state.logits.unsqueeze(1)
    while True:
        growing = [
            _step(branches, logits[i], drawers[row], finished[row], ends, max_tokens)
            for i, (row, branches) in enumerate(zip(alive, growing, strict=True))
        ]
        if not any(growing):
            return finished
        state, alive, growing = _drop_idle(state, alive, growing)
        logits = _extend(state, growing)


def _step(branches, logits, drawer, finished, ends, max_tokens) -> list[Branch]:
    """Split each branch by the tokens drawn behind it; what ends goes to `finished`."""
    going = []
    for branch, row in zip(branches, logits, strict=True):
        drawn = dict(drawer.draw(row, branch.count)) if branch.count else {}
        best = int(row.argmax()) if branch.greedy else None
        for token in sorted(drawn.keys() | ({best} if branch.greedy else set())):
            count, greedy = drawn.get(token, 0), token == best
            if token in ends:
                finished.append(Branch(count, greedy, branch.tokens))
            elif len(branch.tokens) + 1 == max_tokens:
                finished.append(Branch(count, greedy, branch.tokens + [token]))
            else:
                going.append(Branch(count, greedy, branch.tokens + [token], branch.columns))
    return going


def _drop_idle(state, alive, frontier):
    busy = [i for i, branches in enumerate(frontier) if branches]
    # Gathering the cache costs a copy: worth it once half of the rows are done.
    if len(busy) <= len(alive) // 2:
        state.keep(busy)
        alive, frontier = [alive[i] for i in busy], [frontier[i] for i in busy]
    return state, alive, frontier


def _extend(state, frontier: list[list[Branch]]) -> list[torch.Tensor]:
    """What follows each branch: for every row logits [branches, V]."""
    first = state.grown
    logits = state.extend_branches([[(b.tokens[-1], len(b.tokens), b.columns) for b in mine] for mine in frontier])
    for mine in frontier:
        for i, branch in enumerate(mine):
            branch.columns = branch.columns + [first + i]
    return logits
