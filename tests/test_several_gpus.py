"""Several GPUs: every program beside the workflow takes one; trainings of several processes, which gloo does on the CPU."""

import contextlib
import json
import os
import sys
import tempfile
import types
from importlib.machinery import ModuleSpec
from unittest import mock

import dry_run
import finished_run
import pytest
import torch
import transformers
from accelerate import dispatch_model
from conftest import ROOT, on_cpu, program, training_settings
from safetensors.torch import load_file
from test_training import equal_weights, turn
from tools.gpu_check import Ended, apart

import orce
from orce.__main__ import main
from orce.errors import BadInput
from orce.judge.reader import TransformersReader
from orce.llm import language_model
from orce.settings.stage import parse_training_job
from orce.training import common


@pytest.mark.slow
def test_each_process_loads_onto_the_gpu_of_its_own_rank(model_settings, monkeypatch):
    placed = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(transformers.PreTrainedModel, "to", lambda self, device: placed.append(str(device)))
    for rank in (None, "0", "3"):
        if rank is not None:
            monkeypatch.setenv("LOCAL_RANK", rank)
        language_model.load(model_settings | {"device": "cuda"})
        language_model.load(model_settings | {"device": "cpu"})
    assert placed == ["cuda", "cpu", "cuda:0", "cpu", "cuda:3", "cpu"]


@pytest.mark.slow
def test_a_model_spread_over_devices_reads_as_one_on_a_single_device(model_settings):
    """Through accelerate's hooks, which move what a layer gets; here every layer is on the CPU, and nothing is moved."""
    lm = language_model.load(model_settings)
    prompts = [[{"role": "user", "content": f"Is {i} + {i} {2 * i}?"}] for i in range(6)]
    expected = TransformersReader(lm, batch_tokens=200).read(prompts)
    parts = ("embed_tokens", "rotary_emb", "layers.0", "layers.1", "norm")
    dispatch_model(lm.model, {f"model.{part}": "cpu" for part in parts} | {"lm_head": "cpu"}, force_hooks=True)
    assert lm.model.model.layers[1]._hf_hook.execution_device == "cpu"
    found = TransformersReader(lm, batch_tokens=200).read(prompts)
    assert [one.text for one in found] == [one.text for one in expected]
    assert all((one.logprobs == other.logprobs).all() for one, other in zip(found, expected, strict=True))


@pytest.mark.slow
def test_the_workflow_starts_as_many_processes_as_gpus(tmp_path):
    (tmp_path / "two.yaml").write_text("training: {gpus: 2}")
    files = ["--snakefile", ROOT / "Snakefile", "--configfile", ROOT / "config.yaml", tmp_path / "two.yaml"]
    words = (*files, "--cores", "1", "-p", "--", "results/mmlu/llama3-8b/sft/manifest.json")
    code, said = dry_run.snakemake(tmp_path, *words)
    assert code == 0, said
    assert "lease 2/2 -- python -m torch.distributed.run --standalone --nproc-per-node 2 -m orce sft" in said


@pytest.mark.parametrize("variable", ["ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED"])
def test_shared_weights_are_refused(model_settings, monkeypatch, variable):
    """They would save one process's part of the weights."""
    monkeypatch.setenv(variable, "true")
    with pytest.raises(BadInput, match=f"{variable} is set: .*; unset it"):
        common.trainable(parse_training_job(training_settings(model_settings)), None)


@pytest.fixture(scope="module")
def runs(tiny, tmp_path_factory):
    """Folder with every kind of training, in one process and in two that share each batch."""
    folder = tmp_path_factory.mktemp("runs")
    more = {"batch_size": 8, "rank_weight": 1.0, "answers": 8}
    how = {"checkpointing": True, "save_steps": 100}
    settings = training_settings(on_cpu(path=tiny), {"last_layers": 1}, how, **more)
    examples, pairs = [], []
    for i in range(16):
        percent = 29 * i % 101  # of one digit or two: rows differ in their tokens
        asked = {"prompt": [{"role": "user", "content": f"Is {i} + {i} {2 * i}?"}]}
        examples.append(asked | {"percent": percent, "kappa": percent / 100, "correct": percent > 50})
        pairs.append(asked | {"id": str(i), "chosen": turn(90 - 5 * i), "rejected": turn(11 + i)})
    (folder / "task.json").write_text(json.dumps([examples, pairs, settings]))
    two = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    for name, launch, tokens in (("one", [], 4096), ("two", two, 60)):  # several parts a step
        speed = json.dumps({"training": {"micro_batch_tokens": tokens}})
        script = [ROOT / "tests" / "two_processes.py", folder / "task.json", folder / name]
        done = program(sys.executable, *launch, *script, check=True, ORCE_SPEED=speed)
        (folder / f"{name}.txt").write_text(done.stderr)
    return folder


@pytest.mark.slow
def test_a_killed_training_of_two_processes_resumes_from_its_last_checkpoint(runs):
    assert "checkpoint-2" in (runs / "two.txt").read_text()
    assert equal_weights(runs / "two" / "sft", runs / "two" / "again")


@pytest.mark.slow
@pytest.mark.parametrize("which", ["sft", "dpo", "conftuner", "ordered", "full", "trl"])
def test_two_processes_train_as_one(runs, which):
    logs = [json.loads((runs / name / which / "training_log.json").read_text()) for name in ("one", "two")]
    assert [entry["loss"] for entry in logs[1]] == pytest.approx([entry["loss"] for entry in logs[0]], rel=1e-4)
    for name in ("rewards/accuracies", "rewards/margins") if which == "dpo" else ():
        shown = [[entry[name] for entry in log] for log in logs]
        assert shown[1] == pytest.approx(shown[0], rel=1e-3, abs=1e-6), f"{name} of the pairs of both processes"
    name = "model.safetensors" if which == "full" else "adapter_model.safetensors"
    one, two = (load_file(runs / run / which / name) for run in ("one", "two"))
    assert one.keys() == two.keys()
    for key, weight in one.items():
        assert (weight - two[key]).norm() <= 1e-3 * weight.norm(), key


JUDGE = "results/worldfacts/smollm2/dpo"
QUESTION = "What is the capital of Qatar?"


def on_four_gpus(door, tiny, folder, **started) -> set[str]:
    """What each model would get that a door loads in a process that has four GPUs as far as torch's counts go.

    started: of torch.cuda, where CUDA is in use already.
    """
    whole, seen = transformers.AutoModelForCausalLM.from_pretrained, set()

    def load(*arguments, device_map=None, tensor_parallel_size=1, **more):
        if device_map == "meta":  # a check of its names, which reads no weights
            return whole(*arguments, device_map=device_map, **more)
        visible = os.environ["CUDA_VISIBLE_DEVICES"]
        seen.add(f"{visible} {torch.cuda.device_count()} {device_map} {tensor_parallel_size}")
        raise SystemExit

    environment = {"CUDA_VISIBLE_DEVICES": "0,1,2,3", "ORCE_SPEED": "{}"}
    gpu = types.SimpleNamespace(name="a GPU", total_memory=80e9, major=9, minor=0)
    cuda = {"is_available": lambda: True, "get_device_properties": lambda device: gpu}
    cuda["device_count"] = lambda: len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))
    os.chdir(folder)
    tempfile.tempdir = str(folder)  # the leases are this test's own
    with (
        mock.patch.dict(os.environ, environment),
        mock.patch.multiple(torch.cuda, **cuda, **started),
        mock.patch.object(transformers.AutoModelForCausalLM, "from_pretrained", load),
        mock.patch.dict(sys.modules, {"vllm": types.SimpleNamespace(LLM=load, __spec__=ModuleSpec("vllm", None))}),
        contextlib.suppress(SystemExit),
    ):
        door(tiny)
    return seen


@pytest.fixture(scope="module")
def place(tiny, tmp_path_factory):
    """A folder with the demo's judge."""
    folder = finished_run.demo(tmp_path_factory.mktemp("doors"), tiny)
    (folder / "asked.jsonl").write_text(json.dumps({"question": QUESTION, "answer": "Doha"}) + "\n")
    return folder


def in_use(gpu: int) -> dict:
    return {"is_initialized": lambda: True, "current_device": lambda: gpu}


def by_vllm(tiny):
    return orce.confidence(tiny, [QUESTION], engine="vllm")


# Doors, what is started before, and what each model would get: devices, their number, device_map, tensor_parallel_size.
DOORS = {
    "measure": (lambda tiny: main(["measure", "asked.jsonl", "--judge", JUDGE, "--out", "out.jsonl"]), {}, "0 1 None 1"),
    "load_judge": (lambda tiny: orce.load_judge(JUDGE), {}, "0 1 None 1"),
    "confidence": (lambda tiny: orce.confidence(tiny, [QUESTION]), {}, "0 1 None 1"),
    "vllm": (by_vllm, {}, "0 1 None 1"),
    # A model that one GPU cannot hold is spread over all of them.
    "cuda": (lambda tiny: orce.load_judge(JUDGE, device="cuda"), {}, "0,1,2,3 4 balanced 1"),
    # The devices are fixed then: a lease would change nothing.
    "vllm in use": (by_vllm, in_use(0), "0,1,2,3 4 None 1"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", DOORS)
def test_a_program_beside_the_workflow_takes_one_gpu_of_four_unless_another_is_named_or_in_use(name, tiny, place):
    door, started, expected = DOORS[name]
    assert apart(lambda: on_four_gpus(door, tiny, place, **started)) == {expected}


@pytest.mark.slow
def test_vllm_refuses_where_the_program_uses_another_gpu_than_the_one_that_it_would_take(tiny, place):
    with pytest.raises(Ended, match="takes the first visible GPU, not cuda:2; set CUDA_VISIBLE_DEVICES"):
        apart(lambda: on_four_gpus(by_vllm, tiny, place, **in_use(2)))
