"""The experiments of the laboratory: models trained from scratch, and SmolLM2, on the same arms."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from evidence.lab import arms
from evidence.lab.arms import Grid
from evidence.lab.bench import Bench, changed
from evidence.runs import ROOT, RUNS
from orce.artefacts import files
from orce.config.load import read_config
from orce.config.schema import Config, Model

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Experiment:
    """name: of its folder in evidence/runs. config: files over config.yaml. explored, held_out: (answer model, seed)."""

    name: str
    config: tuple[str, ...]
    chosen: Path
    explored: list[tuple[str, int]]
    held_out: list[tuple[str, int]]
    grid: Grid
    tested: tuple[str, ...] = ("sft_long", "sft_all", "ordered", "sc", "other")  # beside SFT, in the held-out cells
    inside: float = 0.0  # share of the kappas that a cell must have strictly inside (0, 1) to count

    @property
    def folder(self) -> Path:
        return RUNS / self.name

    def settings(self) -> dict[str, dict]:
        """What exploration chose: {numbers: {arm: setting}}."""
        return files.read_json(self.chosen)

    def configuration(self, model: str) -> Config:
        """The configuration with this answer model; one from scratch lies where Bench puts it."""
        with contextlib.chdir(ROOT):  # where the paths of tasks begin
            config = changed(read_config(["config.yaml", *self.config]))
        for data in config.datasets.values():
            if data.task.endswith(".py"):
                data.task = str(ROOT / data.task)
        config.models.setdefault(model, Model(label=model, source={"path": f"results/models/{model}"}))
        return config

    def bench(self, part: str, model: str, seed: int) -> Bench:
        """The cell of an answer model and a seed: in the folder `explore`, `confirm` or `scale`."""
        folder = self.folder / part / f"{model}-{seed}"
        return Bench(self.configuration(model), model, seed, folder, self.folder / "models")


SEEDS = {0: (101, 102, 103), 1: (104, 105), 2: (106,)}  # of the answer models 0, 1 and 2 of a group
ORDER = ("lookups-values", "sums-digits", "counts-digits", "sums-values", "lookups-digits", "counts-values")
UNTAUGHT = ("sums-values-0",)  # 13 % of its kappas are strictly inside (0, 1); an answer model needs 40 %


def _held_out() -> Iterator[tuple[str, int]]:
    for turn, number in ((0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (2, 0)):
        for name in ORDER:
            if f"{name}-{number}" not in UNTAUGHT:
                yield f"{name}-{number}", SEEDS[number][turn]


SCRATCH = Experiment(
    "lab",
    ("evidence/lab/lab.yaml",),
    HERE / "chosen.json",
    [(f"{name}-0", 1) for name in ("lookups-values", "sums-digits", "counts-digits")],
    [*_held_out()],
    # A low beta at the high rate breaks the form of the statement, a high one at the low rate moves nothing.
    Grid(
        arms.REWARDS,
        ((0.1, 3e-4), (0.3, 3e-4), (0.3, 1e-3), (1.0, 3e-4), (1.0, 1e-3), (3.0, 1e-3)),
        warm=(1e-3, 3e-3),
        trained={"sft_all": (1e-3, 3e-3), "soft": (1e-3, 3e-3), "ordered": (1e-3, 3e-3)},
    ),
    inside=0.4,
)
TASKS = ("arithmetic", "worldfacts")
SMOLLM2 = Experiment(
    "smollm2",
    ("config/demo.yaml", "evidence/lab/smollm2.yaml"),
    HERE / "chosen-smollm2.json",
    [(f"{task}-smollm2-0", 1) for task in TASKS],
    [(f"{task}-smollm2-0", seed) for seed in (101, 102, 103, 104, 105) for task in TASKS],
    Grid(
        ("sc",),
        ((1.0, 1e-4), (1.0, 3e-4)),
        warm=(3e-3,),
        trained={"sft_all": (1e-3,), "ordered": (3e-4, 1e-3)},
    ),
    tested=("sft_all", "ordered", "sc"),
)
EXPERIMENTS = {one.name: one for one in (SCRATCH, SMOLLM2)}
