"""What a confidence LLM is shown and how it is read: kappa, the realised answer, the distribution over 101 values, a GPU's arithmetic."""

import gc
import json
import shutil
from importlib import metadata
from pathlib import Path

import finished_run
import numpy as np
import pytest
import torch
from conftest import ARITHMETIC, LINEAR, on_cpu, training_settings
from finished_run import CELL
from safetensors.torch import load_file

from orce import metrics
from orce.__main__ import main
from orce.align.surrogate import Row, read_surrogate, write_surrogate
from orce.artefacts import files, store
from orce.artefacts.records import Greedy, Pair, Sample
from orce.errors import BadInput
from orce.judge.reader import Ends, Reading, TransformersReader
from orce.llm import language_model
from orce.llm.chat import completion_ids, prompt_ids, statement, to_percent
from orce.llm.trie import TokenTrie, node_logprobs, pack, path_logprobs
from orce.reports.screen import rows_so_far
from orce.runtime import process
from orce.stages import surrogate
from orce.training import common, dpo, sft, tokenized_brier


def test_the_garbage_collector_rests_only_until_a_model_is_loaded(model_settings):
    process.pause_collection()
    assert not gc.isenabled()
    language_model.load(model_settings)
    assert gc.isenabled()


@pytest.mark.parametrize("starting", [True, False])
def test_packages_are_hidden_from_transformers_by_a_starting_stage_alone(starting):
    if starting:
        process.pause_collection()
    with process.hide_unused_packages():
        found = metadata.packages_distributions()
    process.resume_collection()
    assert ("yaml" in found) is not starting
    assert "yaml" in metadata.packages_distributions()


def prompt(i):
    return [{"role": "user", "content": f"Is it right?\n\nQuestion: {'what is ' * (i % 3)}{i} + {i}?\nAnswer: {2 * i}"}]


def test_a_constrained_statement_is_the_second_try_without_the_first(model_settings):
    reader = TransformersReader(language_model.load(model_settings))
    usual, constrained = (reader.state([prompt(i) for i in range(3)], constrained=only) for only in (False, True))
    for one, other in zip(usual, constrained, strict=True):
        assert one.raw[1] == other.raw == statement(to_percent(other.stated)) and other.retried
        assert (one.stated, one.mean, one.mass) == (other.stated, other.mean, other.mass)


def test_the_mode_is_the_lowest_of_equally_probable_values():
    logprobs = np.full(101, -5.0, dtype=np.float32)
    logprobs[[80, 20, 100]] = -1.0
    assert Reading(logprobs, greedy=100).mode == 0.2


def made(kind: str, draw: np.random.Generator) -> np.ndarray:
    """log P of the tokens of 101 values."""
    percents, noise = np.arange(101), draw.normal(0, 0.3, 101)
    if kind == "flat":
        scores = noise
    elif kind == "peaked":
        scores = noise - ((percents - draw.integers(101)) / draw.uniform(1, 6)) ** 2 / 2
    else:
        scores = np.log(draw.dirichlet(np.full(101, 0.1)) + 1e-9)
    return scores - np.logaddexp.reduce(scores)


@pytest.mark.parametrize("kind", ["flat", "peaked", "sparse"])
@pytest.mark.parametrize("ends", [(50, 1), (6, 2)])
def test_few_ends_tell_the_mean_and_the_mode_of_flat_and_of_peaked_distributions(kind, ends):
    """Whatever the turn's end after the values that are not fed; ends: a beta distribution of them."""
    draw, fed = np.random.default_rng(0), []
    for _ in range(200):
        begun = made(kind, draw)
        is_leaf = np.arange(101) > 10
        after = np.where(is_leaf, np.log(draw.beta(*ends, 101)), 0)
        few = Ends(begun, is_leaf)
        while leaves := few.to_feed():
            few.add(leaves, after[leaves])
        found, whole = Reading(few.turns(), greedy=0), Reading(begun + after, greedy=0)
        assert whole.mass > 0.5
        assert found.mean == pytest.approx(whole.mean, abs=5e-3) and found.mode == whole.mode
        assert found.mass == pytest.approx(whole.mass, abs=0.1)
        fed.append(int(few.known[is_leaf].sum()))
    # Little is fed where all ends are alike, and most where a flat distribution has ends of all kinds.
    assert 8 <= np.mean(fed) <= (90 if kind == "flat" and ends == (6, 2) else 30)


def test_a_prompt_of_little_mass_is_read_by_sixteen_ends():
    draw = np.random.default_rng(0)
    few = Ends(made("flat", draw) - 5, np.arange(101) > 10)
    while leaves := few.to_feed():
        few.add(leaves, np.log(draw.beta(6, 2, len(leaves))))
    assert few.fed.sum() == 16


@pytest.fixture
def run(finished, tmp_path, monkeypatch):
    """A copy of the finished run, in which the judges read few prompts at once."""
    monkeypatch.chdir(shutil.copytree(finished, tmp_path / "run"))
    monkeypatch.setenv("ORCE_SPEED", json.dumps(finished_run.SPEED))


@pytest.mark.slow
@pytest.mark.parametrize(("readout", "said", "beside"), [
    ("mode", "read by the most probable of the values 0 to 100 percent", "mean"),
    ("mean", "read by the mean of their distribution over 0 to 100 percent", "stated"),
])  # fmt: skip
def test_a_run_has_its_readout_in_its_table_and_another_one_beside_it(run, readout, said, beside, capsys):
    """Read, gathered, measured and rendered; what was read for another readout is refused."""
    shard, folder = CELL / "shards" / "confidences-0.jsonl", CELL / "sft"
    gathered = ["gather", "--shards", str(shard), "--readout", readout, "--out", str(folder / "confidences.jsonl")]
    if readout == "mode":
        assert main(gathered) == 2
        assert f"{shard}: its records have no mode" in capsys.readouterr().err
    asked = finished_run.STATED | {"model": finished_run.MODEL, "mode": readout == "mode"}
    finished_run.step("state", asked, prompts=finished_run.TEST, samples=CELL / "samples.jsonl", out=shard)
    assert main(gathered) == 0
    finished_run.step(
        "evaluate", finished_run.EVALUATE | {"seed": 1}, confidences=folder / "confidences.jsonl",
        surrogate=CELL / "surrogate.csv", out=folder / "metrics.json", extra=folder / "extra.json",
    )  # fmt: skip
    rows = [["small", "sft", "SFT", False]]
    table = {"kind": "main", "dataset": "arithmetic", "models": ["small"], "methods": ["sft"], "rows": rows}
    options = {"tables": {"one": table}, "models": {"small": {"label": "Small"}}, "order": ["one"]}
    options |= {"tasks": {"arithmetic": ARITHMETIC}}
    finished_run.step("table", options, metrics=folder / "metrics.json", out="paper_tables")
    records = files.read_jsonl(folder / "confidences.jsonl")
    correct = [one["correct"] for one in records]
    by_readout = ([one[name] for one in records] for name in (readout, beside))
    ece, other = (metrics.expected_calibration_error(stated, correct) for stated in by_readout)
    text = Path("paper_tables/one.tex").read_text()
    first, second = text.split(f"Small, {beside}")
    assert ece != other and f"{ece:.3f}" in first and f"{other:.3f}" in second and said in text and ", stated" in text
    assert rows_so_far(CELL)[0].endswith(f"test questions; confidence LLMs read by the {readout}")


@pytest.mark.slow
def test_another_readout_reads_no_model(run, monkeypatch):
    """A stage of one shard writes its output itself; what it read stays, and the model's folder may be gone."""
    out, asked = CELL / "vanilla" / "confidences.jsonl", finished_run.STATED | {"model": finished_run.MODEL}
    files_read, read = {"prompts": finished_run.TEST, "samples": CELL / "samples.jsonl"}, []
    for readout in ("stated", "mean"):
        out.unlink(missing_ok=True)  # as Snakemake does before a job
        finished_run.step("state", asked, **files_read, out=out, readout=readout)
        records = store.read(out)
        assert all(one["confidence"] == one[readout] for one in records)
        assert store.manifest_facts(out)["n"] == len(records)
        read.append([one | {"confidence": None} for one in records])
        monkeypatch.setattr("orce.stages.open_reader", None)
    assert read[0] == read[1] and any(one["mean"] != one["stated"] for one in read[0])


def turn(percent):
    return [{"role": "assistant", "content": statement(percent)}]


SFT = [{"prompt": prompt(i), "percent": 11 + 5 * i} for i in range(16)]  # of two digits: equally many tokens
PAIRS = [Pair(id=str(i), prompt=prompt(i), chosen=turn(90 - 5 * i), rejected=turn(12 + 5 * i)) for i in range(16)]
# name of a variant: dtype, recomputation, tokens of a micro-batch
VARIANTS = {"plain": ("float32", False, 4096), "parts": ("float32", True, 100), "gpu": ("bfloat16", True, 100)}


@pytest.fixture(scope="module", params=["sft", "dpo", "conftuner"])
def trained(request, tiny, tmp_path_factory) -> dict:
    """A kind of training in three variants: each one's folder, its losses and weights, and what its first layer did."""
    found = {}
    for name, (dtype, checkpointing, tokens) in VARIANTS.items():
        folder, seen = tmp_path_factory.mktemp(name), {"outputs": set(), "runs": 0}
        start, out = folder / "start", folder / request.param
        settings = training_settings(
            on_cpu(path=tiny) | {"dtype": dtype}, lora={"target_modules": LINEAR},
            training={"checkpointing": checkpointing, "save_steps": 100}, batch_size=8,
        )  # fmt: skip
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ORCE_SPEED", json.dumps({"training": {"micro_batch_tokens": tokens}}))
            patch.setattr(common.Report, "on_train_begin", watching(seen))
            if request.param == "sft":
                sft.train(SFT, settings, out)
            elif request.param == "conftuner":
                examples = [{"prompt": one["prompt"], "correct": one["percent"] > 50} for one in SFT]
                tokenized_brier.train(examples, settings, out)
            else:
                sft.train(SFT, settings | {"stage": settings["stage"] | {"epochs": 0}}, start)
                dpo.train(PAIRS, settings, start, start, out)
        losses = [entry["loss"] for entry in json.loads((out / "training_log.json").read_text())]
        weights = load_file(out / "adapter_model.safetensors")
        found[name] = {"folder": str(out), "losses": losses, "seen": seen, "weights": weights}
    return found


def watching(seen: dict):
    """A callback that notes the types of the first layer's weights and outputs, and how often it runs."""

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        layer = next(module for name, module in model.named_modules() if name.endswith("layers.0"))
        projection = layer.self_attn.q_proj
        seen["base"], seen["adapter"] = projection.base_layer.weight.dtype, projection.lora_A["default"].weight.dtype
        layer.register_forward_pre_hook(lambda *_: seen.update(runs=seen["runs"] + 1))
        projection.register_forward_hook(lambda *call: seen["outputs"].add(call[-1].dtype))

    return on_train_begin


@pytest.mark.slow
def test_a_training_in_bfloat16_or_in_recomputed_parts_has_the_losses_of_a_plain_one(trained):
    plain, parts, gpu = (trained[name] for name in VARIANTS)
    assert plain["seen"] == {"outputs": {torch.float32}, "runs": 4, "base": torch.float32, "adapter": torch.float32}
    runs = gpu["seen"].pop("runs")
    assert gpu["seen"] == {"outputs": {torch.bfloat16}, "base": torch.bfloat16, "adapter": torch.float32}
    assert runs >= 16  # two epochs of two steps of two micro-batches or more, each forward and once more backward
    assert gpu["losses"] == pytest.approx(plain["losses"], rel=0.02)
    assert parts["losses"] == pytest.approx(plain["losses"], rel=1e-4)
    for name, weight in plain["weights"].items():
        assert gpu["weights"][name].dtype == torch.float32
        assert (weight - parts["weights"][name]).norm() < 1e-2 * weight.norm()


@pytest.mark.slow
def test_what_is_read_is_what_the_policy_says(trained, tiny):
    """The policy as a training computes it: the adapter apart, under autocast."""
    settings, folder = on_cpu(path=tiny) | {"dtype": "bfloat16"}, trained["gpu"]["folder"]
    prompts = [one["prompt"] for one in SFT]
    judge, policy = (language_model.load(settings, folder, trainable=one) for one in (False, True))
    assert judge.model.dtype == torch.bfloat16
    read = torch.tensor([one.logprobs.tolist() for one in TransformersReader(judge).read(prompts, state_text=False)])
    trie = TokenTrie.of([completion_ids(policy.tokenizer, statement(percent)) for percent in range(101)])
    ids = [prompt_ids(policy.tokenizer, one, policy.template_kwargs) for one in prompts]
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        packed = pack(ids, [trie] * len(ids))
        said = path_logprobs(node_logprobs(policy.model, packed), packed)
    likeliest = said.topk(10).indices  # the end of a turn is computed after the likeliest values
    assert (read - said).gather(1, likeliest).abs().max() < 0.3, "log-probabilities"
    means = [one.softmax(-1) @ torch.arange(101.0) for one in (read, said)]
    assert (means[0] - means[1]).abs().max() < 1.0, "percent"


def test_a_training_prompt_draws_an_answer_by_its_id_and_a_test_prompt_has_the_greedy_one():
    greedy = Greedy(answer="Z", raw="Z", correct=False, f1=None)
    samples = {"answers": [*"ABCA"], "raw": [*"ABCA"], "correct": [True, False, True, True], "greedy": greedy}

    def answers(split: str) -> list[str]:
        asked = (Sample(id=f"q{i}", split=split, **samples) for i in range(3000))
        return [surrogate.surrogate_row(one, 1).answer for one in asked]

    drawn = answers("sft")
    assert {*drawn} == {*"AC"} and drawn.count("A") == pytest.approx(2000, abs=110)
    assert drawn == answers("sft")
    assert {*answers("validation"), *answers("test")} == {"Z"}


def test_the_table_is_read_as_it_was_written_and_a_broken_one_named_by_line(tmp_path):
    path, row = tmp_path / "surrogate.csv", {"split": "rl", "n_correct": 1, "n_samples": 3, "answer_correct": 0}
    texts = {"007": 'a "b",\nc', "7": "", "x": "NA"}
    rows = [Row(id=name, answer=text, kappa=0.1 + 0.2, **row) for name, text in texts.items()]
    with path.open("w", newline="") as handle:
        write_surrogate(handle, rows)
    assert read_surrogate(path) == rows
    head = "id,split,n_correct,n_samples,kappa,answer,answer_correct\n"
    path.write_text(f"{head}7,rl,1,3,0.3,a,1\n8,rl,1,3,much,a,1\n")
    with pytest.raises(BadInput, match="surrogate.csv, line 3: .*float.*kappa.*; make it again"):
        read_surrogate(path)
