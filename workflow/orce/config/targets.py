"""The targets of a configuration: a pattern for each wildcard of the rules, and what to say of a target that no rule makes."""

import difflib
import itertools
import re
from collections.abc import Iterable

from orce import methods
from orce.config import graph, settings
from orce.config.cells import UNGRADED, Cell
from orce.config.schema import Config
from orce.methods import Registry
from orce.methods.method import PLACES
from orce.stage_settings import PAPER

OTHERS = (  # outputs of the rules under results/ that are not a cell's
    "metrics.csv",
    "tuned.yaml",
    "models/{model}/manifest.json",
    "{dataset}/overlap.json",
    "{dataset}/prompts/{split}.jsonl",
    "{dataset}/prompts/{split}.manifest.json",
    "{dataset}/{model}/{round}shards/{shards}",
)


def wildcards(config: Config, registry: Registry) -> dict[str, str]:
    """A pattern for each wildcard of the rules: the names that this configuration has."""
    rewards = _either(registry.rewards)
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
    return {wildcard: _either(methods) for wildcard, methods in names.items()} | {
        "fitted": rf"({_either(names['fitted'])}|{below}\+{calibration})",
        "dataset": _either(config.datasets),
        "model": _either(config.models),
        "table": _either(config.tables),
        "ungraded": f"({UNGRADED})?" if _graded(config) else "()",
        "split": "(sft|rl|validation|test)",
        "shard": r"\d+",
        "scored": "(sample_)?likelihoods",
        "trial": _either(settings.trials(config)),
        "round": rf"(round\d+/{rewards}/)?",
        "reward": rewards,
        "trained": _either(registry.trained()),
        "aligned": rf"({_either('dpo' if reward == PAPER else f'dpo-{reward}' for reward in registry.rewards)}|round\d+/{rewards}/start)",
        "states": _either(sorted(set(PLACES.values()))),
        "stated": stated,
        "method": rf"{below}(\+{calibration})?",
    }


def graded(config: Config) -> str:
    """Pattern of the wildcard `dataset` where a grader grades the answers."""
    return _either(_graded(config))


def answered(config: Config, given: bool) -> str:
    """Pattern of the wildcard `dataset` in the name of answers that are given, or sampled: `samples`, or ungraded ones."""
    pairs = itertools.product(config.datasets, config.models)
    cells = _either("/".join(pair) for pair in pairs if settings.given_answers(config, *pair) is not None)
    dataset = rf"(?{'=' if given else '!'}{cells}/){_either(config.datasets)}"
    if not _graded(config):
        return dataset
    to_grade = rf"{graded(config)}/[^/]+/(shards/)?"
    return rf"(?!{to_grade}samples)(?!(?!{to_grade}).*/{UNGRADED}samples){dataset}"


def _graded(config: Config) -> list[str]:
    return [name for name, dataset in config.datasets.items() if dataset.grading == "grader"]


def _either(names: Iterable[str]) -> str:
    """A pattern that matches one of the names; without names it matches nothing."""
    return f"({'|'.join(map(re.escape, names))})" if (names := list(names)) else "(?!)"


def _made() -> list[str]:
    """The files of a cell, in the wildcards of their rules."""
    rules = graph.RULES.values()
    return [file.format(name=rule.name) for rule in rules for file in (*rule.makes, *rule.beside)]


def unknown(config: Config, registry: Registry) -> str:
    """Pattern of the paths under results/ that no rule makes."""
    patterns = wildcards(config, registry) | {"shards": "[^/]+"}
    known = [
        re.sub(r"\\{(\w+)\\}", lambda wildcard: patterns[wildcard[1]], re.escape(target))
        for target in [*OTHERS, *(f"{{dataset}}/{{model}}/{file}" for file in _made())]
    ]
    return rf"(?!({'|'.join(known)})$).+"


def hint(config: Config, target: str) -> str:
    """What was meant by a target that no rule makes. Raises BadInput for a method whose parts are not there."""
    _, dataset, model, name, *_ = [*target.rstrip("/").split("/"), "", ""]
    if dataset not in config.datasets:
        return f"no dataset {dataset!r}; datasets are {', '.join(config.datasets)}"
    if model not in config.models:
        return f"no model {model!r}; models are {', '.join(config.models)}"
    registry = methods.of(config)
    known = [*registry.names(), *(f"orce-{reward}" for reward in registry.rewards)]
    if re.split(r"[-+]", name)[0] in known:
        settings.judge(config, registry.parse(name).source or model)  # BadInput names the missing part
    fits = {
        name,
        *(f"{{{wildcard}}}" for wildcard, like in wildcards(config, registry).items() if re.fullmatch(like, name)),
    }
    ends = [file.rpartition("/") for file in _made()]
    meant = {f"{name}/{last}" for folder, _, last in ends if folder in fits}
    meant |= {f"{folder.strip('{}').upper()}/{last}" for folder, _, last in ends if folder and last == name}
    if meant:
        return f"no such file; expected one of {', '.join(f'{Cell(dataset, model).folder}/{file}' for file in sorted(meant))}"
    files = [file for file in _made() if "{" not in file]
    close = difflib.get_close_matches(name, [*known, *files], 1)
    hint = f"did you mean {close[0]!r}?" if close else f"methods are {', '.join(known)}; files are {', '.join(files)}"
    return f"nothing here is called {name!r}; {hint}"
