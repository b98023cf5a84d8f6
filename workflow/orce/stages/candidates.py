"""Sample M candidate confidences in every realised answer from the confidence LLM (section 3.3).

In the first round all rewards share them. Each record keeps the whole distribution beside its candidates.
"""

from typing import Annotated, Self

import numpy as np

from orce import stages, tasks
from orce.artefacts import store
from orce.artefacts.records import Candidate, Realised
from orce.config import picking
from orce.llm.chat import statement
from orce.runtime.process import seed_of
from orce.settings.schema import Config, Number
from orce.settings.stage import ModelSettings


class CandidatesSettings(ModelSettings, kw_only=True):
    """There is no engine to choose: transformers reads the model, which it also trains, so that DPO's
    reference and policy differ by no kernel.
    """

    candidates: int
    temperature: Number
    seed: int

    @classmethod
    def of(cls, config: Config, dataset: str, model: str) -> Self:
        judge = picking.judge_base(config, model)
        return picking.pick(
            cls, config, "candidates", dataset, model, config.confidence, loads=judge
        )


def run(
    settings: CandidatesSettings,
    surrogate: str,
    prompts: stages.Prompts,
    weights: Annotated[str, "folder of the confidence LLM"],
    out: str,
    shard: stages.Shard = "0/1",
    keep_reference: Annotated[
        bool, "keep log P of all 101 turns in the arithmetic of training: DPO's reference"
    ] = False,
):
    """Reads the realised answers of the RL split; writes candidates.jsonl: of each M percents drawn
    from P(c | question, answer)^(1/temperature) of the confidence LLM, c = 0 .. 100 (section 3.3).
    """
    items = stages.read_realised(tasks.get(settings.task), surrogate, prompts)
    digest = store.weights_digest(weights)

    def load():
        # DPO's reference is the policy that training starts from, whose adapter is apart.
        shown = [pair.prompt for pair in items]
        return stages.open_reader(settings, shown, weights, merged=not keep_reference)

    def work(chunk, reader):
        records = draw(chunk, reader, settings)
        if keep_reference:
            add_reference(records, chunk, reader, settings.model.dtype)
        return records

    stages.write_in_chunks(
        settings, items, out, load, work, digest, keep_reference, kind="confidence", shard=shard
    )


def draw(chunk: list[Realised], reader, settings: CandidatesSettings) -> list[Candidate]:
    """M percents of each pair from P(c)^(1/temperature), renormalised over the 101 values."""

    def sample(i: int, logprobs: np.ndarray) -> list[int]:
        rng = np.random.default_rng(seed_of(settings.seed, "candidates", chunk[i].id))
        scaled = logprobs.astype(float) / settings.temperature
        weights = np.exp(scaled - scaled.max())
        return rng.choice(101, size=settings.candidates, p=weights / weights.sum()).tolist()

    prompts = [pair.prompt for pair in chunk]
    readings = reader.read(prompts, state_text=False, sample=sample)
    return list(map(make_candidate, chunk, readings))


def make_candidate(pair: Realised, reading) -> Candidate:
    return Candidate(
        id=pair.id,
        kappa=pair.kappa,
        correct=pair.correct,
        confidences=[percent / 100 for percent in reading.sampled],
        completion_logprobs=stages.seven_digits(reading.sampled_logprobs),
        raw=[statement(percent) for percent in reading.sampled],
        stated=reading.greedy / 100,
        logprobs=[round(float(value), 4) for value in reading.logprobs],
    )


def add_reference(records: list[Candidate], chunk: list[Realised], reader, dtype: str) -> None:
    """Add log P of all 101 turns in the arithmetic of training in `dtype`."""
    from orce.training import dpo

    prompts = [pair.prompt for pair in chunk]
    logprobs = dpo.turn_logprobs(reader.lm, prompts, reader.batch_tokens, dtype)
    for record, turns in zip(records, logprobs, strict=True):
        record.reference = stages.seven_digits(turns)
