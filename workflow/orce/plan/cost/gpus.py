"""GPUs by name: dense peak, memory and compute capability, from the makers' data sheets."""

import difflib
import re
from typing import NamedTuple

from orce.errors import BadInput


class Gpu(NamedTuple):
    """A GPU: peak without sparsity in `dtype` [TFLOP/s], memory [GB], compute capability, and where the peak stands.

    The peak is of tensor cores in bfloat16 with sums in float32. Capabilities below 8.0 have no bfloat16: what fits
    runs in float32.
    """

    name: str
    tflops: float
    memory: int
    capability: float
    source: str

    @property
    def dtype(self) -> str:
        return dtype(self.capability)

    @property
    def preset(self) -> str | None:
        return preset(self.memory, self.capability)


def dtype(capability: float) -> str:
    """The arithmetic of a compute capability: bfloat16 from 8.0 on; float16 has no training here."""
    return "bfloat16" if capability >= 8 else "float32"


# For models of 8B: the least memory [GB], and the file over config.yaml that fits into it.
PRESETS = ((60, None), (36, "config/40gb.yaml"), (22, "config/24gb.yaml"))


def preset(memory: float, capability: float) -> str | None:
    """The file for models of 8B on a GPU of this memory [GB]; None for config.yaml alone. BadInput if none fits.

    float32 is taken to need twice the memory of bfloat16.
    """
    times = 1 if dtype(capability) == "bfloat16" else 2
    for least, name in PRESETS:
        if memory >= times * least:
            return name
    least = times * PRESETS[-1][0]
    raise BadInput(f"models of 8B in {dtype(capability)} need a GPU of {least} GB; this one has {memory:g} GB")


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("H100", 989, 80, 9.0, "NVIDIA H100 data sheet, SXM"),
        Gpu("H100 PCIe", 756, 80, 9.0, "NVIDIA H100 data sheet, PCIe"),
        Gpu("H200", 989, 141, 9.0, "NVIDIA H200 data sheet, SXM"),
        Gpu("B200", 2250, 180, 10.0, "NVIDIA DGX B200 data sheet, an eighth"),
        Gpu("A100", 312, 80, 8.0, "NVIDIA A100 data sheet"),
        Gpu("A100 40GB", 312, 40, 8.0, "NVIDIA A100 data sheet"),
        Gpu("L40S", 362, 48, 8.9, "NVIDIA L40S data sheet"),
        Gpu("L4", 121, 24, 8.9, "NVIDIA L4 data sheet"),
        Gpu("A10", 125, 24, 8.6, "NVIDIA A10 data sheet"),
        Gpu("RTX A6000", 155, 48, 8.6, "NVIDIA Ampere GA102 white paper"),
        Gpu("RTX 3090", 71, 24, 8.6, "NVIDIA Ampere GA102 white paper"),
        Gpu("RTX 4090", 165, 24, 8.9, "NVIDIA Ada GPU architecture white paper"),
        Gpu("RTX 5090", 210, 32, 12.0, "NVIDIA RTX Blackwell white paper"),
        Gpu("V100", 15.7, 32, 7.0, "NVIDIA V100 data sheet, float32"),
        Gpu("T4", 8.1, 16, 7.5, "NVIDIA T4 data sheet, float32"),
    )
}


def find(name: str) -> Gpu:
    """A GPU by its name, also as nvidia-smi and torch write it: NVIDIA A100-SXM4-80GB. BadInput with the nearest names."""
    known = {_plain(one): gpu for one, gpu in GPUS.items()}
    for left_out in ("", MEMORY, "pcie", f"{MEMORY}|pcie"):
        if gpu := known.get(_plain(name, left_out)):
            return gpu
    close = difflib.get_close_matches(_plain(name), known, n=3, cutoff=0.4) or list(known)
    names = ", ".join(known[one].name for one in close)
    raise BadInput(f"--gpu {name!r}: not in the table; did you mean {names}? Or give its peak: --tflops N")


MAKERS = r"nvidia|geforce|tesla|sxm\d?|hbm\d?e?"
MEMORY = r"\d+ ?gb"


def _plain(name: str, left_out: str = "") -> str:
    """A name without case, spaces, the maker's words, and what matches `left_out`."""
    words = re.sub("|".join(filter(None, (MAKERS, left_out))), " ", name.lower())
    return re.sub(r"[^a-z0-9]", "", words)
