"""The computations of a configuration's models, job by job: the input of `python -m orce plan`.

`jobs` counts the jobs that load a model; `works` gives the tokens that each computes. Rules that load no model are left
out: they take seconds.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orce import methods
from orce.config import graph, matrix, settings
from orce.config.cells import Cell, aligned
from orce.config.graph import TRAININGS, Stage
from orce.config.schema import Config
from orce.plan.cost import flops
from orce.plan.cost.lengths import Lengths, Prompts
from orce.runtime.speed import AUTO, UNSIZED
from orce.tasks.parts.splits import TESTED

STATEMENT = 8  # tokens of "Confidence: 85" and its end
VERDICT = 2  # tokens of a judge's yes or no and its end
TREE = 16  # tokens computed for the 101 values if each digit is a token; 5 if each number is
DISTINCT = 0.5  # share of the sampled tokens that the transformers engine computes: equal prefixes once
LONGER = {"topk": 90, "cot": 60}  # tokens by which a prompted method's prompt is longer than the answer's
USED = 0.6  # of a prompted method's token budget that is generated
RULES = ("sample", "grade", "elicit", "candidates", "state", "likelihoods", "states", *TRAININGS)


@dataclass(frozen=True)
class Work:
    """Tokens of one rule for one cell, and their FLOPs: of prompts (compute), of training, of generation (decode)."""

    rule: str
    dataset: str
    model: str
    prompt_tokens: float = 0.0
    generated_tokens: float = 0.0
    trained_tokens: float = 0.0
    compute: float = 0.0
    train: float = 0.0
    decode: float = 0.0
    items: int = 0
    epochs: float = 1.0


def jobs(config: Config, stages: list[Stage]) -> dict[str, int]:
    """Jobs that load a model, by rule: each shard and each training loads one."""
    counts = {rule: 0 for rule in RULES}
    for stage in stages:
        if stage.rule in counts:
            counts[stage.rule] += graph.shards(config, stage.rule)
    return {rule: count for rule, count in counts.items() if count or rule != "grade"}


def seconds(work: Work, on: flops.Device) -> float:
    """Seconds of a work on one device, without the start of its model."""
    return work.compute / on.compute + work.train / on.train + work.decode / on.decode


class Workload:
    """The works of a configuration; `parameters` {model: number} gives sizes that neither a folder nor KNOWN has."""

    def __init__(self, config: Config, prompts: Prompts, parameters: dict[str, float] | None = None):
        self.config, self.prompts, self.parameters = config, prompts, parameters or {}
        self.registry = methods.of(config)
        self.stages = matrix.stages(config, config.paper_tables)

    def works(self) -> Iterator[Work]:
        for works in self.by_stage().values():
            yield from works

    def by_stage(self) -> dict[Stage, list[Work]]:
        """The works of each stage that loads a model: one for each split that is sampled, else one."""
        found = {stage: self._of_stage(stage) for stage in self.stages}
        return {stage: works for stage, works in found.items() if works}

    def _of_stage(self, stage: Stage) -> list[Work]:
        if stage.rule == "sample":
            return [self._sample(stage, split) for split in settings.splits(self.config, *stage.cell)]
        if stage.rule == "grade":
            return [self._grade(stage, split) for split in settings.splits(self.config, *stage.cell)]
        if stage.rule == "elicit":
            return [self._elicit(stage)]
        if stage.rule in ("candidates", "state"):
            return [self._read(stage)]
        if stage.rule == "likelihoods":
            return [self._likelihoods(stage)]
        if stage.rule == "states":
            return [self._states(stage, split) for split in settings.read_splits(self.config, *stage.cell)]
        return [self._training(stage)] if stage.rule in TRAININGS else []

    def _sample(self, stage: Stage, split: str) -> Work:
        n, lengths = self._of(*stage.cell, split)
        answers, batch = self.config.answers, self.config.engine.batch_tokens
        tested = split in TESTED  # one more answer, greedy
        transformers = self.config.engine.name == "transformers"
        prompt = lengths.answering(n, batch) * (
            1 + (tested and transformers)
        )  # vllm still has the prompts in its cache
        generated = n * (answers.samples * (DISTINCT if transformers else 1) + tested) * lengths.answer
        return self._answering(stage, prompt, generated, n, lengths.answer_prompt)

    def _grade(self, stage: Stage, split: str) -> Work:
        """One question for each distinct answer, as long as the confidence LLM's; comparisons of answers are left out."""
        n, lengths = self._of(*stage.cell, split)
        asked = n * (self.config.answers.samples * DISTINCT + (split in TESTED))
        prompt, generated = asked * (lengths.confidence_prompt + lengths.answer), asked * VERDICT
        return self._answering(stage, prompt, generated, n, lengths.confidence_prompt)

    def _elicit(self, stage: Stage) -> Work:
        n, lengths = self._of(*stage.cell, "test")
        prompt = n * (lengths.answer_prompt - lengths.answer_shared + LONGER.get(stage.name, 0))
        generated = n * USED * self.registry.settings(stage.name)["max_tokens"]
        return self._answering(stage, prompt, generated, n, lengths.answer_prompt + LONGER.get(stage.name, 0))

    def _answering(self, stage: Stage, prompt: float, generated: float, n: int, context: float) -> Work:
        if settings.on_server(self.config, self.model_of(stage)):
            return Work(stage.rule, *stage.cell, prompt, generated, items=n)
        sizes = self.sizes(self.model_of(stage))
        compute = flops.forward(sizes, prompt, n, context)
        decode = flops.forward(sizes, generated, generated, context)
        return Work(stage.rule, *stage.cell, prompt, generated, compute=compute, decode=decode, items=n)

    def _read(self, stage: Stage) -> Work:
        n, lengths = self._of(*stage.cell, "rl" if stage.rule == "candidates" else "test")
        tokens = lengths.judging(n, self.config.engine.batch_tokens, together=True) + n * TREE
        return Work(
            stage.rule,
            *stage.cell,
            tokens,
            compute=flops.forward(self.sizes(self.model_of(stage)), tokens, n * TREE, lengths.confidence_prompt),
            items=n,
        )

    def _likelihoods(self, stage: Stage) -> Work:
        n, lengths = self._of(*stage.cell, "test")
        batch = self.config.engine.batch_tokens
        tokens = lengths.answering(n, batch)
        if stage.name == "sample_likelihoods":
            outputs = n * self.config.answers.samples * DISTINCT * lengths.answer
            tokens, context = tokens + outputs, lengths.answer_prompt
        else:
            tokens += n * lengths.answer + lengths.judging(n, batch)  # P(True)'s question
            outputs, context = n * (lengths.answer + 1), lengths.confidence_prompt
        compute = flops.forward(self.sizes(stage.cell.model), tokens, outputs, context)
        return Work(stage.rule, *stage.cell, tokens, compute=compute, items=n)

    def _states(self, stage: Stage, split: str) -> Work:
        n, lengths = self._of(*stage.cell, split)
        batch, judged = self.config.engine.batch_tokens, stage.name == "judge"
        tokens = lengths.judging(n, batch) if judged else lengths.answering(n, batch) + n * lengths.answer
        context = lengths.confidence_prompt if judged else lengths.answer_prompt
        compute = flops.forward(self.sizes(self.model_of(stage)), tokens, n, context)
        return Work(stage.rule, *stage.cell, tokens, compute=compute, items=n)

    def _training(self, stage: Stage) -> Work:
        splits, completions, epochs = {
            "sft": (["sft"], [STATEMENT], self.config.sft.epochs),
            "dpo": (["rl"], [STATEMENT, STATEMENT], self.config.dpo.epochs),
            "train": ([], [TREE], 1),
        }[stage.rule]
        if stage.rule == "train":
            splits = settings.training_splits(self.config, stage.name)
            epochs = settings.trained_options(self.config, stage.name)["epochs"]
        training, sizes = self.config.training, self.sizes(self.model_of(stage))
        tokens = outputs = context = 0.0
        for split in splits:
            n, lengths = self._of(*stage.cell, split)
            if training.shared_prefix or stage.rule == "train":
                cut = UNSIZED if training.micro_batch_tokens == AUTO else training.micro_batch_tokens
                own = lengths.judging(n, cut, training.grouped is True) + n * sum(completions)
            else:
                own = n * sum(lengths.confidence_prompt + one for one in completions)
            tokens, context = tokens + own, context + own * lengths.confidence_prompt
            outputs += n * sum(completions)
        context /= tokens
        train, compute = flops.train(sizes, tokens, outputs, training, epochs, context), 0.0
        kept = self.config.dtype == "float32"
        if stage.rule == "dpo" and not (kept and (aligned(stage.name)[1] or self.config.dpo.rounds) == 1):
            # In float32 the first round's candidates come with the reference's log-probabilities; otherwise they are computed.
            compute = flops.forward(sizes, tokens, outputs, context)
        return Work(
            stage.rule,
            *stage.cell,
            trained_tokens=epochs * tokens,
            train=train,
            compute=compute,
            epochs=epochs,
        )

    def lengths_of(self, cell: Cell, split: str) -> Lengths:
        """Lengths of the prompts of a cell's split."""
        return self._of(cell.dataset, cell.model, split)[1]

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
        return Path(self.config.models[name].source.get("path") or self.prompts.results / "models" / name)

    def model_of(self, stage: Stage) -> str:
        """The model that a stage loads."""
        name = graph.model(self.config, stage)
        assert name is not None  # only stages with a model are counted
        return name

    def sizes(self, model: str) -> flops.Sizes:
        """Sizes of the weights of a model of the config."""
        name, folder = settings.base(self.config, model), self._folder(model)
        source = self.config.models[name].source
        made = settings.made(self.config.models[name]) and (folder / "config.json").exists()
        return flops.sizes_of(name, {"path": str(folder)} if made else source, self.parameters)
