"""Loads causal language models: from a folder, from the hub, or as an adapter over either.

Weights are data here, never code: a model's own Python files are not run, and weights are read as
safetensors only, as a pickle (*.bin) can run code when it is read.
"""

import contextlib
import json
import os
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from orce.artefacts import files
from orce.artefacts.store import manifest_facts, verify_folder
from orce.errors import BadInput
from orce.llm.chat import Messages, TemplateKwargs, check_template, prompts_ids
from orce.llm.trie import use_blocks
from orce.runtime import lease, process
from orce.settings.stage import Model, Source, from_mapping

with process.hide_unused_packages():
    from transformers import (
        AutoConfig,
        AutoModelForCausalLM,
        AutoModelForSequenceClassification,
        AutoTokenizer,
        GenerationConfig,
    )
    from transformers.utils import logging

PICKLED = (
    "a pickle can run code; save the weights as safetensors, by save_pretrained of transformers"
)
OWN_CODE = "it needs Python code of its own (auto_map), which is never run; take a model whose class is part of transformers"
# What old checkpoints have and a model does without, beside what transformers itself leaves out in
# silence (rotary inv_freq, for one): GPT-2's causal masks, which were saved as buffers, and the
# pooler of an encoder that classifies without it.
LEFT_OVER = re.compile(r"\battn\.(masked_)?bias$|\battention\.(masked_)?bias$|\bpooler\.")
NAMED = 3  # keys of each kind in a message
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")
AnySource = Source | Mapping[str, Any]


@dataclass
class LanguageModel:
    """A causal language model, ready to run."""

    model: Any  # of transformers, or peft's wrapper of one
    tokenizer: Any
    ends: set[int]  # the token ids that end a turn
    template_kwargs: dict[str, Any]  # arguments of the chat template, such as enable_thinking

    @property
    def device(self) -> torch.device:
        return self.model.device


def origin(source: AnySource) -> tuple[str, str | None]:
    """Where weights come from, (hub id or folder, revision or None), of a source {hub, revision} or
    {path}. Raises BadInput if a folder is not a model with its tokenizer, or has changed since its
    step wrote it.
    """
    source = from_mapping(Source, source)
    if isinstance(source.hub, str):
        return source.hub, source.revision or None
    folder = Path(source.path or "")
    verify_folder(folder)
    expected = "expected a model folder in the Hugging Face format"
    if not (folder / "config.json").exists():
        raise BadInput(f"{folder}: no config.json; {expected}")
    if not any((folder / name).exists() for name in TOKENIZERS):
        raise BadInput(
            f"{folder}: no tokenizer (tokenizer.json); save the tokenizer beside the model's weights"
        )
    if not any(folder.glob("*.safetensors")):
        pickles = [*folder.glob("*.bin")]
        pickled = f". {pickles[0].name} is not read: {PICKLED}" if pickles else ""
        raise BadInput(f"{folder}: no weights (*.safetensors); {expected}{pickled}")
    return str(folder), None


def vocabulary(
    source: AnySource,
    template_kwargs: TemplateKwargs = None,
    taught: bool = False,
) -> tuple[Any, set[int]]:
    """(tokenizer, ids that end a turn) of a source of weights, without loading the weights.

    Raises BadInput if there is no tokenizer, or its chat template cannot be used. With `taught`,
    for training, the template must end a turn with the tokenizer's own eos, which is the end that
    training teaches; to generate, any end that the generation config names will do.
    """
    path, revision = origin(source)
    with explained(f"{path}: the tokenizer cannot be loaded"):
        tokenizer: Any = AutoTokenizer.from_pretrained(
            path, revision=revision, trust_remote_code=False, padding_side="right"
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    try:
        generation = GenerationConfig.from_pretrained(path, revision=revision or "main")
    except OSError:  # a model need not have one
        generation = GenerationConfig.from_model_config(config_of(source))
    named = generation.eos_token_id
    ends = {tokenizer.eos_token_id, *(named if isinstance(named, list) else [named])} - {None}
    check_template(tokenizer, path, template_kwargs, {tokenizer.eos_token_id} if taught else ends)
    return tokenizer, ends


def config_of(source: AnySource) -> Any:
    path, revision = origin(source)
    with explained(f"{path}: the model's config cannot be loaded"):
        return AutoConfig.from_pretrained(path, revision=revision, trust_remote_code=False)


def prompt_lengths(settings: Mapping[str, Any], prompts: Iterable[Messages]) -> list[int]:
    """Tokens of each prompt, for a model whose weights are not loaded yet."""
    model = from_mapping(Model, settings)
    template_kwargs = model.template_kwargs or {}  # as `load` has them: it asks for the same ids
    tokenizer, _ = vocabulary(model.source, template_kwargs)
    return list(map(len, prompts_ids(tokenizer, prompts, template_kwargs, keep=True)))


def device_or_free(name: str | None) -> str:
    """The device of a program outside the workflow: as named, else one GPU, leased if several are
    visible, else the CPU. By name, `cuda` is all that are visible. Call it before CUDA starts;
    afterwards it is the GPU in use.
    """
    if name:
        if name.startswith("cuda") and not torch.cuda.is_available():
            raise BadInput(
                f"device {name}: torch sees no GPU here; leave --device out (device=) for the CPU"
            )
        with contextlib.suppress(RuntimeError):
            device = torch.device(name)
            there = {"cpu": 1, "cuda": torch.cuda.device_count()}.get(device.type, 0)
            if (device.index or 0) < there:
                return str(device)
        raise BadInput(f"device {name!r}: not one of this machine; expected cpu, cuda, cuda:1, ...")
    if torch.cuda.is_initialized():
        return f"cuda:{torch.cuda.current_device()}"
    devices, _ = lease.visible()
    if len(devices) > 1:
        lease.lease(devices, 1)
    return "cuda" if torch.cuda.is_available() else "cpu"


def load(
    settings: Model | Mapping[str, Any],
    weights: str | None = None,
    trainable: bool = False,
    merged: bool = True,
) -> LanguageModel:
    """Load the model of `settings` {source, dtype, device, template_kwargs}.

    weights: a folder made by a training step, an adapter over that model or a whole model that
    replaces it. trainable: keep an adapter apart, with gradients, in place of merging it for
    inference. merged: without it, the adapter stays apart for inference too. Raises BadInput with one
    line for whatever is missing, broken or cannot be used.
    """
    wanted = from_mapping(Model, settings)
    source, adapter = _split(wanted.source, weights)
    template_kwargs = wanted.template_kwargs or {}
    tokenizer, ends = vocabulary(source, template_kwargs, taught=trainable)
    device = torch.device(wanted.device)
    rank = os.environ.get("LOCAL_RANK")
    if device.type == "cpu":
        process.keep_memory()
    elif rank is not None:  # a launcher has started several processes
        device = torch.device("cuda", int(rank))
    several = device.type == "cuda" and device.index is None and torch.cuda.device_count() > 1
    options: dict[str, Any] = {"dtype": wanted.dtype}
    if several and not trainable:
        options["device_map"] = "balanced"  # spreads the layers over the GPUs of a job
    model: Any = pretrained(*origin(source), **options)
    use_blocks(model)
    if "device_map" not in options:
        model.to(device)
    if adapter:
        model = adapted(model, adapter, trainable)
        if not trainable:
            merged = merged and not _lost_by_merging(adapter, wanted.dtype)
            model = model.merge_and_unload() if merged else model.get_base_model()
    model.train(trainable)
    process.resume_collection()
    return LanguageModel(model, tokenizer, ends, template_kwargs)


def _split(source: AnySource, weights: str | None) -> tuple[AnySource, str | None]:
    """(whole model, adapter over it) of a model and the folder that a training has made of it: an
    adapter, or a whole model in its place.
    """
    if weights is None or is_adapter(weights):
        return source, weights
    return Source(path=weights), None


def _lost_by_merging(adapter: str, dtype: str) -> bool:
    """Whether rounding the merged weights would undo more than a tenth of the adapter's training."""
    moved = manifest_facts(adapter).get("log_odds") or {"merged": 0, "trained": 0}
    return dtype != "float32" and moved["merged"] > moved["trained"] / 10


def classifies(source: AnySource) -> bool:
    """Whether a model classifies texts, as an NLI model does, and writes none."""
    names = config_of(source).architectures or []
    return any(name.endswith("ForSequenceClassification") for name in names)


def check_weights(source: AnySource, weights: str | None = None) -> None:
    """Raises BadInput, before anything is computed, for weights that could not be loaded whole.

    They are those of a causal language model or a classifier, and of a folder `weights` that a
    training has made of it (an adapter, or a whole model in its place). The model is made on the
    meta device, without memory, and of its checkpoint only names and shapes are read: under a
    second. Quantized weights are checked when they are loaded: that needs the device.
    """
    source, adapter = _split(source, weights)
    if getattr(config_of(source), "quantization_config", None) is not None:
        return
    kind = AutoModelForSequenceClassification if classifies(source) else AutoModelForCausalLM
    logging.disable_progress_bar()  # nothing is read that takes time
    with torch.random.fork_rng(devices=[]):
        model = pretrained(*origin(source), kind, device_map="meta")
        if adapter:
            adapted(model, adapter)


def pretrained(path: str, revision: str | None, kind: Any = AutoModelForCausalLM, **options) -> Any:
    """The model of a folder or hub id, as the class `kind` of transformers.

    transformers fills weights that a checkpoint lacks with random numbers, leaves out those that a
    model has no place for, and only warns of both. Here they raise BadInput, as do weights of
    another shape. Tied weights and what transformers knows as left over are not counted.
    """
    options |= {"revision": revision, "trust_remote_code": False, "use_safetensors": True}
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # in place of its table of keys
    try:
        with explained(f"{path}: the weights cannot be loaded"):
            model, found = kind.from_pretrained(
                path, output_loading_info=True, ignore_mismatched_sizes=True, **options
            )
    finally:
        logging.set_verbosity(verbosity)
    unknown = [key for key in found["unexpected_keys"] if not LEFT_OVER.search(key)]
    problems = unfit(found["missing_keys"], unknown, found["mismatched_keys"])
    if problems:
        raise BadInput(
            f"{path}: not the weights of its config.json ({type(model).__name__}): {problems}; what is missing would be "
            "random numbers, and what is unknown left out; save the whole model, and not its wrapper, by save_pretrained "
            "of transformers"
        )
    return model


def adapted(model: Any, adapter: str, trainable: bool = False) -> Any:
    """PEFT's wrapper of a model with the adapter in a folder. Raises BadInput unless the adapter
    fits the model: PEFT leaves at their start, which changes nothing, what a folder lacks, and
    leaves out what the model has no place for.
    """
    from peft import MODEL_TYPE_TO_PEFT_MODEL_MAPPING, PeftConfig, PeftModel

    folder = Path(adapter)
    base = model.config.name_or_path or "the model"
    # A pickle can run code, and so can a module that a config names.
    if not (folder / "adapter_model.safetensors").exists():
        raise BadInput(
            f"{adapter}: no adapter_model.safetensors; a pickled adapter (adapter_model.bin) is never read"
        )
    if files.read_json(folder / "adapter_config.json").get("megatron_config"):
        raise BadInput(
            f"{adapter}/adapter_config.json: megatron_config makes peft import a module; set it to null"
        )
    misfit = f"{adapter}: the adapter does not fit {base}"
    with explained(misfit), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is counted here
        # As PeftModel.from_pretrained does, which does not say what it found.
        config = PeftConfig.from_pretrained(adapter)
        config.inference_mode = not trainable
        task: Any = config.task_type
        wrapped = MODEL_TYPE_TO_PEFT_MODEL_MAPPING.get(task, PeftModel)(model, config)
        found = wrapped.load_adapter(
            adapter,
            "default",
            is_trainable=trainable,
            # By default peft reads it into the first GPU, whichever is this process's own.
            torch_device="cpu" if model.device.type == "meta" else str(model.device),
            ignore_mismatched_sizes=True,
        )
        with safe_open(folder / "adapter_model.safetensors", "pt") as tensors:
            theirs = {key: tensors.get_slice(key).get_shape() for key in tensors.keys()}  # noqa: SIM118 (not a mapping)
    ours = {_saved(key): tensor.shape for key, tensor in wrapped.state_dict().items()}
    # PEFT counts those of another shape among them
    missing = {_saved(key) for key in found.missing_keys}
    shaped = missing & theirs.keys()
    unknown = map(_saved, found.unexpected_keys)
    shapes = [(key, theirs[key], ours[key]) for key in shaped]
    problems = unfit(missing - shaped, unknown, shapes)
    if problems:
        remedy = "save all of it by save_pretrained of peft, and load it over the model that it was trained on"
        raise BadInput(f"{misfit}: {problems}; {remedy}")
    return wrapped


def _saved(key: str) -> str:
    """The name of an adapter's weight in its file, which has no name of the adapter."""
    return re.sub(r"\.default(?=\.|$)", "", key)


def unfit(
    missing: Iterable[str], unknown: Iterable[str], shapes: Iterable[tuple[str, Any, Any]]
) -> str:
    """What is wrong with a checkpoint, with the first keys of each kind, or nothing; shapes: (key,
    shape in the file, shape in the model).
    """
    shaped = [f"{key}, which is {[*theirs]} in place of {[*ours]}" for key, theirs, ours in shapes]
    problems = []
    kinds = {"missing": missing, "unknown to the model": unknown, "of another shape": shaped}
    for kind, keys in kinds.items():
        keys = sorted(keys)
        if keys:
            first = ", ".join(keys[:NAMED]) + (", ..." if len(keys) > NAMED else "")
            problems.append(f"{len(keys)} {kind} ({first})")
    return "; ".join(problems)


@contextlib.contextmanager
def explained(what: str):
    """Turn the libraries' errors about files into one line, after `what`; not what the machine lacks."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, ModuleNotFoundError):
        raise
    except Exception as error:  # noqa: BLE001 - of an odd value a library may make any error
        reason = " ".join(str(error).split())[:500]
        if "trust_remote_code" in str(error):  # the libraries advise it; we never use it
            reason = OWN_CODE
        elif isinstance(error, KeyError):
            reason = f"no {reason}"
        elif "use_safetensors" in str(error):
            reason = f"no weights as safetensors; {PICKLED}"
        raise BadInput(f"{what}: {reason}") from None


def revision_of(settings: Model) -> str | None:
    """Commit of a hub model's weights in the local cache; None for a folder."""
    path, revision = origin(settings.source)
    if Path(path).exists():
        return None
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(path, "config.json", revision=revision)
    return Path(cached).parent.name if isinstance(cached, str) else revision


def is_adapter(folder) -> bool:
    return (Path(folder) / "adapter_config.json").exists()


def sort_sets(folder) -> None:
    """Sort what peft keeps as sets, such as target_modules: their order differs from process to
    process.
    """
    path = Path(folder) / "adapter_config.json"
    if not path.exists():
        return
    config = json.loads(path.read_text())
    for key, value in config.items():
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            config[key] = sorted(value)
    files.write_json(path, config)
