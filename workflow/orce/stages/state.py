"""State the confidence of a confidence LLM in the greedy answer to every test prompt, or every
validation prompt.
"""

from typing import Annotated, Literal, Self

from msgspec.structs import replace

from orce import methods, stages, tasks
from orce.artefacts import store
from orce.config import picking
from orce.settings.schema import Config
from orce.settings.stage import ModelSettings


class StateSettings(ModelSettings, kw_only=True):
    """constrained: no free text is read. mode: the mode of each distribution is kept. reads:
    answer, or the reasoning too.
    """

    reads: str = "answer"
    constrained: bool = False
    mode: bool = False

    @classmethod
    def of(cls, config: Config, dataset: str, model: str, method: str) -> Self:
        registry = methods.of(config)
        name = registry.parse(method)
        return picking.pick(
            cls,
            config,
            method,
            dataset,
            model,
            loads=picking.judge_base(config, name.source or model),
            constrained=bool(registry.settings(name.method).get("constrained")),
            mode=config.evaluation.readout == "mode",
            reads=config.datasets[dataset].judge_reads,
        )

    @classmethod
    def for_trial(cls, config: Config, dataset: str, model: str) -> Self:
        """A reading of the validation split, for `tune`."""
        return replace(cls.of(config, dataset, model, "orce"), label=f"tune {dataset}/{model}")


def run(
    settings: StateSettings,
    prompts: Annotated[str, "frozen prompts"],
    samples: Annotated[str, "with the greedy answers"],
    out: str,
    weights: Annotated[
        str | None, "folder of the confidence LLM (default: the untrained model)"
    ] = None,
    split: Annotated[Literal["validation", "test"], "of the prompts (default: test)"] = "test",
    readout: stages.Readout = None,
    shard: stages.Shard = "0/1",
):
    """Reads prompts, greedy answers and the weights of a confidence LLM; writes confidences.jsonl:
    what it states for each answer, the mean of its distribution over 0 .. 100 percent, its mode if
    the settings ask for it, and the mass, the probability of stating one of these 101 values at
    all. The readout makes one of the first three the `confidence`.
    """
    items = [
        (example, record.greedy) for example, record in stages.read_tested(prompts, samples, split)
    ]
    digest = None if weights is None else store.weights_digest(weights)

    def load():
        return stages.open_reader(settings, judge_prompts(items, settings), weights)

    def work(chunk, reader):
        read = reader.state(judge_prompts(chunk, settings), settings.constrained, settings.mode)
        records = []
        for (example, greedy), stated in zip(chunk, read, strict=True):
            record = {"id": example["id"], "answer": greedy.answer}
            record |= {"correct": greedy.correct, "f1": greedy.f1}
            records.append(record | stated.to_json())
        return records

    stages.write_in_chunks(
        settings, items, out, load, work, digest, kind="confidence", shard=shard, readout=readout
    )


def judge_prompts(items, settings: StateSettings) -> list:
    """The prompt of every (example, greedy answer), as the confidence LLM reads it."""
    task = tasks.get(settings.task)
    whole = settings.reads == "reasoning"
    return [
        tasks.judge_prompt(task, example, greedy.answer, greedy.raw if whole else None)
        for example, greedy in items
    ]
