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
from dataclasses import dataclass, field

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
    """`argv`: of the program, or of `python -m orce` if it does not begin with snakemake. `files`: {name: content}.

    Of the tiny model's folder: the files that it lacks, and {name: keys with other values}; without keys, half of the file.
    """

    message: str
    argv: list[str]
    files: dict = field(default_factory=dict)
    without: str | None = None
    changed: dict = field(default_factory=dict)


# What a key may name in place of the file that it shall name.
LATIN = "x = 'Größe'\n".encode("latin-1")
THERE = dict.fromkeys(("latin.py", "latin.csv", "latin.j2"), LATIN)
THERE |= {
    "a.csv": "question,answer\nWet?,yes\n",
    "folder/x.txt": "",
    "loud.py": "LABEL = 'a\\x1b[2J'\n\n\ndef reward(*_):\n    return 0\n",
}


def config(message, text, files=(), target="paper_tables", words=()):
    argv = ["snakemake", "-n", "--configfile", "over.yaml", *words, "--", target]
    return Case(message, argv, THERE | {"over.yaml": text} | dict(files))


def key(message, path, value, target="paper_tables"):
    """A key of the configuration with a bad value, or a whole new one. In a name, ~ is a slash."""
    for part in reversed(path.split("/")):
        value = {part.replace("~", "/"): value}
    return config(message, yaml.safe_dump(value), target=target)


def source(message, task, files, splits, where):
    """The prompts step on the files of a dataset."""
    task = {"arithmetic": ARITHMETIC, "worldfacts": WORLDFACTS}.get(task, task)
    options = {"task": task, "source": where, "splits": splits, "dataset": "mine", "seed": 1, "tests": []}
    made = "--out out/prompts.jsonl --manifest out/prompts.manifest.json"
    return Case(message, words("prompts", options, f"--split {min(splits)} {made}"), files)


def words(step, chosen, more) -> list[str]:
    return [step, *(["--settings", to_argument(chosen)] if chosen else []), *more.split()]


DEEP, LONG, AT = "[" * 100_000 + "]" * 100_000, '[{"id": ' + "1" * 5000 + "}]", {"path": "data"}
OF_TEST, OF_VALIDATION = {"test": {"from": "test"}}, {"test": {"from": "validation"}}
SOURCES = [
    *(source(*case) for case in cases("bad_sources")),
    source("data/test.txt: nested too deep to be read", "logiqa", {"data/test.txt": f"{DEEP}\n"}, OF_TEST, AT),
    source("data/val.json: a number has more digits than Python reads", "reclor", {"data/val.json": LONG}, OF_VALIDATION, AT),
]  # fmt: skip

PICK = "--surrogate s.csv --prompts rl=p.jsonl --candidates c.jsonl --out out/p.jsonl --manifest out/p.manifest.json"
AGREE = "--task mmlu --method consistency --prompts p.jsonl --samples x.jsonl --out out/c.jsonl"
MEASURE = "--confidences c.jsonl --surrogate s.csv --manifests m.json --out out/metrics.json --extra out/extra.json"
COMMANDS = {
    "agree": words("derive", None, AGREE),
    "estimate": words("surrogate", None, "--samples x.jsonl --seed 1 --out out/s.csv"),
    "select": words("pairs", stages.pick_settings("pairs", typed(MMLU), *CELL, "sc"), PICK),
    "evaluate": words("evaluate", stages.pick_settings("evaluate", typed(MMLU), *CELL, "sft"), MEASURE),
    "render": words("tables", stages.pick_settings("tables", typed(MMLU), "mmlu"), "--metrics metrics.json --out out"),
}
STEPS = [
    *(Case(message, COMMANDS[command], files) for message, command, files in cases("bad_steps")),
    Case(r"x.jsonl, line 1: not UTF-8", COMMANDS["estimate"], {"x.jsonl": b'{"id": "\xff"}\n'}),
    Case(r"--settings: not a JSON object", ["evaluate", "--settings", "{", *COMMANDS["evaluate"][3:]]),
    Case(r"--settings: no key 'task'", ["pairs", "--settings", '{"label": "x"}', *COMMANDS["select"][3:]]),
]

TRAIN = "--surrogate s.csv --prompts rl=p.jsonl --out out/sft"
WARM = words("sft", stages.pick_settings("sft", typed(MMLU), *CELL), TRAIN)
ASKED = {"id": "a", "question": "Wet?", "context": None, "choices": ["yes", "no", "so", "lo"], "reference": "A"}
SURROGATE = "id,split,n_correct,n_samples,kappa,answer,answer_correct\na,rl,1,2,0.5,A,1\n"
WEIGHTS = [
    Case(message, WARM, {"p.jsonl": json.dumps(ASKED) + "\n", "s.csv": SURROGATE}, *change)
    for message, *change in cases("broken_models")
]
# What a run finds before its first job, and a dry run does not; and targets that nothing makes, each a plan of its own.
RUN = ["snakemake", "--cores", "1", "--configfile", "over.yaml", "--", "results/mmlu/llama3-8b/samples.jsonl"]
STARTED = "over.yaml: models.llama3-8b.source.path: model: no config.json; expected a model folder"
SLOW = [
    Case(STARTED, RUN, {"over.yaml": yaml.safe_dump(MMLU)}, "*"),
    *(Case(message, ["snakemake", "-n", "--", path]) for message, path in cases("bad_targets")),
]


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


CONFIGURATION = [*(key(*case) for case in cases("bad_configuration")), *(config(*case) for case in cases("bad_texts"))]


@pytest.mark.parametrize(
    "case",
    [*CONFIGURATION, *SOURCES, *STEPS, *WEIGHTS, *(pytest.param(case, marks=pytest.mark.slow) for case in SLOW)],
    ids=lambda case: case.message[:60],
)
def test_bad_input_is_one_line_that_names_it(case, folder, tiny):
    place(folder, case.files | {"config.yaml": json.dumps(PAPER)})  # which is YAML too, and read in no time
    if case.without is not None:
        shutil.copytree(tiny, folder / "model", ignore=shutil.ignore_patterns(case.without))
    for name, keys in case.changed.items():
        whole = (folder / "model" / name).read_bytes()
        changed = json.dumps(json.loads(whole) | keys).encode() if keys else whole[: len(whole) // 2]
        (folder / "model" / name).write_bytes(changed)
    before = files_in(folder)
    code, said = call(case.argv)
    named = [line for line in said.splitlines() if re.search(case.message, line)]
    assert code != 0 and len(named) == 1 and named[0].isprintable(), said
    assert "Traceback (most recent call last)" not in said and "common.smk" not in said
    assert case.argv[0] == "snakemake" or case.message.startswith("argument") or len(said.splitlines()) == 1, said
    left = files_in(folder) - before
    assert [path for path in left if path.is_file() and ".partial" not in path.parts or path.suffix == ".tmp"] == []


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_named_with_its_remedy(number, folder, tiny, monkeypatch):
    def flock(handle, kind):
        raise OSError(number, os.strerror(number))

    record = '{"id": 1, "question": "?", "answer": "1"}\n'
    place(folder, {"config.yaml": json.dumps(PAPER), "x.jsonl": record})
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
