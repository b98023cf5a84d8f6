"""Train the confidence LLM of a method with its own training (a baseline, or a module named in the
config).
"""

import os
from pathlib import Path
from typing import Annotated, Any, Self

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from orce import methods, stages, tasks
from orce.config import picking
from orce.errors import BadInput
from orce.settings.schema import Config
from orce.settings.stage import TrainStage, to_mapping


class TrainSettings(TrainStage, kw_only=True):
    """stage: the method's settings, over the optimisation of `sft`."""

    method: str
    module: str
    stage: dict[str, Any]

    @classmethod
    def of(cls, config: Config, dataset: str, model: str, method: str) -> Self:
        return picking.pick(
            cls,
            config,
            method,
            dataset,
            model,
            loads=picking.judge_base(config, model),
            method=method,
            module=methods.of(config).module(method),
            stage=picking.training_options(config, method),
            # TRL has no such loss
            training=replace(picking.trainer_settings(config.training), trainer=UNSET),
        )


def run(
    settings: TrainSettings,
    surrogate: str,
    prompts: stages.Prompts,
    out: Annotated[str, "folder of the trained model"],
):
    """Reads the realised answers and their kappa; writes the confidence LLM that a method's own
    `train` leaves.
    """
    pairs = msgspec.to_builtins(stages.read_realised(tasks.get(settings.task), surrogate, prompts))
    methods.load(settings.module).train(pairs, to_mapping(settings), out)
    first = os.environ.get("RANK", "0") == "0"  # of several processes, it alone writes
    if first and not Path(out, "manifest.json").is_file():
        raise BadInput(
            f"{settings.module} train(): left no {out}/manifest.json; expected what orce.training.sft.train leaves there "
            "(docs/extending.md)"
        )
