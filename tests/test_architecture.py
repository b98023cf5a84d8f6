"""The rooms of the library as docs/architecture.md draws them, held against the imports."""

import ast
import json
import math
import re
import sys
import tokenize
from pathlib import Path

import finished_run
import mutants
import pytest
from conftest import PROGRAMS, PROMISED, ROOT, program

from orce import stages
from orce.apps import plan, planned

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


GROUND, ROOF = "errors", "top"  # the errors, which every room raises; the entry point, which imports every room


def room(module: str) -> str:
    parts = module.split(".")
    if module == f"orce.{GROUND}":
        return GROUND
    return parts[1] if len(parts) > 1 and parts[1] in ROOMS else ROOF


FLOORS = [GROUND, *ROOMS, ROOF]


def test_the_page_names_every_room():
    assert set(ROOMS) == {path.parent.name for path in LIBRARY.glob("*/__init__.py")}


def docstring_lines(tree: ast.Module) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
            lines |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return lines


NO_CODE = {getattr(tokenize, name) for name in ["COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER"]}


def code_tokens(path: Path) -> list[tokenize.TokenInfo]:
    """The tokens of a file without comments, docstrings and layout."""
    prose = docstring_lines(ast.parse(path.read_text()))
    with path.open() as file:
        tokens = [*tokenize.generate_tokens(file.readline)]
    return [token for token in tokens if token.type not in NO_CODE and token.start[0] not in prose]


def files_of(room: str) -> list[Path]:
    folders = {"top": LIBRARY.glob("*.py"), "all": LIBRARY.rglob("*.py")}
    return [*folders.get(room, (LIBRARY / room).rglob("*.py"))]


@pytest.mark.parametrize(("name", "thousands", "modules"), TABLE)
def test_no_room_grows_past_its_tokens_and_modules(name, thousands, modules):
    """Room to grow is up to the next thousand; a release lowers what has become less."""
    files = files_of(name)
    now = math.ceil(sum(len(code_tokens(path)) for path in files) / 1000)
    shown = f"docs/architecture.md, {name}: {now} thousand tokens, {len(files)} modules now"
    assert now <= int(thousands) and len(files) <= int(modules), f"{shown}; make it less, or write that there"


def packed(node: ast.AST) -> bool:
    """`a, b = x, y`: two statements in one."""
    tuples = isinstance(node, ast.Assign) and (node.targets[0], node.value)
    return bool(tuples) and all(isinstance(part, ast.Tuple) for part in tuples)


def nested(node: ast.AST) -> bool:
    """A comprehension of two loops."""
    return len(getattr(node, "generators", [])) > 1


# No peer has more (docs/architecture.md): code over 100 columns in %, the others per 100 lines of code.
LIMITS = {"over 100 columns": 2.0, "packed assignments": 0.5, "comprehensions of two loops": 0.2}


def test_one_statement_does_one_thing_on_a_line_that_fits():
    code, counts = 0, dict.fromkeys(LIMITS, 0)
    for path in files_of("all"):
        lines = path.read_text().splitlines()
        numbers = {number for token in code_tokens(path) for number in range(token.start[0], token.end[0] + 1)}
        nodes = [*ast.walk(ast.parse(path.read_text()))]
        code += len(numbers)
        counts["over 100 columns"] += sum(len(lines[number - 1]) > 100 for number in numbers)
        counts["packed assignments"] += sum(packed(node) for node in nodes)
        counts["comprehensions of two loops"] += sum(nested(node) for node in nodes)
    assert {name: count for name, count in counts.items() if 100 * count / code > LIMITS[name]} == {}, code


def test_the_library_stands_without_what_is_beside_it():
    beside = re.compile(r"^\s*(?:from|import) (?:tools|evidence|config)\b", re.MULTILINE)
    assert [name for name, path in MODULES.items() if beside.search(path.read_text())] == []


def test_imports_go_down_only():
    up = [
        f"{module} imports {other}"
        for module, others in IMPORTS.items()
        for other in others
        if FLOORS.index(room(module)) < FLOORS.index(room(other))
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
    assert run == {name: [stage_of(name).replace("_", "-")] for name in run}
    named = {stage_of(name) for name in run}
    assert named == {path.stem for path in (LIBRARY / "stages").glob("*.py")} - {"__init__"}
    assert set(stages.SHARED.items()) <= set(OTHER_NAMES.items())


def stage_of(rule: str) -> str:
    return OTHER_NAMES.get(rule, rule)


def test_every_stage_that_leases_a_gpu_is_planned_and_checked_as_one_that_loads_a_model():
    leased = {stage_of(name) for name, text in RULES.items() if "-m orce.runtime.lease" in text}
    where = "name the stage in ANSWERING or JUDGING of orce/runtime/preflight.py"
    assert leased - {*plan.LOADING} == set(), where


def test_every_option_that_names_an_output_is_one_to_the_plan():
    named = {option for text in RULES.values() for option in re.findall(r"(--[\w-]+) \{output", text)}
    assert named - {*planned.WRITTEN} == set(), "name the option in WRITTEN of orce/apps/planned.py"
    assert named >= {"--out", "--manifest"}


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
    assert mutants.misfits() == [], "tests/data/mutants.jsonl: write `old` (and `new`) as the code is now"


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


@pytest.mark.parametrize("name", PROMISED)
def test_every_promise_has_its_test(name):
    file, _, test = name.partition("::")
    assert f"def {test.partition('[')[0]}(" in (ROOT / "tests" / file).read_text()
    assert PROMISED.count(name) == 1


@pytest.mark.parametrize(("path", "name"), re.findall(r"\| `(orce/\S+\.py)`, `(\w+)` \|", PAGE))
def test_the_way_from_an_equation_to_its_line_is_true(path, name):
    text = (LIBRARY.parent / path).read_text()
    assert re.search(rf"^(def |class )?{name}\b", text, re.MULTILINE)
