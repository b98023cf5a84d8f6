"""Freeze the examples of one split: select them from the source by the seed and write
prompts/{split}.jsonl.
"""

import json
import textwrap
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
        own = cls._alone(config, dataset)
        own.splits = picking.training_splits(config, dataset) | own.splits
        if config.datasets[dataset].remove_overlap:
            for name in config.datasets:
                if picking.training_dataset(config, name) == dataset:
                    own.tests.append(cls._alone(config, name))
        return own

    @classmethod
    def _alone(cls, config: Config, dataset: str) -> Self:
        spec = config.datasets[dataset]
        return cls(
            dataset=dataset,
            task=spec.task,
            source=picking.data_source(config, dataset),
            splits={**spec.splits},
            seed=config.seed,
            tests=[],
        )


def run(settings: PromptsSettings, split: str, out: str, manifest: str):
    """Reads the source of a data set; writes prompts/SPLIT.jsonl: examples drawn by the seed from
    the source's split, without those that are in a test set where `remove_overlap` says so.
    """
    lines = []
    source = dict(sources.pin_revision(settings.source))
    if source != settings.source:
        lines.append(
            f"{source['hub']} is read at the commit that {settings.source.get('revision', 'main')!r} is now; to keep it, in "
            f"datasets.{settings.dataset}.source: revision: {source['revision']}"
        )
    settings.source = source  # with its commit, for the manifest
    examples = draw_split(settings, split)
    if SHOWN in settings.splits:
        shown = draw_worked_examples(settings)
        for example in examples:  # the answer to its own question is not shown
            own = normalised_text(example)
            example["worked"] = [None if text == own else pair for text, pair in shown]
    facts = {"task": settings.task, "source": source, "from": settings.splits[split].origin}
    store.write(out, examples, settings, manifest, split=split, **facts)
    repeats = count_repeats(examples, tasks.get(settings.task))
    told = [describe_first(examples[0]), repeats, count_blank_options(examples)]
    lines += [f"{split}: {line}" for line in told if line]
    for line in lines:
        say(f"[prompts {settings.dataset}] {line}")


def describe_first(example: Example) -> str:
    """The first question with its right answer in words, for the eye: labels that mean the opposite
    show here.
    """
    right = example["reference"]
    options = example["choices"] if isinstance(example["choices"], list) else []
    texts = []
    for value in right if isinstance(right, list) else [right]:
        parts = value if isinstance(value, list) else [value]
        texts.append("; ".join(map(str, parts)))
    for letter, option in choice.with_letters(options):
        if letter == right:
            texts = [f"{letter}. {option}"]
    answer = quoted(" or ".join(texts) or "not known")
    return f"the right answer to {quoted(str(example['question']))} is {answer}"


def quoted(text: str) -> str:
    return json.dumps(textwrap.shorten(text, 160, placeholder=" ..."), ensure_ascii=False)


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
    if not again:
        return ""
    counted = f"{len(again)} of {len(examples)} questions repeat an earlier one"
    clashes = [(old, new) for old, new in again if old["reference"] != new["reference"]]
    if not clashes:
        return counted
    old, new = clashes[0]
    example = f"{old['id']!r} and {new['id']!r}"
    return f"{counted}, {len(clashes)} of them with another right answer, as {example}"


def count_blank_options(examples: list[Example]) -> str:
    """How many questions have an option without a text, and of how many it is the right one; empty
    if none has.
    """
    n_blank = 0
    right = []
    for example in examples:
        options = example["choices"] if isinstance(example["choices"], list) else []
        lettered = choice.with_letters(options)
        blank = [letter for letter, text in lettered if not str(text).strip()]
        n_blank += bool(blank)
        if example["reference"] in blank:
            right.append(example["id"])
    named = f", the right one of {len(right)} of them, as {right[0]!r}" if right else ""
    return f"{n_blank} of {len(examples)} questions have an empty option{named}" if n_blank else ""


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
    pool = load_examples(settings, origin)
    met = set()
    if settings.tests and split != "test":
        for tested in settings.tests:
            test = draw_split(tested, "test")
            matches = find_overlaps(pool, test, task=tasks.get(tested.task))
            met |= {match.train for match in matches}
        say(
            f"[prompts {settings.dataset}] {len(met)} of {len(pool)} training examples overlap with a test set: removed"
        )
        pool = [example for example in pool if example["id"] not in met]
    try:
        span = split_slices(settings.splits, origin, len(pool))[split]
    except BadInput as error:
        hint = f", {len(met)} that overlap with a test set left out" if met else ""
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


def load_examples(settings: PromptsSettings, split: str) -> list[Example]:
    """The examples of a split of the source, checked, since every later step relies on them. Raises
    BadInput naming the task's module.
    """
    examples = tasks.get(settings.task).load(dict(settings.source), split, settings.seed)
    call = f"{settings.task}: load(..., {split!r})"
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
