"""The computations of a configuration's models, job by job: the input of `python -m orce plan`.

`jobs` counts the jobs that load a model; `works` gives the tokens that each computes. Rules that load no model are left
out: they take seconds.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orce import methods
from orce.config import matrix, settings
from orce.config.cells import aligned
from orce.config.matrix import Stage
from orce.cost import flops
from orce.cost.lengths import Prompts
from orce.tasks.parts.splits import TESTED

STATEMENT = 8  # tokens of "Confidence: 85" and its end
TREE = 16  # tokens computed for the 101 values if each digit is a token; 5 if each number is
DISTINCT = 0.5  # share of the sampled tokens that the transformers engine computes: equal prefixes once
LONGER = {"topk": 90, "cot": 60}  # tokens by which a prompted method's prompt is longer than the answer's
USED = 0.6  # of a prompted method's token budget that is generated
TRAININGS = ("sft", "train", "dpo")
RULES = ("sample", "elicit", "candidates", "state", *TRAININGS)


@dataclass(frozen=True)
class Work:
    """Tokens of one rule for one cell, and their FLOPs: of prompts and training (compute), of generation (decode)."""

    rule: str
    dataset: str
    model: str
    prompt_tokens: float = 0.0
    generated_tokens: float = 0.0
    trained_tokens: float = 0.0
    compute: float = 0.0
    decode: float = 0.0


def jobs(config: dict, stages: list[Stage]) -> dict[str, int]:
    """Jobs that load a model, by rule: each shard and each training loads one."""
    answers, confidence = config["answers"]["shards"], config["confidence"]["shards"]
    shards: dict[str, int] = {"sample": answers, "elicit": answers, "candidates": confidence, "state": confidence}
    found = {rule: 0 for rule in RULES}
    for stage in stages:
        if stage.rule in found:
            found[stage.rule] += shards.get(stage.rule, 1)
    return found


class Workload:
    """The works of a configuration; `parameters` {model: number} gives sizes that neither a folder nor KNOWN has."""

    def __init__(self, config: dict, prompts: Prompts, parameters: dict[str, float] | None = None):
        self.config, self.prompts, self.parameters = config, prompts, parameters or {}
        self.registry = methods.of(config)
        self.stages = matrix.stages(config, config["paper_tables"])

    def works(self) -> Iterator[Work]:
        for stage in self.stages:
            if stage.rule == "sample":
                for split in settings.splits(self.config, *stage.cell):
                    yield self._sample(stage, split)
            elif stage.rule == "elicit":
                yield self._elicit(stage)
            elif stage.rule in ("candidates", "state"):
                yield self._read(stage)
            elif stage.rule in TRAININGS:
                yield self._training(stage)

    def _sample(self, stage: Stage, split: str) -> Work:
        n, lengths = self._of(*stage.cell, split)
        answers, batch = self.config["answers"], self.config["engine"]["batch_size"]
        tested = split in TESTED  # one more answer, greedy
        transformers = self.config["engine"]["name"] == "transformers"
        prompt = lengths.answering(n, batch) * (
            1 + (tested and transformers)
        )  # vllm still has the prompts in its cache
        generated = n * (answers["samples"] * (DISTINCT if transformers else 1) + tested) * lengths.answer
        return self._answering(stage, prompt, generated, n)

    def _elicit(self, stage: Stage) -> Work:
        n, lengths = self._of(*stage.cell, "test")
        prompt = n * (lengths.answer_prompt - lengths.answer_shared + LONGER.get(stage.name, 0))
        generated = n * USED * self.registry.settings(stage.name)["max_tokens"]
        return self._answering(stage, prompt, generated, n)

    def _answering(self, stage: Stage, prompt: float, generated: float, n: int) -> Work:
        if settings.on_server(self.config, stage.cell.model):
            return Work(stage.rule, *stage.cell, prompt, generated)
        sizes = self.sizes(stage.cell.model)
        compute, decode = flops.forward(sizes, prompt, n), flops.forward(sizes, generated, generated)
        return Work(stage.rule, *stage.cell, prompt, generated, 0, compute, decode)

    def _read(self, stage: Stage) -> Work:
        n, lengths = self._of(*stage.cell, "rl" if stage.rule == "candidates" else "test")
        tokens = lengths.judging(n, self.config["engine"]["batch_size"]) + n * TREE
        source = self.registry.parse(stage.name).source if stage.rule == "state" else None
        judge = settings.judge(self.config, source or stage.cell.model)
        return Work(stage.rule, *stage.cell, tokens, compute=flops.forward(self.sizes(judge), tokens, n * TREE))

    def _training(self, stage: Stage) -> Work:
        splits, completions, options = {
            "sft": (["sft"], [STATEMENT], self.config["sft"]),
            "dpo": (["rl"], [STATEMENT, STATEMENT], self.config["dpo"]),
            "train": ([], [TREE], {}),
        }[stage.rule]
        if stage.rule == "train":
            splits = settings.training_splits(self.config, stage.name)
            options = settings.trained_options(self.config, stage.name)
        training, sizes = self.config["training"], self.sizes(settings.judge(self.config, stage.cell.model))
        tokens = outputs = 0.0
        for split in splits:
            n, lengths = self._of(*stage.cell, split)
            if training["shared_prefix"] or stage.rule == "train":
                tokens += lengths.judging(n, options["micro_batch_size"]) + n * sum(completions)
            else:
                tokens += n * sum(lengths.confidence_prompt + one for one in completions)
            outputs += n * sum(completions)
        compute = flops.train(sizes, tokens, outputs, training, options["epochs"])
        if stage.rule == "dpo" and (aligned(stage.name)[1] or self.config["dpo"]["rounds"]) > 1:
            # The first round's candidates come with the reference's log-probabilities; a later round computes them.
            compute += flops.forward(sizes, tokens, outputs)
        return Work(stage.rule, *stage.cell, trained_tokens=options["epochs"] * tokens, compute=compute)

    def _of(self, dataset, model, split):
        tokenizer = self._folder(model) / "tokenizer.json"
        found = tokenizer if tokenizer.exists() else None
        return (
            self.prompts.count(self.config, dataset, split),
            self.prompts.lengths(self.config, dataset, model, split, found),
        )

    def _folder(self, model) -> Path:
        """Folder of the model's files, whether it exists or not."""
        name = settings.base(self.config, model)
        return Path(self.config["models"][name]["source"].get("path") or self.prompts.results / "models" / name)

    def sizes(self, model: str) -> flops.Sizes:
        """Sizes of the weights of a model of the config."""
        name, folder = settings.base(self.config, model), self._folder(model)
        source = self.config["models"][name]["source"]
        made = settings.made(self.config["models"][name]) and (folder / "config.json").exists()
        return flops.sizes_of(name, {"path": str(folder)} if made else source, self.parameters)
