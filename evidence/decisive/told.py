"""What reads the probability of the answer's tokens too: judges that are told it in their prompt, and a probe beside it."""

import math
from pathlib import Path

import msgspec
import numpy as np

from evidence.decisive import run
from evidence.lab.bench import changed
from orce.answers.surrogate import read_surrogate, write_surrogate
from orce.artefacts import store
from orce.config import cells, settings
from orce.methods.combinations import logistic
from orce.records import Row

MIX = "probe_and_probability"


def cell(known: "run.Cell") -> "run.Cell":
    """The same cell under another name, NAME-told, whose judges read how probable the answer's tokens are.

    The text stands where a judge reads a reply's reasoning: the share of the training answers that are less probable, which is
    the product's rank and needs no label.
    """
    name = f"{known.model}-told"
    config = changed(known.config)
    config.datasets[known.dataset].judge_reads = "reasoning"
    config.models[name] = msgspec.structs.replace(config.models[known.model], source={"model": known.model})
    made = run.Cell(config, name, known.seed, known.folder, known.shared, known.until, known.seconds)
    made.dataset, made.rates = known.dataset, known.rates
    trained, rows = of_training(known), read_surrogate(known.cell.surrogate)
    ranks = np.sort([*trained.values()])

    def text(probability: float) -> str:
        return f"The model finds it more probable than {100 * np.searchsorted(ranks, probability) // len(ranks)} % of its answers."

    if not Path(made.cell.surrogate).exists():
        told = [msgspec.structs.replace(row, raw=text(trained[row.key])) for row in rows if row.key in trained]
        with store.writing(made.cell.surrogate, {"of": known.cell.surrogate}) as handle:
            write_surrogate(handle, told)
    if not Path(made.cell.samples).exists():
        tested = {split: of_greedy(known, split) for split in run.EVALUATED}
        lines = [row for row in store.read(known.cell.samples, ("id", "split")) if row["split"] in tested]
        for row in lines:
            row["greedy"]["raw"] = text(tested[row["split"]][row["id"]])
        store.write(made.cell.samples, lines, {"of": known.cell.samples})
    return made


def of_training(known: "run.Cell") -> dict[tuple[str, str], float]:
    """{(split, id): product of the token probabilities} of the realised answers that judges and probes are trained on."""
    found = {}
    rows = {row.key: row for row in read_surrogate(known.cell.surrogate) if row.split in run.TRAINING}
    for split in run.TRAINING:
        samples, out = (
            f"{known.cell.folder}/realised-{split}.jsonl",
            f"{known.cell.folder}/realised_likelihoods-{split}.jsonl",
        )
        if not Path(samples).exists():
            sampled = [row for row in store.read(known.cell.samples, ("id", "split")) if row["split"] == split]
            store.write(samples, [_realised(one, rows[split, one["id"]]) for one in sampled], {"split": split})
        options = settings.likelihoods(known.config, *known.cell, "sample_likelihoods")
        known.step("likelihoods", options, out, prompts=cells.prompts(known.dataset, split), samples=samples)
        found |= {(split, one["id"]): _product(one["sample_logprobs"][0]) for one in store.read(out)}
    return found


def of_greedy(known: "run.Cell", split: str) -> dict[str, float]:
    """{id: product of the token probabilities} of the greedy answers."""
    lines = store.read(f"{known.cell.folder}/likelihoods-{split}.jsonl", ("id", "logprobs"))
    return {one["id"]: _product(one["logprobs"]) for one in lines}


def _realised(sampled: dict, row: Row) -> dict:
    """The record of one sample, the realised answer, under the name of the test split, which alone is scored."""
    at = [answer or "" for answer in sampled["answers"]].index(row.answer)
    correct = bool(row.answer_correct)
    greedy = {"answer": row.answer or None, "raw": sampled["raw"][at], "correct": correct, "f1": None}
    one = {"answers": [row.answer or None], "raw": [sampled["raw"][at]], "correct": [correct]}
    return {"id": sampled["id"], "split": "test", "greedy": greedy} | one


def _product(logprobs: list[float]) -> float:
    return math.exp(sum(logprobs)) if logprobs else 0.0


def probe_and_probability(known: "run.Cell") -> None:
    """A logistic regression of the probe on the answer's own states and the product, fitted on the training questions."""
    out = known.stated(MIX, "test")
    if out.exists():
        return
    trained, held_out = of_training(known), known.held_out("answers", "probe")
    rows = {row.key: row for row in read_surrogate(known.cell.surrogate)}
    keys = [key for key in held_out if key in trained]
    right = [bool(rows[key].answer_correct) for key in keys]
    fitted = logistic.fit([[held_out[key], trained[key]] for key in keys], right)
    test = store.read(str(known.stated("probe", "test")), ("id", "correct", "confidence"))
    product = of_greedy(known, "test")
    values = logistic.apply(fitted, [[one["confidence"], product[one["id"]]] for one in test])
    lines = [
        {"id": one["id"], "correct": one["correct"], "confidence": float(v)}
        for one, v in zip(test, values, strict=True)
    ]
    store.write(str(out), lines, {"of": ["probe", "sequence_probability"]})
