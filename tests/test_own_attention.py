"""A model whose attention is its own: trained by TRL, and read by whole forward passes."""

import numpy as np
import peft
import pytest
import small_matrix
import transformers
from conftest import on_cpu, training_settings
from dry_run import make
from plain_models import generated, losses_of
from snakemake.utils import update_config
from test_paper_families import plain_values
from test_training import prompt, run

from orce.artefacts import files
from orce.errors import BadInput
from orce.judge import reader
from orce.judge.reader import PlainReader, TransformersReader, reader_of
from orce.llm import language_model
from orce.llm.chat import prompt_ids

pytestmark = pytest.mark.slow
LINEAR = {  # some of the linear layers of each family
    "BLOOM": ["query_key_value", "dense"],
    "Qwen3.5": ["q_proj", "v_proj", "in_proj_qkv", "out_proj"],
}


def small_model(family: str, folder, tokenizer) -> None:
    """A randomly initialised model of a family, with another one's tokenizer."""
    size = {"vocab_size": len(tokenizer), "hidden_size": 32, "num_attention_heads": 4, "initializer_range": 0.3}
    size |= {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    transformers.set_seed(0)
    if family == "BLOOM":
        model = transformers.BloomForCausalLM(transformers.BloomConfig(num_hidden_layers=2, **size))
    else:
        linear = {f"linear_{what}": 2 for what in ("num_key_heads", "num_value_heads")}
        linear |= {f"linear_{what}_head_dim": 8 for what in ("key", "value")}
        size |= {"intermediate_size": 64, "num_key_value_heads": 2, "head_dim": 8, "num_hidden_layers": 4}
        model = transformers.Qwen3_5ForCausalLM(transformers.Qwen3_5TextConfig(**size, **linear))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.fixture(params=LINEAR)
def own(request, tiny, shared) -> str:
    """Folder of a small model whose attention is its own."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny)
    return str(shared(f"own-{request.param}", lambda folder: small_model(request.param, folder, tokenizer)))


def test_it_is_trained_by_trl_alone_and_read_as_plain_passes_read_it(own, tmp_path):
    """A packed training ends with what to set instead."""
    layers = {"target_modules": LINEAR[own.rpartition("-")[2]]}
    packed, settings = (
        training_settings(on_cpu(path=own), layers, how, learning_rate=2e-2) for how in ({}, {"trainer": "trl"})
    )
    refusal = "has its own implementation of attention; set training.trainer: trl for SFT and DPO, and train no other"
    for which in ("sft", "conftuner"):
        with pytest.raises(BadInput, match=refusal):
            run(which, packed, tmp_path)
    run("sft", settings, tmp_path)
    run("dpo", settings, tmp_path, tmp_path / "sft")
    warm, aligned = (losses_of(tmp_path / which) for which in ("sft", "dpo"))
    assert warm[-1] < 0.9 * warm[0]
    assert aligned[0] == pytest.approx(np.log(2), abs=1e-4), "the reference is where the policy starts"
    assert aligned[-1] < aligned[0]
    judge = reader_of(language_model.load(settings["model"], str(tmp_path / "dpo")))
    assert isinstance(judge, PlainReader)
    bare = transformers.AutoModelForCausalLM.from_pretrained(own, dtype="float32")
    model = peft.PeftModel.from_pretrained(bare, tmp_path / "dpo").eval()
    for messages in (prompt(3), prompt(8)):
        (reading,) = judge.read([messages])
        ids = prompt_ids(judge.lm.tokenizer, messages)
        np.testing.assert_allclose(reading.logprobs, plain_values(model, judge.lm.tokenizer, ids), atol=1e-3)
        assert reading.text == generated(model, judge.lm.tokenizer, ids, reader.STATEMENT_TOKENS, judge.lm.ends)


def test_plain_passes_read_what_the_tree_of_statements_reads(tiny, monkeypatch):
    monkeypatch.setattr(reader, "FIRST", 101)
    lm = language_model.load(on_cpu(path=tiny))
    asked = [prompt(i) for i in range(6)]
    drawn = {"sample": lambda i, logprobs: [int(logprobs.argmax()), i]}
    packed, plain = (kind(lm, 300).read(asked, **drawn) for kind in (TransformersReader, PlainReader))
    for one, other in zip(packed, plain, strict=True):
        assert (one.text, one.greedy, one.sampled) == (other.text, other.greedy, other.sampled)
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-3)
        np.testing.assert_allclose(one.sampled_logprobs, other.sampled_logprobs, atol=1e-3)


@pytest.mark.parametrize("own", ["BLOOM"], indirect=True)
def test_a_cell_of_it_is_made_by_the_workflow(own, letters, tmp_path):
    """Its answers are another model's: the engine transformers samples none from it."""
    config, small = small_matrix.configuration(letters)
    update_config(config, small)
    config["models"]["small"]["confidence"] = "own"
    config["models"]["own"] = {"label": "BLOOM", "source": {"path": own}}
    config["training"]["trainer"] = "trl"
    config["training"]["lora"]["target_modules"] = LINEAR["BLOOM"]
    rows = ("sft", "orce")
    make(tmp_path, config, *(f"results/mmlu/small/{row}/metrics.json" for row in rows))
    cell = tmp_path / "results" / "mmlu" / "small"
    for trained in ("sft", "dpo"):
        manifest = files.read_json(cell / trained / "manifest.json")
        assert manifest["settings"]["training"]["trainer"] == "trl"
        assert manifest["settings"]["model"]["source"]["path"] == own
    for row in rows:
        read = files.read_jsonl(cell / row / "confidences.jsonl")
        assert len(read) == 12 and all(0 <= one["confidence"] <= 1 for one in read)
        assert files.read_json(cell / row / "metrics.json")["aurc"] is not None
