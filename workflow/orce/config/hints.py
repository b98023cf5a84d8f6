"""Patterns of the names in a configuration, and hints for a target that no rule makes."""

import difflib
import itertools
import re
from collections.abc import Iterable

from orce import methods
from orce.config import grading, graph, settings
from orce.config.cells import UNGRADED, Cell
from orce.config.schema import Config
from orce.errors import BadInput
from orce.methods import Registry
from orce.methods.method import PLACES

FILES = (
    "samples.jsonl",
    "surrogate.csv",
    "candidates.jsonl",
    "likelihoods.jsonl",
    "sample_likelihoods.jsonl",
)
TARGETS = (  # outputs of the rules under results/ that are not a cell's
    "metrics.csv",
    "tuned.yaml",
    "models/{model}/manifest.json",
    "{dataset}/overlap.json",
    "{dataset}/prompts/{split}.jsonl",
    "{dataset}/prompts/{split}.manifest.json",
    "{dataset}/{model}/{round}shards/{part}",
)


def wildcards(config: Config, registry: Registry) -> dict[str, str]:
    """A pattern for each wildcard of the rules: the names that this configuration has."""
    rewards = _either(registry.rewards.names())
    stated = rf"{_either(registry.names('stated'))}(-{rewards})?(-from-{_either(config.models)})?"
    calibrations = registry.calibrations()
    names = {  # of the rules whose name of a stage is a method's
        rule.name.strip("{}"): [
            name for kind in rule.kinds for name in registry.names(kind) if name not in calibrations
        ]
        for rule in graph.RULES.values()
        if rule.kinds and "stated" not in rule.kinds
    }
    below, calibration = rf"({_either(itertools.chain(*names.values()))}|{stated})", _either(calibrations)
    return {wildcard: _either(found) for wildcard, found in names.items()} | {
        "fitted": rf"({_either(names['fitted'])}|{below}\+{calibration})",
        "dataset": _either(config.datasets),
        "model": _either(config.models),
        "table": _either(config.tables),
        "ungraded": f"({UNGRADED})?" if _any_graded(config) else "()",
        "split": "(sft|rl|validation|test)",
        "shard": r"\d+",
        "scored": "(sample_)?likelihoods",
        "trial": _either(settings.trials(config)),
        "round": rf"(round\d+/{rewards}/)?",
        "reward": rewards,
        "trained": _either(registry.trained()),
        "aligned": rf"({_either(settings.aligned_folders(registry.rewards.names()))}|round\d+/{rewards}/start)",
        "states": _either(sorted(set(PLACES.values()))),
        "stated": stated,
        "method": rf"{below}(\+{calibration})?",
    }


def sampled(config: Config) -> str:
    """Pattern of the wildcard `dataset`; matches only cells whose answer LLM is sampled."""
    return rf"(?!{_given(config)}/){_answered(config)}"


def imported(config: Config) -> str:
    """Pattern of the wildcard `dataset` in a cell whose answers are given."""
    return rf"(?={_given(config)}/){_answered(config)}"


def graded(config: Config) -> str:
    """Pattern of the wildcard `dataset` where a grader grades the answers."""
    return _either(name for name in config.datasets if grading.graded(config, name))


def _any_graded(config: Config) -> bool:
    return any(grading.graded(config, name) for name in config.datasets)


def _answered(config: Config) -> str:
    """Pattern of the wildcard `dataset` in the name of answers: `samples`, or UNGRADED samples where a judge grades them."""
    if not _any_graded(config):
        return _either(config.datasets)
    to_grade = rf"{graded(config)}/[^/]+/(shards/)?"
    return rf"(?!{to_grade}samples)(?!(?!{to_grade}).*/{UNGRADED}samples){_either(config.datasets)}"


def _given(config: Config) -> str:
    pairs = itertools.product(config.datasets, config.models)
    return _either("/".join(pair) for pair in pairs if settings.given_answers(config, *pair) is not None)


def _either(names: Iterable[str]) -> str:
    """A pattern that matches one of the names; without names it matches nothing."""
    return f"({'|'.join(map(re.escape, names))})" if (names := list(names)) else "(?!)"


def unknown(config: Config, registry: Registry) -> str:
    """Pattern of the paths under results/ that no rule makes."""
    patterns = wildcards(config, registry) | {"part": "[^/]+"}
    made = [
        f"{{dataset}}/{{model}}/{file}"
        for rule in graph.RULES.values()
        for file in [*rule.files(rule.name), *(file.format(name=rule.name) for file in rule.beside)]
    ]
    known = [
        re.sub(r"\\{(\w+)\\}", lambda wildcard: patterns[wildcard[1]], re.escape(target))
        for target in [*TARGETS, *made]
    ]
    return rf"(?!({'|'.join(known)})$).+"


def refuse(config: Config, target: str) -> None:
    """Raise BadInput for a target that no rule makes, with a hint at what was meant."""
    raise BadInput(f"{target}: {_hint(config, target)}")


def _hint(config: Config, target: str) -> str:
    _, dataset, *rest = target.rstrip("/").split("/")
    if dataset not in config.datasets:
        return f"no dataset {dataset!r}; datasets are {', '.join(config.datasets)}"
    if not rest or rest[0] not in config.models:
        named = f"no model {rest[0]!r}" if rest else "name a model"
        return f"{named}; models are {', '.join(config.models)}"
    cell, name = Cell(dataset, rest[0]).folder, rest[1] if len(rest) > 1 else ""
    registry = methods.of(config)
    folders = ["sft", *registry.trained(), *settings.aligned_folders(registry.rewards.names())]
    above = registry.calibrations()
    known = [
        *(one for one in registry.names() if one not in above),
        *(f"orce-{reward}" for reward in registry.rewards.names()),
    ]
    if name in folders and len(rest) == 2:
        return f"a confidence LLM is asked for by its manifest: {cell}/{name}/manifest.json"
    if name in known:
        return f"a method's result is asked for as {cell}/{name}/metrics.json"
    if name in ("", "metrics.json", "confidences.jsonl"):
        return f"name a method: {cell}/METHOD/metrics.json; methods are {', '.join(known)}"
    if "+" in name or name in above:
        registry.parse(name)  # BadInput says which calibrations there are
        settings.calibrated_on(config, dataset)
    method, dash, _ = name.partition("-")
    if dash and method in known:
        source = registry.parse(name).source  # BadInput says which rewards there are,
        settings.judge(config, source or rest[0])  # or which models
    close = difflib.get_close_matches(name, [*known, *folders, *FILES], 1)
    meant = f"did you mean {close[0]!r}?" if close else f"methods are {', '.join(known)}; files are {', '.join(FILES)}"
    return f"nothing here is called {name!r}; {meant}"
