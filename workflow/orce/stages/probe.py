"""Fit a probed method on the training questions, never on the test set, and apply it to the greedy answers."""

from collections import Counter
from pathlib import Path

import numpy as np

from orce import methods, stages, tasks
from orce.answers.places import PLACES, unpacked
from orce.answers.surrogate import read_surrogate
from orce.artefacts import store
from orce.errors import BadInput
from orce.metrics.calibrate import require_both
from orce.records import Confidence, Example
from orce.runtime.progress import say
from orce.stage_settings import Probe
from orce.tasks import near_duplicates
from orce.tasks.examples import by_split, read_prompts

Settings = Probe


def add_arguments(parser):
    parser.add_argument("--fit-on", nargs="+", required=True, metavar="SPLIT=FILE", help="prompts of training splits")
    parser.add_argument(
        "--fit-states", nargs="+", required=True, help="hidden states there, a file for each model read"
    )
    parser.add_argument("--surrogate", required=True, help="with kappa and the labels of the training splits")
    parser.add_argument("--prompts", required=True, help="frozen test prompts")
    parser.add_argument("--states", nargs="+", required=True, help="hidden states there")
    parser.add_argument("--samples", required=True, help="with the greedy answers")
    parser.add_argument("--out", required=True)
    parser.add_argument("--fit", required=True, help="written: what was chosen and fitted, and on what")


def run(settings: Probe, args):
    method, task = methods.load(settings.module), tasks.get(settings.task)
    training = {split: read_prompts(path) for split, path in by_split(args.fit_on).items()}
    examples = {(split, one["id"]): one for split, found in training.items() for one in found}
    left_out = in_test_set(list(examples.values()), read_prompts(args.prompts), task)
    kept = [key for key in examples if key[1] not in left_out]
    targets: dict = labels(args.surrogate, kept) | {
        "question": [near_duplicates.normalise(examples[key]) for key in kept]
    }
    require_both(targets["correct"], args.surrogate)
    say(f"[{settings.label}] fitting on {len(kept)} questions")
    parameters = method.fit(features(args.fit_states, method.READS, kept), targets)
    items = stages.tested(args.prompts, args.samples)
    found = method.apply(parameters, features(args.states, method.READS, [("test", one["id"]) for one, _ in items]))
    store.write(
        args.out,
        [
            Confidence.of(example, one.greedy, float(value), one.greedy.raw)
            for (example, one), value in zip(items, found, strict=True)
        ],
        settings,
    )
    kinds = Counter(left_out[one["id"]] for one in examples.values() if one["id"] in left_out)
    counts = {"n": len(kept), "n_in_test_set": {kind: kinds[kind] for kind in ("exact", "twin")}}
    made = {
        "method": settings.method,
        "fitted_on": args.fit_on,
        "depths": settings.depths,
        "parameters": parameters,
    }
    store.write_object(args.fit, made | counts, settings)


def in_test_set(training: list[Example], test: list[Example], task) -> dict[str, str]:
    """{id: kind} of the training questions that are in the test set too, with the same text or as a twin."""
    return {
        match.train: match.kind for match in near_duplicates.matches(training, test, task=task) if match.kind != "near"
    }


def labels(surrogate: str, keys: list[tuple[str, str]]) -> dict[str, list]:
    """{kappa, correct} of training questions, by (split, id): of the question, and of its realised answer."""
    rows = {row.key: row for row in read_surrogate(surrogate)}
    missing = [key for key in keys if key not in rows]
    if missing:
        raise BadInput(f"{surrogate}: no row for {missing[0][0]} id {missing[0][1]!r}; {store.again(surrogate)}")
    return {
        "kappa": [rows[key].kappa for key in keys],
        "correct": [bool(rows[key].answer_correct) for key in keys],
    }


def features(paths: list[str], places: tuple[str, ...], keys: list[tuple[str, str]]) -> dict[str, np.ndarray]:
    """{place: [n, layers, size]} of the items with these (split, id)."""
    found = {}
    for path in paths:
        read = {(one["split"], one["id"]): one for one in store.read(path, ("id", "split"))}
        for place in (one for one in places if PLACES[one] == Path(path).stem):
            missing = next((key for key in keys if place not in read.get(key, {})), None)
            if missing:
                raise BadInput(f"{path}: no {place} of {missing[0]} id {missing[1]!r}; {store.again(path)}")
            found[place] = np.stack([unpacked(read[key][place]) for key in keys])
    return found
