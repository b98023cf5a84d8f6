"""Freeze the examples of one split: select them from the source by the seed and write
prompts/{split}.jsonl.
"""

import json
import textwrap
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from orce import tasks
from orce.artefacts import files, store
from orce.artefacts.records import PROMPT_KEYS, Example
from orce.config import picking
from orce.errors import BadInput
from orce.runtime.modules import short
from orce.runtime.process import say
from orce.settings.schema import Config, Split
from orce.settings.stage import Settings as StageSettings
from orce.tasks import choice, sources
from orce.tasks.examples import SHOWN, find_overlaps, normalised_text, split_slices


class PromptsSettings(StageSettings, kw_only=True):
    """tests: the test sets whose questions are removed from the training splits."""

    dataset: str
    task: str
    source: dict[str, Any]  # where it comes from, and how the tasks qa and choice read it
    splits: dict[str, Split]
    seed: int
    tests: list["PromptsSettings"]

    @classmethod
    def of(cls, config: Config, dataset: str) -> Self:
        disjoint = config.datasets[dataset].remove_overlap
        tested = [
            name
            for name in config.datasets
            if disjoint and picking.training_dataset(config, name) == dataset
        ]
        own = cls._alone(config, dataset)
        own.splits = picking.training_splits(config, dataset) | own.splits
        own.tests = [cls._alone(config, name) for name in tested]
        return own

    @classmethod
    def _alone(cls, config: Config, dataset: str) -> Self:
        spec = config.datasets[dataset]
        source = picking.data_source(config, dataset)
        return cls(
            dataset=dataset,
            task=spec.task,
            source=source,
            splits={**spec.splits},
            seed=config.seed,
            tests=[],
        )


def run(settings: PromptsSettings, split: str, out: str, manifest: str):
    """Reads the source of a data set; writes prompts/SPLIT.jsonl: examples drawn by the seed from
    the source's split, without those that are in a test set where `remove_overlap` says so.
    """
    # with its commit, for the manifest
    task = tasks.get(settings.task)
    source = dict(sources.pin_revision(settings.source))
    lines = []
    if source != settings.source:
        lines.append(
            f"{source['hub']} is read at the commit that {settings.source.get('revision', 'main')!r} is now; to keep it, in "
            f"datasets.{settings.dataset}.source: revision: {source['revision']}"
        )
    settings.source = source
    examples = draw_split(settings, split)
    if SHOWN in settings.splits:
        shown = draw_worked_examples(settings)
        for example in examples:  # the answer to its own question is not shown
            own = normalised_text(example)
            example["worked"] = [None if text == own else pair for text, pair in shown]
    facts = {"task": settings.task, "source": source, "from": settings.splits[split].origin}
    store.write(out, examples, settings, manifest, split=split, **facts)
    repeats = count_repeats(examples, task)
    told = [describe_first(examples[0]), repeats, count_blank_options(examples)]
    lines += [f"{split}: {line}" for line in filter(None, told)]
    for line in lines:
        say(f"[prompts {settings.dataset}] {line}")


def describe_first(example: Example) -> str:
    """The first question with its right answer in words, for the eye: labels that mean the opposite
    show here.
    """
    right = example["reference"]
    letters = choice.letters(example["choices"] if isinstance(example["choices"], list) else [])
    if right in [*letters]:
        right = f"{right}. {example['choices'][letters.index(right)]}"
    accepted = right if isinstance(right, list) else [right]
    texts = [
        "; ".join(map(str, value)) if isinstance(value, list) else str(value) for value in accepted
    ]
    asked, answer = (
        json.dumps(textwrap.shorten(text, 160, placeholder=" ..."), ensure_ascii=False)
        for text in (str(example["question"]), " or ".join(texts) or "not known")
    )
    return f"the right answer to {asked} is {answer}"


def count_repeats(examples: list[Example], task: tasks.Task) -> str:
    """How many examples ask what an earlier one asks; empty if none does. A file with a line for
    each accepted answer shows here.
    """
    seen: dict[str, Example] = {}
    again = []
    for example in examples:
        asked = " ".join(task.question(example).split())
        if asked in seen:
            again.append((seen[asked], example))
        else:
            seen[asked] = example
    clash = [(old["id"], new["id"]) for old, new in again if old["reference"] != new["reference"]]
    named = (
        ", {} of them with another right answer, as {!r} and {!r}".format(len(clash), *clash[0])
        if clash
        else ""
    )
    return (
        f"{len(again)} of {len(examples)} questions repeat an earlier one{named}" if again else ""
    )


def count_blank_options(examples: list[Example]) -> str:
    """How many questions have an option without a text, and of how many it is the right one; empty
    if none has.
    """
    with_options = [example for example in examples if isinstance(example["choices"], list)]
    blank = [
        example
        for example in with_options
        if not all(str(text).strip() for text in example["choices"])
    ]
    right = []
    for example in blank:
        options = example["choices"]
        for letter, text in zip(choice.letters(options), options, strict=True):
            if letter == example["reference"] and not str(text).strip():
                right.append(example["id"])
    named = f", the right one of {len(right)} of them, as {right[0]!r}" if right else ""
    return f"{len(blank)} of {len(examples)} questions have an empty option{named}" if blank else ""


def draw_split(settings: PromptsSettings, split: str) -> list[Example]:
    """The examples of `split`. Splits of one source split are cut from one shuffled order, so they
    are disjoint.
    """
    name = f"datasets.{settings.dataset}"
    if split not in settings.splits:
        there = ", ".join(settings.splits)
        raise BadInput(
            f"{name}.splits: no split {split!r}, which a trained method needs; there are {there}"
        )
    origin = settings.splits[split].origin
    pool = everything = load_examples(
        tasks.get(settings.task), settings.task, settings.source, origin, settings.seed
    )
    if settings.tests and split != "test":
        tests = [(draw_split(tested, "test"), tasks.get(tested.task)) for tested in settings.tests]
        met = set()
        for test, task in tests:
            met |= {match.train for match in find_overlaps(pool, test, task=task)}
        say(
            f"[prompts {settings.dataset}] {len(met)} of {len(pool)} training examples overlap with a test set: removed"
        )
        pool = [example for example in pool if example["id"] not in met]
    try:
        span = split_slices(settings.splits, origin, len(pool))[split]
    except BadInput as error:
        removed = len(everything) - len(pool)
        hint = f", {removed} that overlap with a test set left out" if removed else ""
        raise BadInput(
            f"{name}.{error}{hint}; give a share (size: 1/3), or null for what is left"
        ) from None
    order = np.random.default_rng(settings.seed).permutation(len(pool))
    return [pool[i] for i in sorted(order[span])]


def draw_worked_examples(settings: PromptsSettings) -> list[tuple[str, list[str]]]:
    """The normalised text and [question, answer] of each worked example; of several accepted
    answers the first.
    """
    task = tasks.get(settings.task)
    examples = draw_split(settings, SHOWN)
    if not all(example["reference"] for example in examples):
        raise BadInput(
            f"datasets.{settings.dataset}.splits.{SHOWN}: worked examples need answers (fields.answer)"
        )
    return [
        (normalised_text(example), [task.question(example), example["reference"][0]])
        for example in examples
    ]


def load_examples(
    task: tasks.Task, name: str, source: Mapping[str, Any], split: str, seed: int
) -> list[Example]:
    """The examples of `task.load`, checked, since every later step relies on them. Raises BadInput
    naming the module.
    """
    examples = task.load(dict(source), split, seed)
    call = f"{name}: load(..., {split!r})"
    keys = ", ".join(PROMPT_KEYS)
    if not isinstance(examples, list) or not examples:
        raise BadInput(f"{call} gave {short(examples)}; expected a list of examples")
    places = [f"{call}, example {i}" for i in range(len(examples))]
    for where, example in zip(places, examples, strict=True):
        if not isinstance(example, dict):
            raise BadInput(f"{where}: {short(example)}; expected a dict with {keys}")
        if missing := [key for key in PROMPT_KEYS if key not in example]:
            raise BadInput(f"{where}: no key {missing[0]!r}; an example has {keys}")
        if not isinstance(example["id"], str) or not example["id"]:
            raise BadInput(f"{where}: id is {example['id']!r}; expected a text that is not empty")
        try:
            files.to_line(example).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise BadInput(f"{where}: cannot be written as JSON ({error})") from None
    return files.unique_ids(examples, places)
