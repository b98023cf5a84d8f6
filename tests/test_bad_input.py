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
from dataclasses import dataclass, field

import pytest
import yaml
from conftest import ARITHMETIC, ROOT, WORLDFACTS, cases, typed
from dry_run import called
from snakemake import cli

from orce import __main__ as steps
from orce import stages
from orce.config import load, settings
from orce.errors import BadInput
from orce.runtime import lease

PAPER = load.mapping(ROOT / "config.yaml")
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


def target(message, path):
    return Case(message, ["snakemake", "-n", "--", path])


TRAINING = {"from": "auxiliary_train", "size": 10}
CONFIGURATION = [
    *(key(*case) for case in cases("bad_configuration")),
    key(r"config: sft.learning_rate: nan is not a finite number", "sft/learning_rate", float("nan")),
    config(r"config: sft.batch_size: 100 is not a multiple of training.gpus, 3", "{sft: {batch_size: 100}, training: {gpus: 3}}"),
    config(r"config: dpo.batch_size: 128.0; expected integer ≥ 1", "dpo: {batch_size: 128.0}"),
    config(r"config: rewards: True cannot be a name here; .*put it in quotes", "rewards: {yes: mine.py}"),
    config(r"config: datasets: False cannot be a name here; .*put it in quotes", "datasets: {no: {task: qa}}"),
    config(r"config: models: 2024 cannot be a name here; .*put it in quotes", "models: {2024: {label: x}}"),
    key(r"config: seed: 4294967296; expected integer ≥ 0, ≤ 4294967295 .*numpy takes seeds below", "seed", 2**32),
    key(r"config: datasets.logs: 'logs' is what a run itself writes under results/", "datasets/logs", PAPER["datasets"]["mmlu"]),
    key(r"config: models.prompts: 'prompts' is what a run itself writes under results/", "models/prompts", PAPER["models"]["qwen3-8b"]),
    config(r"Config file is not valid JSON or YAML", "answers: [1"),
    config(r"Config file must be given as JSON or YAML with keys at top level", ""),
    on_command_line(r"config: answers.samples: 'ten'; expected integer ≥ 1 \(K, answers", "answers={samples: ten}"),
    on_command_line(r"config: seed: 'seven'; expected integer ≥ 0", "seed=seven"),
]  # fmt: skip


def without(*names):
    """The tiny model's folder without some of its files."""

    def change(folder, tiny):
        shutil.copytree(tiny, folder / "model", ignore=shutil.ignore_patterns(*names))

    return change


# Targets that nothing makes; each is a plan of its own.
TARGETS = [
    target(r"results/mmul/llama3-8b/orce/metrics.json: no dataset 'mmul'; datasets are mmlu, drop", "results/mmul/llama3-8b/orce/metrics.json"),
    target(r"results/mmlu/llama3/orce/metrics.json: no model 'llama3'; models are llama3-8b", "results/mmlu/llama3/orce/metrics.json"),
    target(r"nothing here is called 'oracle'; did you mean 'orce'\?", "results/mmlu/llama3-8b/oracle/metrics.json"),
    target(r"unknown reward 'mse' in method 'orce-mse'; rewards are sc, sayself", "results/mmlu/llama3-8b/orce-mse/metrics.json"),
    target(r"no model 'gpt'; models are llama3-8b", "results/mmlu/llama3-8b/orce-from-gpt/metrics.json"),
    target(r"llama3-8b/sft: .*results/mmlu/llama3-8b/sft/manifest.json", "results/mmlu/llama3-8b/sft"),
    target(r"llama3-8b/dpo: .*results/mmlu/llama3-8b/dpo/manifest.json", "results/mmlu/llama3-8b/dpo"),
    target(r"llama3-8b/orce: .*results/mmlu/llama3-8b/orce/metrics.json", "results/mmlu/llama3-8b/orce"),
    target(r"metrics.json: .*results/mmlu/llama3-8b/METHOD/metrics.json", "results/mmlu/llama3-8b/metrics.json"),
]  # fmt: skip


def source(message, task, files, splits=None, where=None):
    """The prompts step on the files of a dataset, in the folder `data`."""
    task = {"arithmetic": ARITHMETIC, "worldfacts": WORLDFACTS}.get(task, task)
    argv = prompts(task, {"path": "data"} if where is None else where, splits or {"test": {"from": "test"}})
    return Case(message, argv, {f"data/{name}": content for name, content in files.items()})


def words(step, chosen, more) -> list[str]:
    return [step, *(["--settings", settings.to_argument(chosen)] if chosen else []), *more.split()]


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


def sampled(name, split="test"):
    found = {"id": name, "split": split, "answers": ["A", "B"], "raw": ["A", "B"], "correct": [True, False]}
    return found | ({"greedy": {"answer": "A", "raw": "A", "correct": True, "f1": None}} if split == "test" else {})


def drawn(name):
    return {"id": name, "kappa": 0.5, "correct": True, "confidences": [0.1, 0.9], "raw": ["Confidence: 10", "Confidence: 90"],
            "completion_logprobs": [-1.0, -2.0], "stated": 0.5, "logprobs": [-4.6] * 101}  # fmt: skip


def judged(name, confidence=0.5):
    return {"id": name, "answer": "A", "correct": True, "f1": None, "confidence": confidence}


SURROGATE = "id,split,n_correct,n_samples,kappa,answer,answer_correct\na,{0},1,2,0.5,A,1\nb,{0},2,2,1.0,A,1\n"
PICK = "--surrogate s.csv --prompts rl=p.jsonl --candidates c.jsonl --out out/p.jsonl --manifest out/p.manifest.json"
SELECT = words("pairs", stages.of("pairs", typed(MMLU), *CELL, "sc"), PICK)
AGREE = words("derive", None, "--task mmlu --method consistency --prompts p.jsonl --samples x.jsonl --out out/c.jsonl")
ESTIMATE = words("surrogate", None, "--samples x.jsonl --seed 1 --out out/s.csv")
MEASURE = "--confidences c.jsonl --surrogate s.csv --manifests m.json --out out/metrics.json --extra out/extra.json"
EVALUATE = words("evaluate", stages.of("evaluate", typed(MMLU), *CELL, "sft"), MEASURE)
RENDER = words("tables", stages.of("tables", typed(MMLU), "mmlu"), "--metrics metrics.json --out out")
TWO = {"p.jsonl": lines(prompt("a"), prompt("b")), "s.csv": SURROGATE.format("rl")}
TESTED = {"s.csv": SURROGATE.format("test"), "m.json": "{}"}


def step(message, argv, **files):
    return Case(message, argv, {name.replace("__", "."): content for name, content in files.items()})


STEPS = [
    step(r"x.jsonl: no greedy answer for test id 'b'; sample it again", AGREE, **TWO, x__jsonl=lines(sampled("a"))),
    step(r"p.jsonl, line 2: id 'a' is also the id of p.jsonl, line 1", AGREE, p__jsonl=lines(prompt("a")) * 2, x__jsonl=lines(sampled("a"))),
    step(r"p.jsonl, line 1: no key 'reference'; needed keys are id, question", AGREE, p__jsonl='{"id": 1, "question": "", "context": null, "choices": null}\n', x__jsonl=lines(sampled("a"))),
    step(r"x.jsonl: No such file or directory", ESTIMATE),
    step(r"x.jsonl is empty; expected one JSON object a line", ESTIMATE, x__jsonl=""),
    step(r"x.jsonl, line 2: not a whole JSON object", ESTIMATE, x__jsonl=(lines(sampled("a")) * 2)[:-20]),
    step(r"x.jsonl, line 1: not UTF-8", ESTIMATE, x__jsonl=b'{"id": "\xff"}\n'),
    step(r"x.jsonl, line 1: no record of the sample step \(no greedy answer\); sample it again", ESTIMATE, x__jsonl=lines(sampled("a", "rl"), split="test")),
    step(r"x.jsonl, line 1: no record of the sample step \(a prompt without sampled answers", ESTIMATE, x__jsonl=lines(sampled("a"), correct=[], answers=[])),
    step(r"s.csv: no row for id 'c' of p.jsonl; sample it again", SELECT, s__csv=SURROGATE.format("rl"), p__jsonl=lines(prompt("c"))),
    step(r"s.csv: no column 'id'; expected id, split", SELECT, p__jsonl=lines(prompt("a")), s__csv=""),
    step(r"s.csv: no column 'kappa'; expected id, split", SELECT, p__jsonl=lines(prompt("a")), s__csv="id,split,n_correct,n_samples\na,rl,1,2\n"),
    step(r"c.jsonl: its ids are not the ids of p.jsonl; draw it again", SELECT, **TWO, c__jsonl=lines(drawn("b"), drawn("a"))),
    step(r"c.jsonl, line 1: confidence is 50; expected a number from 0 to 1, or null", EVALUATE, **TESTED, c__jsonl=lines(judged("a", 50))),
    step(r"c.jsonl, line 1: confidence is nan; expected a number from 0 to 1, or null", EVALUATE, **TESTED, c__jsonl=lines(judged("a", float("nan")))),
    step(r"c.jsonl, line 1: mean is nan; expected a number from 0 to 1, or null", EVALUATE, **TESTED, c__jsonl=lines(judged("a", 0.5), mean=float("nan"))),
    step(r"c.jsonl, line 1: id 'z' has no test row in s.csv; make both again", EVALUATE, **TESTED, c__jsonl=lines(judged("z"))),
    step(r"m.json: not a whole JSON object", EVALUATE, **TESTED | {"m.json": "{"}, c__jsonl=lines(judged("a"), judged("b"))),
    step(r"c.jsonl: no line for id 'b' of s.csv, and 1 of 2 test ids have none", EVALUATE, **TESTED, c__jsonl=lines(judged("a"))),
    step(r"c.jsonl, line 2: id 'a' stands in line 1 already", EVALUATE, **TESTED, c__jsonl=lines(judged("a"), judged("a"))),
    step(r"metrics.json: not a whole JSON object", RENDER, metrics__json='{"n": 3, '),
    step(r"metrics.json: not all of a metrics file; make it again with `snakemake -f -- metrics.json`", RENDER, metrics__json="{}"),
    step(r"--settings: not a JSON object", ["evaluate", "--settings", "{", *EVALUATE[3:]], **TESTED),
    step(r"--settings: no key 'task'", ["pairs", "--settings", '{"label": "x"}', *SELECT[3:]], **TWO),
    step(r"out: (File exists|Not a directory)", ESTIMATE, x__jsonl=lines(sampled("a")), out="a file where the folder should be"),
]  # fmt: skip


WARM = words("sft", stages.of("sft", typed(MMLU), *CELL), "--surrogate s.csv --prompts rl=p.jsonl --out out/sft")
ALIGN = words("dpo", stages.of("dpo", typed(MMLU), *CELL), "--pairs pairs.jsonl --sft sft --out o")
SAID = {name: [{"role": "assistant", "content": "Confidence: 5%"}] for name in ("chosen", "rejected")}
PREFERRED = {"pairs.jsonl": lines({"id": "a", "prompt": [{"role": "user", "content": "?"}]} | SAID)}


def weights(message, change, argv=WARM, **files):
    return Case(message, argv, TWO | files, change)


def cut(name):
    """The tiny model's folder with one file cut off."""

    def change(folder, tiny):
        shutil.copytree(tiny, folder / "model")
        path = folder / "model" / name
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return change


def adapter_of_another_model(folder, tiny):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoConfig, AutoModelForCausalLM

    shutil.copytree(tiny, folder / "model")
    other = AutoConfig.from_pretrained(tiny, hidden_size=16, head_dim=4)
    adapter = LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    get_peft_model(AutoModelForCausalLM.from_config(other), adapter).save_pretrained(folder / "sft")
    (folder / "sft" / "manifest.json").write_text('{"sha256": {}}')


WEIGHTS = [
    weights(r"model: no config.json; expected a model folder in the Hugging Face format", lambda folder, tiny: None),
    weights(r"model: no tokenizer \(tokenizer.json\); save the tokenizer beside", without("tokenizer*")),
    weights(r"model: no weights \(\*.safetensors\); expected a model folder", without("*.safetensors")),
    weights(r"model: the weights cannot be loaded: .*incomplete metadata", cut("model.safetensors")),
    weights(r"model: the (tokenizer|weights) cannot be loaded: .*config.json", cut("config.json")),
    weights(r"model: the tokenizer cannot be loaded: ", cut("tokenizer.json")),
    weights(r"sft: the adapter does not fit model: .*size mismatch", adapter_of_another_model, ALIGN, **PREFERRED),
    weights(r"sft/manifest.json: No such file or directory", without(), ALIGN, **PREFERRED),
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


SLOW = [pytest.param(case, marks=pytest.mark.slow) for case in TARGETS]


@pytest.mark.parametrize(
    "case", [*CONFIGURATION, *MODULES, *SOURCES, *STEPS, *WEIGHTS, *SLOW], ids=lambda case: case.message[:60]
)
def test_bad_input_is_one_line_that_names_it(case, folder, tiny):
    place(folder, case.files | {"config.yaml": json.dumps(PAPER)})  # which is YAML too, and read in no time
    case.model(folder, tiny)
    before = files_in(folder)
    code, said = call(case.argv)
    assert code != 0
    assert len([line for line in said.splitlines() if re.search(case.message, line)]) == 1, said
    assert "Traceback (most recent call last)" not in said
    assert case.argv[0] == "snakemake" or case.message.startswith("argument") or len(said.splitlines()) == 1, said
    left = files_in(folder) - before
    assert [path for path in left if path.is_file() and ".partial" not in path.parts or path.suffix == ".tmp"] == []


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_named_with_its_remedy(number, folder, monkeypatch):
    def flock(handle, kind):
        raise OSError(number, os.strerror(number))

    record = lines({"id": 1, "answer": "1", "confidence": 1})
    place(folder, {"config.yaml": (ROOT / "config.yaml").read_text(), "x.jsonl": record})
    monkeypatch.setattr(fcntl, "flock", flock)
    remedy = (
        r"its file system has no locks .*; mount it with them \(Lustre: -o flock; NFS: -o local_lock=flock\), or run"
    )
    score = ["score", "--method", "given", "--in", "x.jsonl", "--out", "y.jsonl"]
    run = ["snakemake", "--cores", "1", "--config", "device=cpu", "gpus=0", "--", "results/mmlu/prompts/test.jsonl"]
    for argv, path in ((score, r".partial/y.jsonl\..*/lock"), (run, ".snakemake/orce.lock")):
        code, said = call(argv)
        assert code != 0 and "Traceback" not in said
        assert len([line for line in said.splitlines() if re.search(rf"{path}: {remedy}", line)]) == 1, said
    with pytest.raises(BadInput, match="has no locks .*; set TMPDIR to a folder on another"):
        lease.lease(["0", "1"], 1)
