"""The candidates, pairs and reference log-probabilities of the ablation's five rewards.

Plain: M candidates are sampled by generation, once for all rewards (the fair side) or for each, and pairs are scored by a
forward pass of the reference. Ours: one table of 101 log-probabilities a prompt; candidates, stated values and reference come from it.
"""

from collections.abc import Iterator

import numpy as np
import torch

from benchmarks.comparisons.reading import LIMIT, confidence_prompts
from benchmarks.comparisons.sampling import generate
from benchmarks.timing import Row, compare
from orce.alignment.preferences import reward_candidates, select_pairs
from orce.alignment.rewards import REWARDS
from orce.judging.reader import TransformersReader
from orce.llm import language_model
from orce.llm.chat import completion_ids, prompt_ids, statement
from orce.stages.candidates import sample

TITLE = "candidates and reference log-probabilities for five rewards (8 prompts, M = 8, SmolLM2, float32)"
CANDIDATES = 8


def run(options) -> Iterator[Row]:
    torch.set_num_threads(options.threads)
    lm = language_model.load({"source": {"path": options.model}, "dtype": "float32", "device": "cpu"})
    prompts = confidence_prompts()
    reader = TransformersReader(lm)
    ids = [prompt_ids(lm.tokenizer, one) for one in prompts]
    kappa = np.arange(len(ids)) % 5 / 4

    def ours():
        readings, rng = reader.read(prompts, state_text=False), np.random.default_rng(0)
        drawn = np.array([sample(reading.logprobs, CANDIDATES, 1.0, rng) for reading in readings]) / 100
        table, stated = np.stack([r.logprobs for r in readings]), np.array([r.greedy / 100 for r in readings])
        return [pairs_of(name, drawn, kappa, stated, table) for name in REWARDS]

    def plain():
        generate(lm, ids, LIMIT, CANDIDATES, do_sample=True, temperature=1.0, top_k=0)
        return padded_scores(lm, ids)

    yield compare("candidates and reference once for all five", ours, plain, options.repeats, warm=False)
    yield compare("again for each reward", ours, plain, options.repeats, scale=len(REWARDS), warm=False)


def pairs_of(name: str, drawn, kappa, stated, table) -> np.ndarray:
    """Reference log-probabilities [P, 2] of the pairs that a reward selects."""
    scores = reward_candidates(REWARDS[name], stated, kappa, drawn, kappa, kappa >= 0.5)
    pairs = select_pairs(scores, drawn, 0)
    sides = [np.rint(100 * drawn[pairs.prompt, side]).astype(int) for side in (pairs.chosen, pairs.rejected)]
    return np.stack([table[pairs.prompt, side] for side in sides], axis=1)


@torch.inference_mode()
def padded_scores(lm, ids) -> torch.Tensor:
    """Log-probability of two statements after each prompt, on padded rows: what a reference pass computes."""
    rows = [prompt + completion_ids(lm.tokenizer, statement(p)) for prompt in ids for p in (90, 10)]
    width = max(map(len, rows))
    tokens = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    keep = width - min(map(len, ids)) + 1
    logprobs = lm.model(input_ids=tokens, attention_mask=mask, logits_to_keep=keep).logits[:, :-1].log_softmax(-1)
    following = tokens[:, -(keep - 1) :]
    return (logprobs.gather(2, following[..., None])[..., 0] * mask[:, -(keep - 1) :]).sum(1)
