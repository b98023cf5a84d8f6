"""Loading a causal language model: from a folder, from the hub, or an adapter over either."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from orce.llm.adapters import is_adapter
from orce.llm.chat import end_ids
from orce.llm.trie import common_prefix
from orce.runtime.files import BadInput

# How much longer than a batch's shortest prompt its longest may be: half again, and some tokens that cost little.
SPREAD, SLACK = 1.5, 32


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
    """Indices of the prompts in batches of at most `size`, similar lengths together.

    A batch is padded to its longest, behind the beginning that all prompts share: one that is much longer than the
    batch's shortest begins a batch of its own.
    """
    shared = common_prefix(prompts) if len(prompts) > 1 else 0
    own = [len(prompt) - shared for prompt in prompts]
    batches: list[list[int]] = []
    for i in sorted(range(len(prompts)), key=lambda i: (own[i], i)):
        if not batches or len(batches[-1]) == size or own[i] > SPREAD * own[batches[-1][0]] + SLACK:
            batches.append([])
        batches[-1].append(i)
    return batches
