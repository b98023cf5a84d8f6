"""The recipe of an image: it passes its linter, installs what envs/gpu.lock pins, and leaves out what a checkout does not hold."""

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


def test_it_installs_the_locked_packages_as_the_lock_says_and_then_this_one():
    said = re.search(r"so: pip install (.*)", (ROOT / "envs" / "gpu.lock").read_text())[1].replace(
        "-r ", "--requirement "
    )
    lock, package = re.findall(r"pip install (.*?)(?: \\)?$", RECIPE, re.MULTILINE)
    assert lock.replace("/opt/orce/", "") == said
    assert package == "--no-deps /opt/orce"


def test_results_and_environments_stay_outside():
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".venv", "results", ".git"} <= set(ignored)
