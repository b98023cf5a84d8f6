"""The stages of a run that trains nothing, in this process and below a folder: what
`orce.confidence` and `orce measure` need.

The rules of the workflow say the same for its jobs. tests/test_door.py holds both to the same
values, to the last bit.
"""

from pathlib import Path
from typing import Any

from orce import methods, stages
from orce.artefacts import store
from orce.config import cells, picking
from orce.config.cells import UNGRADED, Cell
from orce.methods import Method
from orce.settings.schema import Config


class Run:
    """Makes files, each once. A stage that an earlier process finished with the same settings reads
    its finished chunks.
    """

    def __init__(self, config: Config, root: Path):
        self.config = config
        self.root = root
        self.registry = methods.of(config)
        self.made: set[str] = set()

    def stage(self, name: str, cell: Cell, file: str, row: str = "", **arguments: Any) -> str:
        """The path of a file in the folder of a cell, which a stage has made."""
        out = self.path(cell, file)
        if out not in self.made:
            chosen = stages.pick_settings(name, self.config, *cell, row)
            given = [] if chosen is None else [chosen]
            with store.recording_inputs():
                stages.stage_module(name).run(*given, out=out, **arguments)
            self.made.add(out)
        return out

    def path(self, cell: Cell, file: str) -> str:
        return str(self.root / cell.folder / file)

    def prompts(self, dataset: str, *splits: str) -> dict[str, str]:
        return {split: str(self.root / cells.prompts(dataset, split)) for split in splits}

    def test(self, cell: Cell) -> str:
        return self.prompts(cell.dataset, "test")["test"]

    def samples(self, cell: Cell) -> str:
        """Sampled or given, then graded."""
        prompts = self.prompts(cell.dataset, *picking.sampled_splits(self.config, *cell))
        graded = self.config.datasets[cell.dataset].grading == "grader"
        file = f"{UNGRADED}samples.jsonl" if graded else "samples.jsonl"
        if picking.given_answers(self.config, *cell):
            manifest = cells.manifest(self.path(cell, file))
            samples = self.stage("import_answers", cell, file, prompts=prompts, manifest=manifest)
        else:
            samples = self.stage("sample", cell, file, prompts=prompts)
        if not graded:
            return samples
        beside = {name: self.path(cell, f"{name}.jsonl") for name in ("verdicts", "disagreements")}
        beside["manifest"] = self.path(cell, "samples.manifest.json")
        if picking.groups_meanings(self.config):
            beside["meanings"] = self.path(cell, "meanings.jsonl")
        return self.stage(
            "grade", cell, "samples.jsonl", prompts=prompts, samples=samples, **beside
        )

    def surrogate(self, cell: Cell) -> str:
        return self.stage(
            "surrogate", cell, "surrogate.csv", samples=self.samples(cell), seed=self.config.seed
        )

    def confidences(self, cell: Cell, row: str) -> str:
        """The confidences of a row, made as the kind of its method asks for."""
        method = self.registry.find(row)
        make = {
            "prompted": self.elicited,
            "measured": self.derived,
            "stated": self.stated,
            "external": self.imported,
            "fitted": self.probed if method.states else self.mapped,
        }[method.kind]
        return make(cell, row, method)

    def elicited(self, cell: Cell, row: str, method: Method) -> str:
        asked = {"samples": self.samples(cell)} if method.ask else {}
        return self.stage(
            "elicit", cell, confidences_of(row), row, prompts=self.test(cell), **asked
        )

    def derived(self, cell: Cell, row: str, method: Method) -> str:
        given = {"prompts": self.test(cell), "samples": self.samples(cell)}
        served = method.logprobs_suffice and picking.gives_logprobs(self.config, cell.model)
        read = [] if served else method.likelihoods
        likelihoods = {
            name: self.stage("likelihoods", cell, f"{name}.jsonl", name, **given) for name in read
        }
        modules = {
            "task": self.config.datasets[cell.dataset].task,
            "method": self.registry.module(row),
        }
        return self.stage("derive", cell, confidences_of(row), **modules, **given, **likelihoods)

    def stated(self, cell: Cell, row: str, method: Method) -> str:
        """By the untrained model."""
        given = {"prompts": self.test(cell), "samples": self.samples(cell)}
        return self.stage(
            "state", cell, confidences_of(row), row, readout=self.config.evaluation.readout, **given
        )

    def imported(self, cell: Cell, row: str, method: Method) -> str:
        """As they came with the questions."""
        given = {"prompts": self.test(cell), "samples": self.samples(cell)}
        return self.stage("import_confidences", cell, confidences_of(row), row, **given)

    def probed(self, cell: Cell, row: str, method: Method) -> str:
        """By a probe, on hidden states of the questions that the confidence LLMs would be trained
        on.
        """
        home = Cell(picking.training_dataset(self.config, cell.dataset), cell.model)
        splits = [
            split
            for split in method.trained_on
            if split in self.config.datasets[home.dataset].splits
        ]
        return self.stage(
            "fit", cell, confidences_of(row), row,
            fit=self.path(cell, f"{row}/fit.json"),
            prompts=self.test(cell),
            samples=self.samples(cell),
            states=self.states(cell, method),
            fit_on=self.prompts(home.dataset, *splits),
            fit_states=self.states(home, method),
            surrogate=self.surrogate(home),
        )  # fmt: skip

    def states(self, cell: Cell, method: Method) -> list[str]:
        splits = [
            split for split in picking.sampled_splits(self.config, *cell) if split != "validation"
        ]
        given = {"samples": self.samples(cell), "surrogate": self.surrogate(cell)}
        prompts = self.prompts(cell.dataset, *splits)
        return [
            self.stage("states", cell, f"states/{file}.jsonl", file, prompts=prompts, **given)
            for file in method.states
        ]

    def mapped(self, cell: Cell, row: str, method: Method) -> str:
        """From the confidences of other rows, by a calibration or a combination."""
        below = self.registry.below(row)
        given: dict[str, Any] = {"confidences": [self.confidences(cell, other) for other in below]}
        if self.registry.own_fit(row):
            held_out = Cell(picking.calibration_dataset(self.config, cell.dataset), cell.model)
            given["fit_on"] = self.prompts(held_out.dataset, "test")
            given["fit_confidences"] = [self.confidences(held_out, other) for other in below]
        fit = self.path(cell, f"{row}/fit.json")
        return self.stage(
            "fit", cell, confidences_of(row), row, prompts=self.test(cell), fit=fit, **given
        )


def confidences_of(row: str) -> str:
    return f"{row}/confidences.jsonl"
