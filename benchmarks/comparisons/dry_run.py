"""How long Snakemake takes to plan the paper's whole matrix."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.timing import Row, alone

TITLE = "Snakemake's plan of the paper's six tables (a dry run)"
ROOT = Path(__file__).parents[2]
SNAKEMAKE = Path(sys.executable).with_name("snakemake")
# of the config.yaml in the folder where it runs
PLAN_TABLES = [SNAKEMAKE, "--snakefile", ROOT / "Snakefile", "-n", "--quiet", "all", "--cores", "2", "paper_tables"]


def run(options) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / "config.yaml", folder)
        work = lambda: subprocess.run(PLAN_TABLES, cwd=folder, check=True, capture_output=True)
        yield alone("snakemake -n paper_tables", work, options.repeats)
