"""Sample M candidate confidences for every RL pair from the confidence LLM (section 3.3).

All rewards share them. Each record keeps the whole distribution beside its candidates.
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
    candidates: int
    temperature: Number
    seed: int

    @classmethod
    def of(cls, config: Config, dataset: str, model: str) -> Self:
        # Read by transformers, as DPO is trained: the reference and the policy then differ by no
        # kernel.
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

    def load(fast):
        # The reference is the policy that DPO starts from, whose adapter is apart.
        shown = [pair.prompt for pair in items]
        return stages.open_reader(settings, fast, shown, weights, merged=not keep_reference)

    def work(chunk, reader):
        def sample(i: int, logprobs: np.ndarray) -> list[int]:
            """M percents sampled from P(c)^(1/temperature), renormalised over the 101 values."""
            rng = np.random.default_rng(seed_of(settings.seed, "candidates", chunk[i].id))
            scaled = logprobs.astype(float) / settings.temperature
            weights = np.exp(scaled - scaled.max())
            return rng.choice(101, size=settings.candidates, p=weights / weights.sum()).tolist()

        read = reader.read([pair.prompt for pair in chunk], state_text=False, sample=sample)
        records = list(map(make_candidate, chunk, read))
        if keep_reference:
            add_reference(records, chunk, reader, settings.model.dtype)
        return records

    stages.write_in_chunks(
        settings, items, out, load, work, digest, keep_reference, kind="confidence", shard=shard
    )


def make_candidate(pair: Realised, reading) -> Candidate:
    return Candidate(
        id=pair.id,
        kappa=pair.kappa,
        correct=pair.correct,
        confidences=[percent / 100 for percent in reading.sampled],
        completion_logprobs=[float(f"{value:.7g}") for value in reading.sampled_logprobs],
        raw=[statement(percent) for percent in reading.sampled],
        stated=reading.greedy / 100,
        logprobs=[round(float(value), 4) for value in reading.logprobs],
    )


def add_reference(records: list[Candidate], chunk: list[Realised], reader, dtype: str) -> None:
    """Add log P of all turns in the arithmetic of training in `dtype`, to float32's seven digits."""
    from orce.training import dpo

    shown = [pair.prompt for pair in chunk]
    logprobs = dpo.turn_logprobs(reader.lm, shown, reader.batch_tokens, dtype)
    for record, turns in zip(records, logprobs, strict=True):
        record.reference = [float(f"{value:.7g}") for value in turns]
