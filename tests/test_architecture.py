"""The rooms of the library as docs/architecture.md draws them, held against the imports."""

import ast
import json
import re
import sys
from pathlib import Path

import finished_run
import mutants
import pytest
from conftest import PROGRAMS, ROOT, program

from orce import stages

LIBRARY = ROOT / "workflow" / "orce"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
TABLE = re.findall(r"^\| `?(\w+)`? \| (\d+) \| (\d+) \|", PAGE.split("## The rooms")[1], re.MULTILINE)
ROOMS = [name for name, *_ in TABLE if name not in ("top", "all")]


def module_of(path: Path) -> str:
    name = ".".join(path.relative_to(LIBRARY.parent).with_suffix("").parts)
    return name.removesuffix(".__init__")


MODULES = {module_of(path): path for path in LIBRARY.rglob("*.py")}


def imported(path: Path) -> set[str]:
    """Modules of the library that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in MODULES else node.module for name in names}
    return {name for name in found if name in MODULES and name != "orce"}


IMPORTS = {name: imported(path) - {name} for name, path in MODULES.items()}


def room(module: str) -> str | None:
    """The room of a module; None for the public names and the entry point at the top."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ROOMS else None


def test_the_page_names_every_room():
    assert set(ROOMS) == {path.parent.name for path in LIBRARY.glob("*/__init__.py")}


@pytest.mark.parametrize(("name", "lines", "modules"), TABLE)
def test_no_room_grows(name, lines, modules):
    """A room that has become smaller gets its new numbers: what was won stays won."""
    folders = {"top": LIBRARY.glob("*.py"), "all": LIBRARY.rglob("*.py")}
    files = [*folders.get(name, (LIBRARY / name).rglob("*.py"))]
    now = sum(path.read_text().count("\n") for path in files)
    shown = f"docs/architecture.md, {name}: {now} lines, {len(files)} modules now"
    assert len(files) <= int(modules) and int(lines) * 0.97 <= now <= int(lines), shown


def test_the_library_stands_without_what_is_beside_it():
    beside = re.compile(r"^\s*(?:from|import) (?:tools|evidence|config)\b", re.MULTILINE)
    assert [name for name, path in MODULES.items() if beside.search(path.read_text())] == []


def test_imports_go_down_only():
    up = [
        f"{module} imports {other}"
        for module, others in IMPORTS.items()
        for other in others
        if room(module) and room(other) and ROOMS.index(room(module)) < ROOMS.index(room(other))
    ]
    assert up == []


@pytest.mark.parametrize("wing", ["stages", "apps"])
def test_nothing_but_the_entry_point_imports_the_commands(wing):
    users = {module for module, others in IMPORTS.items() for other in others if room(other) == wing}
    above = ("apps",) if wing == "stages" else ()
    assert {module for module in users if room(module) not in (wing, *above)} <= {"orce.__main__"}


SMK = {path.name: path.read_text() for path in [ROOT / "Snakefile", *(ROOT / "workflow" / "rules").glob("*.smk")]}
# {rule: its text}: each is written out, and begins a line.
RULES = dict(re.findall(r"^rule (\w+):\n((?:(?: .*)?\n)*)", "".join(SMK.values()), re.MULTILINE))
OTHER_NAMES = {  # rules that run the stage of another name, and the stages
    "tune_dpo": "dpo",
    "tune_state": "state",
    **dict.fromkeys(("gather_answers", "gather_readings", "gather_stated"), "gather"),
    **dict.fromkeys(("calibrate", "combine", "probe"), "fit"),
}


def test_every_rule_is_written_out():
    text = "".join(SMK.values())
    made = r"^(?:for\b.*| *use rule\b.*| +rule\b.*:)$"  # by a loop, by another rule, or under a condition
    assert re.findall(made, text, re.MULTILINE) == []
    assert "rule state:" in text and len(RULES) >= 34


def test_every_rule_runs_the_stage_of_its_name_and_every_stage_has_a_rule():
    run = {name: re.findall(r"-m orce ([\w-]+) ", text) for name, text in RULES.items() if "shell:" in text}
    assert run == {name: [OTHER_NAMES.get(name, name).replace("_", "-")] for name in run}
    named = {OTHER_NAMES.get(name, name) for name in run}
    assert named == {path.stem for path in (LIBRARY / "stages").glob("*.py")} - {"__init__"}
    assert set(stages.SHARED.items()) <= set(OTHER_NAMES.items())


def begins_with_results(node: ast.AST) -> bool:
    """Whether an expression is a path of a run, written as a text or joined to the name RESULTS."""
    if isinstance(node, ast.BinOp):
        return any(begins_with_results(one) or ast.unparse(one).endswith("RESULTS") for one in (node.left, node.right))
    if isinstance(node, ast.JoinedStr):
        return "RESULTS}" in ast.unparse(node.values[0]) or begins_with_results(node.values[0])
    return isinstance(node, ast.Constant) and re.match(r"results/([a-z{]|$)", str(node.value)) is not None


def test_no_other_module_builds_a_path_under_results():
    built = {
        f"{module} line {node.lineno}"
        for module, path in MODULES.items()
        if module not in ("orce.artefacts.store", "orce.config.cells")  # the folders of a run, and all in them
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.expr) and begins_with_results(node)
    }
    assert built == set()


def test_files_import_each_other_downwards_alone_and_stages_no_stage():
    found = {
        module: {name for name in IMPORTS[module] if name.startswith("orce.stages.")}
        for module in MODULES
        if room(module) == "stages"
    }
    assert {module: names for module, names in found.items() if names} == {}

    def reached(start):
        seen, todo = set(), [start]
        while todo:
            for other in IMPORTS[todo.pop()] - seen:
                seen.add(other)
                todo.append(other)
        return seen

    assert [module for module in MODULES if module in reached(module)] == []


def test_the_mutants_change_what_the_library_says_now():
    """Otherwise `make mutants` ends before it has tried one."""
    assert mutants.misfits() == []


@pytest.mark.slow
def test_few_files_are_entered_to_state_a_confidence(finished, tmp_path):
    """Before the model's first forward pass, and in all: the numbers of the page."""
    named = re.search(r"enters (\d+) files before .*? and (\d+)\s+in\s+all", PAGE, re.DOTALL)
    limits = [int(number) for number in named.groups()]
    settings = finished_run.STATED | {"model": finished_run.MODEL}
    argv = ["state", "--settings", json.dumps(settings), "--prompts", finished_run.TEST]
    argv += ["--samples", str(finished_run.CELL / "samples.jsonl"), "--out", str(tmp_path / "out.jsonl")]
    words = [PROGRAMS, "entered", LIBRARY, *argv]
    found = json.loads(program(sys.executable, *words, cwd=finished, check=True).stdout)
    assert 0 < found[0] <= limits[0] and found[0] < found[1] <= limits[1], found


@pytest.mark.parametrize(("path", "name"), re.findall(r"\| `(orce/\S+\.py)`, `(\w+)` \|", PAGE))
def test_the_way_from_an_equation_to_its_line_is_true(path, name):
    text = (LIBRARY.parent / path).read_text()
    assert re.search(rf"^(def |class )?{name}\b", text, re.MULTILINE)
