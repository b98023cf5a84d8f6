"""Align the confidence LLM on preference pairs by DPO (section 3.3)."""

from typing import Annotated, Self

from msgspec.structs import replace

from orce.artefacts import store
from orce.artefacts.records import Pair
from orce.config import picking
from orce.settings.schema import Config, Preference
from orce.settings.stage import TrainStage, to_mapping


class DpoSettings(TrainStage, kw_only=True):
    stage: Preference

    @classmethod
    def of(cls, config: Config, dataset: str, model: str) -> Self:
        judge = picking.judge_base(config, model)
        stage = Preference(**picking.set_keys(config.dpo, Preference.__struct_fields__))
        return picking.pick(cls, config, "dpo", dataset, model, loads=judge, stage=stage)

    @classmethod
    def for_trial(cls, config: Config, dataset: str, model: str, trial: str) -> Self:
        """The alignment at a point of the grid of `tune`."""
        point = picking.trials(config)[trial]
        return cls.of(replace(config, dpo=replace(config.dpo, **point)), dataset, model)


def run(
    settings: DpoSettings,
    pairs: str,
    sft: Annotated[str, "folder of the reference: the warm-started confidence LLM"],
    out: Annotated[str, "folder of the trained model"],
    start: Annotated[str | None, "folder to start from (default: the reference)"] = None,
):
    """Reads pairs.jsonl; writes the aligned confidence LLM, trained on the loss
    -log sigmoid(beta ((log pi - log ref)(chosen) - (log pi - log ref)(rejected))) (section 3.3).
    """
    from orce.training import dpo

    dpo.train(store.records(pairs, Pair), to_mapping(settings), sft, start or sft, out)
