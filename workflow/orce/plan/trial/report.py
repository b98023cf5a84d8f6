"""What a check of a machine found: a JSON file that can be attached to an issue, and its five lines."""

import os
import platform
from typing import Any

import msgspec
import torch

from orce.plan.trial.card import Card, against_plan
from orce.reports import provenance


class Result(msgspec.Struct, frozen=True):
    """One check: `value` may be at most `limit`; `note` says more, or why it failed."""

    name: str
    passed: bool
    value: float | None = None
    limit: float | None = None
    note: str = ""

    def __str__(self) -> str:
        limit = "" if self.limit is None else f" {self.value:g} (at most {self.limit:g})"
        return f"{'passed' if self.passed else 'FAILED'}  {self.name}{limit}  {self.note}"


class Shape(msgspec.Struct):
    """The large model: its name, how many layers were run, and of how many."""

    name: str
    layers: int
    of: int

    def __str__(self) -> str:
        return f"{self.layers} of {self.of} layers of {self.name}"


class Machine(msgspec.Struct, omit_defaults=True):
    """Processor, GPU and versions."""

    system: str
    cores: int | None
    python: str
    packages: dict[str, str]
    commit: str | None
    gpu: Card | None = None
    cuda: str | None = None


def machine(card: Card | None) -> Machine:
    """This machine."""
    system = f"{platform.system()} {platform.release()}"
    packages, commit = provenance.versions(), provenance.commit()
    cuda = torch.version.cuda if card else None
    return Machine(system, os.cpu_count(), platform.python_version(), packages, commit, card, cuda)


class Report(msgspec.Struct):
    """files: those over config.yaml; speeds: TFLOP/s and seconds by name; engines: {name: seconds of its start, ...}."""

    shape: Shape
    files: list[str]
    seconds: int
    passed: bool
    machine: Machine
    settings: dict[str, Any]
    checks: list[Result]
    engines: dict[str, dict[str, Any]]
    speeds: dict[str, float]

    def verdict(self) -> str:
        """The report in five lines."""
        gpu, card = self.machine.gpu, "no GPU: the CPU"
        if gpu:
            card = f"{gpu.name}, {gpu.memory:g} GB, capability {gpu.capability:g}, driver {gpu.driver or 'unknown'}"
            card += f"; one of {gpu.visible}" if gpu.visible > 1 else ""
        compared = [one for one in self.checks if one.limit is not None]
        failed = [one.name for one in self.checks if not one.passed]
        unit = ", TFLOP/s"
        rates = [
            f"{(name := key.removesuffix(unit))} {rate:g} TFLOP/s"
            + against_plan(gpu, name.partition(",")[0], 1e12 * rate)
            for key, rate in self.speeds.items()
            if key.endswith(unit)
        ]
        return "\n".join(
            [
                f"machine   {card}",
                f"settings  {self.settings['dtype']}, {' '.join(self.files) or 'config.yaml'}; {self.shape}",
                f"numbers   {sum(one.passed for one in compared)} of {len(compared)} within their limits",
                f"speed     {', '.join(rates) or 'not measured'}",
                f"verdict   {'FAILED: ' + ', '.join(failed) if failed else 'passed'}, in {self.seconds} s",
            ]
        )
