"""Read the confidence LLM on every RL pair: its stated value, and M candidates drawn from its distribution.

Drawn once, whatever the reward. The distribution over all 101 values is kept in a table beside them.
"""

import numpy as np

from orce import files, pairs
from orce.chat import statement
from orce.progress import Progress
from orce.steps import add_settings, seed_of, settings


def add_arguments(parser):
    add_settings(parser)
    pairs.add_arguments(parser)
    parser.add_argument("--weights", required=True, help="folder of the confidence LLM")
    parser.add_argument("--out", required=True)
    parser.add_argument("--manifest", required=True)


def run(args):
    options = settings(args.settings)
    data = pairs.from_arguments(args, options)
    tag = files.digest(options, data, files.file_digest(f"{args.weights}/manifest.json"))
    reader = None

    def work(chunk):
        nonlocal reader
        if reader is None:
            from orce import confidence, language_model

            reader = confidence.Reader(language_model.load(options["model"], args.weights), options["batch_size"])
        readings = reader.read([pair["prompt"] for pair in chunk], state_text=False)
        return [record(pair, reading, options) for pair, reading in zip(chunk, readings, strict=True)]

    progress = Progress(options["label"], len(data))
    for done in files.in_chunks(args.out, data, options["chunk"], tag, work):
        progress.update(done)
    files.write_manifest(args.manifest, args.out, n=len(data), candidates=options["candidates"])


def record(pair: dict, reading, options: dict) -> dict:
    """Record {id, kappa, correct, confidences, raw, stated, logprobs}; logprobs are of 0, 1, .., 100 percent."""
    rng = np.random.default_rng(seed_of(options["seed"], "candidates", pair["id"]))
    percents = draw(reading.logprobs, options["candidates"], options["temperature"], rng)
    return {
        "id": pair["id"],
        "kappa": pair["kappa"],
        "correct": pair["correct"],
        "confidences": [percent / 100 for percent in percents],
        "raw": [statement(percent) for percent in percents],
        "stated": reading.greedy / 100,
        "logprobs": [round(float(value), 4) for value in reading.logprobs],
    }


def draw(logprobs: np.ndarray, n: int, temperature: float, rng) -> list[int]:
    """n percents drawn from P(c)^(1/temperature), renormalised over the 101 values."""
    scaled = logprobs.astype(float) / temperature
    weights = np.exp(scaled - scaled.max())
    return rng.choice(101, size=n, p=weights / weights.sum()).tolist()
