"""The graph of a run, in one place: every rule that works on a cell, the files that it makes there and the stages that it reads.

The rules' inputs, the matrix of a run, the hints at targets and the pictures' inputs come from it.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from orce import methods
from orce.config import layout, settings
from orce.config.cells import UNGRADED, Cell, aligned, manifest, overlap, round_folder, round_start
from orce.config.cells import prompts as frozen_prompts
from orce.config.schema import Config
from orce.errors import BadInput
from orce.stage_settings import PAPER


class Stage(NamedTuple):
    """What one rule does in one cell. `name` distinguishes the rule's stages there; RULES has its pattern."""

    rule: str
    cell: Cell
    name: str = ""

    @property
    def files(self) -> list[str]:
        """The files that other stages read."""
        return [f"{self.cell.folder}/{file}" for file in RULES[self.rule].files(self.name)]

    @property
    def manifest(self) -> str:
        """The file that seals them."""
        return next(file for file in self.files if file.endswith("manifest.json"))


Inputs = dict[str, list[Stage]]  # {name of a rule's input: the stages that make it}
Frozen = dict[str, list[tuple[str, str]]]  # {name of a rule's input: (dataset, split) of its frozen prompts}


@dataclass(frozen=True)
class Rule:
    """A rule that works on a cell.

    name    pattern of the names of its stages, in the wildcards of the rule
    makes   files that other stages read, below the folder of the cell; the first one is what a reader names
    reads   the stages that a stage reads, by the rule's names for its inputs
    prompts the (dataset, split) whose frozen prompts it reads, by the names of these inputs
    more    further options of its command
    kinds   the kinds of methods whose confidences it makes
    shards  the section of the configuration that has its number of shards
    loads   the model that a stage loads, if it loads one
    beside  files that it makes for people
    """

    name: str
    makes: tuple[str, ...]
    reads: Callable[[Config, Stage], Inputs] = lambda config, stage: {}
    kinds: tuple[str, ...] = ()
    shards: str | None = None
    loads: Callable[[Config, Stage], str | None] = lambda config, stage: None
    beside: tuple[str, ...] = ()
    prompts: Callable[[Config, Stage], Frozen] = lambda config, stage: {}
    more: Callable[[Config, Stage], dict[str, Any]] = lambda config, stage: {}

    def files(self, name: str, beside: tuple[str, ...] = ()) -> list[str]:
        return [file.format(name=name) for file in (*self.makes, *beside)]


# The stages that make something


def answers(config: Config, cell: Cell) -> Stage:
    """The stage that makes the samples of a cell which other stages read."""
    return Stage("grade", cell) if config.datasets[cell.dataset].grading == "grader" else _answered(config, cell)


def row(config: Config, cell: Cell, method: str) -> Stage:
    """The stage that makes the confidences of a row."""
    kind = methods.of(config).find(method).kind
    return Stage(next(name for name, rule in RULES.items() if kind in rule.kinds), cell, method)


def trained(cell: Cell, folder: str) -> Stage:
    """The stage that makes a confidence LLM."""
    rule = "sft" if folder == "sft" else "dpo" if re.match(r"dpo(-|$)|round\d+/", folder) else "train"
    return Stage(rule, cell, folder)


def _answered(config: Config, cell: Cell, name: str = "") -> Stage:
    return Stage("sample" if settings.given_answers(config, *cell) is None else "import_answers", cell, name)


# What they read


def _ungraded(config: Config, stage: Stage) -> Inputs:
    return {"samples": [_answered(config, stage.cell, UNGRADED)]}


def _samples(config: Config, stage: Stage) -> Inputs:
    return {"samples": [answers(config, stage.cell)]}


def _surrogate(config: Config, stage: Stage) -> Inputs:
    return {"surrogate": [Stage("surrogate", stage.cell)]}


def _elicit(config: Config, stage: Stage) -> Inputs:
    asked = methods.of(config).get(stage.name).ask
    return _samples(config, stage) if asked else {"samples": []}


def _candidates(config: Config, stage: Stage) -> Inputs:
    """Round 1 samples from the warm start for all rewards; a later round from what the round before trained."""
    number, reward, _ = stage.name.removeprefix("round").split("/") if stage.name else ("1", PAPER, "")
    start = trained(stage.cell, round_start(reward, int(number)))
    return _surrogate(config, stage) | {"weights": [start]}


def _pairs(config: Config, stage: Stage) -> Inputs:
    round = stage.name.rpartition("pairs/")[0]
    return _surrogate(config, stage) | {"candidates": [Stage("candidates", stage.cell, round)]}


def _dpo(config: Config, stage: Stage) -> Inputs:
    cell, (reward, number) = stage.cell, aligned(stage.name)
    number = number or config.dpo.rounds
    return {
        "pairs": [Stage("pairs", cell, f"{round_folder(reward, number)}pairs/{reward}")],
        "sft": [Stage("sft", cell, "sft")],
        "start": [trained(cell, round_start(reward, number))],
    }


def _state(config: Config, stage: Stage) -> Inputs:
    return _samples(config, stage) | _weights(config, stage.cell, [stage.name])


def _weights(config: Config, cell: Cell, rows: list[str]) -> Inputs:
    """The confidence LLMs of some rows."""
    folders = [settings.weights(config, *cell, row) for row in rows]  # the cell that trains it, and its name there
    return {"weights": list(dict.fromkeys(trained(*folder) for folder in folders if folder is not None))}


def _derive(config: Config, stage: Stage) -> Inputs:
    cell, method = stage.cell, methods.of(config).get(stage.name)
    served = settings.gives_logprobs(config, cell.model) and method.logprobs_suffice
    files = [] if served else method.likelihoods
    return _samples(config, stage) | {
        "likelihoods": [Stage("likelihoods", cell, file) for file in files if file == "likelihoods"],
        "sample_likelihoods": [Stage("likelihoods", cell, file) for file in files if file != "likelihoods"],
    }


def _states(config: Config, stage: Stage) -> Inputs:
    return _samples(config, stage) | _surrogate(config, stage)


def _fit(config: Config, stage: Stage) -> Inputs:
    """A calibration or combination reads the methods below it, and fits on the same methods of the set to calibrate on.

    A probe is fitted on the training questions of the cell whose confidence LLMs judge this one.
    """
    registry, (_, cell, name) = methods.of(config), stage
    if of := registry.find(name).states:
        fit = Cell(settings.trained_on(config, cell.dataset), cell.model)
        states = {
            key: [Stage("states", at, file) for file in of] for key, at in (("states", cell), ("fit_states", fit))
        }
        return states | _samples(config, stage) | {"surrogate": [Stage("surrogate", fit)]}
    on = [Cell(settings.calibrated_on(config, cell.dataset), cell.model)] if registry.fits(name) else []
    below = registry.below(name)
    return {
        "confidences": [row(config, cell, method) for method in below],
        "fit_confidences": [row(config, held_out, method) for held_out in on for method in below],
    }


def _evaluate(config: Config, stage: Stage) -> Inputs:
    weights = _weights(config, stage.cell, methods.of(config).leaves(stage.name))["weights"]
    made = {"confidences": [row(config, stage.cell, stage.name)], "manifests": [answers(config, stage.cell), *weights]}
    return made | _surrogate(config, stage)


def _tried(config: Config, stage: Stage) -> Inputs:
    """A trial of `tune` trains on the pairs of the first round."""
    reward, sft = stage.name.split("/")[1], [Stage("sft", stage.cell, "sft")]
    return {"pairs": [Stage("pairs", stage.cell, f"pairs/{reward}")], "sft": sft, "start": sft}


def _read_trial(config: Config, stage: Stage) -> Inputs:
    return _samples(config, stage) | {"weights": [Stage("tune_dpo", stage.cell, stage.name)]}


# The frozen prompts that they read


def _sampled(config: Config, stage: Stage) -> Frozen:
    return {"prompts": [(stage.cell.dataset, split) for split in settings.splits(config, *stage.cell)]}


def _read(config: Config, stage: Stage) -> Frozen:
    """Hidden states are read where something is trained or tested."""
    splits = settings.splits(config, *stage.cell)
    return {"prompts": [(stage.cell.dataset, split) for split in splits if split != "validation"]}


def _learned(config: Config, stage: Stage) -> Frozen:
    """A method with a training of its own lists the splits that it is trained on."""
    return {"prompts": [(stage.cell.dataset, split) for split in methods.of(config).get(stage.name).trained_on]}


def _fitted(config: Config, stage: Stage) -> Frozen:
    """A probe is fitted on the training splits, another method on the test prompts of the set to calibrate on."""
    dataset = settings.trained_on(config, stage.cell.dataset)
    if (method := methods.of(config).find(stage.name)).states:
        splits = [split for split in method.trained_on if split in config.datasets[dataset].splits]
        return _tested(config, stage) | {"fit_on": [(dataset, split) for split in splits]}
    on = {source.cell.dataset: None for source in _fit(config, stage)["fit_confidences"]}
    return _tested(config, stage) | {"fit_on": [(dataset, "test") for dataset in on]}


def _split(name: str) -> Callable[[Config, Stage], Frozen]:
    return lambda config, stage: {"prompts": [(stage.cell.dataset, name)]}


_tested, _warm, _rl = map(_split, ("test", "sft", "rl"))


# Further options


def _reference(config: Config, stage: Stage) -> dict[str, Any]:
    """Only the first round's candidates come from DPO's reference, the warm start."""
    return {} if stage.name.startswith("round") else {"from_reference": True}


def _seed(config: Config, stage: Stage) -> dict[str, Any]:
    """Of the realised answers, whose whole replies are kept where a judge reads them."""
    whole = {"reasoning": True} if config.datasets[stage.cell.dataset].judge_reads == "reasoning" else {}
    return {"seed": config.seed} | whole


def _module(config: Config, stage: Stage) -> dict[str, Any]:
    return {"task": config.datasets[stage.cell.dataset].task, "method": methods.of(config).module(stage.name)}


def _readout(config: Config, stage: Stage) -> dict[str, Any]:
    """Shards keep what was read, and joining them reads it out."""
    return {"readout": config.evaluation.readout} if config.confidence.shards == 1 else {}


# The models that they load


def _answering(config: Config, stage: Stage) -> str:
    return stage.cell.model


def _judging(config: Config, stage: Stage) -> str:
    """The base of the confidence LLM, which may be another cell's."""
    source = methods.of(config).parse(stage.name).source if stage.rule == "state" else None
    return settings.judge(config, source or stage.cell.model)


def _grading(config: Config, stage: Stage) -> str | None:
    assert config.grading is not None  # the rule stands only with a grader
    return config.grading.model


def _encoding(config: Config, stage: Stage) -> str:
    return (_judging if stage.name == "judge" else _answering)(config, stage)


# The rules, in the order of the method


def _sealed(file: str) -> tuple[str, str]:
    return file, manifest(file)


SAMPLES = _sealed("{name}samples.jsonl")
WEIGHTS = ("{name}/manifest.json",)
CONFIDENCES = ("{name}/confidences.jsonl",)
GRADED = ("verdicts.jsonl", "disagreements.jsonl", "meanings.jsonl")

RULES = {
    "sample": Rule("{ungraded}", SAMPLES, shards="answers", loads=_answering, prompts=_sampled),
    "import_answers": Rule("{ungraded}", SAMPLES, prompts=_sampled),
    "grade": Rule("", SAMPLES, _ungraded, loads=_grading, beside=GRADED, prompts=_sampled),
    "surrogate": Rule("", ("surrogate.csv",), _samples, more=_seed),
    "elicit": Rule("{prompted}", CONFIDENCES, _elicit, ("prompted",), "answers", _answering, prompts=_tested),
    "sft": Rule("sft", WEIGHTS, _surrogate, loads=_judging, prompts=_warm),
    "train": Rule("{trained}", WEIGHTS, _surrogate, loads=_judging, prompts=_learned),
    "candidates": Rule(
        "{round}", _sealed("{name}candidates.jsonl"), _candidates, (), "confidence", _judging, prompts=_rl
    ),
    "pairs": Rule("{round}pairs/{reward}", _sealed("{name}.jsonl"), _pairs, prompts=_rl, more=_reference),
    "dpo": Rule("{aligned}", WEIGHTS, _dpo, loads=_judging),
    "state": Rule("{stated}", CONFIDENCES, _state, ("stated",), "confidence", _judging, prompts=_tested, more=_readout),
    "likelihoods": Rule("{scored}", ("{name}.jsonl",), _samples, (), "confidence", _answering, prompts=_tested),
    "derive": Rule("{measured}", CONFIDENCES, _derive, ("measured",), prompts=_tested, more=_module),
    "states": Rule("{states}", ("states/{name}.jsonl",), _states, (), "confidence", _encoding, prompts=_read),
    "import_confidences": Rule("{external}", CONFIDENCES, _samples, ("external",), prompts=_tested),
    "fit": Rule("{fitted}", (*CONFIDENCES, "{name}/fit.json"), _fit, ("fitted",), prompts=_fitted),
    "evaluate": Rule("{method}", ("{name}/metrics.json",), _evaluate, beside=("{name}/extra.json",)),
    "tune_dpo": Rule("tune/{reward}/{trial}", WEIGHTS, _tried, loads=_judging),
    "tune_state": Rule(
        "tune/{reward}/{trial}",
        ("{name}.jsonl",),
        _read_trial,
        loads=_judging,
        prompts=_split("validation"),
        more=lambda config, stage: {"split": "validation"},
    ),
}
TRAININGS = ("sft", "train", "dpo")


def shards(config: Config, rule: str) -> int:
    """Jobs that a stage of a rule is divided into."""
    section = RULES[rule].shards
    return 1 if section is None else getattr(config, section).shards


# The matrix of a run: every stage that its tables depend on, each once, before any file exists. It is the input of the target
# paper_tables, so that any deleted file is made again, and what `orce plan` counts.


def stages(config: Config, tables: Iterable[str]) -> list[Stage]:
    """The stages of some of the config's tables, in the order of the method, then by cell."""
    registry = methods.of(config)
    rows = [(config.tables[name].dataset, row) for name in tables for row in layout.rows(config.tables[name], registry)]
    return reached(config, [Stage("evaluate", Cell(dataset, row.model), row.method) for dataset, row in rows])


def reached(config: Config, todo: list[Stage]) -> list[Stage]:
    """Some stages and all that they read, in the order of the method, then by cell."""
    reached, order = set(), list(RULES)
    while todo:
        if (stage := todo.pop()) not in reached:
            reached.add(stage)
            todo += [source for read in RULES[stage.rule].reads(config, stage).values() for source in read]
    return sorted(reached, key=lambda stage: (order.index(stage.rule), stage))


def frozen(config: Config, planned: Iterable[Stage]) -> list[tuple[str, str]]:
    """(dataset, split) of the prompts that some stages start from."""
    answered = [stage.cell for stage in planned if stage.rule in ("sample", "import_answers")]
    return sorted({(cell.dataset, split) for cell in answered for split in settings.splits(config, *cell)})


def files(config: Config, tables: Iterable[str]) -> list[str]:
    """Every intermediate file of some tables, prompts included.

    A method that is only below another one, or on the set that this is fitted on, is not evaluated.
    """
    planned = stages(config, tables)
    prompts = [frozen_prompts(*split) for split in frozen(config, planned)]
    return sorted({*prompts, *map(manifest, prompts), *(path for stage in planned for path in stage.files)})


def overlaps(config: Config, tables: Iterable[str]) -> list[str]:
    """Overlap reports of the datasets that some tables evaluate on; a reader of the tables should have them."""
    return sorted({overlap(config.tables[name].dataset) for name in tables})


def trials(config: Config, tables: Iterable[str]) -> list[str]:
    """Confidences of the trials of `tune` in the cells of some tables. Raises BadInput without a grid or validation split."""
    aligned = sorted({stage.cell for stage in stages(config, tables) if stage.rule == "dpo"})
    if not config.tune:
        raise BadInput(
            "config: no `tune`; give the grid: tune: {beta: [..], learning_rate: [..], epochs: [..], metric: e_aurc}"
        )
    for cell in aligned:
        if "validation" not in config.datasets[cell.dataset].splits:
            raise BadInput(
                f"config: datasets.{cell.dataset}.splits: no validation; tune chooses on it: validation: {{from: SPLIT, size: N}}"
            )
    return [f"{cell.folder}/tune/{PAPER}/{trial}.jsonl" for cell in aligned for trial in settings.trials(config)]
