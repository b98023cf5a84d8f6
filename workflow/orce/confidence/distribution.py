"""Reading a confidence LLM: the value that it states, and its whole distribution over the 101 values it could state.

Both come from one computation of the prompt. The stated value is greedy, free text, read by orce.text.extract like any
other model output. The distribution is the probability that the statement begins with a number: for "7" that no
further digit follows, for "73" the product over its tokens, whatever way the tokenizer splits numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from orce.llm.chat import expected, statement
from orce.llm.trie import TokenTree

PERCENTS = range(101)
Draw = Callable[[int, np.ndarray], list[int]]  # (index of the prompt, log P of the 101 values) -> drawn percents
STATEMENT_TOKENS = 12  # "Confidence: 100" and its end take 4 to 8 tokens with the tokenizers at hand
BUDGET = 2 * STATEMENT_TOKENS  # tokens that reading needs behind a prompt: a forced opening and a statement


def value_tree(tokenizer, *more: list[int]) -> TokenTree:
    """Token tree of the 101 statements, without end tokens: path c states c percent. `more` continuations follow."""
    values = [tokenizer(statement(p), add_special_tokens=False)["input_ids"] for p in PERCENTS]
    return TokenTree.of([*values, *more])


def value_logprobs(nodes: torch.Tensor, tree: TokenTree) -> torch.Tensor:
    """log P(c) of all 101 values from a value tree's node log-probabilities: [B, N] -> [B, 101]. Differentiable.

    Where a longer number continues a shorter one, the shorter is stated only if none of its continuations follows.
    """
    stops = []
    for path in tree.paths:
        children = tree.children(path[-1])
        going = nodes[:, children].exp().sum(1) if children else nodes.new_zeros(nodes.size(0))
        stops.append(torch.log1p(-going.clamp(max=1 - 1e-7)))
    return statement_logprobs(nodes, tree) + torch.stack(stops, dim=1)


def statement_logprobs(nodes: torch.Tensor, tree: TokenTree) -> torch.Tensor:
    """log P(tokens of the statement), whatever follows them: [B, N] -> [B, 101]. Differentiable."""
    return torch.stack([nodes[:, path].sum(1) for path in tree.paths], dim=1)


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
    """logprobs: float32 [101], log P(c | question, answer); greedy: percent; text: what the model said, if asked.

    drawn: percents drawn from the distribution, if asked for; drawn_logprobs: for each, the log-probability of the
    whole turn, the statement's tokens and the end token, which is what DPO calls log pi(z | prompt).
    """

    logprobs: np.ndarray
    greedy: int
    text: str | None = None
    drawn: list[int] | None = None
    drawn_logprobs: list[float] | None = None

    @property
    def mean(self) -> float:
        """Expected confidence in [0, 1] under the distribution, renormalised over the 101 values."""
        return expected(self.logprobs)

    @property
    def mass(self) -> float:
        """Probability that the model states one of the 101 values at all."""
        return float(np.exp(self.logprobs.astype(float)).sum())
