"""Draw M candidate confidences for every RL pair from the confidence LLM's distribution.

Drawn once, whatever the reward. The distribution over all 101 values stands beside them.
"""

import numpy as np

from orce import files, work
from orce.chat import statement
from orce.steps import add_settings, seed_of, settings


def add_arguments(parser):
    add_settings(parser)
    parser.add_argument("--request", required=True)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--out", required=True)
    parser.add_argument("--manifest", required=True)


def run(args):
    options = settings(args.settings)
    table = work.records(work.load(args.request), args.shards)
    files.write_jsonl(args.out, [record(row, options) for row in table])
    files.write_manifest(args.manifest, args.out, n=len(table), candidates=options["candidates"])


def record(row: dict, options: dict) -> dict:
    """Record {id, kappa, correct, confidences, raw, stated, logprobs} from a row of the table."""
    rng = np.random.default_rng(seed_of(options["seed"], "candidates", row["id"]))
    percents = draw(np.array(row["logprobs"]), options["candidates"], options["temperature"], rng)
    confidences = [percent / 100 for percent in percents]
    return {**row, "confidences": confidences, "raw": [statement(percent) for percent in percents]}


def draw(logprobs: np.ndarray, n: int, temperature: float, rng) -> list[int]:
    """n percents drawn from P(c)^(1/temperature), renormalised over the 101 values."""
    scaled = logprobs.astype(float) / temperature
    weights = np.exp(scaled - scaled.max())
    return rng.choice(101, size=n, p=weights / weights.sum()).tolist()
