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

    def confidences(self, cell: Cell, row: str) -> str:
        """The confidences of a row, made as the kind of its method asks for."""
        method = self.registry.find(row)
        if method.kind == "fitted":
            return self.probed(cell, row, method) if method.states else self.mapped(cell, row)
        tested = {"prompts": self.test(cell)}
        if method.kind != "prompted" or method.ask:
            tested["samples"] = self.samples(cell)
        if method.kind == "prompted":
            return self.make_row("elicit", cell, row, **tested)
        if method.kind == "stated":  # by the untrained model
            readout = self.config.evaluation.readout
            return self.make_row("state", cell, row, readout=readout, **tested)
        if method.kind == "external":  # as they came with the questions
            return self.make_row("import_confidences", cell, row, **tested)
        task = self.config.datasets[cell.dataset].task
        module = self.registry.module(row)
        likelihoods = self.likelihoods(cell, method)
        return self.make_row("derive", cell, row, task=task, method=module, **tested, **likelihoods)

    def mapped(self, cell: Cell, row: str) -> str:
        """From the confidences of other rows, by a calibration or a combination."""
        below = self.registry.below(row)
        given: dict[str, Any] = {"confidences": [self.confidences(cell, other) for other in below]}
        if self.registry.own_fit(row):
            held_out = Cell(picking.calibration_dataset(self.config, cell.dataset), cell.model)
            given["fit_on"] = self.prompts(held_out.dataset, "test")
            given["fit_confidences"] = [self.confidences(held_out, other) for other in below]
        fit = self.path(cell, f"{row}/fit.json")
        return self.make_row("fit", cell, row, prompts=self.test(cell), fit=fit, **given)

    def probed(self, cell: Cell, row: str, method: Method) -> str:
        """By a probe, on hidden states of the questions that the confidence LLMs would be trained
        on.
        """
        home = Cell(picking.training_dataset(self.config, cell.dataset), cell.model)
        known = self.config.datasets[home.dataset].splits
        splits = [split for split in method.trained_on if split in known]
        return self.make_row(
            "fit",
            cell,
            row,
            fit=self.path(cell, f"{row}/fit.json"),
            prompts=self.test(cell),
            samples=self.samples(cell),
            states=self.states(cell, method),
            fit_on=self.prompts(home.dataset, *splits),
            fit_states=self.states(home, method),
            surrogate=self.surrogate(home),
        )

    def make_row(self, stage: str, cell: Cell, row: str, **arguments: Any) -> str:
        return self.stage(stage, cell, f"{row}/confidences.jsonl", row, **arguments)

    # What the rows are made from

    def likelihoods(self, cell: Cell, method: Method) -> dict[str, str]:
        """{name: file} of the likelihoods that a method reads and no server has given."""
        if method.logprobs_suffice and picking.gives_logprobs(self.config, cell.model):
            return {}
        tested = {"prompts": self.test(cell), "samples": self.samples(cell)}
        return {
            name: self.stage("likelihoods", cell, f"{name}.jsonl", name, **tested)
            for name in method.likelihoods
        }

    def states(self, cell: Cell, method: Method) -> list[str]:
        """The files of hidden states that a method reads."""
        prompts = self.prompts(cell.dataset, *picking.sampled_splits(self.config, *cell))
        given = {"samples": self.samples(cell), "surrogate": self.surrogate(cell)}
        return [
            self.stage("states", cell, f"states/{file}.jsonl", file, prompts=prompts, **given)
            for file in method.states
        ]

    def surrogate(self, cell: Cell) -> str:
        samples = self.samples(cell)
        return self.stage(
            "surrogate", cell, "surrogate.csv", samples=samples, seed=self.config.seed
        )

    def samples(self, cell: Cell) -> str:
        """Sampled or given, and graded where a model grades."""
        prompts = self.prompts(cell.dataset, *picking.sampled_splits(self.config, *cell))
        if self.config.datasets[cell.dataset].grading != "grader":
            return self.answers(cell, "samples.jsonl", prompts)
        ungraded = self.answers(cell, f"{UNGRADED}samples.jsonl", prompts)
        return self.stage(
            "grade",
            cell,
            "samples.jsonl",
            prompts=prompts,
            samples=ungraded,
            manifest=self.path(cell, "samples.manifest.json"),
            verdicts=self.path(cell, "verdicts.jsonl"),
            disagreements=self.path(cell, "disagreements.jsonl"),
            meanings=self.path(cell, "meanings.jsonl"),
        )

    def answers(self, cell: Cell, file: str, prompts: dict[str, str]) -> str:
        """Sampled or given."""
        if picking.given_answers(self.config, *cell) is None:
            return self.stage("sample", cell, file, prompts=prompts)
        manifest = str(store.manifest_path(self.path(cell, file)))
        return self.stage("import_answers", cell, file, prompts=prompts, manifest=manifest)

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
