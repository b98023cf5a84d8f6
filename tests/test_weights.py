"""Folders of weights that lack some, have some too many, or some of another shape: one line before anything runs. And whole ones."""

import itertools
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import dry_run
import pytest
import small_matrix
import torch
import transformers
from conftest import ROOT, cases, on_cpu, training_settings
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from test_training import turn
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig

import orce
from orce.artefacts import store
from orce.artefacts.records import Pair
from orce.errors import BadInput
from orce.llm import language_model
from orce.llm.engines import vllm
from orce.training import dpo, sft

Tensors = dict[str, torch.Tensor]
QUESTION = {"question": "Capital of France?", "answer": "Paris"}
PROMPT = [{"role": "user", "content": "Is Paris the capital of France?"}]


def edited(source, folder: Path, edit: Callable[[Tensors], Tensors]) -> Path:
    """A copy of a folder of weights with other tensors in its file."""
    shutil.copytree(source, folder)
    (file,) = folder.glob("*model.safetensors")
    save_file(edit(load_file(file)), file, metadata={"format": "pt"})
    return folder


def without(part: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {key: tensor for key, tensor in tensors.items() if part not in key}


def shortened(part: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {key: tensor[:-1].clone() if part in key else tensor for key, tensor in tensors.items()}


def renamed(tensors: Tensors, old: str, new: str) -> Tensors:
    """The tensors whose keys have a name, with another in its place."""
    return {key.replace(old, new): tensor.clone() for key, tensor in tensors.items() if old in key}


@pytest.fixture(scope="module")
def folders(tiny, tmp_path_factory) -> Path:
    """Every folder of this module, by name: damaged models and adapters, and whole ones."""
    root = tmp_path_factory.mktemp("weights")
    tokenizer = AutoTokenizer.from_pretrained(tiny)

    def model():
        return AutoModelForCausalLM.from_pretrained(tiny)

    def saved(model, name: str, **options) -> Path:
        model.save_pretrained(root / name, **options)
        tokenizer.save_pretrained(root / name)
        return root / name

    config = LlamaConfig(**model().config.to_dict() | {"tie_word_embeddings": False})
    untied = saved(AutoModelForCausalLM.from_config(config), "untied")
    sharded = saved(model(), "sharded", max_shard_size="20KB")
    saved(model().to(torch.bfloat16), "bfloat16")
    # Damaged models
    edited(tiny, root / "prefix", lambda tensors: {f"base_model.model.{key}": tensors[key] for key in tensors})
    edited(untied, root / "headless", without("lm_head"))
    edited(tiny, root / "shape", shortened("model.norm"))
    edited(tiny, root / "deeper", lambda tensors: tensors | renamed(tensors, "layers.1", "layers.2"))
    shutil.copytree(sharded, root / "lost-shard")
    next((root / "lost-shard").glob("model-00002-*")).unlink()
    shutil.copytree(sharded, root / "short-index")
    index = root / "short-index" / "model.safetensors.index.json"
    listed = json.loads(index.read_text())
    listed["weight_map"] = {key: file for key, file in listed["weight_map"].items() if "-00002-" not in file}
    index.write_text(json.dumps(listed))
    # Whole models with what other versions leave in a file
    frequencies = {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": torch.ones(8) for i in range(2)}
    edited(tiny, root / "old-frequencies", lambda tensors: tensors | frequencies)
    masks = {f"model.layers.0.{key}": torch.ones(1, 1, 4, 4) for key in ("self_attn.attn.bias", "attn.masked_bias")}
    edited(tiny, root / "old-masks", lambda tensors: tensors | masks)
    edited(tiny, root / "tied-twice", lambda tensors: tensors | renamed(tensors, "model.embed_tokens", "lm_head"))
    # Adapters over `tiny`
    adapter, small = root / "adapter", {"r": 4, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM"}
    for name, saved_whole in (("adapter", None), ("adapter-with-head", ["lm_head"])):
        lora = LoraConfig(**small, modules_to_save=saved_whole)
        get_peft_model(model(), lora).save_pretrained(root / name)
    edited(adapter, root / "half", lambda tensors: dict(itertools.islice(sorted(tensors.items()), len(tensors) // 2)))
    edited(adapter, root / "misnamed", lambda tensors: renamed(tensors, "base_model.model.", "module."))
    edited(adapter, root / "adapter-shape", shortened("lora_A"))
    edited(root / "adapter-with-head", root / "adapter-lost-head", without("lm_head"))
    for name in (*dict(ADAPTERS), *WHOLE):  # sealed, as a training leaves its folder
        store.write_manifest(root / name / "manifest.json", store.folder_digests(root / name))
    return root


# [name, what its line says]; the adapters are the last.
DAMAGED = cases("damaged_weights")
MODELS, ADAPTERS = DAMAGED[:6], DAMAGED[6:]
WHOLE = (
    "untied", "sharded", "bfloat16", "old-frequencies", "old-masks", "tied-twice", "adapter", "adapter-with-head",
)  # fmt: skip


def refused(folder: Path, says: str, *calls: Callable[[], object]) -> None:
    """Each call ends in one line that names the folder and what it says."""
    for call in calls:
        with pytest.raises(BadInput) as caught:
            call()
        line = str(caught.value)
        assert "\n" not in line and str(folder) in line and re.search(says, line), line


def judged(folder: Path):
    """The confidence of a trained judge in an answer that is given."""
    return orce.confidence(None, [QUESTION], judge=folder, device="cpu").confidence("judge")


@pytest.mark.parametrize(("name", "says"), DAMAGED)
def test_a_damaged_model_or_adapter_is_refused_by_every_door(folders, tiny, name, says):
    folder, examples = folders / name, [{"prompt": PROMPT, "percent": 50}]
    pairs = [Pair(id="1", prompt=PROMPT, chosen=turn(90), rejected=turn(10))]
    model, settings = on_cpu(path=folder), training_settings(on_cpu(path=tiny))
    of_a_model = (
        lambda: orce.confidence(folder, ["Capital of France?"], device="cpu"),
        lambda: orce.load_judge(folder, device="cpu"),
        lambda: orce.load_judge(folders / "adapter", base=str(folder), device="cpu"),
        lambda: vllm.start(model, 64),
        lambda: sft.train(examples, training_settings(model), folders / "trained"),
    )
    of_an_adapter = (
        lambda: orce.load_judge(folder, base=tiny, device="cpu"),
        lambda: dpo.train(pairs, settings, folder, folder, folders / "aligned"),
    )
    refused(folder, says, lambda: judged(folder), *(of_a_model if name in dict(MODELS) else of_an_adapter))


@pytest.mark.slow
def test_a_run_of_the_workflow_names_every_damaged_model_before_its_first_job(folders, tmp_path):
    config, small = small_matrix.configuration(str(folders / "untied"))
    damaged = {name: {"label": name, "source": {"path": str(folders / name)}} for name, _ in MODELS}
    config["models"] |= damaged
    config["tables"]["main"]["models"] += damaged
    small_matrix.write(tmp_path, config, small)
    configured = ("--cores", "1", "--configfile", "small.yaml", "--", "paper_tables")
    code, said = dry_run.refused(tmp_path, "--snakefile", ROOT / "Snakefile", *configured)
    assert code == 1
    for name, says in MODELS:
        (line,) = [line for line in said.splitlines() if str(folders / name) in line]
        assert re.search(says, line)
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("name", WHOLE)
def test_whole_folders_load_whatever_their_version_and_form(folders, name):
    assert [0 <= value <= 1 for value in judged(folders / name)] == [True]


def test_a_check_of_weights_is_no_part_of_a_seeded_computation(folders, tiny):
    before = torch.get_rng_state()
    language_model.check_weights({"path": tiny}, str(folders / "adapter"))
    assert torch.equal(torch.get_rng_state(), before)


def test_an_nli_model_without_its_head_is_refused_and_one_with_a_pooler_too_many_is_not(tiny, tmp_path):
    """Public NLI models of RoBERTa's kind have a pooler that their class leaves out."""
    tokenizer, whole = AutoTokenizer.from_pretrained(tiny), tmp_path / "whole"
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"vocab_size": len(tokenizer), "max_position_embeddings": 600, "pad_token_id": 0}
    labels = {0: "contradiction", 1: "neutral", 2: "entailment"}
    config = transformers.RobertaConfig(**sizes, id2label=labels)
    transformers.RobertaForSequenceClassification(config).save_pretrained(whole)
    tokenizer.save_pretrained(whole)
    pooler = {"roberta.pooler.dense.weight": torch.zeros(32, 32), "roberta.pooler.dense.bias": torch.zeros(32)}
    pooled = edited(whole, tmp_path / "pooled", lambda tensors: tensors | pooler)
    headless = edited(whole, tmp_path / "headless", without("classifier"))

    def agreement(grouped_by: Path):
        options = {"group_by": str(grouped_by), "answers": [["Paris", "Rome"]], "device": "cpu"}
        return orce.confidence(None, ["Capital of France?"], ["agreement"], **options).confidence("agreement")

    assert agreement(pooled) == agreement(whole)
    refused(headless, r"4 missing \(classifier.dense.bias, ", lambda: agreement(headless))


@pytest.mark.parametrize(("keys", "says"), cases("odd_adapters"))
def test_an_adapter_without_a_seal_says_what_is_odd_in_its_config_and_else_judges(folders, tiny, keys, says, tmp_path):
    folder = shutil.copytree(folders / "adapter", tmp_path / "a")
    (folder / "manifest.json").unlink()
    whole = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(whole | keys) if isinstance(keys, dict) else keys)
    refused(folder, says, lambda: judged(folder), lambda: orce.load_judge(folder, device="cpu"))
    if "base_model_name_or_path" in keys:
        (scored,) = orce.load_judge(folder, base=tiny, device="cpu")([QUESTION])
        (folder / "adapter_config.json").write_text(json.dumps(whole | {"base_model_name_or_path": tiny}))
        assert judged(folder) == [scored["stated"]]
