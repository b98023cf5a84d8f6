"""Convert the GGUF weights in a Python package to the Hugging Face format (safetensors)."""

from typing import Annotated

from orce.llm import gguf


def run(
    package: Annotated[str, "name of the installed package"],
    file: Annotated[str, "name of the GGUF file in it"],
    out: Annotated[str, "folder of the model"],
):
    gguf.convert(package, file, out)
