"""The documentation holds: links lead somewhere, files and names exist, messages are the code's, and every block of commands says
which test runs it, or why none does.
"""

import ast
import fnmatch
import importlib
import json
import pkgutil
import re
import runpy
import shlex
import shutil
import sys
import textwrap
from itertools import groupby, pairwise
from pathlib import Path
from unittest import mock
from urllib.parse import urlsplit

import dry_run
import finished_run
import pages
import pytest
from conftest import ROOT, cases, program
from pages import PAGES
from test_workflow import job_counts

import orce
from orce import __main__ as steps
from orce import stages
from orce.artefacts.files import read_jsonl, write_jsonl
from orce.reports import screen

AFTER_THE_DEMO = ROOT / "docs" / "measure.md"  # whose commands read the demo's results
BLOCKS = [block for page in PAGES for block in pages.blocks(page)]
SHELL = [block for block in BLOCKS if block.language in ("bash", "sh")]
# The shell's own programs: the files that they name must exist, or be made by the workflow. Every other program either
# has a check below or stands in a block that is marked with the reason why it is not run.
SHELLS_OWN = r"cat|cd|cp|cut|echo|export|git|grep|head|ls|mkdir|rm|sort|source|tail|uniq"
# What a page's commands make themselves, or the machine has.
MADE = (
    *("runs/", ".snakemake", ".venv/", "/path/to/other/", "report.html"),
    *("scored.jsonl", "scored.csv", "judged.jsonl", "kept.jsonl", "scored-sheet.jsonl"),
)


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A fresh checkout with the files that the pages tell to write."""
    folder = pages.copy_of_the_project(tmp_path_factory.mktemp("docs"))
    for page in PAGES:
        pages.write_files(page, folder)
    (harness,) = (block.text.splitlines()[0] for block in SHELL if block.text.startswith("grep -h"))
    shutil.copy(ROOT / "tests" / "data" / "imports" / "samples_gsm8k.jsonl", folder / "samples_gsm8k_2026.jsonl")
    program("bash", "-c", harness, check=True, cwd=folder)
    return folder


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"], ids=lambda page: page.name)
def test_every_link_file_and_name_on_a_page_exists(page):
    links = [token.attrs["href"] for token in pages.inline(page, "link_open")]
    for link in links + [token.attrs["src"] for token in pages.inline(page, "image")]:
        target = urlsplit(link)
        if target.scheme:
            assert target.scheme in ("http", "https", "mailto") and (target.netloc or target.path), link
            assert target.scheme == "mailto" or re.fullmatch(r"[\w-]+(\.[\w-]+)+(:\d+)?", target.netloc), link
            continue
        path = (page.parent / target.path).resolve() if target.path else page
        assert path.exists(), f"{page.name}: {link}"
        if target.fragment:
            assert target.fragment in pages.anchors(path), f"{page.name}: {link}; headings: {pages.anchors(path)}"
    code = {token.content for token in pages.inline(page, "code_inline")}
    plain = (token.content for token in pages.inline(page, "text"))
    words = code | {word for text in plain for word in re.findall(r"[\w./-]+/[\w.-]+\w", text)}
    folders = tuple(f"{name}/" for name in ("workflow", "docs", "tests", "config", "envs"))
    named = [word for word in words if word.startswith(folders) and not re.search(r"[{*<\s]|[A-Z]{3}", word)]
    assert not [word for word in named if not (ROOT / word).exists() and not (ROOT / word.split(":")[0]).exists()]
    for word in code:
        if re.fullmatch(r"orce(\.\w+)+", word):
            pkgutil.resolve_name(word)


PYTHON = [b for b in BLOCKS if b.language == "python" or not b.language and b.text.startswith(("from ", "import "))]


def test_commands_stand_in_blocks_that_can_be_read_or_say_why_they_are_not_run():
    for block in PYTHON:
        compile(block.text, block.name, "exec")
    for block in SHELL:
        done = program("bash", "-n", "-c", block.text)
        assert done.returncode == 0, f"{block.name}: {done.stderr}"
    reasons = [block.reason for block in SHELL if block.reason]
    assert len(reasons) <= 16 and all(len(reason.split()) > 2 for reason in reasons), "too many blocks are not run"
    starts = ("snakemake ", "python -m orce", "make ", "pip install", "$ ")
    others = [block for block in BLOCKS if block not in SHELL]
    assert [one.name for one in others if any(line.startswith(starts) for line in one.text.splitlines())] == []


@pytest.mark.slow
@pytest.mark.parametrize("block", [b for b in SHELL if not b.reason and b.page != "tutorial.md"], ids=lambda b: b.name)
def test_every_command_is_understood_where_it_stands(block, project, planned):
    """The tutorial's are run as they are: test_tutorial.py. Words that look like files of the project or of a run are there or made."""
    path = r"[\w.*-]+(/[\w.*=-]+)+/?|[\w-]+\.(yaml|jsonl|txt|html)"
    for command in commands(block.text):
        check(command, project)
        for word in command:
            if re.fullmatch(path, word) and not word.startswith(MADE):
                assert any(project.glob(word)) or fnmatch.filter(planned, word.rstrip("/")), command


@pytest.fixture(scope="module")
def planned(project) -> frozenset[str]:
    """All files that the workflow makes from the paper's configuration and from the demo's; and their folders."""
    found = set()
    for over in ((), ("--configfile", "config/demo.yaml")):
        for name in re.findall(r"^(\S+)\t", plan(project, "--summary", *over, "--", "all"), re.MULTILINE):
            found |= {name, *map(str, Path(name).parents)}
    assert len(found) > 500
    return frozenset(found)


@pytest.mark.slow
def test_the_commands_after_the_demo_run_as_they_are_written(tiny, folder):
    """Beside what the demo leaves, as far as the page names it."""
    finished_run.demo(folder, tiny)
    pages.write_files(AFTER_THE_DEMO, folder)
    blocks = [block for block in SHELL if block.page == AFTER_THE_DEMO.name and not block.reason]
    words = [words[3:] for block in blocks for words in commands(block.text) if words[:3] == ["python", "-m", "orce"]]
    assert len(words) == 3
    for one in words:
        code, said = dry_run.called(steps.main, one)
        assert code == 0 and "Traceback" not in said, said
    assert len(read_jsonl("judged.jsonl")) == len(read_jsonl("kept.jsonl")) == 4
    with mock.patch("huggingface_hub.HfApi") as hub:
        for block in PYTHON:
            if block.page == AFTER_THE_DEMO.name and (block.reason or "load_judge" in block.text):
                exec(textwrap.dedent(block.text), {})  # noqa: S102
    upload = hub.return_value.upload_folder.call_args.kwargs
    Path("uploaded").mkdir()
    for path in (path for pattern in upload["allow_patterns"] for path in Path(upload["folder_path"]).glob(pattern)):
        shutil.copy(path, "uploaded")
    assert not Path("uploaded/training_log.json").exists()
    record = {"question": "What is the capital of Qatar?", "answer": "Doha"}
    read, trained = orce.load_judge("uploaded", base="results/models/smollm2"), orce.load_judge(upload["folder_path"])
    assert [*read([record])] == [*trained([record])], "what is uploaded is enough to read a judge"


def commands(text: str) -> list[list[str]]:
    """The simple commands of a shell text, as words."""
    lexer = shlex.shlex(text.replace("\\\n", " ").replace("\n", "\n;"), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    return [[*words] for ends, words in groupby(lexer, key=re.compile(r"[;&|]+").fullmatch) if not ends]


def check(words: list[str], project: Path) -> None:
    """Run a command in a way that costs little: a dry run, or a reading of its arguments."""
    variables = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
    name, *arguments = words[len(variables) :] or ["export"]
    if name == "snakemake":
        plan(project, *arguments, **variables)
    elif name == "make":
        program("make", "-n", *arguments, cwd=project, check=True)
    elif (name, *arguments[:2]) == ("python", "-m", "orce"):
        parser = stages.argument_parser(importlib.import_module(steps.commands()[arguments[2]]))
        if "--help" not in arguments:
            parser.parse_args(arguments[3:])
    elif (name, *arguments[:2]) == ("python", "-m", "orce.runtime.lease"):
        assert arguments[2].isdecimal() and arguments[3] == "--"
        check(arguments[4:], project)
    elif name == "python":
        there = importlib.util.find_spec(arguments[1]) if arguments[0] == "-m" else (project / arguments[0]).is_file()
        assert there, arguments
    elif name == "pip":
        files = [after for word, after in pairwise(arguments) if word == "-r"]
        assert all((project / file).exists() for file in files), files
    else:
        assert re.fullmatch(SHELLS_OWN, name), f"{name}: not checked; mark the block with <!-- not run: reason -->"


def test_the_first_pages_model_is_made_by_its_line_and_named_where_it_is_missing(folder, project):
    (line,) = re.findall(r"^snakemake .*results/models.*", (ROOT / "README.md").read_text(), re.MULTILINE)
    write_jsonl("q.jsonl", [{"question": "Where is Rome?"}])
    measure = ["measure", "q.jsonl", "--model", "results/models/smollm2", "--out", "o.csv"]
    code, said = dry_run.called(steps.main, measure)
    assert code == 2 and line in said
    assert job_counts(plan(project, *line.split()[1:])) == {"convert_model": 1}
    code, said = dry_run.snakemake(project, *line.replace("manifest", "config").split()[1:])
    missing = "no such file; expected results/models/smollm2/manifest.json"
    assert code == 1 and said.strip().endswith(missing), said


def test_the_readme_shows_a_table_of_the_demo():
    """It is written by `make images`, after a run, from what `make demo` prints at its end."""
    made = runpy.run_path(str(ROOT / "docs" / "readme.py"))
    title, head, *rows, legend = made["BLOCK"].search(made["PAGE"].read_text())[2].splitlines()
    assert title == "arithmetic, smollm2, 100 test questions; confidence LLMs read by the mean"
    assert head == screen.LINE.format("", *screen.SO_FAR, "unread").rstrip()
    methods = ["vanilla", "consistency", "topk", "cot", "conftuner", "sft", "orce"]
    assert [row.split()[0] for row in rows] == methods
    assert screen.COLLAPSED in legend.split()


@pytest.mark.slow
def test_the_commands_of_the_decision_table_run(tiny, folder):
    """On given answers, as a model of random weights has no right one."""
    rows = [{"question": f"Where is {i}?", "reference": f"Town {i}"} for i in range(80)]
    rows = [row | {"answers": [f"Town {i + i % 3}", "Town 4"]} for i, row in enumerate(rows)]
    write_jsonl("Q.jsonl", rows[:40])
    write_jsonl("F.jsonl", rows[40:])
    cells = [token.content for token in pages.inline(ROOT / "docs" / "which.md", "code_inline")]
    here = {"M": tiny, "J": tiny, "Q": "Q.jsonl", "F": "F.jsonl", "O": "O.jsonl"}
    typed = [[here.get(word, word) for word in shlex.split(cell)] for cell in cells if re.match("orce .* --", cell)]
    assert len(typed) >= 8
    for words in typed:
        if "--judge" in words:  # which a run trains
            check(["python", "-m", *words], folder)
            continue
        assert steps.main([*words[1:], "--device", "cpu"]) == 0, words
        assert len(read_jsonl("O.jsonl")) == 40
        Path("O.jsonl").unlink()


TARGET = "results/mmlu/llama3-8b/orce/metrics.json"
CHANGED = ("--cores", "1", "--configfile", "mine.yaml", "--", TARGET)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    """A cell as it comes out of an archive, where no setting is looked at, and after the command that records it.

    For dry runs only: they change nothing.
    """
    folder = pages.copy_of_the_project(tmp_path_factory.mktemp("cell"))
    for listed in re.findall(r"Missing output files: ([^;\n]+)", plan(folder, "--cores", "1", "--", TARGET)):
        for name in listed.split(", "):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("{}")
    (folder / "mine.yaml").write_text("dpo: {beta: 0.3}")
    assert "Nothing to be done" in plan(folder, *CHANGED)
    snakemake = Path(sys.executable).with_name("snakemake")
    program(snakemake, "--cores", "1", "--touch", "-F", "--", TARGET, cwd=folder, check=True)
    return folder


def plan(folder, *arguments, **environment) -> str:
    """What a dry run says."""
    # The files of an archive here are empty: no seal says what made them.
    code, said = dry_run.snakemake(folder, *arguments, environment={"ORCE_KEEP": "1"} | environment)
    assert code == 0, f"{arguments}\n{said[-3000:]}"
    return said


@pytest.mark.slow
def test_an_unpacked_archive_after_one_command_and_a_copy_run_what_a_changed_setting_concerns(recorded):
    assert "Nothing to be done" in plan(recorded, "--cores", "1", "--", TARGET)
    text = plan(recorded, *CHANGED)
    concerned = {"dpo": 3, "candidates": 2, "pairs": 2, "state": 1, "evaluate": 1}
    assert job_counts(text) == concerned and "Params have changed since last execution" in text
    copied = ("--cores", "1", "--directory", "runs/beta03", "--configfile", "config.yaml", "mine.yaml", "--", TARGET)
    assert job_counts(plan(recorded, *copied))["sample"] == 1, "a new folder starts from nothing"
    (recorded / "runs/beta03").mkdir(parents=True, exist_ok=True)
    for folder in ("results", ".snakemake"):
        program("cp", "-a", folder, "runs/beta03", cwd=recorded, check=True)
    assert {*job_counts(plan(recorded, *copied))} == {*concerned}


@pytest.mark.slow
@pytest.mark.parametrize(("changed", "again"), cases("changed_settings"))
def test_the_table_of_changed_settings_is_that_of_the_workflow(recorded, changed, again):
    """The rows of "Change a hyperparameter"."""
    (recorded / "changed.yaml").write_text(changed)
    text = plan(recorded, "--cores", "1", "--configfile", "changed.yaml", "--", TARGET)
    assert {*job_counts(text)} == {*again} if again else "Nothing to be done" in text


def test_the_configuration_page_describes_every_key_as_the_schema_does():
    made = runpy.run_path(str(ROOT / "docs" / "configuration.py"))
    assert made["page"]() == made["PAGE"].read_text(), "run: python docs/configuration.py"
    rows = [line.split("|") for line in made["PAGE"].read_text().splitlines() if line.startswith("| `")]
    assert [row[1] for row in rows if not row[4].strip()] == []


def test_the_messages_of_the_troubleshooting_page_are_those_of_the_code():
    """`...` is what varies. Messages of libraries other than Snakemake follow the library's name."""
    snakemake = Path(importlib.util.find_spec("snakemake").origin).parent
    known = set()
    for path in [*(ROOT / "workflow" / "orce").rglob("*.py"), *snakemake.rglob("*.py")]:
        if not {"assets", "report"} & {*path.parts}:
            nodes = ast.walk(ast.parse(path.read_text()))  # in which adjoining literals are one
            known |= {str(node.value).replace("\n", " ") for node in nodes if isinstance(node, ast.Constant)}
    known = "\n".join(sorted(known))
    cells = re.findall(r"^\| (`.+?) \| ", (ROOT / "docs" / "troubleshooting.md").read_text(), re.MULTILINE)
    messages = [double or single for cell in cells for double, single in re.findall(r"``(.+?)``|`(.+?)`", cell)]
    assert len(messages) >= 16
    for message in messages:
        for piece in message.split("..."):
            assert piece.strip() in known, f"no message says {piece.strip()!r}"


def test_every_name_of_the_glossary_is_one_of_the_code():
    lines = (ROOT / "docs" / "glossary.md").read_text().splitlines()
    rows = [line.split("|")[-2] for line in lines if line.startswith("|") and "---" not in line]
    sources = [path for place in ("workflow", "config") for path in (ROOT / place).rglob("*") if path.is_file()]
    sources = [path for path in [*sources, ROOT / "config.yaml"] if path.suffix in (".py", ".smk", ".yaml", ".j2")]
    code = "\n".join(path.read_text() for path in sources)
    names = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    plain = {part for name in names for part in re.findall(r"(?<!\{)\b[a-z]\w{2,}\b(?!\})", name)}
    assert len(names) > 40 and {"kappa", "confidence", "vanilla"} <= plain
    assert [name for name in plain if not re.search(rf"\b{name}\b", code)] == []


# {page: {first line of a block: FILE:TEST that runs it, as written or with files of its own; or a reason}}
EVERY = json.loads((ROOT / "tests" / "data" / "commands.json").read_text())


def test_every_block_of_commands_names_the_test_that_runs_it_or_why_none_does():
    shown = [block for block in [*SHELL, *PYTHON] if not block.reason]
    first_lines = {(one.page, one.text.strip().partition("\n")[0].partition("  #")[0].strip()) for one in shown}
    assert first_lines == {(page, first) for page, blocks in EVERY.items() for first in blocks}
    for how in {how for blocks in EVERY.values() for how in blocks.values()}:
        if named := re.fullmatch(r"(\w+):(test_\w+)", how):
            assert f"\ndef {named[2]}(" in (ROOT / "tests" / f"test_{named[1]}.py").read_text(), how
        else:
            assert " " in how, "a reason"
