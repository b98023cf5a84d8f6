"""Choose dpo's settings on the validation splits, never on the test: a configuration file to give
after the run's own.
"""

from pathlib import Path
from typing import Annotated, Self

import numpy as np
import yaml

from orce.artefacts import store
from orce.config import picking
from orce.errors import BadInput
from orce.metrics import METRICS
from orce.runtime.process import say
from orce.settings.schema import Config, Number
from orce.settings.stage import Settings as StageSettings


class TuneSettings(StageSettings, kw_only=True):
    metric: str
    readout: str
    trials: dict[str, dict[str, Number]]

    @classmethod
    def of(cls, config: Config) -> Self:
        assert config.tune is not None  # the rule refuses a run without a grid
        return cls(
            metric=config.tune.metric,
            readout=config.evaluation.readout,
            trials=picking.trials(config),
        )


def run(
    settings: TuneSettings,
    confidences: Annotated[list[str], "of each trial in each cell, TRIAL.jsonl"],
    out: str,
):
    """Reads the confidences of each trial in each cell; writes a configuration file with the point
    of the grid whose metric, averaged over cells, is lowest on the validation splits.
    """
    metric = settings.metric
    cells: dict[Path, dict[str, float]] = {}
    for path in map(Path, confidences):
        records = store.read(path, ("id", "correct", settings.readout))
        stated = [record[settings.readout] for record in records]
        value = METRICS[metric](stated, [record["correct"] for record in records])
        cells.setdefault(path.parent, {})[path.stem] = np.inf if value is None else value
    for cell, values in cells.items():
        defined = [value for value in values.values() if np.isfinite(value)]
        if not defined:
            undefined = f"{metric} is undefined in every trial"
            raise BadInput(f"{cell}: {undefined}; use a larger validation split")
        worst = max(defined)  # of an undefined trial too
        cells[cell] = {trial: min(value, worst) for trial, value in values.items()}
    means = {}
    for trial in settings.trials:
        means[trial] = np.mean([values[trial] for values in cells.values()])
    best = min(means, key=means.__getitem__)
    with store.writing(out, settings) as handle:
        chosen = f"mean {metric} {means[best]:.4f} of {len(cells)} cell(s)"
        handle.write(f"# Chosen on validation splits: {chosen}.\n")
        for cell, values in cells.items():
            shown = ", ".join(f"{trial} {value:.4f}" for trial, value in values.items())
            handle.write(f"# {cell}: {shown}\n")
        handle.write(yaml.safe_dump({"dpo": settings.trials[best]}))
    say(f"[tune] {best}; use it: snakemake --configfile YOURS {out}")
