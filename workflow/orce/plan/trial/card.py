"""The GPU that a check runs on, and what the check chooses for it."""

import shutil
import subprocess
from dataclasses import dataclass

from orce.errors import BadInput
from orce.plan.cost import flops, gpus

SHAPE = "meta-llama/Meta-Llama-3-8B-Instruct"
ROOM = 0.5  # share of the memory for the weights of a shape that is cut to fit
QUICK = 4  # layers of a quick check
BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


@dataclass(frozen=True)
class Card:
    """A GPU: name, memory [GB], compute capability, driver, and how many are visible."""

    name: str
    memory: float
    capability: float
    driver: str = ""
    visible: int = 1


@dataclass(frozen=True)
class Choice:
    """What a check runs: number format, file over config.yaml, layers of the large shape."""

    dtype: str
    preset: str | None
    layers: int


def choose(card: Card, sizes: flops.Sizes, quick: bool = False) -> Choice:
    """The number format by the capability, the file by the memory, and as many layers as fit."""
    dtype = gpus.dtype(card.capability)
    try:
        preset, layers = gpus.preset(card.memory, card.capability), sizes.layers
    except BadInput:  # the smallest file, and a part of the shape
        preset = gpus.PRESETS[-1][1]
        left = ROOM * 1e9 * card.memory / BYTES[dtype] - 2 * sizes.head
        layers = max(1, min(sizes.layers, int(left / (sizes.body / sizes.layers))))
    return Choice(dtype, preset, min(layers, QUICK) if quick else layers)


RATES = {"training": "train", "reading": "compute", "generating": "decode"}  # of flops.Device


def against_plan(card: Card | None, kind: str, rate: float) -> str:
    """What `orce plan` assumes where `rate` FLOP/s were seen: of a core without a card; nothing of a card that it does not know."""
    try:
        device = flops.gpu(gpus.find(card.name).tflops) if card else flops.CORE
    except BadInput:
        return ""
    assumed = getattr(device, RATES[kind])
    shares = f": {rate / device.peak:.0%} of the peak, not {assumed / device.peak:.0%}" if card else ""
    return f" (plan {assumed / 1e12:.3g}{shares})"


def at_hand(visible: int) -> Card | None:
    """The first GPU that torch sees; None without one. Starts CUDA: run it in a process of its own."""
    import torch

    if not torch.cuda.is_available():
        return None
    gpu = torch.cuda.get_device_properties(0)
    return Card(gpu.name, round(gpu.total_memory / 1e9, 1), float(f"{gpu.major}.{gpu.minor}"), driver(), visible)


def driver() -> str:
    """The driver's version as nvidia-smi gives it; empty if it does not."""
    if not shutil.which("nvidia-smi"):
        return ""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.partition("\n")[0].strip()


def weights(sizes: flops.Sizes, layers: int, dtype: str) -> float:
    """Bytes of a shape on disk."""
    return BYTES[dtype] * (sizes.body * layers / sizes.layers + 2 * sizes.head)
