"""Natural language inference: whether a text entails another, by a model of transformers for sequence classification."""

from collections.abc import Mapping
from typing import Any

import torch

from orce.errors import BadInput
from orce.llm import language_model
from orce.runtime import startup
from orce.stage_settings import Encoder, typed

with startup.without_unused():
    from transformers.models.auto.modeling_auto import AutoModelForSequenceClassification


def load(settings: Encoder | Mapping[str, Any], batch_tokens: int) -> "Nli":
    """The model of `settings` {source, dtype, device}. Raises BadInput for one that names no label `entailment`."""
    model, tokenizer = language_model.encoder(AutoModelForSequenceClassification, settings, "NLI")
    names = {i: str(name).lower() for i, name in model.config.id2label.items()}
    if "entailment" not in names.values():
        place, _ = language_model.origin(typed(Encoder, settings).source)
        raise BadInput(f"{place}: its labels are {', '.join(names.values())}; an NLI model has a label `entailment`")
    return Nli(model, tokenizer, names, batch_tokens)


class Nli:
    """Labels pairs of texts, in batches of `batch_tokens`."""

    entailment = "entailment"

    def __init__(self, model, tokenizer, names: dict[int, str], batch_tokens: int):
        self.model: Any = model  # None once closed
        self.tokenizer, self.names, self.batch_tokens = tokenizer, names, batch_tokens

    @torch.inference_mode()
    def labels(self, pairs: list[tuple[str, str]]) -> list[str]:
        """The most probable label of each (premise, hypothesis)."""
        longest = max(len(one) + len(other) for one, other in pairs)  # in characters, of which a token has one or more
        size, found = max(1, self.batch_tokens // longest), []
        for start in range(0, len(pairs), size):
            batch = self.tokenizer(pairs[start : start + size], padding=True, truncation=True, return_tensors="pt")
            logits = self.model(**batch.to(self.model.device)).logits
            found += [self.names[i] for i in logits.argmax(-1).tolist()]
        return found

    def close(self) -> None:
        self.model = None
