"""Reading a confidence LLM with transformers: one model in memory, any number of adapters in turn."""

import numpy as np
import torch

from orce.confidence.distribution import (
    STATEMENT_TOKENS,
    Draw,
    Reading,
    greedy_value,
    statement_logprobs,
    value_logprobs,
    value_tree,
)
from orce.llm import language_model
from orce.llm.adapters import Wardrobe, is_adapter
from orce.llm.chat import Messages, prompt_ids, statement
from orce.llm.engines.transformers import Drawer, grow
from orce.llm.kv_cache import Prefilled
from orce.llm.language_model import LanguageModel, by_length
from orce.llm.trie import pick


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

    Adapters are put into the base model in turn (orce.llm.adapters); whole models take its place. Nothing is loaded before
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
