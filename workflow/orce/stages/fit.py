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
from orce.methods.method import DEPTHS, PLACES, unpack_states
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
    fit_on: Annotated[stages.Prompts, "frozen prompts to fit on"] = {},  # noqa: B006
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
    if samples and surrogate:
        records, facts = apply_probe(
            settings, prompts, samples, states, fit_on, fit_states, surrogate
        )
    else:
        records, facts = apply_map(settings, prompts, confidences, fit_on, fit_confidences)
    store.write(out, records, settings)
    store.write_object(fit, {"method": settings.method} | facts, settings)


Fitted = tuple[list[Confidence], dict[str, Any]]  # the records, and what was fitted on what
Item = tuple[Confidence, ...]  # what each of the methods below says of one answer


def apply_map(
    settings: FitSettings,
    prompts: str,
    confidences: list[str],
    fit_on: stages.Prompts,
    fit_confidences: list[str],
) -> Fitted:
    """The records of a calibration or a combination. An item without a readable confidence stays
    unread, and is counted.

    `raw` is the confidence below a calibration, or a combination's list; for a missing one it
    computes with `unparsed_confidence`.
    """
    calibration = methods.load(settings.module) if settings.module else None
    if calibration is None:
        fit, apply = COMBINATIONS[settings.combination or ""]
    else:
        fit = calibration.fit
        apply = calibration.apply

    def features(items: list[Item]) -> list:
        """Confidences [n] for a calibration, [n, m] for a combination of m methods."""
        usual = settings.unparsed_confidence
        rows = []
        for item in items:
            rows.append([usual if value is None else value for value in stated(item)])
        return rows if calibration is None else [value for (value,) in rows]

    facts: dict[str, Any] = {"parameters": {}}
    if fit is not None:
        (fit_prompts,) = fit_on.values()
        shared = shared_ids(fit_prompts, prompts, tasks.get(settings.task))
        items = []
        for item in align_by_id(fit_confidences):
            if item[0].id not in shared and readable(item):
                items.append(item)
        correct = [bool(item[0].correct) for item in items]
        require_both(correct, len(shared), fit_confidences[0], "calibrate_on")
        facts = {"parameters": fit(features(items), correct), "fitted_on": fit_confidences}
        facts |= {"n": len(items), "n_in_test_set": len(shared)}
    n_unparsed = dict.fromkeys(settings.below, 0)
    records = []
    for item in align_by_id(confidences):
        below = stated(item)
        for method, value in zip(settings.below, below, strict=True):
            n_unparsed[method] += value is None
        confidence = None
        if readable(item):
            confidence = float(apply(facts["parameters"], features([item]))[0])
        retried = any(record.retried is True for record in item)
        records.append(item[0].mapped(confidence, below[0] if calibration else below, retried))
    facts |= {"of": settings.below, "n_unparsed": n_unparsed}
    say(f"[{settings.label}] {facts}")
    return records, facts


def shared_ids(fit_prompts: str, prompts: str, task: tasks.Task) -> set[str]:
    """The ids of the questions to fit on that are test questions too."""
    tested = {task.question(example) for example in stages.read_prompts(prompts)}
    examples = stages.read_prompts(fit_prompts)
    return {example["id"] for example in examples if task.question(example) in tested}


def stated(item: Item) -> list[Number | None]:
    return [record.confidence for record in item]


def readable(item: Item) -> bool:
    return any(value is not None for value in stated(item))


def require_both(correct: list[bool], in_test_set: int, path: str, where: str) -> None:
    """where: what names the items in a configuration."""
    if set(correct) != {True, False}:
        left_out = f" ({in_test_set} others are test questions)" if in_test_set else ""
        few = f"{len(correct)} items to fit on{left_out}, without both a right and a wrong answer"
        raise BadInput(f"{path}: {few}; fit on others, or on more: {where}, or --fit")


def align_by_id(paths: list[str]) -> list[Item]:
    """The records of several methods, item by item in the order of the first.

    Raises BadInput for an item that a method lacks or answers differently.
    """
    columns = [{record.id: record for record in stated_records(path)} for path in paths]
    first = columns[0]
    for path, column in zip(paths, columns, strict=True):
        for name, record in first.items():
            if len(column) != len(first) or name not in column:
                problem = f"not the items of {paths[0]} (id {name!r})"
                raise BadInput(f"{path}: {problem}; combine methods of the same questions")
            if column[name].answer != record.answer:
                both = f"judges {column[name].answer!r} for id {name!r}, and {paths[0]} judges {record.answer!r}"
                raise BadInput(f"{path}: {both}; combine methods that judge the same answers")
    return [tuple(column[name] for column in columns) for name in first]


def apply_probe(
    settings: FitSettings,
    prompts: str,
    samples: str,
    states: list[str],
    fit_on: stages.Prompts,
    fit_states: list[str],
    surrogate: str,
) -> Fitted:
    """The records of a probe, which is fitted on the training questions that are not in the test
    set, nor their twins.
    """
    method = methods.load(settings.module or "")
    items = stages.read_tested(prompts, samples)
    tested = [example for example, _ in items]
    examples = stages.read_by_split(fit_on)
    left_out = {}
    for split in fit_on:  # each alone: two of them may have the same ids
        training = [example for key, example in examples.items() if key[0] == split]
        for match in find_overlaps(training, tested, task=tasks.get(settings.task)):
            if match.kind != "near":
                left_out[split, match.train] = match.kind
    kept = [key for key in examples if key not in left_out]
    rows = {row.key: row for row in read_surrogate(surrogate)}
    for split, name in kept:
        if (split, name) not in rows:
            no_row = f"no row for {split} id {name!r}"
            raise BadInput(f"{surrogate}: {no_row}; {store.remake_hint(surrogate)}")
    targets: dict[str, list] = {
        "kappa": [rows[key].kappa for key in kept],
        "correct": [bool(rows[key].answer_correct) for key in kept],
        "question": [normalised_text(examples[key]) for key in kept],
    }
    require_both(targets["correct"], len(left_out), surrogate, "splits sft and rl")
    say(f"[{settings.label}] fitting on {len(kept)} questions")
    parameters = method.fit(read_features(fit_states, method.reads, kept), targets)
    keys = [("test", example["id"]) for example in tested]
    values = method.apply(parameters, read_features(states, method.reads, keys))
    records = []
    for (example, record), value in zip(items, values, strict=True):
        records.append(Confidence.of(example, record.greedy, float(value), record.greedy.raw))
    kinds = Counter(left_out.values())
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
        rows = {}
        for row in store.read(path, ("id", "split")):
            rows[row["split"], row["id"]] = row
        for position in positions:
            if PLACES[position] != Path(path).stem:
                continue
            states = []
            for split, name in keys:
                row = rows.get((split, name), {})
                if position not in row:
                    lacking = f"no {position} of {split} id {name!r}"
                    raise BadInput(f"{path}: {lacking}; {store.remake_hint(path)}")
                states.append(unpack_states(row[position]))
            stacked[position] = np.stack(states)
    return stacked
