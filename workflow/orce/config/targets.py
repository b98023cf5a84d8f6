"""The names that the targets of a configuration may have, and what to say of a target that no rule
makes.
"""

import difflib
import re
from collections.abc import Collection, Iterable
from itertools import chain
from pathlib import Path
from typing import Any

from orce import methods
from orce.artefacts.store import RESULTS
from orce.config import picking
from orce.config.cells import UNGRADED, Cell
from orce.errors import BadInput, did_you_mean
from orce.settings.schema import Config
from orce.settings.stage import PAPER_REWARD

RULES = ("paper_tables", "all", "figures", "metrics_csv", "tune")  # that people ask for by name
NOTHING = "(?!)"  # a pattern that matches nothing
FILES = (  # of a cell, as people ask for them
    "samples.jsonl",
    "surrogate.csv",
    "candidates.jsonl",
    "pairs/REWARD.jsonl",
    "sft/manifest.json",
    "dpo/manifest.json",
    "METHOD/confidences.jsonl",
    "METHOD/metrics.json",
    "METHOD/extra.json",
)


def wildcards(config: Config) -> dict[str, str]:
    """A pattern for each wildcard of the rules: the names that this configuration has."""
    registry = methods.of(config)
    prompted, measured, external, stated = (
        any_of(registry.names(kind)) for kind in ("prompted", "measured", "external", "stated")
    )
    # A confidence LLM may be trained by the reward of an ablation, and for the answers of another
    # model.
    rewards = any_of(registry.rewards)
    stated += f"(-{rewards})?(-from-{any_of(config.models)})?"
    calibrations = registry.calibrations()
    fitted = [name for name in registry.names("fitted") if name not in calibrations]
    combined = [name for name in fitted if registry.get(name).members]
    uncalibrated = "|".join([prompted, measured, external, stated, any_of(fitted)])
    calibration = any_of(calibrations)
    graded = any(dataset.grading == "grader" for dataset in config.datasets.values())
    alignments = any_of(
        "dpo" if reward == PAPER_REWARD else f"dpo-{reward}" for reward in registry.rewards
    )
    return {
        "dataset": any_of(config.datasets),
        "model": any_of(config.models),
        "table": any_of(config.tables),
        "split": "(sft|rl|validation|test)",
        "ungraded": f"({UNGRADED})?" if graded else "()",
        "prompted": prompted,
        "measured": measured,
        "external": external,
        "stated": stated,
        "combined": any_of(combined),
        "probe": any_of(name for name in fitted if name not in combined),
        "below": f"({uncalibrated})",
        "calibration": calibration,
        "method": rf"({uncalibrated})(\+{calibration})?",
        "trained": any_of(registry.trained()),
        "aligned": rf"({alignments}|round\d+/{rewards}/start)",
        "round": rf"(round\d+/{rewards}/)?",  # of the alignment, empty for the first
        "reward": rewards,
        "trial": any_of(picking.trials(config)),
        "scored": "(sample_)?likelihoods",
        "states": "(answers|judge)",
    }


def shards(number: int) -> str:
    """A pattern for the wildcard `shard` of a rule that is divided into so many jobs: shards/0/, or
    nothing for one.
    """
    return r"shards/\d+/" if number > 1 else "()"


def shard_files(number: int, *names: str, **patterns: str) -> str:
    """A pattern of files that are joined from so many shards, none from one shard. names: with
    wildcards, whose patterns are `patterns`.
    """
    if number == 1:
        return NOTHING
    return "|".join(name.format(**patterns) for name in names)


def any_of(names: Iterable[str]) -> str:
    """A pattern that matches one of the names; without names it matches nothing."""
    alternatives = "|".join(map(re.escape, names))
    return f"({alternatives})" if alternatives else NOTHING


def refuse_unknown(config: Config, wanted: Iterable[str], rules: Collection[Any]) -> None:
    """Raises BadInput for a target that is neither a rule, nor a file that a rule makes or that is
    there; it says what was meant.
    """
    names = {rule.name for rule in rules}
    outputs = [*chain.from_iterable(rule.output for rule in rules)]
    files = [str(output) for output in outputs if "{" not in str(output)]
    for target in wanted:
        made = target in names or any(output.match(target) for output in outputs)
        if not made and not Path(target).exists():
            raise BadInput(f"{target}: {hint(config, target, [*names, *files])}")


def hint(config: Config, target: str, known: Iterable[str]) -> str:
    """What was meant by a target that no rule makes; known: rules, and files that every
    configuration has.

    Raises BadInput for a method whose parts are not there.
    """
    tables = []
    for name in config.tables:
        tables += [f"paper_tables/{name}.tex", f"paper_tables/{name}.html"]
    close = difflib.get_close_matches(target, [*known, *tables], 1, cutoff=0.8)
    if close:
        return f"no rule makes this; did you mean {close[0]!r}?"
    if Path(target).parts[0] == RESULTS:
        return hint_in_results(config, target)
    return f"no rule makes this; targets are {', '.join(RULES)}, paper_tables/TABLE.tex, and files in results/DATASET/MODEL/"


def hint_in_results(config: Config, target: str) -> str:
    """What was meant by a file below results/."""
    _, dataset, model, name, *_ = f"{target.rstrip('/')}///".split("/")
    if dataset == "models":
        return f"no such file; expected {RESULTS}/models/{model}/manifest.json"
    if dataset not in config.datasets:
        return f"no dataset {dataset!r}; datasets are {', '.join(config.datasets)}"
    if model not in config.models:
        return f"no model {model!r}; models are {', '.join(config.models)}"
    registry = methods.of(config)
    known = [*registry.names(), *(f"orce-{reward}" for reward in registry.rewards)]
    folders = [name]  # of FILES, that are meant: METHOD for a method
    if name.startswith("dpo-"):
        folders.append("dpo")
    if re.split(r"[-+]", name)[0] in known:
        # raises BadInput that names an unknown part
        picking.judge_base(config, registry.parse(name).source or model)
        folders.append("METHOD")
    meant = []
    for file in FILES:
        folder, _, inside = file.rpartition("/")
        if folder in folders:
            meant.append(f"{name}/{inside}")
    meant += [file for file in FILES if file.endswith(f"/{name}")]
    if meant:
        files = ", ".join(f"{Cell(dataset, model).folder}/{file}" for file in dict.fromkeys(meant))
        return f"no such file; expected one of {files}"
    listed = f"methods are {', '.join(known)}; files are {', '.join(FILES)}"
    meant_name = did_you_mean(name, [*known, *FILES]).strip()
    return f"nothing here is called {name!r}; {meant_name or listed}"
