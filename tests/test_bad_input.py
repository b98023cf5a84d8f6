"""Bad input: one line that names the file or key and says what would be right, before anything expensive.

Every case is a call of the program in a folder of its own, whose model has no weights: a case that came as far as
loading it would end with another message. Nothing is left behind that a later step could take for a result.
"""

import copy
import errno
import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
import yaml
from conftest import ARITHMETIC, ROOT, WORLDFACTS, cases, typed
from dry_run import called
from snakemake import cli

from orce import __main__ as steps
from orce import stages
from orce.errors import BadInput
from orce.runtime import lease
from orce.settings import load
from orce.settings.stage import to_argument

PAPER = load.read_mapping(ROOT / "config.yaml")
MMLU = copy.deepcopy(PAPER)
MMLU |= {"device": "cpu", "gpus": 0, "dtype": "float32"}
MMLU["training"]["gpus"] = 0
MMLU["models"]["llama3-8b"]["source"] = {"path": "model"}
CELL = ("mmlu", "llama3-8b")


@dataclass
class Case:
    """`argv`: of the program, or of `python -m orce` if it does not begin with snakemake. `files`: {name: content}."""

    message: str
    argv: list[str]
    files: dict = field(default_factory=dict)
    model: Callable = lambda folder, tiny: None


def key(message, path, value, target="paper_tables"):
    """A key of the configuration with a bad value, or a whole new one."""
    over = value
    for part in reversed(path.split("/")):
        over = {part: over}
    return config(message, yaml.safe_dump(over), target)


def config(message, text, target="paper_tables", *more):
    argv = ["snakemake", "-n", "--configfile", "over.yaml", *more, "--", target]
    return Case(message, argv, {"over.yaml": text})


def on_command_line(message, *pairs):
    return Case(message, ["snakemake", "-n", "--config", *pairs, "--", "paper_tables"])


CONFIGURATION = [
    *(key(*case) for case in cases("bad_configuration")),
    *(config(*case) for case in cases("bad_texts")),
    on_command_line("--config: answers.samples: 'ten'; expected integer", "answers={samples: ten}"),
    on_command_line(r"--config: seed: 'seven'; expected integer ≥ 0", "seed=seven"),
]
# Keys that name a file, and what is there in its place.
LATIN = "x = 'Größe'\n".encode("latin-1")
THERE = dict.fromkeys(("latin.py", "latin.csv", "latin.j2"), LATIN)
THERE |= {"a.csv": "question,answer\nWet?,yes\n", "folder/x.txt": ""}
NAMED_FILES = [replace(key(*case), files=key(*case).files | THERE) for case in cases("named_files")]
# Targets that nothing makes; each is a plan of its own.
TARGETS = [Case(message, ["snakemake", "-n", "--", path]) for message, path in cases("bad_targets")]


def without(*names):
    """The tiny model's folder without some of its files."""

    def change(folder, tiny):
        shutil.copytree(tiny, folder / "model", ignore=shutil.ignore_patterns(*names))

    return change


def source(message, task, files, splits=None, where=None):
    """The prompts step on the files of a dataset, in the folder `data`."""
    task = {"arithmetic": ARITHMETIC, "worldfacts": WORLDFACTS}.get(task, task)
    argv = prompts(task, {"path": "data"} if where is None else where, splits or {"test": {"from": "test"}})
    return Case(message, argv, {f"data/{name}": content for name, content in files.items()})


def words(step, chosen, more) -> list[str]:
    return [step, *(["--settings", to_argument(chosen)] if chosen else []), *more.split()]


def prompts(task, source, splits) -> list[str]:
    options = {"task": task, "source": source, "splits": splits, "dataset": "mine", "seed": 1, "tests": []}
    made = "--out out/prompts.jsonl --manifest out/prompts.manifest.json"
    return words("prompts", options, f"--split {min(splits)} {made}")


def lines(*records, **changed):
    return "".join(json.dumps(record | changed) + "\n" for record in records)


def own(message, text, over):
    """A module of one's own with a mistake: told by a configuration before the first job, or by the prompts step that loads it."""
    splits = {"test": {"from": "test"}}
    if over is None:
        return Case(message, prompts("my/task.py", {}, splits), {"my/task.py": text})
    config = {"datasets": {"mine": {"task": "my/task.py", "source": {"path": "data.txt"} | over, "splits": splits}}}
    files = {"my/task.py": text, "data.txt": "x", "over.yaml": yaml.safe_dump(config)}
    target = "results/mine/qwen3-8b/vanilla/metrics.json"
    return Case(message, ["snakemake", "-n", "--configfile", "over.yaml", "--", target], files)


MODULES = [own(*case) for case in cases("bad_modules")]


VALIDATION = {"test": {"from": "validation"}}
SOURCES = [
    *(source(*case) for case in cases("bad_sources")),
    source(r"data/test.txt: nested too deep to be read", "logiqa", {"test.txt": "[" * 100_000 + "]" * 100_000 + "\n"}),
    source(r"data/test.txt, line 1: a number has more digits than Python reads", "logiqa", {"test.txt": '{"id": ' + "1" * 5000 + "}\n"}),
    source(r"data/val.json: nested too deep to be read", "reclor", {"val.json": "[" * 100_000 + "]" * 100_000}, VALIDATION),
    source(r"data/val.json: a number has more digits than Python reads", "reclor", {"val.json": "[" + "1" * 5000 + "]"}, VALIDATION),
]  # fmt: skip


def prompt(name):
    return {"id": name, "question": "Wet?", "context": None, "choices": ["yes", "no", "so", "lo"], "reference": "A"}


SURROGATE = "id,split,n_correct,n_samples,kappa,answer,answer_correct\na,{0},1,2,0.5,A,1\nb,{0},2,2,1.0,A,1\n"
PICK = "--surrogate s.csv --prompts rl=p.jsonl --candidates c.jsonl --out out/p.jsonl --manifest out/p.manifest.json"
SELECT = words("pairs", stages.pick_settings("pairs", typed(MMLU), *CELL, "sc"), PICK)
AGREE = words("derive", None, "--task mmlu --method consistency --prompts p.jsonl --samples x.jsonl --out out/c.jsonl")
ESTIMATE = words("surrogate", None, "--samples x.jsonl --seed 1 --out out/s.csv")
MEASURE = "--confidences c.jsonl --surrogate s.csv --manifests m.json --out out/metrics.json --extra out/extra.json"
EVALUATE = words("evaluate", stages.pick_settings("evaluate", typed(MMLU), *CELL, "sft"), MEASURE)
RENDER = words("tables", stages.pick_settings("tables", typed(MMLU), "mmlu"), "--metrics metrics.json --out out")
TWO = {"p.jsonl": lines(prompt("a"), prompt("b")), "s.csv": SURROGATE.format("rl")}


COMMANDS = {"agree": AGREE, "estimate": ESTIMATE, "select": SELECT, "evaluate": EVALUATE, "render": RENDER}
STEPS = [
    *(Case(message, COMMANDS[command], files) for message, command, files in cases("bad_steps")),
    Case(r"x.jsonl, line 1: not UTF-8", ESTIMATE, {"x.jsonl": b'{"id": "\xff"}\n'}),
    Case(r"--settings: not a JSON object", ["evaluate", "--settings", "{", *EVALUATE[3:]]),
    Case(r"--settings: no key 'task'", ["pairs", "--settings", '{"label": "x"}', *SELECT[3:]], TWO),
]


TRAIN = "--surrogate s.csv --prompts rl=p.jsonl --out out/sft"
WARM = words("sft", stages.pick_settings("sft", typed(MMLU), *CELL), TRAIN)


def weights(message, change):
    return Case(message, WARM, TWO, change)


def cut(name):
    """The tiny model's folder with one file cut off."""

    def change(folder, tiny):
        shutil.copytree(tiny, folder / "model")
        path = folder / "model" / name
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return change


WEIGHTS = [
    weights(r"model: no config.json; expected a model folder in the Hugging Face format", lambda folder, tiny: None),
    weights(r"model: no tokenizer \(tokenizer.json\); save the tokenizer beside", without("tokenizer*")),
    weights(r"model: no weights \(\*.safetensors\); expected a model folder", without("*.safetensors")),
    weights(r"model: the weights cannot be loaded: .*incomplete metadata", cut("model.safetensors")),
    weights(r"model: the (tokenizer|weights) cannot be loaded: .*config.json", cut("config.json")),
    weights(r"model: the tokenizer cannot be loaded: ", cut("tokenizer.json")),
]  # fmt: skip


def call(argv) -> tuple[int, str]:
    """Exit code and everything said, of the program in this process: its code path, without its start."""
    if argv[0] == "snakemake":
        return called(cli.main, ["--snakefile", str(ROOT / "Snakefile"), *argv[1:]])
    return called(steps.main, argv)


def place(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def files_in(folder) -> set:
    """What is there, without Snakemake's records and Python's compiled modules."""
    own = {".snakemake", "__pycache__"}
    return {path for path in folder.rglob("*") if not own & set(path.parts)}


# What a run finds before its first job, and a dry run does not.
STARTED = Case(
    "over.yaml: models.llama3-8b.source.path: model: no config.json; expected a model folder",
    ["snakemake", "--cores", "1", "--configfile", "over.yaml", "--", "results/mmlu/llama3-8b/samples.jsonl"],
    {"over.yaml": yaml.safe_dump(MMLU)},
    lambda folder, tiny: (folder / "model").mkdir(),
)
SLOW = [pytest.param(case, marks=pytest.mark.slow) for case in (*TARGETS, STARTED)]


@pytest.mark.parametrize(
    "case",
    [*CONFIGURATION, *NAMED_FILES, *MODULES, *SOURCES, *STEPS, *WEIGHTS, *SLOW],
    ids=lambda case: case.message[:60],
)
def test_bad_input_is_one_line_that_names_it(case, folder, tiny):
    place(folder, case.files | {"config.yaml": json.dumps(PAPER)})  # which is YAML too, and read in no time
    case.model(folder, tiny)
    before = files_in(folder)
    code, said = call(case.argv)
    assert code != 0
    assert len([line for line in said.splitlines() if re.search(case.message, line)]) == 1, said
    assert "Traceback (most recent call last)" not in said and "common.smk" not in said
    assert case.argv[0] == "snakemake" or case.message.startswith("argument") or len(said.splitlines()) == 1, said
    left = files_in(folder) - before
    assert [path for path in left if path.is_file() and ".partial" not in path.parts or path.suffix == ".tmp"] == []


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_named_with_its_remedy(number, folder, tiny, monkeypatch):
    def flock(handle, kind):
        raise OSError(number, os.strerror(number))

    record = lines({"id": 1, "question": "?", "answer": "1"})
    place(folder, {"config.yaml": (ROOT / "config.yaml").read_text(), "x.jsonl": record})
    monkeypatch.setattr(fcntl, "flock", flock)
    mounts = r"Lustre: -o flock; NFS: -o local_lock=flock"
    remedy = rf"its file system has no locks .*; mount it with them \({mounts}\), or run"
    asked = ["--model", tiny, "--methods", "linguistic", "--device", "cpu"]
    measure = ["measure", "x.jsonl", *asked, "--out", "y.jsonl"]
    run = ["snakemake", "--cores", "1", "--config", "device=cpu", "gpus=0", "--", "results/mmlu/prompts/test.jsonl"]
    for argv, path in ((measure, r".partial/confidences.jsonl\..*/lock"), (run, "results/.orce.lock")):
        code, said = call(argv)
        assert code != 0 and "Traceback" not in said
        assert len([line for line in said.splitlines() if re.search(rf"{path}: {remedy}", line)]) == 1, said
    with pytest.raises(BadInput, match="has no locks .*; set TMPDIR to a folder on another"):
        lease.lease(["0", "1"], 1)
