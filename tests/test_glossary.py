"""Every name that docs/glossary.md gives for a term of the paper is one that the code uses."""

import re
from pathlib import Path

import pytest

from orce import methods
from orce.alignment import registry as rewards
from orce.config import load

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "glossary.md").read_text()
ROWS = [line.split("|")[-2] for line in PAGE.splitlines() if line.startswith("|") and "---" not in line]
SOURCES = [path for place in ("workflow", "config") for path in (ROOT / place).rglob("*") if path.is_file()]
CODE = "\n".join(
    path.read_text() for path in [*SOURCES, ROOT / "config.yaml"] if path.suffix in (".py", ".smk", ".yaml", ".j2")
)
RULES = set(re.findall(r"^\s*rule (\w+):", CODE, re.MULTILINE))
STEPS = {path.stem for path in (ROOT / "workflow" / "orce" / "stages").glob("*.py")}
NAMES = sorted({name for row in ROWS for name in re.findall(r"`([^`]+)`", row)})
PLAIN = sorted({part for name in NAMES for part in re.findall(r"(?<!\{)\b[a-z]\w{2,}\b(?!\})", name)})


def named(kind: str) -> list[str]:
    """The names in backquotes after a word of this kind: method `vanilla`, methods `topk`, `cot`."""
    lists = re.findall(rf"\b{kind}s? ((?:`[^`]+`(?:, | and )?)+)", "\n".join(ROWS))
    return [name for text in lists for name in re.findall(r"`([^`]+)`", text)]


def test_the_page_names_something():
    assert len(NAMES) > 40 and {"kappa", "confidence"} <= set(PLAIN)


@pytest.mark.parametrize("name", PLAIN)
def test_every_name_is_one_of_the_code(name):
    assert re.search(rf"\b{name}\b", CODE), f"docs/glossary.md: nothing in the code is called {name!r}"


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("orce.")])
def test_every_function_is_in_its_module(name):
    module, _, function = name.rpartition(".")
    text = (ROOT / "workflow" / module.replace(".", "/")).with_suffix(".py").read_text()
    assert re.search(rf"^(def |from .+ import .*|    ){function}\b", text, re.MULTILINE)


def test_rules_steps_methods_and_rewards_are_real():
    registry = methods.of(load.paper())
    for method in named("method"):
        if "-from-" not in method:
            registry.label(method)  # BadInput for a method or reward that does not exist
    assert set(named("reward")) <= set(rewards.LABELS) and set(named("rule")) <= RULES and set(named("step")) <= STEPS
    assert named("method") and named("reward") and named("step")
