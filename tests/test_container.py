"""The recipe of an image: it passes its linter, installs what envs/ pins, and leaves out what a checkout does not hold."""

import re
import subprocess
import sys
from pathlib import Path

from conftest import ROOT

RECIPE = (ROOT / "envs" / "Dockerfile").read_text()


def test_the_recipe_passes_its_linter():
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, ROOT / "envs" / "Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_it_installs_the_pinned_packages_as_the_file_of_them_says():
    """In the order of the first lines of envs/gpu.txt: the packages, those without their requirements, this one."""
    said = re.search(r"Install with: (.*)", (ROOT / "envs" / "gpu.txt").read_text())[1]
    files = re.findall(r"envs/[\w.-]+\.txt", said)
    installed = re.findall(r"pip install (--no-deps )?(?:--requirement )?/opt/orce(/envs/[\w.-]+\.txt)?", RECIPE)
    assert [path.removeprefix("/") for _, path in installed] == [*files, ""]
    assert [bool(alone) for alone, _ in installed] == [False, True, True]
    assert all((ROOT / path).is_file() for path in files)


def test_results_and_environments_stay_outside():
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".venv", "results", ".git"} <= set(ignored)
