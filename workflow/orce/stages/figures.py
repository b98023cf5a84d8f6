"""Draw the pictures of a run: reliability and risk-coverage of each cell, and the reward."""

from pathlib import Path
from typing import Annotated

from orce.config import pictures
from orce.errors import BadInput
from orce.reports import figures
from orce.runtime.process import Progress
from orce.stage_settings import Pictures

Settings = Pictures


def run(settings: Pictures, out: Annotated[str, "folder of the pictures"], results: str = "results"):
    if not Path(results).is_dir():
        raise BadInput(f"{results} is not a folder; --results names the folder of a finished run")
    progress = Progress("figures", len(pictures.names(settings)) * len(figures.METADATA))
    for number, _ in enumerate(figures.build(settings, results, out), 1):
        progress.update(number)
