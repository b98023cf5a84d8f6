"""Warm-start the confidence LLM: SFT to state kappa for the realised answer (section 3.2)."""

from typing import Annotated, Self

from orce import stages, tasks
from orce.config import picking
from orce.llm.chat import to_percent
from orce.settings.schema import Config, WarmStart
from orce.settings.stage import TrainStage, to_mapping

# `reversed` is an experiment: can the alignment repair a warm start that ranks in reverse order?
TARGETS = {"kappa": lambda kappa: kappa, "reversed": lambda kappa: 1 - kappa}


class SftSettings(TrainStage, kw_only=True):
    stage: WarmStart

    @classmethod
    def of(cls, config: Config, dataset: str, model: str) -> Self:
        judge = picking.judge_base(config, model)
        return picking.pick(cls, config, "sft", dataset, model, loads=judge, stage=config.sft)


def run(
    settings: SftSettings,
    surrogate: str,
    prompts: stages.Prompts,
    out: Annotated[str, "folder of the trained model"],
):
    """Reads the realised answers and their kappa; writes the warm-started confidence LLM: it learns
    to state 100 kappa percent, rounded, halves up (section 3.2).
    """
    from orce.training import sft

    target = TARGETS[settings.stage.target]
    examples = []
    for pair in stages.read_realised(tasks.get(settings.task), surrogate, prompts):
        examples.append({"prompt": pair.prompt, "percent": to_percent(target(pair.kappa))})
    sft.train(examples, to_mapping(settings), out)
