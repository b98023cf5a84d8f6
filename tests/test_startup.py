"""What a step imports before its first batch, and that nobody else notices."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

FOUND = "import sys; print(sum(name in sys.modules for name in ('sklearn', 'scipy.stats')))"


def found_after(*lines: str) -> int:
    code = "; ".join([*lines, FOUND])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.parametrize("module", ["orce.confidence.readers", "orce.training.sft", "orce.training.dpo"])
def test_a_step_imports_transformers_without_scikit_learn(module):
    assert found_after("from orce.runtime import startup", "startup.importing()", f"import {module}") == 0


def test_a_calibration_after_it_finds_scikit_learn():
    fit = "from orce.methods import isotonic; isotonic.fit([0.1, 0.2, 0.9], [0, 1, 1])"
    imports = ("from orce.runtime import startup", "startup.importing()", "import orce.llm.language_model", fit)
    assert found_after(*imports) == 2


def test_a_program_that_calls_the_library_has_transformers_as_it_is():
    assert found_after("import orce.llm.language_model") == 2
