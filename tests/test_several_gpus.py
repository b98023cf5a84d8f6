"""Several GPUs: every program beside the workflow takes one; trainings of several processes, which gloo
does on the CPU."""

import contextlib
import json
import os
import subprocess
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
import two_processes
from accelerate import dispatch_model
from conftest import ROOT, training_settings
from safetensors.torch import load_file
from tools.gpu_check import Ended, apart

import orce
from orce.__main__ import main
from orce.errors import BadInput
from orce.judge.reader import TransformersReader
from orce.llm import language_model
from orce.llm.chat import statement
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
    target = "results/mmlu/llama3-8b/sft/manifest.json"
    files = ["--snakefile", ROOT / "Snakefile", "--configfile", ROOT / "config.yaml", tmp_path / "two.yaml"]
    code, said = dry_run.snakemake(tmp_path, *files, "--cores", "1", "-p", "--", target)
    assert code == 0, said
    assert "lease 2/2 -- python -m torch.distributed.run --standalone --nproc-per-node 2 -m orce sft" in said


@pytest.mark.parametrize("variable", ["ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED"])
def test_shared_weights_are_refused(model_settings, monkeypatch, variable):
    """They would save one process's part of the weights."""
    monkeypatch.setenv(variable, "true")
    with pytest.raises(BadInput, match=f"{variable} is set: .*; unset it"):
        common.trainable(parse_training_job(training_settings(model_settings)), None)


def turn(percent):
    return [{"role": "assistant", "content": statement(percent)}]


@pytest.fixture(scope="module")
def runs(tiny, tmp_path_factory):
    """Folder with every kind of training, in one process and in two that share each batch."""
    folder = tmp_path_factory.mktemp("runs")
    prompts = [[{"role": "user", "content": f"Is {i} + {i} {2 * i}?"}] for i in range(16)]
    model = {"source": {"path": tiny}, "dtype": "float32", "device": "cpu", "template_kwargs": {}}
    settings = training_settings(model, {"last_layers": 1}, {"checkpointing": True, "save_steps": 100}, batch_size=8)
    task = {
        "examples": [{"prompt": prompt, "percent": 12 + 5 * i} for i, prompt in enumerate(prompts)],
        "pairs": [
            {"id": str(i), "prompt": one, "chosen": turn(90 - 5 * i), "rejected": turn(11 + i)}
            for i, one in enumerate(prompts)
        ],
    }
    (folder / "one").mkdir(), (folder / "two").mkdir()
    with open(folder / "one" / "said.txt", "w") as said, contextlib.redirect_stderr(said):
        two_processes.main(task | {"settings": settings}, folder / "one")
    (folder / "task.json").write_text(json.dumps(task | {"settings": settings}))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = [str(ROOT / "tests" / "two_processes.py"), str(folder / "task.json"), str(folder / "two")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    environment |= {"ORCE_SPEED": json.dumps({"training": {"micro_batch_tokens": 60}})}  # of several parts a step
    with open(folder / "two" / "said.txt", "w") as said:
        subprocess.run([*launch, *script], check=True, env=environment, stderr=said)
    return folder


@pytest.mark.slow
def test_a_killed_training_of_two_processes_resumes_from_its_last_checkpoint(runs):
    for run in ("one", "two"):
        assert "checkpoint-2" in (runs / run / "said.txt").read_text()
        straight, again = (load_file(runs / run / name / "adapter_model.safetensors") for name in ("sft", "again"))
        assert all(torch.equal(straight[name], again[name]) for name in straight)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["sft", "dpo", "conftuner", "full", "again"])
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
    source = json.loads((runs / "two" / which / "manifest.json").read_text())["settings"]["model"]
    lm = language_model.load(source, str(runs / "two" / which))
    assert all(torch.isfinite(weight).all() for weight in lm.model.parameters())


JUDGE = "results/worldfacts/smollm2/dpo"
QUESTION = "What is the capital of Qatar?"
DOORS = {
    "measure": lambda tiny: main(["measure", "asked.jsonl", "--judge", JUDGE, "--out", "out.jsonl"]),
    "orce.judge.judge": lambda tiny: orce.load_judge(JUDGE),
    "orce.confidence": lambda tiny: orce.confidence(tiny, [QUESTION]),
    "orce.confidence, vllm": lambda tiny: orce.confidence(tiny, [QUESTION], engine="vllm"),
}


class Loading(Exception):
    """A model was about to be loaded."""


def on_four_gpus(door, tiny, folder, **started) -> None:
    """Call a door in a process that has four GPUs as far as torch's counts go; `seen` gets what each model would get.

    started: of torch.cuda, where CUDA is in use already.
    """

    whole = transformers.AutoModelForCausalLM.from_pretrained

    def load(*arguments, device_map=None, tensor_parallel_size=1, **more):
        if device_map == "meta":  # a check of its names, which reads no weights
            return whole(*arguments, device_map=device_map, **more)
        with open(folder / "seen", "a") as seen:
            devices = os.environ["CUDA_VISIBLE_DEVICES"]
            print(devices, torch.cuda.device_count(), device_map, tensor_parallel_size, file=seen)
        raise Loading

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
        contextlib.suppress(Loading, SystemExit),
    ):
        door(tiny)


@pytest.fixture(scope="module")
def place(tiny, tmp_path_factory):
    """A folder with the demo's judge, and a configuration of the tiny model."""
    folder = finished_run.demo(tmp_path_factory.mktemp("doors"), tiny)
    (folder / "config.yaml").write_text((ROOT / "config.yaml").read_text())
    model = f"models: {{llama3-8b: {{source: {{path: {tiny}, hub: null, revision: null}}}}}}"
    (folder / "over.yaml").write_text(f"{model}\ntables: {{mmlu: {{models: [llama3-8b]}}}}\npaper_tables: [mmlu]\n")
    (folder / "asked.jsonl").write_text(json.dumps({"question": QUESTION, "answer": "Doha"}) + "\n")
    return folder


def got(door, tiny, place, **started) -> set[str]:
    """What the models of a door would get."""
    (place / "seen").unlink(missing_ok=True)
    apart(lambda: on_four_gpus(door, tiny, place, **started))
    return set((place / "seen").read_text().splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("name", DOORS)
def test_a_program_beside_the_workflow_takes_one_gpu_of_four(name, tiny, place):
    assert got(DOORS[name], tiny, place) == {"0 1 None 1"}


@pytest.mark.slow
def test_a_device_that_is_named_is_kept(tiny, place):
    """`cuda` is all of them, over which a model is spread that one GPU cannot hold."""
    assert got(lambda tiny: orce.load_judge(JUDGE, device="cuda"), tiny, place) == {"0,1,2,3 4 balanced 1"}


def in_use(gpu: int) -> dict:
    return {"is_initialized": lambda: True, "current_device": lambda: gpu}


@pytest.mark.slow
def test_vllm_takes_the_one_gpu_that_the_program_uses_already_or_refuses(tiny, place):
    """Its devices are fixed then: a lease would change nothing, and vllm would take all four."""
    door = DOORS["orce.confidence, vllm"]
    assert got(door, tiny, place, **in_use(0)) == {"0,1,2,3 4 None 1"}
    with pytest.raises(Ended, match="takes the first visible GPU, not cuda:2; set CUDA_VISIBLE_DEVICES"):
        got(door, tiny, place, **in_use(2))
