"""Weights in, log-probabilities out: loading a causal language model and extending its key-value cache by trees.

`Prefilled` computes a batch of prompts once, the beginning that all share only once for the whole batch, and then
lets any number of continuations grow from them without copying the cache: every new token is one more cache column
that a mask shows to its own descendants alone.
"""

import contextlib
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, GenerationConfig

from orce.adapters import is_adapter
from orce.chat import end_ids
from orce.files import BadInput
from orce.tree import additive, common_prefix


@dataclass
class LanguageModel:
    """A causal language model ready to run: `name` for messages, `ends` the ids that end a turn."""

    model: torch.nn.Module
    tokenizer: object
    ends: set[int]
    template_kwargs: dict

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device


def origin(source: dict) -> tuple[str, str | None]:
    """Where weights come from: (hub id or folder, revision or None)."""
    if "hub" in source:
        return source["hub"], source.get("revision")
    folder = Path(source["path"])
    if not (folder / "config.json").exists():
        raise BadInput(f"{folder}: no config.json; expected a model folder in the Hugging Face format")
    if not any((folder / name).exists() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        raise BadInput(f"{folder}: no tokenizer (tokenizer.json); save the tokenizer beside the model's weights")
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        raise BadInput(f"{folder}: no weights (*.safetensors); expected a model folder in the Hugging Face format")
    return str(folder), None


def load(settings: dict, weights: str | None = None, trainable: bool = False) -> LanguageModel:
    """Load the model of `settings` {source, dtype, device, template_kwargs}.

    `weights` is a folder made by a training step: an adapter over that model, or a whole model that replaces it. For
    inference an adapter is merged; with `trainable` it stays apart and requires gradients.
    """
    adapted = weights is not None and is_adapter(weights)
    source = {"path": weights} if weights is not None and not adapted else settings["source"]
    place, revision = origin(source)
    with _explained(f"{place}: the tokenizer cannot be loaded"):
        tokenizer = AutoTokenizer.from_pretrained(place, revision=revision, padding_side="right")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    with _explained(f"{place}: the weights cannot be loaded"):
        model = AutoModelForCausalLM.from_pretrained(place, revision=revision, dtype=getattr(torch, settings["dtype"]))
    generation = model.generation_config or GenerationConfig()
    ends = end_ids(tokenizer, generation)
    if adapted:
        model = _with_adapter(model, weights, trainable)
    model.to(settings["device"])
    model.train(trainable)
    return LanguageModel(model, tokenizer, ends, settings.get("template_kwargs") or {})


@contextlib.contextmanager
def _explained(what: str):
    """The libraries' errors about files: one line, with the place."""
    try:
        yield
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise BadInput(f"{what}: {' '.join(str(error).split())[:500]}") from None


def _with_adapter(model, folder, trainable):
    from peft import PeftModel

    with _explained(f"{folder}: the adapter does not fit {model.config.name_or_path or 'the model'}"):
        model = PeftModel.from_pretrained(model, folder, is_trainable=trainable)
    return model if trainable else model.merge_and_unload()


def revision_of(settings: dict) -> str | None:
    """Commit of the weights in the local cache, for the record; None for a folder."""
    place, revision = origin(settings["source"])
    if Path(place).exists():
        return None
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(place, "config.json", revision=revision)
    return Path(cached).parent.name if isinstance(cached, str) else revision


def by_length(prompts: list[list[int]], size: int) -> list[list[int]]:
    """Indices of the prompts in batches of at most `size`, similar lengths together."""
    order = sorted(range(len(prompts)), key=lambda i: (len(prompts[i]), i))
    return [order[start : start + size] for start in range(0, len(order), size)]


class Prefilled:
    """A batch of B prompts in the cache, and the columns that grew from them.

    The cache holds the beginning that all prompts share, computed once, then the rest of each, padded on its left.
    `logits` [B, V] predict each prompt's next token. Inference only.
    """

    def __init__(self, model, prompts: list[list[int]]):
        self.model, self.device = model, next(model.parameters()).device
        self.lengths = torch.tensor([len(prompt) for prompt in prompts], device=self.device)
        self.cache = DynamicCache(config=model.config)
        self.grown = 0
        shared = common_prefix(prompts) if len(prompts) > 1 else 0
        if shared:
            self._run(torch.tensor([prompts[0][:shared]]), torch.arange(shared).unsqueeze(0), None, 1)
            self.cache.batch_repeat_interleave(len(prompts))
        self.logits = self._prefill_rest(prompts, shared)

    def _prefill_rest(self, prompts, shared):
        width = int(self.lengths.max()) - shared
        ids, positions = torch.zeros(2, len(prompts), width, dtype=torch.long)
        seen = torch.zeros(len(prompts), shared + width, dtype=torch.bool)
        seen[:, :shared] = True
        for b, prompt in enumerate(prompts):
            real = len(prompt) - shared
            ids[b, width - real :] = torch.tensor(prompt[shared:])
            positions[b, width - real :] = torch.arange(shared, len(prompt))
            seen[b, shared + width - real :] = True
        self.prompt_visible = seen.to(self.device)
        own = torch.eye(width, shared + width, dtype=torch.bool).roll(shared, 1)
        causal = torch.ones(width, shared + width, dtype=torch.bool).tril(shared)
        # A padded query sees itself: with nothing to see its softmax would be nan.
        return self._run(ids, positions, ((seen.unsqueeze(1) & causal) | own).unsqueeze(1), 1)[:, 0]

    @torch.inference_mode()
    def _run(self, ids, positions, visible, keep):
        mask = None if visible is None else additive(visible.to(self.device), self.model.dtype)
        return self.model(
            input_ids=ids.to(self.device),
            position_ids=positions.to(self.device),
            attention_mask=mask,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=keep,
        ).logits.float()

    def extend(self, tokens: torch.Tensor, depth: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        """Append R columns to every row and return what follows each: logits [B, R, V].

        tokens, depth: int64 [B, R] (depth 1 stands right behind the prompt); seen: bool [B, R, grown + R], the grown
        columns that each new one attends to, itself included. The prompt is always seen.
        """
        width = tokens.size(1)
        prompt = self.prompt_visible.unsqueeze(1).expand(-1, width, -1)
        visible = torch.cat([prompt, seen.to(self.device)], dim=2).unsqueeze(1)
        positions = self.lengths.unsqueeze(1) - 1 + depth.to(self.device)
        logits = self._run(tokens, positions, visible, width)
        self.grown += width
        return logits

    def drop_grown(self) -> None:
        """Forget all columns behind the prompts."""
        if self.grown:
            self.cache.crop(-self.grown)
            self.grown = 0

    def keep(self, rows: list[int]) -> None:
        """Go on with some of the prompts only."""
        index = torch.tensor(rows, device=self.device)
        self.cache.batch_select_indices(index)
        self.lengths, self.prompt_visible = self.lengths[index], self.prompt_visible[index]
        self.logits = self.logits[index]
