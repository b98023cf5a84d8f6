"""Folders of strangers: neither a model's own code nor a pickle is run, and nothing asks whether it may."""

import ast
import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import ARITHMETIC, ROOT

from orce.__main__ import main
from orce.artefacts import files
from orce.errors import BadInput
from orce.judging import judge
from orce.llm.adapters import AdapterSwitcher
from orce.llm.engines import vllm
from orce.stage_settings import Source

pytestmark = pytest.mark.slow

EVIL = "from pathlib import Path\nPath({mark!r}).touch()\nfrom transformers import {name} as Evil\n"
PAIRS = [{"question": "What is 2 + 2?", "answer": "4"}]


@pytest.fixture
def mark(tmp_path):
    """A file that a stranger's code would make."""
    return tmp_path / "pwned"


@pytest.fixture
def model(tiny, tmp_path):
    return Path(shutil.copytree(tiny, tmp_path / "model"))


def change(path: Path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def own_class(model, mark, known):
    """config.json names classes in the folder; `known`: of a type that transformers has itself."""
    (model / "evil.py").write_text(EVIL.format(mark=str(mark), name="LlamaForCausalLM, LlamaConfig"))
    classes = {"AutoConfig": "evil.LlamaConfig", "AutoModelForCausalLM": "evil.Evil"}
    change(model / "config.json", auto_map=classes, **({} if known else {"model_type": "evil"}))


def own_tokenizer(model, mark):
    (model / "evil.py").write_text(EVIL.format(mark=str(mark), name="PreTrainedTokenizerFast"))
    change(
        model / "tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.Evil", "evil.Evil"]}, tokenizer_class="Evil"
    )


class Bomb:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


def sample(folder: Path, *more) -> list[str]:
    """The command `orce sample` with the model in `folder`/model."""
    files.write_jsonl(
        folder / "sft.jsonl", [{"id": "a", "question": "2 * 2", "context": None, "choices": None, "reference": "4"}]
    )
    settings = {
        "label": "sample", "task": ARITHMETIC, "shots": None, "seed": 1, "engine": "transformers", "samples": 1,
        "temperature": 1.0, "top_p": 1.0, "max_tokens": 1,
        "model": {"source": {"path": str(folder / "model")}, "dtype": "float32", "device": "cpu", "template_kwargs": {}},
    }  # fmt: skip
    prompts = f"sft={folder / 'sft.jsonl'}"
    return ["sample", "--settings", json.dumps(settings), "--prompts", prompts, "--out", str(folder / "samples.jsonl")]


def test_a_folder_with_code_is_refused_and_the_terminal_is_not_asked(model, mark, tmp_path):
    own_class(model, mark, known=False)
    done = subprocess.run(
        [sys.executable, "-m", "orce", *sample(tmp_path)], cwd=ROOT / "workflow", input="y\ny\ny\n",
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and done.stdout == "" and not mark.exists()
    line = done.stderr.splitlines()[-1]
    assert (
        line.startswith(f"orce sample: {model}: ") and "Python code of its own (auto_map), which is never run" in line
    )
    assert "Traceback" not in done.stderr


def refused(tmp_path, capsys) -> str:
    assert main(sample(tmp_path)) == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_a_tokenizer_with_code_is_refused(model, mark, tmp_path, capsys):
    own_tokenizer(model, mark)
    assert "the tokenizer cannot be loaded: it needs Python code of its own" in refused(tmp_path, capsys)
    assert not mark.exists()


def test_of_a_known_model_the_class_of_transformers_is_used(model, mark, tmp_path):
    own_class(model, mark, known=True)
    (model / "custom_generate").mkdir()
    (model / "custom_generate" / "generate.py").write_text(EVIL.format(mark=str(mark), name="LlamaConfig"))
    assert main(sample(tmp_path)) == 0
    assert not mark.exists()


def test_pickled_weights_are_not_read(model, mark, tmp_path, capsys):
    (model / "model.safetensors").unlink()
    (model / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(mark)))
    line = refused(tmp_path, capsys)
    assert "no weights (*.safetensors)" in line and "pytorch_model.bin is not read: a pickle can run code" in line
    assert not mark.exists()


def test_an_index_that_leads_to_a_pickle_is_not_followed(model, mark, tmp_path, capsys):
    (model / "model.safetensors").rename(model / "other.safetensors")
    (model / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(mark)))
    assert "the weights cannot be loaded: Error no file named model.safetensors" in refused(tmp_path, capsys)
    assert not mark.exists()


@pytest.fixture
def adapter(model, tmp_path):
    """Folder of an adapter over the model."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base = AutoModelForCausalLM.from_pretrained(model, trust_remote_code=False)
    lora = LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    get_peft_model(base, lora).save_pretrained(tmp_path / "sft")
    AutoTokenizer.from_pretrained(model).save_pretrained(tmp_path / "sft")
    return tmp_path / "sft"


def pickled(adapter, mark):
    (adapter / "adapter_model.safetensors").unlink()
    (adapter / "adapter_model.bin").write_bytes(pickle.dumps(Bomb(mark)))
    return "no adapter_model.safetensors; a pickled adapter"


def importing(adapter, mark):
    (mark.parent / "evil_core.py").write_text(EVIL.format(mark=str(mark), name="LlamaConfig"))
    change(adapter / "adapter_config.json", megatron_config={"a": 1}, megatron_core="evil_core")
    return "megatron_config makes peft import a module"


@pytest.mark.parametrize("harm", [pickled, importing])
def test_an_adapter_is_weights_and_no_code(harm, adapter, mark, monkeypatch):
    from transformers import AutoModelForCausalLM

    monkeypatch.syspath_prepend(str(mark.parent))
    words = harm(adapter, mark)
    with pytest.raises(BadInput, match=words):
        judge.load(str(adapter), device="cpu")
    base = AutoModelForCausalLM.from_pretrained(adapter.parent / "model", dtype=torch.float32)
    with pytest.raises(BadInput, match=words):
        AdapterSwitcher(base).activate(str(adapter))
    assert not mark.exists()


def test_vllm_gets_no_leave_either(model):
    settings = vllm.Chosen(source=Source(path=str(model)), dtype="float32", device="cuda")
    options = vllm._options(settings, 64)
    assert (options["trust_remote_code"], options["load_format"]) == (False, "safetensors")


LOADERS = ("load_dataset", "AutoConfig", "AutoTokenizer", "AutoModelForCausalLM")


def test_every_loader_is_told_so():
    """A call that leaves it out would ask on standard input where a repository brings code."""
    found = []
    for path in sorted((ROOT / "workflow").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func).removesuffix(".from_pretrained")
                if called in LOADERS:
                    said = ast.unparse(node)
                    found.append((path.name, "trust_remote_code=False" in said or "**source" in said))
    assert len(found) >= 6 and all(told for _, told in found), found
