"""What reads the probability of the answer's tokens too: judges that are told it in their prompt, and a probe beside it."""

import copy
import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from evidence.lab.bench import changed
from orce.answers.surrogate import read_surrogate, write_surrogate
from orce.artefacts import store
from orce.config import cells, settings
from orce.methods.combinations import logistic
from orce.records import Row
from orce.tasks.parts.splits import TESTED

if TYPE_CHECKING:
    from evidence.decisive.run import Cell

MIX = "probe_and_probability"
Probabilities = dict[tuple[str, str], float]  # {(split, id): product of the token probabilities}


def place(known: "Cell") -> cells.Cell:
    """Where the judges that are told have their files."""
    return cells.Cell(known.dataset, f"{known.model}-told")


def cell(known: "Cell", trained: Probabilities) -> "Cell":
    """The same cell under another name, whose judges read how probable the answer's tokens are.

    The text stands where a judge reads a reply's reasoning: the share of the training answers that are less probable, which is
    the product's rank and needs no label.
    """
    made, model = copy.copy(known), place(known).model
    made.model, made.config = model, changed(known.config)
    made.config.datasets[known.dataset].judge_reads = "reasoning"
    made.config.models[model] = msgspec.structs.replace(known.config.models[known.model], source={"model": known.model})
    ranks = np.sort([*trained.values()])

    def text(probability: float) -> str:
        return f"The model finds it more probable than {100 * np.searchsorted(ranks, probability) // len(ranks)} % of its answers."

    def labels() -> None:
        rows = [row for row in read_surrogate(known.cell.surrogate) if row.key in trained]
        with store.writing(made.cell.surrogate, {"of": known.cell.surrogate}) as handle:
            write_surrogate(handle, [msgspec.structs.replace(row, raw=text(trained[row.key])) for row in rows])

    def samples() -> None:
        tested = {split: of_greedy(known, split) for split in TESTED}
        lines = [row for row in store.read(known.cell.samples, ("id", "split")) if row["split"] in tested]
        for row in lines:
            row["greedy"]["raw"] = text(tested[row["split"]][row["id"]])
        store.write(made.cell.samples, lines, {"of": known.cell.samples})

    known.once(made.cell.surrogate, labels)
    known.once(made.cell.samples, samples)
    return made


def of_training(known: "Cell") -> Probabilities:
    """Of the realised answers, which judges and probes are trained on."""
    found = {}
    rows = {row.key: row for row in read_surrogate(known.cell.surrogate)}
    for split in settings.TRAINING_SPLITS:
        samples = f"{known.cell.folder}/realised-{split}.jsonl"
        out = f"{known.cell.folder}/realised_likelihoods-{split}.jsonl"

        def realised(split: str = split, samples: str = samples) -> None:
            sampled = [row for row in store.read(known.cell.samples, ("id", "split")) if row["split"] == split]
            store.write(samples, [_realised(one, rows[split, one["id"]]) for one in sampled], {"split": split})

        known.once(samples, realised)
        options = settings.likelihoods(known.config, *known.cell, "sample_likelihoods")
        known.step("likelihoods", options, out, prompts=cells.prompts(known.dataset, split), samples=samples)
        for one in store.read(out):
            (logprobs,) = one["sample_logprobs"]
            found[split, one["id"]] = math.exp(sum(logprobs)) if logprobs else 0.0
    return found


def of_greedy(known: "Cell", split: str) -> dict[str, float]:
    """{id: product of the token probabilities} of the greedy answers; 0 for an empty one."""
    lines = store.read(str(known.stated("sequence_probability", split)), ("id", "confidence"))
    return {one["id"]: one["confidence"] or 0.0 for one in lines}


def _realised(sampled: dict, row: Row) -> dict:
    """The record of one sample, the realised answer, under the name of the test split, which alone is scored."""
    at = [answer or "" for answer in sampled["answers"]].index(row.answer)
    answer, raw, correct = row.answer or None, sampled["raw"][at], bool(row.answer_correct)
    greedy = {"answer": answer, "raw": raw, "correct": correct, "f1": None}
    one = {"answers": [answer], "raw": [raw], "correct": [correct]}
    return {"id": sampled["id"], "split": "test", "greedy": greedy} | one


def probe_and_probability(known: "Cell", trained: Probabilities) -> None:
    """A logistic regression of the probe on the answer's own states and the product, fitted on the training questions."""
    held_out = known.held_out("probe")
    rows = {row.key: row for row in read_surrogate(known.cell.surrogate)}
    right = [bool(rows[key].answer_correct) for key in held_out]
    fitted = logistic.fit([[held_out[key], trained[key]] for key in held_out], right)
    test, product = store.read(str(known.stated("probe", "test")), ("id", "confidence")), of_greedy(known, "test")
    values = logistic.apply(fitted, [[one["confidence"], product[one["id"]]] for one in test])
    lines = [one | {"confidence": float(value)} for one, value in zip(test, values, strict=True)]
    store.write(str(known.stated(MIX, "test")), lines, {"of": ["probe", "sequence_probability"]})
