"""What a confidence LLM is shown and how it is read: kappa, the realised answer, the distribution over 101 values, a GPU's arithmetic."""

import gc
import json
import shutil
from collections import Counter
from importlib import metadata
from pathlib import Path

import finished_run
import numpy as np
import pytest
import torch
from conftest import ARITHMETIC, LINEAR, training_settings
from finished_run import CELL
from safetensors.torch import load_file

from orce import metrics
from orce.__main__ import main
from orce.align.surrogate import Row, kappa, read_surrogate, realised_answer, write_surrogate
from orce.artefacts import files, store
from orce.artefacts.records import Greedy, Pair, Sample
from orce.errors import BadInput
from orce.judge import reader as judging
from orce.judge.reader import Ends, Reading, TransformersReader
from orce.llm import language_model
from orce.llm.chat import completion_ids, prompt_ids, statement, to_percent
from orce.llm.trie import TokenTrie, node_logprobs, pack, path_logprobs
from orce.reports.screen import rows_so_far
from orce.runtime import process
from orce.stages import surrogate
from orce.training import common, dpo, sft, tokenized_brier


@pytest.fixture(scope="module")
def reader(smollm2):
    settings = {"source": {"path": smollm2}, "dtype": "float32", "device": "cpu"}
    return TransformersReader(language_model.load(settings), batch_tokens=256)


PROMPTS = [
    [{"role": "user", "content": f"Reply only with a line such as 'Confidence: 80'. Is {text} right?"}]
    for text in ("2 + 2 = 4", "the capital of France, Paris,", "blue")
]


@pytest.mark.slow
def test_the_garbage_collector_rests_only_until_a_model_is_loaded(smollm2):
    process.pause_collection()
    assert not gc.isenabled()
    language_model.load({"source": {"path": smollm2}, "dtype": "float32", "device": "cpu"})
    assert gc.isenabled()


@pytest.mark.parametrize("starting", [True, False])
def test_packages_are_hidden_from_transformers_by_a_starting_stage_alone(monkeypatch, starting):
    monkeypatch.setattr(process, "_starting", starting)
    with process.hide_unused_packages():
        assert ("yaml" in metadata.packages_distributions()) is not starting
    assert "yaml" in metadata.packages_distributions()


@pytest.mark.slow
def test_a_constrained_statement_is_the_second_try_without_the_first(reader):
    usual, constrained = (reader.state(PROMPTS, constrained=only) for only in (False, True))
    for one, other in zip(usual, constrained, strict=True):
        assert other.raw == statement(to_percent(other.stated)) and other.retried
        assert (one.mean, one.mass) == (other.mean, other.mass)
        if one.retried:
            assert one.raw[1] == other.raw and one.stated == other.stated
    assert any(one.retried for one in usual)


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


@pytest.mark.slow
def test_a_prompt_of_little_mass_is_read_by_few_ends_and_states_the_same(reader, monkeypatch):
    fed = []

    def counted(self):
        fed.append(int((self.known & self.is_leaf).sum()))
        return turns(self)

    turns = Ends.turns
    monkeypatch.setattr(Ends, "turns", counted)
    few = reader.read(PROMPTS)
    assert max(fed) == 16 and max(one.mass for one in few) < 0.5
    monkeypatch.setattr(judging, "FIRST", 101)
    for one, whole in zip(few, reader.read(PROMPTS), strict=True):
        assert (one.text, one.greedy, one.mode) == (whole.text, whole.greedy, whole.mode)
        assert one.mean == pytest.approx(whole.mean, abs=0.05)
    assert max(fed) > 80


@pytest.mark.slow
@pytest.mark.parametrize(
    ("readout", "said", "beside"),
    [
        ("mode", "read by the most probable of the values 0 to 100 percent", "mean"),
        ("mean", "read by the mean of their distribution over 0 to 100 percent", "stated"),
    ],
)
def test_a_run_has_its_readout_in_its_table_and_another_one_beside_it(
    readout, said, beside, finished, tmp_path, monkeypatch, capsys
):
    """Read, gathered, measured and rendered; what was read for another readout is refused."""
    monkeypatch.chdir(shutil.copytree(finished, tmp_path / "run"))
    shard, folder = CELL / "shards" / "confidences-0.jsonl", CELL / "sft"
    gathered = ["gather", "--shards", str(shard), "--readout", readout, "--out", str(folder / "confidences.jsonl")]
    if readout == "mode":
        assert main(gathered) == 2
        assert f"{shard}: its records have no mode" in capsys.readouterr().err
    monkeypatch.setenv("ORCE_SPEED", json.dumps(finished_run.SPEED))
    asked = finished_run.STATED | {"model": finished_run.MODEL, "mode": readout == "mode"}
    finished_run.step("state", asked, prompts=finished_run.TEST, samples=CELL / "samples.jsonl", out=shard)
    assert main(gathered) == 0
    records = files.read_jsonl(folder / "confidences.jsonl")
    assert [one["confidence"] for one in records] == [one[readout] for one in records]
    assert any(one[readout] != one["stated"] for one in records)
    finished_run.step(
        "evaluate", finished_run.EVALUATE | {"seed": 1}, confidences=folder / "confidences.jsonl",
        surrogate=CELL / "surrogate.csv", out=folder / "metrics.json", extra=folder / "extra.json",
    )  # fmt: skip
    rows = [["small", "sft", "SFT", False]]
    table = {"kind": "main", "dataset": "arithmetic", "models": ["small"], "methods": ["sft"], "rows": rows}
    options = {"tables": {"one": table}, "models": {"small": {"label": "Small"}}, "order": ["one"]}
    options |= {"tasks": {"arithmetic": ARITHMETIC}}
    finished_run.step("table", options, metrics=folder / "metrics.json", out="paper_tables")
    correct = [one["correct"] for one in records]
    ece, other = (
        metrics.expected_calibration_error([one[name] for one in records], correct) for name in (readout, beside)
    )
    assert ece != other
    table = Path("paper_tables/one.tex").read_text()
    below = table.index(f"Small, {beside}")
    assert table.index(f"{ece:.3f}") < below < table.index(f"{other:.3f}", below) and said in table
    title = rows_so_far(CELL)[0]
    assert title.endswith(f"test questions; confidence LLMs read by the {readout}")


@pytest.mark.slow
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
        assert store.manifest_facts(out)["n"] == len(records)
        return records

    stated = read_out("stated")
    monkeypatch.setattr("orce.stages.open_reader", None)
    mean = read_out("mean")
    assert [one | {"confidence": 0} for one in mean] == [one | {"confidence": 0} for one in stated]
    assert mean != stated


TRAININGS = ("sft", "dpo", "conftuner")
LOSS, READ, STATED = 0.02, 0.3, 1.0  # of the losses; log-probabilities; percent


def prompt(i):
    return [{"role": "user", "content": f"Is it right?\n\nQuestion: {'what is ' * (i % 3)}{i} + {i}?\nAnswer: {2 * i}"}]


def turn(percent):
    return [{"role": "assistant", "content": statement(percent)}]


SFT = [{"prompt": prompt(i), "percent": 11 + 5 * i} for i in range(16)]  # of two digits: equally many tokens
PAIRS = [Pair(id=str(i), prompt=prompt(i), chosen=turn(90 - 5 * i), rejected=turn(12 + 5 * i)) for i in range(16)]


def train(which: str, settings: dict, folder) -> list[float]:
    """The losses of a training, step by step; the adapter is left in folder / which."""
    out = folder / which
    if which == "sft":
        sft.train(SFT, settings, out)
    elif which == "conftuner":
        examples = [{"prompt": one["prompt"], "correct": one["percent"] > 50} for one in SFT]
        tokenized_brier.train(examples, settings, out)
    else:
        none = settings | {"stage": settings["stage"] | {"epochs": 0}}
        sft.train(SFT, none, folder / "start")
        dpo.train(PAIRS, settings, folder / "start", folder / "start", out)
    return [entry["loss"] for entry in json.loads((out / "training_log.json").read_text())]


# name of a variant: dtype, recomputation, tokens of a micro-batch
VARIANTS = {"plain": ("float32", False, 4096), "parts": ("float32", True, 100), "gpu": ("bfloat16", True, 100)}


@pytest.fixture(scope="module")
def tiny_model(tiny) -> dict:
    return {"source": {"path": tiny}, "device": "cpu", "template_kwargs": {}}


@pytest.fixture(scope="module", params=TRAININGS)
def trained(request, tiny_model, tmp_path_factory) -> dict:
    """A kind of training in three variants: each one's folder, its losses, and what its first layer did."""
    found = {}
    for name, (*variant, tokens) in VARIANTS.items():
        folder, seen = tmp_path_factory.mktemp(name), {"outputs": set(), "runs": 0}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ORCE_SPEED", json.dumps({"training": {"micro_batch_tokens": tokens}}))
            patch.setattr(common.Report, "on_train_begin", watching(seen))
            settings = training_settings(
                tiny_model | {"dtype": variant[0]}, lora={"target_modules": LINEAR},
                training={"checkpointing": variant[1], "save_steps": 100}, batch_size=8,
            )  # fmt: skip
            losses = train(request.param, settings, folder)
        found[name] = {"folder": folder / request.param, "losses": losses, "seen": seen}
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


def weights(one: dict) -> dict:
    return load_file(one["folder"] / "adapter_model.safetensors")


@pytest.mark.slow
def test_a_training_in_bfloat16_has_the_losses_of_float32(trained):
    plain, gpu = trained["plain"], trained["gpu"]
    assert plain["seen"] == {"outputs": {torch.float32}, "runs": 4, "base": torch.float32, "adapter": torch.float32}
    runs = gpu["seen"].pop("runs")
    assert gpu["seen"] == {"outputs": {torch.bfloat16}, "base": torch.bfloat16, "adapter": torch.float32}
    assert runs >= 16  # two epochs of two steps of two micro-batches or more, each forward and once more backward
    assert gpu["losses"] == pytest.approx(plain["losses"], rel=LOSS)
    assert {weight.dtype for weight in weights(gpu).values()} == {torch.float32}


@pytest.mark.slow
def test_micro_batches_and_recomputation_change_no_step(trained):
    assert trained["parts"]["losses"] == pytest.approx(trained["plain"]["losses"], rel=1e-4)
    parts = weights(trained["parts"])
    for name, weight in weights(trained["plain"]).items():
        assert (weight - parts[name]).norm() < 1e-2 * weight.norm()


@torch.no_grad()
def policy_values(lm, prompts) -> torch.Tensor:
    """log P of the 101 values as a training computes them: the adapter apart, under autocast."""
    trie = TokenTrie.of([completion_ids(lm.tokenizer, statement(percent)) for percent in range(101)])
    ids = [prompt_ids(lm.tokenizer, one, lm.template_kwargs) for one in prompts]
    with torch.autocast("cpu", torch.bfloat16):
        packed = pack(ids, [trie] * len(ids))
        return path_logprobs(node_logprobs(lm.model, packed), packed)


@pytest.mark.slow
def test_what_is_read_is_what_the_policy_says(trained, tiny_model):
    settings, folder = tiny_model | {"dtype": "bfloat16"}, str(trained["gpu"]["folder"])
    prompts = [one["prompt"] for one in SFT]
    judge = language_model.load(settings, folder)
    assert judge.model.dtype == torch.bfloat16
    read = torch.tensor([one.logprobs.tolist() for one in TransformersReader(judge).read(prompts, state_text=False)])
    said = policy_values(language_model.load(settings, folder, trainable=True), prompts)
    likeliest = said.topk(10).indices  # the end of a turn is computed after the likeliest values
    assert (read - said).gather(1, likeliest).abs().max() < READ
    means = [one.softmax(-1) @ torch.arange(101.0) for one in (read, said)]
    assert (means[0] - means[1]).abs().max() < STATED


def test_kappa_is_the_share_of_right_samples():
    assert [kappa([1] * k + [0] * (10 - k)) for k in range(11)] == [k / 10 for k in range(11)]
    with pytest.raises(ValueError, match="no kappa"):
        kappa([])
    with pytest.raises(ValueError, match="0 or 1"):
        kappa([1, None])


def test_the_realised_answer_is_drawn_evenly_and_right_at_one_half():
    rng = np.random.default_rng(0)
    assert realised_answer(["A", "B"], [False, True], rng) == ("B", True)
    drawn = Counter(realised_answer(["A", "B", "C", "A"], [1, 0, 1, 1], rng)[0] for _ in range(3000))
    assert set(drawn) == {"A", "C"} and drawn["A"] == pytest.approx(2000, abs=110)
    with pytest.raises(ValueError, match="2 answers but 1"):
        realised_answer(["A", "B"], [1], rng)


def test_each_training_prompt_draws_its_realised_answer_by_its_id_and_a_test_prompt_has_its_greedy_one():
    greedy = Greedy(answer="Z", raw="Z", correct=False, f1=None)
    samples = {"answers": [*"ABCDEFGH"], "raw": [*"ABCDEFGH"], "correct": [True, False] * 4, "greedy": greedy}

    def row(split: str, name: str):
        return surrogate.surrogate_row(Sample(id=name, split=split, **samples), 1)

    drawn = [row("sft", f"q{i}").answer for i in range(40)]
    assert {*drawn} == {*"ACEG"} and drawn == [row("sft", f"q{i}").answer for i in range(40)]
    assert {row(split, "q").answer for split in ("validation", "test")} == {"Z"}


ROW = {
    "id": "7", "split": "rl", "n_correct": 1, "n_samples": 3, "kappa": 1 / 3, "answer": 'a "b",\nc', "answer_correct": 0,
}  # fmt: skip


def test_the_table_is_read_as_it_was_written_and_a_broken_one_named_by_line(tmp_path):
    others = [{"id": "007", "answer": ""}, {"id": "x", "answer": "NA", "kappa": 0.1 + 0.2}]
    rows = [Row(**ROW | changed) for changed in [{}, *others]]
    with open(tmp_path / "surrogate.csv", "w", newline="") as handle:
        write_surrogate(handle, rows)
    assert read_surrogate(tmp_path / "surrogate.csv") == rows
    path = tmp_path / "surrogate.csv"
    path.write_text(f"{','.join(ROW)}\n7,rl,1,3,0.3,a,1\n8,rl,1,3,much,a,1\n")
    with pytest.raises(BadInput, match="surrogate.csv, line 3: .*float.*kappa.*; make it again"):
        read_surrogate(path)
    path.write_text(f"{','.join(ROW)}\n7,rl,1,3\n")
    with pytest.raises(BadInput, match="line 2: .*missing required field `kappa`"):
        read_surrogate(path)
