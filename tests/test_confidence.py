"""Reading a confidence LLM: the distribution over 101 values is exact, the stated value is what the model says."""

import gc
import json
import shutil
from pathlib import Path

import finished_run
import numpy as np
import pytest
import torch
from conftest import ARITHMETIC
from finished_run import CELL

from orce import metrics
from orce.__main__ import main
from orce.artefacts import files, store
from orce.judging import distribution, statements
from orce.judging.distribution import value_trie
from orce.judging.reader import TransformersReader
from orce.llm import language_model
from orce.llm.chat import completion_ids, prompt_ids, statement, to_percent
from orce.runtime import process

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def reader(smollm2):
    settings = {"source": {"path": smollm2}, "dtype": "float32", "device": "cpu"}
    return TransformersReader(language_model.load(settings), batch_tokens=256)


PROMPTS = [
    [{"role": "user", "content": f"Reply only with a line such as 'Confidence: 80'. Is {text} right?"}]
    for text in ("2 + 2 = 4", "the capital of France, Paris,", "blue")
]


def test_each_values_probability_is_that_of_its_text(reader):
    """Against plain forward passes: the tokens of the statement, and for 0 to 10 that no longer number follows."""
    tokenizer, model = reader.lm.tokenizer, reader.lm.model
    readings = reader.read(PROMPTS, state_text=False)
    digits = [tokenizer(str(d), add_special_tokens=False)["input_ids"][0] for d in range(10)]
    for messages, reading in zip(PROMPTS, readings, strict=True):
        prompt = prompt_ids(tokenizer, messages)
        for percent in (0, 7, 10, 42, 99, 100):
            ids = tokenizer(statement(percent), add_special_tokens=False)["input_ids"]
            with torch.inference_mode():
                logits = model(input_ids=torch.tensor([prompt + ids])).logits[0].double().log_softmax(-1)
            expected = sum(logits[len(prompt) - 1 + i, token].item() for i, token in enumerate(ids))
            longer = {7: digits, 10: digits[:1]}.get(percent, [])
            expected += np.log1p(-sum(logits[-1, token].exp().item() for token in longer))
            assert reading.logprobs[percent] == pytest.approx(expected, abs=2e-3)


def test_a_sampled_statement_carries_the_probability_of_its_whole_turn(reader):
    """Against plain forward passes over the statement and the end token, also where a longer number could follow."""
    sampled = [[7, 100, 7], [42, 0, 99], [10, 10, 10]]
    readings = reader.read(PROMPTS, sample=lambda i, _: sampled[i])
    assert [reading.text for reading in readings] == [reading.text for reading in reader.read(PROMPTS)]
    for messages, reading, percents in zip(PROMPTS, readings, sampled, strict=True):
        assert reading.sampled == percents
        prompt = prompt_ids(reader.lm.tokenizer, messages)
        for percent, logprob in zip(percents, reading.sampled_logprobs, strict=True):
            ids = completion_ids(reader.lm.tokenizer, statement(percent))
            with torch.inference_mode():
                logits = reader.lm.model(input_ids=torch.tensor([prompt + ids])).logits[0].double().log_softmax(-1)
            expected = sum(logits[len(prompt) - 1 + i, token].item() for i, token in enumerate(ids))
            assert logprob == pytest.approx(expected, abs=1e-4)


def test_the_values_share_one_probability_mass(reader):
    for reading in reader.read(PROMPTS, state_text=False):
        assert 0 < reading.mass <= 1 + 1e-6
        assert 0 <= reading.mean <= 1


def test_the_garbage_collector_rests_only_until_a_model_is_loaded(smollm2):
    process.importing()
    assert not gc.isenabled()
    language_model.load({"source": {"path": smollm2}, "dtype": "float32", "device": "cpu"})
    assert gc.isenabled()


def test_a_constrained_statement_is_the_second_try_without_the_first(reader):
    usual, constrained = (statements.state(reader, PROMPTS, constrained=only) for only in (False, True))
    for one, other in zip(usual, constrained, strict=True):
        assert other.raw == statement(to_percent(other.stated)) and other.retried
        assert (one.mean, one.mass) == (other.mean, other.mass)
        if one.retried:
            assert one.raw[1] == other.raw and one.stated == other.stated
    assert any(one.retried for one in usual)


def test_the_mode_is_the_most_probable_value_and_is_kept_only_where_it_is_asked_for(reader):
    usual, asked = (statements.state(reader, PROMPTS, mode=mode) for mode in (False, True))
    readings = reader.read(PROMPTS, state_text=False)
    assert asked == [
        one._replace(mode=reading.logprobs.tolist().index(max(reading.logprobs)) / 100)
        for one, reading in zip(usual, readings, strict=True)
    ]


def test_of_equally_probable_values_the_lowest_is_the_mode():
    logprobs = np.full(101, -5.0, dtype=np.float32)
    logprobs[[80, 20, 100]] = -1.0
    assert distribution.Reading(logprobs, greedy=100).mode == 0.2


def test_a_run_whose_readout_is_the_mode_has_it_in_its_table(finished, tmp_path, monkeypatch, capsys):
    """Read, gathered, measured and rendered; what was read for another readout is refused."""
    monkeypatch.chdir(shutil.copytree(finished, tmp_path / "run"))
    shard, folder = CELL / "shards" / "confidences-0.jsonl", CELL / "sft"
    gathered = ["gather", "--shards", str(shard), "--readout", "mode", "--out", str(folder / "confidences.jsonl")]
    assert main(gathered) == 2
    assert f"{shard}: its records have no mode" in capsys.readouterr().err
    monkeypatch.setenv("ORCE_SPEED", json.dumps(finished_run.SPEED))
    asked = finished_run.STATED | {"model": finished_run.MODEL, "mode": True}
    finished_run.step("state", asked, prompts=finished_run.TEST, samples=CELL / "samples.jsonl", out=shard)
    assert main(gathered) == 0
    records = files.read_jsonl(folder / "confidences.jsonl")
    assert [one["confidence"] for one in records] == [one["mode"] for one in records]
    assert any(one["mode"] != one["stated"] for one in records)
    finished_run.step(
        "evaluate", finished_run.EVALUATE | {"seed": 1}, confidences=folder / "confidences.jsonl",
        surrogate=CELL / "surrogate.csv", out=folder / "metrics.json", extra=folder / "extra.json",
    )  # fmt: skip
    rows = [["small", "sft", "SFT", False]]
    table = {"kind": "main", "dataset": "arithmetic", "models": ["small"], "methods": ["sft"], "rows": rows}
    options = {"tables": {"one": table}, "models": {"small": {"label": "Small"}}, "order": ["one"]}
    finished_run.step(
        "table", options | {"tasks": {"arithmetic": ARITHMETIC}}, metrics=folder / "metrics.json", out="paper_tables"
    )
    confidence, correct = ([one[key] for one in records] for key in ("mode", "correct"))
    ece = metrics.expected_calibration_error(confidence, correct)
    assert ece != metrics.expected_calibration_error([one["stated"] for one in records], correct)
    table = Path("paper_tables/one.tex").read_text()
    assert f"{ece:.3f}" in table and "read by the most probable of the values 0 to 100 percent" in table


def test_greedy_text_is_what_the_model_would_write(reader):
    tokenizer, model = reader.lm.tokenizer, reader.lm.model
    for messages, reading in zip(PROMPTS, reader.read(PROMPTS), strict=True):
        ids = torch.tensor([prompt_ids(tokenizer, messages)])
        out = model.generate(ids, max_new_tokens=distribution.STATEMENT_TOKENS, do_sample=False)
        assert reading.text == tokenizer.decode(out[0, ids.size(1) :], skip_special_tokens=True)


def test_the_trie_holds_all_values_for_any_tokenizer(reader):
    trie = value_trie(reader.lm.tokenizer)
    texts = [reader.lm.tokenizer.decode([trie.tokens[node] for node in path]) for path in trie.paths]
    assert texts == [f"Confidence: {percent}" for percent in range(101)]


def test_reading_does_not_depend_on_the_batch(reader):
    together = reader.read(PROMPTS)
    for messages, reading in zip(PROMPTS, together, strict=True):
        (alone,) = reader.read([messages])
        assert alone.text == reading.text
        assert np.allclose(alone.logprobs, reading.logprobs, atol=1e-3)


def test_an_unreadable_statement_is_decoded_again_among_the_valid_ones(tiny):
    reader = TransformersReader(language_model.load({"source": {"path": tiny}, "dtype": "float32", "device": "cpu"}))
    records, readings = statements.state(reader, PROMPTS), reader.read(PROMPTS)
    for record, reading in zip(records, readings, strict=True):
        assert record.retried and record.stated == reading.greedy / 100
        assert record.raw == [reading.text, f"Confidence: {reading.greedy}"]


def test_another_readout_reads_no_model(finished, tmp_path, monkeypatch):
    """A stage of one shard writes its output itself; what it read stays, and the model's folder may be gone."""
    monkeypatch.chdir(shutil.copytree(finished, tmp_path / "run"))
    monkeypatch.setenv("ORCE_SPEED", json.dumps(finished_run.SPEED))
    out, asked = CELL / "vanilla" / "confidences.jsonl", finished_run.STATED | {"model": finished_run.MODEL}
    files_read = {"prompts": finished_run.TEST, "samples": CELL / "samples.jsonl", "out": out}

    def read_out(readout: str) -> list[dict]:
        out.unlink(missing_ok=True)  # as Snakemake does before a job
        finished_run.step("state", asked, **files_read, readout=readout)
        records = store.read(out)
        assert [one["confidence"] for one in records] == [one[readout] for one in records]
        assert store.facts(out)["n"] == len(records)
        return records

    stated = read_out("stated")
    monkeypatch.setattr("orce.stages.open_reader", None)
    mean = read_out("mean")
    assert [one | {"confidence": 0} for one in mean] == [one | {"confidence": 0} for one in stated]
    assert mean != stated
