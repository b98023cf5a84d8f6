"""LLaMA-3, Qwen3 and Mistral v0.3 from prompt to adapter, and through every stage of a run: real tokenizers and templates, random weights."""

import copy
import csv
from collections.abc import Iterator
from pathlib import Path

import families
import numpy as np
import pytest
import small_matrix
import torch
from conftest import ARITHMETIC, ROOT, on_cpu, training_settings
from datasets import Dataset
from plain_models import generated
from test_training import turn
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

from orce import tasks
from orce.artefacts import files
from orce.artefacts.records import Pair
from orce.judge import reader
from orce.judge.reader import TransformersReader
from orce.llm import engines, language_model
from orce.llm.chat import completion_ids, prompt_ids, statement
from orce.methods import prompted
from orce.settings.stage import parse_training_job
from orce.tasks import judge_prompt
from orce.training import common, dpo, sft

pytestmark = pytest.mark.slow

EXAMPLE = {
    "id": "1", "question": "“Naïve”\n12,345 < 3½? 漢字 🙂", "context": "In 1984,  ﬁfteen men…",
    "choices": ["one", " 2 ", "III", "4.0 %"],
}  # fmt: skip


@pytest.fixture(scope="module", params=families.NAMES)
def family(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def model_settings(family, paper) -> dict:
    return on_cpu(path=paper(family)) | {"template_kwargs": families.TEMPLATE_KWARGS[family]}


@pytest.fixture(scope="module")
def lm(model_settings):
    return language_model.load(model_settings)


def training(model_settings: dict, **stage) -> dict:
    return training_settings(model_settings, (), {"method": "full", "save_steps": 100}, scheduler="constant", **stage)


def judged(i: int) -> list[dict]:
    return judge_prompt(tasks.get(ARITHMETIC), {"question": f"What is {i} + {i}?"}, str(2 * i))


EXAMPLES = [{"prompt": judged(i), "percent": 100 if i == 3 else (13 * i) % 101} for i in range(16)]


@pytest.fixture(scope="module")
def judge(model_settings, tmp_path_factory):
    """The model, trained until it states confidences."""
    out = tmp_path_factory.mktemp("stating") / "sft"
    sft.train(EXAMPLES, training(model_settings, epochs=10, learning_rate=1e-2), out)
    return language_model.load(model_settings, str(out))


def by_meta(file: Path, conversations: list) -> Iterator[list[int]]:
    """Token ids of conversations, each with the start of the assistant's next turn, by the makers' own code."""
    from llama_models.llama3.tokenizer import Tokenizer

    maker, header = Tokenizer(file), "<|start_header_id|>{}<|end_header_id|>\n\n".format
    for messages in conversations:
        turns = "".join(header(one["role"]) + one["content"].strip() + "<|eot_id|>" for one in messages)
        text = f"<|begin_of_text|>{turns}{header('assistant')}"
        yield maker.encode(text, bos=False, eos=False, allowed_special="all")


def by_alibaba(file: Path, conversations: list) -> Iterator[list[int]]:
    from dashscope.tokenizers.qwen_tokenizer import QwenTokenizer

    maker, think, thought = QwenTokenizer(str(file)), 151667, 151668  # the two are younger than this code
    blank = maker.encode("\n\n")
    for messages in conversations:
        turns = "".join(f"<|im_start|>{one['role']}\n{one['content']}<|im_end|>\n" for one in messages)
        yield [*maker.encode(f"{turns}<|im_start|>assistant\n"), think, *blank, thought, *blank]


def by_mistral(file: Path, conversations: list) -> Iterator[list[int]]:
    from mistral_common.protocol.instruct.messages import AssistantMessage, UserMessage
    from mistral_common.protocol.instruct.request import ChatCompletionRequest
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

    maker, kinds = MistralTokenizer.from_file(str(file)), {"user": UserMessage, "assistant": AssistantMessage}
    for messages in conversations:
        turns = [kinds[one["role"]](content=one["content"]) for one in messages]
        yield maker.encode_chat_completion(ChatCompletionRequest(messages=turns)).tokens


def test_prompts_have_the_token_ids_of_the_makers_own_code(family, lm, makers, monkeypatch):
    """What is asked in the five tasks: the answer, the confidence in one, Top-k and CoT."""
    asked = []
    for name in ("mmlu", "drop", "logiqa", "reclor", ARITHMETIC):
        choices = EXAMPLE["choices"] if name in ("mmlu", "logiqa", "reclor") else None
        task, example = tasks.get(name), EXAMPLE | {"choices": choices}
        asked += [task.prompt(example), judge_prompt(task, example, "B")]
        asked += [prompted.topk_prompt(example, task, {"k": 4}), prompted.cot_prompt(example, task, {})]
    assert any(len(messages) > 1 for messages in asked)
    monkeypatch.syspath_prepend(makers)
    by_makers = {"llama3": by_meta, "qwen3": by_alibaba, "mistral": by_mistral}[family]
    for messages, ids in zip(asked, by_makers(makers / families.FILES[family][0], asked), strict=True):
        assert prompt_ids(lm.tokenizer, messages, lm.template_kwargs) == ids


def loss_and_gradient(trainer, batch) -> tuple[float, torch.Tensor]:
    loss = trainer.compute_loss(trainer.model.train(), batch)
    loss.backward()
    named = trainer.model.named_parameters()
    layers = [p.grad.flatten() for name, p in named if p.grad is not None and "layers" in name]
    return loss.item(), torch.cat(layers)


def ours(kind, lm, model_settings, work, rows, *more) -> tuple[float, torch.Tensor]:
    arguments = common.trainer_arguments(lm, parse_training_job(training(model_settings)), work)
    trainer = kind(rows, *more, **arguments | {"model": copy.deepcopy(lm.model)})
    return loss_and_gradient(trainer, trainer.collate(rows))


def trls(kind, arguments, model, tokenizer, rows: list[dict]) -> tuple[float, torch.Tensor]:
    trainer = kind(model=model, args=arguments, train_dataset=Dataset.from_list(rows), processing_class=tokenizer)
    return loss_and_gradient(trainer, trainer.data_collator(rows))


def close(one: tuple[float, torch.Tensor], other: tuple[float, torch.Tensor]) -> bool:
    return one[0] == pytest.approx(other[0], rel=1e-4) and (one[1] - other[1]).norm() < 1e-4 * other[1].norm()


PLAIN = {"use_cpu": True, "bf16": False, "report_to": "none", "max_length": None, "gradient_checkpointing": False}


def test_the_warm_starts_loss_and_gradients_are_trls(model_settings, lm, tmp_path):
    """A row is the conversation as the template writes it, up to the end of its last turn."""
    model, end = copy.deepcopy(lm.model), lm.tokenizer.eos_token
    found = ours(sft.SftTrainer, lm, model_settings, tmp_path, sft.rows(lm, EXAMPLES[:4]))
    plain = []
    for example in EXAMPLES[:4]:
        turns = [*example["prompt"], *turn(example["percent"])]
        text = lm.tokenizer.apply_chat_template(turns, tokenize=False, **lm.template_kwargs)
        ids = lm.tokenizer(text[: text.rindex(end) + len(end)], add_special_tokens=False)["input_ids"]
        before = len(prompt_ids(lm.tokenizer, example["prompt"], lm.template_kwargs))
        plain.append({"input_ids": ids, "labels": [-100] * before + ids[before:]})
    assert close(found, trls(SFTTrainer, SFTConfig(str(tmp_path), **PLAIN), model, lm.tokenizer, plain))


PAIRS = [Pair(id=str(i), prompt=judged(i), chosen=turn(95 - 31 * i), rejected=turn(7 + 31 * i)) for i in range(2)]


class PairTrainer(DPOTrainer):
    """TRL's trainer for pairs that have token ids and the reference's log-probabilities already."""

    def _prepare_dataset(self, dataset, *args, **kwargs):
        return dataset

    def _precompute_ref_logps(self, dataset, *args, **kwargs):
        return dataset


def test_dpos_loss_and_gradients_are_trls(model_settings, lm, tmp_path):
    data, model = dpo.reference_logprobs(lm, dpo.rows(lm, PAIRS), 4, "test"), copy.deepcopy(lm.model)
    for row in data:  # so that the margin is not zero
        row.reference = row.reference[0] + 1, row.reference[1]
    found = ours(dpo.DpoTrainer, lm, model_settings, tmp_path, data, 0.5)
    rows = []
    for row in data:
        own = {"prompt_ids": row.prompt_ids}
        for side, ids, logps in zip(("chosen", "rejected"), row.continuations, row.reference, strict=True):
            own |= {f"{side}_ids": ids, f"ref_{side}_logps": logps}
        rows.append(own)
    arguments = DPOConfig(str(tmp_path), beta=0.5, precompute_ref_log_probs=True, **PLAIN)
    assert close(found, trls(PairTrainer, arguments, model, lm.tokenizer, rows))
    assert found[0] == pytest.approx(np.log1p(np.exp(0.5)), abs=1e-4)


@torch.no_grad()
def plain_values(model, tokenizer, prompt: list[int]) -> np.ndarray:
    """log P of the 101 values the long way: full forward passes over prompt, statement and the turn's end."""
    values = []
    for percent in range(101):
        ids = completion_ids(tokenizer, statement(percent))
        logits = model(input_ids=torch.tensor([prompt + ids]), logits_to_keep=len(ids) + 1).logits[0].double()
        values.append(logits.log_softmax(-1)[torch.arange(len(ids)), ids].sum().item())
    return np.array(values)


def test_the_101_values_are_those_of_full_forward_passes(judge, monkeypatch):
    """Where each is fed, to know whether the turn ends there; with fewer: test_confidence.py."""
    monkeypatch.setattr(reader, "FIRST", 101)
    for messages in (judged(3), judged(8)):
        plain = plain_values(judge.model, judge.tokenizer, prompt_ids(judge.tokenizer, messages, judge.template_kwargs))
        (reading,) = TransformersReader(judge).read([messages])
        np.testing.assert_allclose(reading.logprobs, plain, atol=1e-3)


def test_a_number_that_goes_on_is_no_percent(model_settings, tmp_path):
    """A percent is one that the turn ends after, whether a digit is a token (Qwen3, Mistral) or up to three are (LLaMA-3)."""
    longer = ["0.9", "105", "1000", "10.5", "99.9", "7.5", "100.0", "100000", "0.05", "50/100", "1e2", "33 1/3"]
    texts = [*longer, "0", "7", "10", "73", "100"]
    examples = [{"prompt": judged(i), "percent": text} for i, text in enumerate(texts)]
    sft.train(examples, training(model_settings, epochs=120, batch_size=17, learning_rate=1e-2), tmp_path / "sft")
    judging = TransformersReader(language_model.load(model_settings, str(tmp_path / "sft")))
    for text, reading in zip(texts, judging.read([one["prompt"] for one in examples]), strict=True):
        assert reading.text == statement(text)
        if text in longer:
            assert reading.mass < 0.2, text
        else:
            assert reading.mass > 0.8 and reading.mean == pytest.approx(int(text) / 100, abs=0.05), text


def test_greedy_statements_are_those_of_generate_and_end_with_any_end(family, judge):
    prompts = [judged(i) for i in range(24)]
    texts = [reading.text for reading in TransformersReader(judge).read(prompts)]
    for messages, text in zip(prompts, texts, strict=True):
        ids = prompt_ids(judge.tokenizer, messages, judge.template_kwargs)
        assert generated(judge.model, judge.tokenizer, ids, 12, judge.ends) == text
    # So small a judge loses the form now and then.
    assert sum(text in map(statement, range(101)) for text in texts) >= 20
    engine, head = engines.get("transformers").Engine(judge), judge.model.lm_head.weight
    for end in families.ENDS[family]:  # now it ends its turns with this one
        swapped = [judge.tokenizer.eos_token_id, end]
        with torch.no_grad():
            head[swapped] = head[swapped[::-1]]
            assert [text for (text,) in engine.generate(prompts, 1, 0.0, 12, [0] * 24)] == texts
            head[swapped] = head[swapped[::-1]]


def test_every_model_is_answered_trained_aligned_and_read_and_one_reads_anothers_answers(paper, tmp_path):
    numbers = {"sft": 24, "rl": 12, "test": 12}
    splits = {name: {"from": "test" if name == "test" else "train", "size": size} for name, size in numbers.items()}
    config, small = small_matrix.configuration("")
    config["datasets"] = {"hashed": {"task": str(ROOT / "tests/data/hashed.py"), "source": {}, "splits": splits}}
    config["models"] = {
        name: {"label": name, "source": {"path": paper(name)}, "template_kwargs": families.TEMPLATE_KWARGS[name]}
        for name in families.NAMES
    }
    rows = {"dataset": "hashed", "methods": ["orce"]}
    config["tables"] = {
        "main": {"kind": "main", "models": list(families.NAMES), **rows},
        "transfer": {"kind": "transfer", "source": "llama3", "models": ["mistral"], **rows},
    }
    small |= {"paper_tables": ["main", "transfer"], "engine": {"name": "transformers", "batch_tokens": 4096}}
    small["answers"] |= {"max_tokens": 2, "chunk": 64}
    small["confidence"]["chunk"] = 64
    small["training"] |= {"method": "full", "save_steps": 100}
    small["sft"] |= {"epochs": 10, "learning_rate": 1e-2, "scheduler": "constant"}
    small_matrix.write(tmp_path, config, small)
    small_matrix.run_here(tmp_path, tmp_path / "config.yaml", tmp_path / "small.yaml")
    for name in families.NAMES:
        cell = tmp_path / "results" / "hashed" / name
        assert len({row["kappa"] for row in csv.DictReader((cell / "surrogate.csv").open())}) > 2
        assert files.read_jsonl(cell / "pairs" / "sc.jsonl")
        metrics = files.read_json(cell / "orce" / "metrics.json")
        assert metrics["n"] == numbers["test"] and metrics["ece"] is not None
        read = files.read_jsonl(cell / "orce" / "confidences.jsonl")
        assert sum(not record["retried"] for record in read) > len(read) / 2, name  # it says what it was taught to say
    cell = tmp_path / "results" / "hashed" / "mistral"
    own, read = (files.read_jsonl(cell / kind / "confidences.jsonl") for kind in ("orce", "orce-from-llama3"))
    assert [one["answer"] for one in own] == [one["answer"] for one in read]
    assert [one["mean"] for one in own] != [one["mean"] for one in read]
