"""Reading a confidence LLM: the value that it states, and its whole distribution over the 101 values it could state.

Both come from one computation of the prompt. The stated value is greedy, free text, read by orce.extract like any
other model output. The distribution is the probability that the statement begins with a number: for "7" that no
further digit follows, for "73" the product over its tokens, whatever way the tokenizer splits numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from orce import extract, language_model
from orce.adapters import Wardrobe, is_adapter
from orce.chat import Messages, expected, prompt_ids, statement
from orce.engines.transformers import Drawer, grow
from orce.language_model import LanguageModel, by_length
from orce.prefilled import Prefilled
from orce.tree import TokenTree, pick

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


class Reader:
    """Reads confidences for prompts from one confidence LLM."""

    def __init__(self, lm: LanguageModel, batch_size: int = 32):
        self.lm, self.batch_size = lm, batch_size
        self.tree = tree = value_tree(lm.tokenizer)
        self._picked = tree.slots, tree.tokens
        self._place = {node: i + 1 for i, node in enumerate(tree.fed)}
        self._children = {node: tree.children(node) for node in (-1, *tree.fed)}
        self._values = {path[-1]: percent for percent, path in enumerate(tree.paths)}

    def read(self, prompts: list[Messages], state_text: bool = True, draw: Draw | None = None) -> list[Reading]:
        """One Reading a prompt; with `state_text` also the greedy text, with `draw` also what it draws."""
        ids = [prompt_ids(self.lm.tokenizer, messages, self.lm.template_kwargs) for messages in prompts]
        readings: list = [None] * len(ids)
        for batch in by_length(ids, self.batch_size):
            state = Prefilled(self.lm.model, [ids[i] for i in batch])
            logits = self._logits(state)
            slot, token = (torch.tensor(x, device=logits.device).expand(len(batch), -1) for x in self._picked)
            nodes = pick(logits, slot, token)
            values = value_logprobs(nodes, self.tree).cpu().numpy().astype(np.float32)
            found = [Reading(*one) for one in zip(values, greedy_value(nodes, self.tree), strict=True)]
            if draw is not None:
                self._draw(state, nodes, found, [draw(i, row) for i, row in zip(batch, values, strict=True)])
            if state_text:
                for reading, text in zip(found, self._texts(state, logits), strict=True):
                    reading.text = text
            for i, reading in zip(batch, found, strict=True):
                readings[i] = reading
        return readings

    def _draw(self, state: Prefilled, nodes: torch.Tensor, readings: list[Reading], drawn: list[list[int]]) -> None:
        """Note what was drawn with the log-probability of the whole turn. Each distinct value is fed once."""
        distinct = [sorted(set(percents)) for percents in drawn]
        behind = self._behind(state, [[self.tree.paths[p][-1] for p in percents] for percents in distinct])
        end = [(row[:, self.lm.tokenizer.eos_token_id] - row.logsumexp(-1)).tolist() for row in behind]
        stated = statement_logprobs(nodes, self.tree).tolist()
        for b, reading in enumerate(readings):
            place = {percent: r for r, percent in enumerate(distinct[b])}
            reading.drawn = drawn[b]
            reading.drawn_logprobs = [stated[b][percent] + end[b][place[percent]] for percent in drawn[b]]

    def _logits(self, state: Prefilled) -> torch.Tensor:
        """What follows the prompts and every fed node of the value tree: [B, 1 + fed, V]."""
        tree, count = self.tree, len(state.lengths)
        rows = torch.arange(count).repeat_interleave(len(tree.fed))
        tokens = torch.tensor([tree.tokens[node] for node in tree.fed]).repeat(count)
        depth = torch.tensor([tree.depth(node) for node in tree.fed]).repeat(count)
        behind = state.extend(rows, tokens, depth, tree.visibility().repeat(count, 1))
        return torch.cat([state.logits.unsqueeze(1), behind.unflatten(0, (count, -1))], dim=1)

    def _texts(self, state: Prefilled, logits: torch.Tensor) -> list[str]:
        """The greedy texts. A statement that the tree has followed to its value needs only its end to be checked."""
        paths = [self._follow(row) for row in logits.argmax(-1).tolist()]
        ended = self._ends(state, paths)
        state.drop_grown()
        texts = [statement(path[1]) if path and end else None for path, end in zip(paths, ended, strict=True)]
        rest = [i for i, text in enumerate(texts) if text is None]
        if rest:
            state.keep(rest)
            for i, text in zip(rest, self._decode(state), strict=True):
                texts[i] = text
        return texts

    def _follow(self, likeliest: list[int]) -> tuple[int, int] | None:
        """(node, percent) where greedy decoding leaves the tree at a value; None if it leaves it elsewhere."""
        node = -1
        while node == -1 or node in self._place:
            token = likeliest[self._place.get(node, 0)]
            onwards = [child for child in self._children[node] if self.tree.tokens[child] == token]
            if not onwards:
                break
            node = onwards[0]
        return (node, self._values[node]) if node in self._values else None

    def _ends(self, state: Prefilled, paths: list[tuple[int, int] | None]) -> list[bool]:
        """Whether the likeliest token behind each path's last node ends the turn."""
        nodes = [[self.tree.paths[0][-1] if path is None else path[0]] for path in paths]
        return [int(logits[0].argmax()) in self.lm.ends for logits in self._behind(state, nodes)]

    def _behind(self, state: Prefilled, nodes: list[list[int]]) -> list[torch.Tensor]:
        """What follows some nodes of each prompt's value tree, its fed nodes in the cache: B logits [nodes, V]."""
        tree = self.tree

        def branch(node: int) -> tuple[int, int, list[int]]:
            return tree.tokens[node], tree.depth(node), [self._place[one] - 1 for one in self._ancestors(node)]

        return state.extend_branches([[branch(node) for node in mine] for mine in nodes])

    def _ancestors(self, node: int) -> list[int]:
        parent = self.tree.parents[node]
        return [] if parent == -1 else [*self._ancestors(parent), parent]

    def _decode(self, state: Prefilled) -> list[str]:
        drawers = [Drawer(0, 0, 1.0) for _ in state.lengths]
        branches = grow(state, drawers, 1, STATEMENT_TOKENS, self.lm.ends)
        return self.lm.tokenizer.batch_decode([one.tokens for (one,) in branches], skip_special_tokens=True)

    def force(self, prompts: list[Messages]) -> list[str]:
        """Second try for statements that could not be read: the model goes on from ``Confidence:``."""
        opening = self.lm.tokenizer("Confidence:", add_special_tokens=False)["input_ids"]
        ids = [prompt_ids(self.lm.tokenizer, m, self.lm.template_kwargs) + opening for m in prompts]
        texts: list = [None] * len(ids)
        for batch in by_length(ids, self.batch_size):
            for i, text in zip(batch, self._decode(Prefilled(self.lm.model, [ids[i] for i in batch])), strict=True):
                texts[i] = f"Confidence:{text}"
        return texts


class SharedReader:
    """Reads with one base model in memory and one training's weights at a time in it.

    Adapters are put into the base model in turn (orce.adapters); whole models take its place. Nothing is loaded before
    the first call.
    """

    def __init__(self, settings: dict, batch_size: int):
        self.settings, self.batch_size = settings, batch_size
        self.reader = self.wardrobe = self.own = None

    def read(
        self,
        prompts: list[Messages],
        state_text: bool = True,
        draw: Draw | None = None,
        adapter: str | None = None,
    ) -> list[Reading]:
        """See Reader.read; `adapter` is a folder made by a training step, None the untrained model."""
        return self._dressed(adapter).read(prompts, state_text, draw)

    def force(self, prompts: list[Messages], adapter: str | None = None) -> list[str]:
        return self._dressed(adapter).force(prompts)

    def close(self) -> None:
        """Let go of the model."""
        self.reader = self.wardrobe = None
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _dressed(self, folder: str | None) -> Reader:
        own = folder if folder is not None and not is_adapter(folder) else None
        if self.reader is None or own != self.own:
            self.close()
            self.reader, self.own = Reader(language_model.load(self.settings, own), self.batch_size), own
            self.wardrobe = Wardrobe(self.reader.lm.model)
        self.wardrobe.wear(folder if own is None else None)
        return self.reader


def open(settings: dict, adapters: list[str], longest: int | None = None):
    """A reader for the confidence LLMs in the folders `adapters` and for the untrained model, whichever is asked for.

    settings: model, batch_size, engine (transformers or vllm) and, for vllm, gpu_memory_utilization and max_model_len.
    `longest`: tokens of the longest prompt with BUDGET behind it (orce.engines.longest), for vllm. The reader has
    ``read(prompts, state_text=True, adapter=None)``, ``force(prompts, adapter=None)`` and ``close()``. At most one
    model is in memory: ask for folders of whole models (training.method: full) one after the other.
    """
    if settings["engine"] == "transformers":
        return SharedReader(settings["model"], settings["batch_size"])
    from orce.vllm_reader import VllmReader

    memory = {key: settings[key] for key in ("gpu_memory_utilization", "max_model_len") if key in settings}
    return VllmReader(settings["model"] | memory, adapters, longest)


def state(reader, prompts: list[Messages], adapter: str | None = None) -> list[dict]:
    """Stated confidences with one retry: records {confidence in [0, 1] or null, mean, raw, retried}.

    `adapter` says with which weights, for a reader that has several (`open`).
    """
    chosen = {} if adapter is None else {"adapter": adapter}
    readings = reader.read(prompts, **chosen)
    records = [
        {"confidence": extract.confidence(r.text), "mean": r.mean, "mass": r.mass, "raw": r.text, "retried": False}
        for r in readings
    ]
    unread = [i for i, record in enumerate(records) if record["confidence"] is None]
    forced = reader.force([prompts[i] for i in unread], **chosen) if unread else []
    for i, text in zip(unread, forced, strict=True):
        records[i] |= {"confidence": extract.confidence(text), "raw": [records[i]["raw"], text], "retried": True}
    return records
