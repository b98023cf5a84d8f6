"""Natural language inference: whether a text entails another, by a model of transformers for sequence classification."""

from collections.abc import Mapping
from typing import Any

import torch
from transformers.models.auto.tokenization_auto import AutoTokenizer

from orce.errors import BadInput
from orce.llm import language_model
from orce.runtime import process
from orce.stage_settings import Encoder, typed

with process.without_unused():
    from transformers.models.auto.modeling_auto import AutoModelForSequenceClassification


class Nli:
    """The model of `settings` {source, dtype, device}. Raises BadInput for one that names no label `entailment`."""

    def __init__(self, settings: Encoder | Mapping[str, Any], batch_tokens: int):
        settings, self.batch_tokens = typed(Encoder, settings), batch_tokens
        place, revision = language_model.origin(settings.source)
        where: dict[str, Any] = {"revision": revision, "trust_remote_code": False}
        with language_model.explained(f"{place}: the NLI model cannot be loaded"):
            self.tokenizer: Any = AutoTokenizer.from_pretrained(place, **where)
            model = AutoModelForSequenceClassification.from_pretrained(
                place, dtype=getattr(torch, settings.dtype), use_safetensors=True, **where
            )
        self.model: Any = model.to(torch.device(settings.device)).eval()
        process.imported()
        self.names = {i: str(name).lower() for i, name in model.config.id2label.items()}
        if "entailment" not in self.names.values():
            raise BadInput(
                f"{place}: its labels are {', '.join(self.names.values())}; an NLI model has a label `entailment`"
            )

    @torch.inference_mode()
    def labels(self, pairs: list[tuple[str, str]]) -> list[str]:
        """The most probable label of each (premise, hypothesis)."""
        longest = max((len(one) + len(other) for one, other in pairs), default=1)  # a token has at least one character
        size, found = max(1, self.batch_tokens // longest), []
        for start in range(0, len(pairs), size):
            batch = self.tokenizer(pairs[start : start + size], padding=True, truncation=True, return_tensors="pt")
            logits = self.model(**batch.to(self.model.device)).logits
            found += [self.names[i] for i in logits.argmax(-1).tolist()]
        return found

    def close(self) -> None:
        self.model = None
