"""One cell of the laboratory: an answer model with a seed, through the steps of the workflow, in one process.

The steps, their settings and their files are those that the rules use (orce.config.settings, orce.config.cells). Only
Snakemake and the start of an interpreter for each job are left out: a job takes seconds, its imports would take longer.
What has been made is not made again.
"""

import contextlib
import copy
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from evidence.lab import scratch
from orce import tasks
from orce.__main__ import main
from orce.artefacts.files import read_jsonl
from orce.config import cells, settings
from orce.config.cells import Cell
from orce.config.schema import Config
from orce.errors import BadInput
from orce.evaluation import metrics
from orce.stage_settings import Settings

VALIDATION, TEST = "validation", "test"


def changed(config: Config, **over: dict[str, Any]) -> Config:
    """A copy of the configuration with keys of some of its parts replaced: changed(config, dpo={"beta": 1})."""
    made = copy.deepcopy(config)
    for part, keys in over.items():
        setattr(made, part, msgspec.structs.replace(getattr(made, part), **keys))
    return made


@dataclass
class Bench:
    """An answer model with a seed.

    config: the checked configuration. model: its answer model, named after its dataset. folder: of this cell; `shared`
    has the answer models and the frozen test questions, which no seed changes.
    """

    config: Config
    model: str
    seed: int
    folder: Path
    shared: Path
    until: float = float("inf")  # time.monotonic() after which no further step is begun
    seconds: dict = field(default_factory=dict)

    def __post_init__(self):
        self.config = msgspec.structs.replace(changed(self.config), seed=self.seed)
        self.dataset = self.model.partition("-")[0]

    @property
    def cell(self) -> Cell:
        return Cell(self.dataset, self.model)

    @contextlib.contextmanager
    def here(self):
        """Work in the cell's folder, with the speed settings that the rules export."""
        self.folder.mkdir(parents=True, exist_ok=True)
        os.environ["ORCE_SPEED"] = settings.to_argument(settings.speed(self.config))
        with contextlib.chdir(self.folder):
            yield self

    def step(self, name: str, options: Settings | None, out: str, **arguments) -> None:
        """Run a step unless its output is there. Raises BadInput if it fails, which the step has then explained."""
        argv = [name] + ([] if options is None else ["--settings", settings.to_argument(options)])
        for key, value in ({"out": out} | arguments).items():
            values = value if isinstance(value, list) else [value]
            argv += [f"--{key.replace('_', '-')}", *([] if value is True else map(str, values))]

        def run():
            if main(argv):
                raise BadInput(f"{self.folder}: the step {name} failed, see above")

        self.once(out, run)

    def once(self, out: str, work: Callable[[], None]) -> None:
        """Do `work` and note its seconds, unless `out` is there. Raises TimeoutError if the time is up."""
        if Path(out).exists():
            return
        if time.monotonic() > self.until:
            raise TimeoutError
        started = time.monotonic()
        work()
        self.seconds[out] = round(time.monotonic() - started, 1)

    # Answers

    def answer(self) -> None:
        """The answer model, its samples and kappas on all questions."""
        self._model()
        splits = settings.splits(self.config, *self.cell)
        for split in splits:
            path = cells.prompts(self.dataset, split)
            options = settings.prompts(self.config, self.dataset)
            self.step("prompts", options, path, split=split, manifest=cells.manifest(path))
        frozen = [f"{split}={cells.prompts(self.dataset, split)}" for split in splits]
        cell = self.cell
        self.step("sample", settings.sample(self.config, *cell), cell.samples, prompts=frozen)
        self.step("surrogate", None, cell.surrogate, samples=cell.samples, seed=self.seed)

    def _model(self) -> None:
        made = self.shared / self.model
        source = self.config.models[self.model].source
        if "package" in source:
            self.step("convert-model", None, str(made), **source)
        else:
            task = tasks.get(self.config.datasets[self.dataset].task)
            self.once(str(made), lambda: scratch.make(self.model, task, made))
        link = Path("results/models", self.model)
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            shutil.copytree(made, link, copy_function=os.link)

    # Trainings

    def pairs_of(self, splits: tuple[str, ...]) -> dict:
        """The arguments that name training pairs."""
        prompts = [f"{split}={cells.prompts(self.dataset, split)}" for split in splits]
        return {"surrogate": self.cell.surrogate, "prompts": prompts}

    def sft(self, name: str = "sft", **over) -> str:
        """The folder of a warm start; over: keys of `sft`."""
        options = settings.sft(changed(self.config, sft=over), *self.cell)
        self.step("sft", options, self.cell.weights(name), **self.pairs_of(("sft",)))
        return self.cell.weights(name)

    def trained(self, name: str, method: str, **over) -> str:
        """The folder of a method with a training of its own, kept under `name`; over: its settings."""
        config = changed(self.config)
        known = config.methods.get(method, {})
        assert isinstance(known, dict), f"{method} is a method of the package"
        config.methods[method] = known | over
        options = settings.train(config, *self.cell, method)
        self.step("train", options, self.cell.weights(name), **self.pairs_of(settings.training_splits(config, method)))
        return self.cell.weights(name)

    def candidates(self, start: str, where: str = "", **over) -> str:
        """The candidates that a confidence LLM gives; over: keys of `confidence`."""
        path = f"{self.cell.folder}/{where}candidates.jsonl"
        options = settings.candidates(changed(self.config, confidence=over), *self.cell)
        self.step("candidates", options, path, weights=start, **self.pairs_of(("rl",)))
        return path

    def dpo(self, name: str, reward: str, start: str, candidates: str, tied_to: str | None = None, **over) -> str:
        """The folder of an aligned confidence LLM, tied to its start or to another model; over: keys of `dpo`."""
        config = changed(self.config, dpo=over)
        pairs = f"{Path(candidates).parent}/pairs/{reward}{'-mean' if over.get('reference') == 'mean' else ''}.jsonl"
        made = {"candidates": candidates, "manifest": cells.manifest(pairs)} | self.pairs_of(("rl",))
        known = {} if tied_to else {"from_reference": True}
        self.step("pairs", settings.pairs(config, *self.cell, reward), pairs, **made, **known)
        arguments = {"pairs": pairs, "sft": tied_to or start, "start": start}
        self.step("dpo", settings.dpo(config, *self.cell), self.cell.weights(name), **arguments)
        return self.cell.weights(name)

    # Tests

    def state(self, name: str, weights: str | None, split: str) -> dict[str, np.ndarray]:
        """{correct, stated, mean} [n] of a confidence LLM on the validation or the test questions."""
        path = self.stated(name, split)
        options = settings.state(self.config, *self.cell, "sft")
        chosen = {} if weights is None else {"weights": weights}
        prompts = cells.prompts(self.dataset, split)
        self.step("state", options, str(path), split=split, prompts=prompts, samples=self.cell.samples, **chosen)
        return read(path)

    def stated(self, name: str, split: str) -> Path:
        """The file of an arm's confidences on a split."""
        return Path(self.cell.folder, name, f"{split}.jsonl")

    def agreement(self, split: str) -> dict[str, np.ndarray]:
        """The same of Self-Consistency."""
        path, prompts = self.stated("consistency", split), cells.prompts(self.dataset, split)
        chosen = {"task": self.config.datasets[self.dataset].task, "method": "consistency"}
        self.step("agree", None, str(path), prompts=prompts, samples=self.cell.samples, **chosen)
        return read(path)

    def kappas(self, splits: tuple[str, ...]) -> np.ndarray:
        """kappa [n] of the questions of some splits."""
        rows = read_jsonl(self.cell.samples)
        return np.array([np.mean(row["correct"]) for row in rows if row["split"] in splits])


def read(path: str | Path) -> dict[str, np.ndarray]:
    """{correct, stated, mean} of a file of confidences; a method without a distribution has `stated` alone."""
    rows = read_jsonl(path)
    found = {"correct": np.array([row["correct"] for row in rows], dtype=bool)}
    found["stated"] = np.array([row.get("stated", row.get("confidence")) for row in rows], dtype=float)
    if "mean" in rows[0]:
        found["mean"] = np.array([row["mean"] for row in rows], dtype=float)
        found["retried"] = np.array([row["retried"] for row in rows], dtype=bool)
    return found


def scores(found: dict[str, np.ndarray]) -> dict[str, float]:
    """The metrics of both readings, by names such as `stated_e_aurc`."""
    values: dict[str, Any] = {
        "accuracy": float(found["correct"].mean()),
        "unread": int(found.get("retried", np.zeros(1)).sum()),
    }
    for reading in ("stated", "mean"):
        if reading in found:
            for name in ("e_aurc", "aurc", "auroc", "ece", "brier", "spearman"):
                values[f"{reading}_{name}"] = metrics.METRICS[name](found[reading], found["correct"])
    return values
