"""Embeddings of texts by an encoder of transformers: the mean of its last hidden states, as sentence-transformers takes it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from orce.llm import language_model
from orce.runtime import startup
from orce.stage_settings import Encoder

with startup.without_unused():
    from transformers.models.auto.modeling_auto import AutoModel


def load(settings: Encoder | Mapping[str, Any], batch_tokens: int) -> "Embedder":
    """The model of `settings` {source, dtype, device}."""
    model, tokenizer = language_model.encoder(AutoModel, settings, "embedding")
    return Embedder(model, tokenizer, batch_tokens)


class Embedder:
    """Embeds texts, in batches of `batch_tokens`."""

    def __init__(self, model, tokenizer, batch_tokens: int):
        self.model, self.tokenizer, self.batch_tokens = model, tokenizer, batch_tokens

    @torch.inference_mode()
    def vectors(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Vectors of length 1 [texts, size]; a text beyond the model's window is cut there."""
        if not texts:
            return np.zeros((0, 0))
        longest = max(map(len, texts)) + 2  # in characters, of which a token has one or more
        size, found = max(1, self.batch_tokens // longest), []
        for start in range(0, len(texts), size):
            batch = self.tokenizer([*texts[start : start + size]], padding=True, truncation=True, return_tensors="pt")
            batch = batch.to(self.model.device)
            states = self.model(**batch).last_hidden_state.double()
            mask = batch["attention_mask"].unsqueeze(-1)
            found.append((states * mask).sum(1) / mask.sum(1))
        return torch.nn.functional.normalize(torch.cat(found), dim=-1).cpu().numpy()

    def close(self) -> None:
        """Release the model."""
        del self.model
