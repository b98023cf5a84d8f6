"""How long Snakemake takes to plan the paper's whole matrix."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.timing import Row, alone

TITLE = "Snakemake's plan of the paper's six tables (a dry run)"
ROOT = Path(__file__).parents[2]


def run(options) -> list[Row]:
    snakemake = Path(sys.executable).with_name("snakemake")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / "config.yaml", folder)
        command = [snakemake, "--snakefile", ROOT / "Snakefile", "-n", "--quiet", "all", "--cores", "2", "paper_tables"]
        work = lambda: subprocess.run(command, cwd=folder, check=True, capture_output=True)
        yield alone("snakemake -n paper_tables", work, options.repeats)
