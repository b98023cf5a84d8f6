"""The rooms of the library as docs/architecture.md draws them, held against the imports."""

import ast
import graphlib
import io
import json
import math
import re
import sys
import tokenize
from pathlib import Path

import finished_run
import mutants
import pytest
import yaml
from conftest import PROGRAMS, PROMISED, ROOT, program

from orce import stages
from orce.apps import plan, planned

LIBRARY = ROOT / "workflow" / "orce"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
TABLE = re.findall(r"^\| `?(\w+)`? \| (\d+) \| (\d+) \|", PAGE.split("## The rooms")[1], re.MULTILINE)
ROOMS = [name for name, *_ in TABLE if name not in ("top", "all")]


MODULES = {
    ".".join(path.relative_to(LIBRARY.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in LIBRARY.rglob("*.py")
}


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
# The errors, which every room raises, are the ground; the entry point, which imports every room, is the roof.
FLOORS = ["errors", *ROOMS, "top"]


def room(module: str) -> str:
    first = f"{module}.".split(".")[1]
    return first if first in FLOORS else "top"


def test_the_page_names_every_room():
    assert set(ROOMS) == {path.parent.name for path in LIBRARY.glob("*/__init__.py")}


NO_CODE = {getattr(tokenize, name) for name in ["COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER"]}
WITH_DOCSTRING = ast.Module | ast.ClassDef | ast.FunctionDef


def code_tokens(path: Path) -> list[tokenize.TokenInfo]:
    """The tokens of a file without comments, docstrings and layout."""
    text, prose = path.read_text(), set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, WITH_DOCSTRING) and ast.get_docstring(node):
            prose |= {*range(node.body[0].lineno, node.body[0].end_lineno + 1)}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
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


# No peer has more (docs/architecture.md): code over 100 columns in %, the others per 100 lines of code.
LIMITS = {"over 100 columns": 2.0, "packed assignments": 0.5, "comprehensions of two loops": 0.2}


def test_one_statement_does_one_thing_on_a_line_that_fits():
    code, counts = 0, dict.fromkeys(LIMITS, 0)
    for path in files_of("all"):
        lines = path.read_text().splitlines()
        numbers = {number for token in code_tokens(path) for number in range(token.start[0], token.end[0] + 1)}
        code += len(numbers)
        counts["over 100 columns"] += sum(len(lines[number - 1]) > 100 for number in numbers)
        for node in ast.walk(ast.parse(path.read_text())):
            sides = (node.targets[0], node.value) if isinstance(node, ast.Assign) else (None,)
            counts["packed assignments"] += all(isinstance(side, ast.Tuple) for side in sides)  # `a, b = x, y`
            counts["comprehensions of two loops"] += len(getattr(node, "generators", [])) > 1
    assert {name: count for name, count in counts.items() if 100 * count / code > LIMITS[name]} == {}, code


def test_imports_go_down_in_no_circle_and_stages_import_no_stage():
    beside = re.compile(r"^\s*(?:from|import) (?:tools|evidence|config)\b", re.MULTILINE)
    assert [name for name, path in MODULES.items() if beside.search(path.read_text())] == []
    for module, others in IMPORTS.items():
        floor = FLOORS.index(room(module))
        assert [other for other in others if FLOORS.index(room(other)) > floor] == [], module
        if room(module) == "stages":
            assert [other for other in others if other.startswith("orce.stages.")] == [], module
        if room(module) == "top" and module != "orce.__main__":
            assert [other for other in others if room(other) in ("stages", "apps")] == [], f"{module} imports commands"
    graphlib.TopologicalSorter(IMPORTS).prepare()  # CycleError names files that import each other


SMK = "".join(path.read_text() for path in [ROOT / "Snakefile", *(ROOT / "workflow" / "rules").glob("*.smk")])
# {rule: its text}: each is written out, and begins a line.
RULES = dict(re.findall(r"^rule (\w+):\n((?:(?: .*)?\n)*)", SMK, re.MULTILINE))
OTHER_NAMES = {  # rules that run the stage of another name, and the stages
    "tune_dpo": "dpo",
    "tune_state": "state",
    **dict.fromkeys(("gather_answers", "gather_readings", "gather_stated"), "gather"),
    **dict.fromkeys(("calibrate", "combine", "probe"), "fit"),
}


def stage_of(rule: str) -> str:
    return OTHER_NAMES.get(rule, rule)


def test_every_rule_is_written_out_and_runs_the_stage_of_its_name_and_every_stage_has_a_rule():
    made = r"^(?:for\b.*| *use rule\b.*| +rule\b.*:)$"  # by a loop, by another rule, or under a condition
    assert re.findall(made, SMK, re.MULTILINE) == []
    assert len(RULES) >= 34
    run = {name: re.findall(r"-m orce ([\w-]+) ", text) for name, text in RULES.items() if "shell:" in text}
    assert run == {name: [stage_of(name).replace("_", "-")] for name in run}
    named = {stage_of(name) for name in run}
    assert named == {path.stem for path in (LIBRARY / "stages").glob("*.py")} - {"__init__"}
    assert set(stages.SHARED.items()) <= set(OTHER_NAMES.items())


def test_the_plan_and_slurms_profile_know_every_stage_that_leases_a_gpu_and_the_plan_every_option_that_names_an_output():
    leased = {name for name, text in RULES.items() if "-m orce.runtime.lease" in text}
    where = "name the stage in ANSWERING or JUDGING of orce/runtime/preflight.py"
    assert leased and {*map(stage_of, leased)} <= {*plan.LOADING}, where
    profile = yaml.safe_load((ROOT / "workflow" / "profiles" / "slurm" / "profile.yaml").read_text())
    assert leased == {*profile["set-resources"]}, "name the rule in workflow/profiles/slurm/profile.yaml"
    named = {option for text in RULES.values() for option in re.findall(r"(--[\w-]+) \{output", text)}
    assert {"--out", "--manifest"} <= named <= {*planned.WRITTEN}, "name the option in WRITTEN of orce/apps/planned.py"


def test_no_other_module_builds_a_path_under_results():
    """Written as a text, or joined to the name RESULTS."""
    path = re.compile(r"""^f?["'](results/[a-z{"']|\{[\w.]*RESULTS\})|\bRESULTS /|/ [\w.]*RESULTS\b""")
    for module in MODULES.keys() - {
        "orce.artefacts.store",
        "orce.config.cells",
    }:  # the folders of a run, and all in them
        for node in ast.walk(ast.parse(MODULES[module].read_text())):
            if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp):
                assert not path.search(ast.unparse(node)), f"{module} line {node.lineno}"


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


def test_every_promise_has_its_test_and_every_equation_its_line():
    for name in PROMISED:
        file, _, test = name.partition("[")[0].partition("::")
        assert f"def {test}(" in (ROOT / "tests" / file).read_text(), name
    assert len({*PROMISED}) == len(PROMISED)
    lines = re.findall(r"\| `(orce/\S+\.py)`, `(\w+)` \|", PAGE)
    assert lines
    for path, name in lines:
        text = (LIBRARY.parent / path).read_text()
        assert re.search(rf"^(def |class )?{name}\b", text, re.MULTILINE), f"{path}: {name}"
