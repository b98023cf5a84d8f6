"""The matrix of a run: every stage that its tables depend on, each once.

The rules chain the same stages file by file; this list gives them before any file exists. It has two users: the target
paper_tables, so that any deleted file is made again, and `orce plan`.
"""

from collections.abc import Iterable
from typing import NamedTuple

from orce import methods
from orce.config import grading, layout, settings
from orce.config.cells import UNGRADED, Cell, aligned, manifest, overlap, prompts, round_folder, round_start
from orce.config.schema import Config
from orce.errors import BadInput
from orce.methods import Registry

RULES = {  # what makes the confidences of each kind of method
    "sampled": "agree",
    "prompted": "elicit",
    "asked": "elicit",
    "stated": "state",
    "measured": "derive",
    "probed": "probe",
    "calibrated": "calibrate",
    "combined": "combine",
    "external": "import_confidences",
}
ANSWERS = ("sample", "import_answers")  # what makes the answers of a cell


class Stage(NamedTuple):
    """One stage of one cell. `name` is a method, the folder of a confidence LLM, that of a round ("" the first), UNGRADED
    of answers that a judge grades, or "sample_" of the likelihoods of samples."""

    rule: str
    cell: Cell
    name: str = ""

    @property
    def files(self) -> list[str]:
        """The files that other stages read; tables read metrics.json."""
        folder = self.cell.folder
        if self.name == UNGRADED:
            return [self.cell.ungraded, manifest(self.cell.ungraded)]
        if self.rule in (*ANSWERS, "grade"):
            return [self.cell.samples, manifest(self.cell.samples), self.cell.surrogate]
        if self.rule == "likelihoods":
            return [f"{folder}/{self.name}likelihoods.jsonl"]
        if self.rule == "similarities":
            return [self.cell.similarities]
        if self.rule == "states":
            return [self.cell.states(self.name)]
        if self.rule == "candidates":
            made = f"{folder}/{self.name}candidates.jsonl"
            return [made, manifest(made)]
        if self.rule == "pairs":
            made = f"{folder}/{self.name}.jsonl"
            return [made, manifest(made)]
        if self.rule in ("sft", "train", "dpo"):
            return [manifest(self.cell.weights(self.name))]
        made = self.cell.confidences(self.name)
        return [made, self.cell.fit(self.name)] if self.rule in ("calibrate", "combine", "probe") else [made]


def stages(config: Config, tables: Iterable[str]) -> list[Stage]:
    """The stages of some of the config's tables, in the order of the method, then by cell."""
    registry = methods.of(config)
    found: set[Stage] = set()
    for name in tables:
        for row in layout.rows(config.tables[name], registry):
            found |= _of_row(config, registry, Cell(config.tables[name].dataset, row.model), row.method)
    order = (
        *ANSWERS,
        "grade",
        "elicit",
        "sft",
        "train",
        "candidates",
        "pairs",
        "dpo",
        "state",
        "agree",
        "likelihoods",
        "similarities",
        "derive",
        "states",
        "probe",
        "import_confidences",
        "calibrate",
        "combine",
    )
    return sorted(found, key=lambda stage: (order.index(stage.rule), stage))


def files(config: Config, tables: Iterable[str]) -> list[str]:
    """Every intermediate file of some tables, prompts included.

    A method that is only below another one, or on the set that this is fitted on, is not evaluated.
    """
    found, registry = stages(config, tables), methods.of(config)
    metrics = [path for name in tables for _, path in layout.cells(config.tables[name], registry)]
    frozen = [
        prompts(stage.cell.dataset, split)
        for stage in found
        if stage.rule in ANSWERS
        for split in settings.splits(config, *stage.cell)
    ]
    return sorted({*frozen, *map(manifest, frozen), *(path for stage in found for path in stage.files), *metrics})


def overlaps(config: Config, tables: Iterable[str]) -> list[str]:
    """Overlap reports of the datasets that some tables evaluate on; a reader of the tables should have them."""
    return sorted({overlap(config.tables[name].dataset) for name in tables})


def tuned(config: Config, tables: Iterable[str]) -> list[Cell]:
    """The cells of some tables in which the alignment is trained; BadInput for one without a grid or validation split."""
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
    return aligned


def _of_row(config: Config, registry: Registry, cell: Cell, method: str) -> set[Stage]:
    kind = registry.kind(method)
    rule = RULES[kind]
    found = {*answers(config, cell), Stage(rule, cell, method)}
    if below := registry.below(method):
        fit = [Cell(settings.calibrated_on(config, cell.dataset), cell.model)] if registry.fits(method) else []
        return {Stage(rule, cell, method)} | {
            stage for one in (cell, *fit) for part in below for stage in _of_row(config, registry, one, part)
        }
    served = settings.gives_logprobs(config, cell.model) and registry.reads_only_logprobs(method)
    if not served:
        found |= {Stage("likelihoods", cell, file.removesuffix("likelihoods")) for file in registry.likelihoods(method)}
    if settings.embeds(config, method):
        found.add(Stage("similarities", cell))
    if kind == "probed":
        trained = Cell(settings.trained_on(config, cell.dataset), cell.model)
        found |= {*answers(config, trained)} | {
            Stage("states", one, of) for one in (cell, trained) for of in registry.states(method)
        }
    if kind == "stated" and registry.weights(method) is not None:
        found |= _of_weights(config, registry, cell, method)
    return found


def answers(config: Config, cell: Cell) -> list[Stage]:
    """What makes the samples of a cell; the last one makes those that other stages read."""
    rule = "sample" if settings.given_answers(config, *cell) is None else "import_answers"
    if grading.graded(config, cell.dataset):
        return [Stage(rule, cell, UNGRADED), Stage("grade", cell)]
    return [Stage(rule, cell)]


def _of_weights(config: Config, registry: Registry, cell: Cell, method: str) -> set[Stage]:
    trained = Cell(settings.trained_on(config, cell.dataset), registry.parse(method).source or cell.model)
    folder = registry.weights(method)
    found = {*answers(config, trained)}
    if folder is None:
        return found
    if folder in registry.trained():
        return found | {Stage("train", trained, folder)}
    found.add(Stage("sft", trained, "sft"))
    if not folder.startswith("dpo"):
        return found
    reward, _ = aligned(folder)
    for number in range(1, config.dpo.rounds + 1):
        prefix = round_folder(reward, number)
        found |= {Stage("candidates", trained, prefix), Stage("pairs", trained, f"{prefix}pairs/{reward}")}
        if number > 1:
            found.add(Stage("dpo", trained, round_start(reward, number)))
    return found | {Stage("dpo", trained, folder)}
