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
):
    """Reads the realised answers of the RL split; writes candidates.jsonl: of each M percents drawn
    from P(c | question, answer)^(1/temperature) of the confidence LLM, c = 0 .. 100 (section 3.3).
    """
    items = stages.read_realised(tasks.get(settings.task), surrogate, prompts)
    digest = store.weights_digest(weights)

    def load(fast):
        return stages.open_reader(settings, fast, [pair.prompt for pair in items], weights)

    def work(chunk, reader):
        def sample(i: int, logprobs: np.ndarray) -> list[int]:
            """M percents sampled from P(c)^(1/temperature), renormalised over the 101 values."""
            rng = np.random.default_rng(seed_of(settings.seed, "candidates", chunk[i].id))
            scaled = logprobs.astype(float) / settings.temperature
            weights = np.exp(scaled - scaled.max())
            return rng.choice(101, size=settings.candidates, p=weights / weights.sum()).tolist()

        read = reader.read([pair.prompt for pair in chunk], state_text=False, sample=sample)
        return list(map(make_candidate, chunk, read))

    stages.write_in_chunks(settings, items, out, load, work, digest, kind="confidence", shard=shard)


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
