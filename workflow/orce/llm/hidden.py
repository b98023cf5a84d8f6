"""Hidden states at the ends of prompts and of replies to them, with transformers."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from orce.llm import batches, language_model, plain_text
from orce.llm.chat import Messages, prompts_ids
from orce.llm.kv_cache import REMEDY, KVCache
from orce.llm.language_model import LanguageModel
from orce.llm.window import check_window
from orce.stage_settings import Model


class States(NamedTuple):
    """[layers, size]: the states of a prompt's last token, and of its reply's."""

    prompt: np.ndarray
    reply: np.ndarray


class Encoder:
    """Reads hidden states of one model.

    depths: of the layers, as shares of the model's: 0.5 is the output of the middle layer, 1 of the last.
    """

    def __init__(self, lm: LanguageModel, depths: Sequence[float], batch_tokens: int):
        self.lm, self.batch_tokens = lm, batch_tokens
        blocks = lm.model.get_decoder().layers
        self.blocks = [blocks[max(1, round(depth * len(blocks))) - 1] for depth in depths]

    def states(self, prompts: Sequence[Messages], replies: Sequence[str]) -> list[States]:
        """The states of each prompt and its reply."""
        ids = prompts_ids(self.lm.tokenizer, prompts, self.lm.template_kwargs)
        after = [plain_text.text_ids(self.lm.tokenizer, reply) for reply in replies]
        check_window(self.lm.model.config, max(map(len, [*ids, []])) + max(map(len, [*after, []])), REMEDY)
        found: list = [None] * len(ids)
        for batch in batches.padded(ids, self.batch_tokens, max(map(len, after), default=0)):
            for i, one in zip(batch, self._of_batch([ids[i] for i in batch], [after[i] for i in batch]), strict=True):
                found[i] = one
        return found

    def _of_batch(self, ids: list[list[int]], after: list[list[int]]) -> Iterator[States]:
        with self._watched() as seen:
            cache = KVCache(self.lm.model, ids)
            prompt = torch.stack([one[:, -1].float().cpu() for one in seen], 1).numpy()  # [prompts, layers, size]
            reply = prompt.copy()
            sizes = list(map(len, after))
            if any(sizes):
                tokens = [token for one in after for token in one]
                depth = [place for size in sizes for place in range(1, size + 1)]
                visible = torch.arange(max(sizes)) < torch.tensor(depth).unsqueeze(1)
                cache.extend(sizes, tokens, depth, visible)
                ends = np.cumsum(sizes) - 1
                rows = [i for i, size in enumerate(sizes) if size]
                reply[rows] = torch.stack([one[0, ends[rows]].float().cpu() for one in seen], 1).numpy()
        for before, end in zip(prompt, reply, strict=True):
            yield States(before, end)

    @contextlib.contextmanager
    def _watched(self):
        """The outputs of the layers in the latest forward pass, as a list that each pass fills anew."""
        seen: list[Any] = [None] * len(self.blocks)

        def keep(i):
            def hook(_, __, output):
                seen[i] = output[0] if isinstance(output, tuple) else output

            return hook

        hooks = [block.register_forward_hook(keep(i)) for i, block in enumerate(self.blocks)]
        try:
            yield seen
        finally:
            for hook in hooks:
                hook.remove()

    def close(self) -> None:
        """Release the model."""
        del self.lm, self.blocks


def load(settings: Model | Mapping[str, Any], depths: Sequence[float], batch_tokens: int) -> Encoder:
    """The encoder of a model; settings as for orce.llm.language_model.load."""
    return Encoder(language_model.load(settings), depths, batch_tokens)
