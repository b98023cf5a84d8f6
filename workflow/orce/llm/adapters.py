"""Folders of trained weights: adapters over a base model, or whole models that replace it."""

import json
from pathlib import Path

import torch


def is_adapter(folder) -> bool:
    """Whether a training left an adapter there, and not all weights."""
    return (Path(folder) / "adapter_config.json").exists()


def rank(folder) -> int:
    """Highest rank of an adapter's matrices."""
    config = json.loads((Path(folder) / "adapter_config.json").read_text())
    return max([config["r"], *(config.get("rank_pattern") or {}).values()])


class Wardrobe:
    """Puts one adapter at a time into the weights of a model, and takes it out without a trace.

    Merged weights cost nothing at inference. Subtracting them again would leave rounding errors, so the matrices that
    an adapter touches are kept as they were, in host memory, and copied back.
    """

    def __init__(self, model: torch.nn.Module):
        self.model, self.worn = model, None
        self._bare: dict[torch.nn.Parameter, torch.Tensor] = {}
        self._touched: list[torch.nn.Parameter] = []

    def wear(self, folder: str | None) -> None:
        """Make the model that of `folder`; None is the base."""
        if folder == self.worn:
            return
        with torch.no_grad():
            for weight in self._touched:
                weight.copy_(self._bare[weight])
        self._touched, self.worn = [], None
        if folder is not None:
            self._merge(folder)
        self.worn = folder

    def _merge(self, folder: str) -> None:
        from peft import PeftModel
        from peft.tuners.tuners_utils import BaseTunerLayer

        adapted = PeftModel.from_pretrained(self.model, folder)
        layers = [module.get_base_layer() for module in adapted.modules() if isinstance(module, BaseTunerLayer)]
        self._touched = [weight for layer in layers for weight in layer.parameters()]
        for weight in self._touched:
            if weight not in self._bare:
                self._bare[weight] = weight.detach().to("cpu", copy=True)
        adapted.merge_and_unload()
