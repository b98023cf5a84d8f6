"""What a local model folder says before it is loaded: its linear layers and their number, against training.lora.

Only headers are read: a plan with a model of 70B takes no longer.
"""

import difflib
import json
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from orce.config import layout
from orce.config.schema import Config, Source
from orce.methods import Registry

COMMON = (  # names of linear layers: Llama, Qwen, Mistral, Gemma, Phi; Falcon, GPT-NeoX, Bloom; GPT-2; OPT; MPT; InternLM
    "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "qkv_proj", "gate_up_proj",
    "query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h", "c_attn", "c_proj", "c_fc", "out_proj", "fc1", "fc2",
    "Wqkv", "wqkv", "wo", "w1", "w2", "w3",
)  # fmt: skip


def problems(config: Config, registry: Registry) -> Iterator[str]:
    """What is wrong with training.lora for the models that the run trains, as far as their folders tell."""
    lora, judges = config.training.lora, list(_trained(config, registry))
    if config.training.method != "lora":
        return
    for name, source in judges:
        last, layers = lora.last_layers, _layers(source)
        if last is not None and layers is not None and last > layers:
            yield f"training.lora.last_layers: {last} is more than the {layers} layers of models.{name}; null adapts all"
    folders = {name: Path(source["path"]) for name, source in judges if "path" in source}
    modules = {name: layers_of for name, folder in folders.items() if (layers_of := linear(folder))}
    everywhere = {module for layers_of in modules.values() for module in layers_of}
    for name, layers_of in modules.items():
        if not any(_matches(target, layers_of) for target in lora.target_modules):
            yield f"training.lora.target_modules: models.{name} has none of them; its layers are {', '.join(_ends(layers_of))}"
    for target in (target for target in lora.target_modules if not _matches(target, everywhere)):
        if judges and len(modules) == len(judges):
            shown = f"layers are {', '.join(_ends(everywhere))}"
            yield f"training.lora.target_modules: {target!r} is not a layer of {', '.join(modules)}; {shown}"
        elif close := _meant(target):
            yield f"training.lora.target_modules: {target!r} is not a layer of a common model; did you mean {close!r}?"


def notes(config: Config, registry: Registry) -> Iterator[str]:
    """A line for each of target_modules that is in no common family of models, where a model's folder cannot tell."""
    lora, judges = config.training.lora, list(_trained(config, registry))
    unseen = [name for name, source in judges if "path" not in source]
    for target in lora.target_modules if config.training.method == "lora" and unseen else ():
        if target.rpartition(".")[2] not in COMMON:
            yield f"config: training.lora.target_modules: {target!r} is not a layer of a common model; is it one of {unseen[0]}?"


def _meant(target: str) -> str | None:
    """The common layer that a name was meant to be, if it is not one itself."""
    name = target.rpartition(".")[2]
    close = difflib.get_close_matches(name, COMMON, 1, 0.8)
    return close[0] if close and name not in COMMON else None


def _trained(config: Config, registry: Registry) -> Iterator[tuple[str, Source]]:
    """(name, source) of each model that the asked tables train."""
    seen = set()
    for table in (config.tables[name] for name in config.paper_tables):
        if not any(registry.weights(row) is not None for row in layout.labels(table, registry)):
            continue
        for name in [(table.source or "")] if table.kind == "transfer" else table.models:
            judge = config.models[name].confidence or name
            judge = config.models[judge].source.get("model", judge)
            if judge not in seen:
                seen.add(judge)
                yield judge, config.models[judge].source


def linear(folder: Path) -> set[str]:
    """Full names of the modules with a weight in a folder of safetensors; empty if it has none that can be read."""
    index = folder / "model.safetensors.index.json"
    try:
        if index.is_file():
            names: Iterable[str] = json.loads(index.read_bytes())["weight_map"]
        else:
            names = [name for path in folder.glob("*.safetensors") for name in _header(path)]
    except (ValueError, KeyError, OSError, struct.error):
        return set()  # loading will say what is wrong with it
    weights = {name.removesuffix(".weight") for name in names if name.endswith(".weight")}
    return {name for name in weights if "norm" not in name and "embed" not in name}


def _header(path: Path) -> dict:
    """The header of a safetensors file: its length in 8 bytes, then JSON."""
    with open(path, "rb") as handle:
        (length,) = struct.unpack("<Q", handle.read(8))
        return json.loads(handle.read(min(length, 100_000_000)))


def _matches(target: str, modules: Iterable[str]) -> bool:
    """Whether peft adapts one of the modules."""
    return any(module == target or module.endswith(f".{target}") for module in modules)


def _ends(modules: Iterable[str]) -> list[str]:
    return sorted({module.rpartition(".")[2] for module in modules})


def _layers(source: Source) -> int | None:
    """The number of a model's layers; None where it is not known before the weights are."""
    try:
        shape = json.loads((Path(source.get("path", "")) / "config.json").read_bytes())
        return shape.get("text_config", shape).get("num_hidden_layers")
    except (KeyError, ValueError, OSError, AttributeError):
        return None
