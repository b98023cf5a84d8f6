"""Fit a method on labelled answers, never on a test answer, and apply it to the test answers.

A calibration and a combination are fitted on the confidences of other methods on another data set's
test split, a probe on hidden states of the training questions.
"""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np

from orce import methods, stages, tasks
from orce.align.surrogate import read_surrogate
from orce.artefacts import store
from orce.artefacts.records import Confidence
from orce.config import picking
from orce.errors import BadInput
from orce.methods.fitted import COMBINATIONS
from orce.methods.method import DEPTHS, PLACES, unpacked
from orce.metrics.summary import stated_records
from orce.runtime.process import say
from orce.settings.schema import Config, Number
from orce.settings.stage import TaskSettings
from orce.tasks.examples import find_overlaps, normalised_text


class FitSettings(TaskSettings, kw_only=True):
    """module: of a calibration or a probe; combination: of the methods `below`; depths: of the
    layers of a probe's states.
    """

    method: str
    module: str | None = None
    combination: str | None = None
    below: tuple[str, ...] = ()
    depths: tuple[Number, ...] = ()
    unparsed_confidence: Number | None = None

    @classmethod
    def of(cls, config: Config, dataset: str, model: str, method: str) -> Self:
        registry = methods.of(config)
        calibration = registry.parse(method).calibration
        below = registry.below(method)
        if calibration or not below:
            more: dict[str, Any] = {
                "module": registry.module(calibration or method),
                "depths": () if below else DEPTHS,
            }
        else:
            unparsed = config.evaluation.unparsed_confidence
            more = {"combination": registry.given[method]["fit"], "unparsed_confidence": unparsed}
        return picking.pick(cls, config, method, dataset, model, method=method, below=below, **more)


def run(
    settings: FitSettings,
    prompts: Annotated[str, "frozen test prompts"],
    out: str,
    fit: Annotated[str, "written: what was fitted, and on what"],
    fit_on: Annotated[stages.Prompts | None, "frozen prompts to fit on"] = None,
    confidences: Annotated[list[str], "each method's confidences in the test answers"] = [],  # noqa: B006 (not changed)
    fit_confidences: Annotated[
        list[str], "each method's confidences in the answers to fit on"
    ] = [],  # noqa: B006
    states: Annotated[
        list[str], "of a probe: hidden states of the test questions, a file for each model read"
    ] = [],  # noqa: B006
    fit_states: Annotated[list[str], "of a probe: hidden states of the questions to fit on"] = [],  # noqa: B006
    samples: Annotated[str | None, "of a probe: with the greedy answers"] = None,
    surrogate: Annotated[
        str | None, "of a probe: kappa and the labels of the training splits"
    ] = None,
):
    """Reads confidences, or hidden states, of labelled answers of another split or data set; writes
    the fitted parameters and the confidences that they give to the test answers.
    """
    if samples is not None and surrogate is not None:
        records, facts = apply_probe(
            settings, prompts, samples, states, fit_on or {}, fit_states, surrogate
        )
    else:
        records, facts = apply_mapping(
            settings, prompts, confidences, fit_on or {}, fit_confidences
        )
    store.write(out, records, settings)
    store.write_object(fit, {"method": settings.method} | facts, settings)


Fitted = tuple[list[Confidence], dict[str, Any]]  # the records, and what was fitted on what


def apply_mapping(
    settings: FitSettings, prompts: str, confidences, fit_on: stages.Prompts, fit_confidences
) -> Fitted:
    """The records of a calibration or a combination. An item without a readable confidence stays
    unread, and is counted.

    `raw` is the confidence below a calibration, or a combination's list; for a missing one it
    computes with `unparsed_confidence`.
    """
    method = methods.load(settings.module) if settings.module else None
    fit, apply = (method.fit, method.apply) if method else COMBINATIONS[settings.combination or ""]
    assert apply is not None  # a fitted method has both

    def columns(items):
        usual = settings.unparsed_confidence
        filled = [
            [usual if each.confidence is None else each.confidence for each in item]
            for item in items
        ]
        return [value for (value,) in filled] if method else filled

    def readable(item):
        return any(record.confidence is not None for record in item)

    facts: dict[str, Any] = {"parameters": {}}
    if fit is not None:
        task = tasks.get(settings.task)
        (fit_prompts,) = fit_on.values()
        tested = {task.question(example) for example in stages.read_prompts(prompts)}
        shared = set()
        for example in stages.read_prompts(fit_prompts):
            if task.question(example) in tested:
                shared.add(example["id"])
        items = []
        for item in align_by_id(fit_confidences):
            if item[0].id not in shared and readable(item):
                items.append(item)
        correct = [bool(item[0].correct) for item in items]
        require_both(correct, fit_confidences[0])
        facts = {"parameters": fit(columns(items), correct)}
        facts |= {"fitted_on": fit_confidences, "n": len(items), "n_in_test_set": len(shared)}
    items = align_by_id(confidences)
    records = []
    unread = [
        sum(record.confidence is None for record in column) for column in zip(*items, strict=True)
    ]
    facts |= {"of": settings.below, "n_unparsed": dict(zip(settings.below, unread, strict=True))}
    say(f"[{settings.label}] {facts}")
    for item in items:
        confidence = (
            float(apply(facts["parameters"], columns([item]))[0]) if readable(item) else None
        )
        below = [record.confidence for record in item]
        retried = any(record.retried is True for record in item)
        records.append(item[0].mapped(confidence, below[0] if method else below, retried))
    return records, facts


def require_both(correct: list[bool], path: str) -> None:
    if set(correct) != {True, False}:
        few = f"{len(correct)} items to fit on, without both a right and a wrong answer"
        raise BadInput(f"{path}: {few}; name a larger set in calibrate_on")


def align_by_id(paths: list[str]) -> list[tuple[Confidence, ...]]:
    """The records of several methods, item by item in the order of the first.

    Raises BadInput for an item that a method lacks or answers differently.
    """
    columns = [{record.id: record for record in stated_records(path)} for path in paths]
    for path, column in zip(paths, columns, strict=True):
        for name, first in columns[0].items():
            if len(column) != len(columns[0]) or name not in column:
                problem = f"not the items of {paths[0]} (id {name!r})"
                raise BadInput(f"{path}: {problem}; combine methods of the same questions")
            if column[name].answer != first.answer:
                both = f"judges {column[name].answer!r} for id {name!r}, and {paths[0]} judges {first.answer!r}"
                raise BadInput(f"{path}: {both}; combine methods that judge the same answers")
    return [tuple(column[name] for column in columns) for name in columns[0]]


def apply_probe(
    settings: FitSettings,
    prompts: str,
    samples: str,
    states,
    fit_on: stages.Prompts,
    fit_states,
    surrogate: str,
) -> Fitted:
    """The records of a probe, which is fitted on the training questions that are not in the test
    set, nor their twins.
    """
    method = methods.load(settings.module or "")
    task = tasks.get(settings.task)
    assert method.fit is not None and method.apply is not None  # a fitted method has both
    by_split = stages.read_by_split(fit_on)
    examples = {(split, example["id"]): example for split, example in by_split}
    matches = find_overlaps(list(examples.values()), stages.read_prompts(prompts), task=task)
    left_out = {match.train: match.kind for match in matches if match.kind != "near"}
    kept = [key for key in examples if key[1] not in left_out]
    rows = {row.key: row for row in read_surrogate(surrogate)}
    if missing := next((key for key in kept if key not in rows), None):
        raise BadInput(
            f"{surrogate}: no row for {missing[0]} id {missing[1]!r}; {store.remake_hint(surrogate)}"
        )
    targets: dict[str, list] = {
        "kappa": [rows[key].kappa for key in kept],
        "correct": [bool(rows[key].answer_correct) for key in kept],
        "question": [normalised_text(examples[key]) for key in kept],
    }
    require_both(targets["correct"], surrogate)
    say(f"[{settings.label}] fitting on {len(kept)} questions")
    parameters = method.fit(read_features(fit_states, method.reads, kept), targets)
    items = stages.read_tested(prompts, samples)
    values = method.apply(
        parameters, read_features(states, method.reads, [("test", row["id"]) for row, _ in items])
    )
    pairs = zip(items, map(float, values), strict=True)
    records = [
        Confidence.of(example, record.greedy, value, record.greedy.raw)
        for (example, record), value in pairs
    ]
    kinds = Counter(left_out[name] for _, name in examples if name in left_out)
    return records, {
        "fitted_on": [f"{split}={path}" for split, path in fit_on.items()],
        "depths": settings.depths,
        "parameters": parameters,
        "n": len(kept),
        "n_in_test_set": {kind: kinds[kind] for kind in ("exact", "twin")},
    }


def read_features(
    paths: list[str], positions: tuple[str, ...], keys: list[tuple[str, str]]
) -> dict[str, np.ndarray]:
    """{position: [n, layers, size]} of the items with these (split, id)."""
    stacked = {}
    for path in paths:
        read = {(row["split"], row["id"]): row for row in store.read(path, ("id", "split"))}
        for position in (name for name in positions if PLACES[name] == Path(path).stem):
            if missing := next((key for key in keys if position not in read.get(key, {})), None):
                raise BadInput(
                    f"{path}: no {position} of {missing[0]} id {missing[1]!r}; {store.remake_hint(path)}"
                )
            stacked[position] = np.stack([unpacked(read[key][position]) for key in keys])
    return stacked
