"""kill -9 at any moment, then the same command again: the same tables, without cleaning up, and little work done twice.

`python -m pytest tests/test_kills.py --kills 25 -s` kills more often than `make test` does.
"""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
import torch
import yaml
from conftest import ROOT
from transformers import AutoModelForCausalLM, AutoTokenizer

pytestmark = pytest.mark.slow

COMMAND = [str(Path(sys.executable).with_name("snakemake")), "--snakefile", str(ROOT / "Snakefile"), "--cores", "2"]
COMMAND += ["--configfile", "small.yaml", "--", "paper_tables"]


def letter_model(tiny, folder) -> str:
    """The tiny model, changed so that it answers with a letter, and not always the same one."""
    model, tokenizer = AutoModelForCausalLM.from_pretrained(tiny), AutoTokenizer.from_pretrained(tiny)
    letters = [tokenizer.encode(letter)[0] for letter in "ABCD"]
    model.config.tie_word_embeddings = False
    torch.manual_seed(0)
    with torch.no_grad():
        # Dimension 0 is the same large number in every state, and speaks for the letters alone.
        model.model.embed_tokens.weight[:, 0] = 10
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight[0] = layer.mlp.down_proj.weight[0] = 0
        head = 0.4 * torch.randn(len(tokenizer), model.config.hidden_size)
        head[:, 0] = 0
        head[letters, 0] = 4
    model.lm_head.weight = torch.nn.Parameter(head)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def write_config(folder, model):
    """All seven methods on one dataset, and several chunks and checkpoints in every step."""
    config = yaml.safe_load((ROOT / "config.yaml").read_text())
    demo = yaml.safe_load((ROOT / "config" / "demo.yaml").read_text())
    splits = {name: {"from": "test", "size": 12} for name in ("sft", "rl", "test")}
    source = {"path": str(ROOT / "tests" / "data" / "mmlu")}
    config["datasets"] = {"mmlu": {"task": "mmlu", "source": source, "splits": splits}}
    config["models"] = {"small": {"label": "small", "source": {"path": model}}}
    config["tables"] = {"main": {"kind": "main", "dataset": "mmlu", "models": ["small"]}}
    small = {key: value for key, value in demo.items() if key not in ("datasets", "models", "tables")}
    small |= {"paper_tables": ["main"], "engine": {"name": "transformers", "batch_size": 4}}
    small["answers"] = {"samples": 4, "shards": 1, "chunk": 4, "max_tokens": 1}
    small["confidence"] = {"chunk": 4, "temperature": 2.0}
    small["evaluation"] |= {"bootstrap": 200}
    small["methods"] |= {"topk": {"k": 2, "max_tokens": 8}, "cot": {"max_tokens": 8}}
    small["training"] |= {"save_steps": 2, "lora": {"last_layers": 1, "dropout": 0.1}}
    for section, stage in ((small, "sft"), (small, "dpo"), (small["methods"], "conftuner")):
        section[stage] |= {"epochs": 2, "batch_size": 4, "micro_batch_size": 4}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / "small.yaml").write_text(yaml.safe_dump(small))


def start(folder):
    """Snakemake, in a session of its own, with its output in a file that outlives it."""
    mark = {"ORCE_TEST_FOLDER": str(folder), "ORCE_PROGRESS_SECONDS": "0", "OMP_NUM_THREADS": "1"}
    with open(folder / "output.txt", "a") as output:
        return subprocess.Popen(
            COMMAND, cwd=folder, env=os.environ | mark, stdout=output, stderr=output, start_new_session=True
        )


def alive(folder):
    """Processes that a run in this folder has started, orphans included."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("ORCE_TEST_FOLDER") == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:  # ended meanwhile, or another user's
            continue
    return found


def kill_all(folder):
    while running := alive(folder):
        for process in running:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        time.sleep(0.05)


def finish(folder):
    """Run to the end. Returns the seconds it took."""
    started = time.monotonic()
    code = start(folder).wait()
    assert code == 0, (folder / "output.txt").read_text()[-6000:]
    return time.monotonic() - started


def kill(folder, process, alone):
    """kill -9 to Snakemake and all that it started, or to Snakemake alone. Says which it was."""
    process.kill()
    process.wait()
    if alone:
        return "Snakemake alone" if alive(folder) else "Snakemake, between jobs"
    kill_all(folder)
    return "everything"


def run_with_kills(folder, kills, longest, dice, expected):
    """Kill a run and start it again, `kills` times, and let it end. What ends before that begins anew.

    Returns the kinds of kills, and the number of whole runs.
    """
    done, runs = Counter(), 1
    while done.total() < kills:
        process = start(folder)
        try:
            code = process.wait(timeout=dice.uniform(0.5, longest))
        except subprocess.TimeoutExpired:
            done[kill(folder, process, alone=done.total() % 3 == 2)] += 1
            continue
        assert code == 0, (folder / "output.txt").read_text()[-6000:]
        assert results(folder) == expected
        kill_all(folder)
        for name in ("results", "paper_tables"):
            shutil.rmtree(folder / name)
        runs += 1
    finish(folder)
    return done, runs


def work(folder) -> Counter:
    """Items and optimizer steps that each step has computed, by its own progress lines, those done twice included."""
    last, computed = {}, Counter()
    for label, done in re.findall(r"^\[([^\]]+)\] (\d+)/\d+  ", (folder / "output.txt").read_text(), re.MULTILINE):
        computed[label] += max(0, int(done) - last.get(label, 0))
        last[label] = int(done)
    return computed


def results(folder):
    """Bytes of the tables, and the metrics without their provenance (seconds of computing, digests of what has them)."""
    tables = {path.name: path.read_bytes() for path in (folder / "paper_tables").iterdir() if path.suffix != ".pdf"}
    metrics = {}
    for path in (folder / "results").glob("*/*/*/metrics.json"):
        metrics[str(path.relative_to(folder))] = json.loads(path.read_text())
        del metrics[str(path.relative_to(folder))]["provenance"]
    return tables, metrics


@pytest.fixture
def folder(tmp_path):
    """Ends what a failed test left running."""
    yield tmp_path
    for name in ("straight", "killed"):
        kill_all(tmp_path / name)


def test_a_run_killed_at_random_moments_ends_with_the_same_tables(folder, tiny, request):
    straight, killed = folder / "straight", folder / "killed"
    model = letter_model(tiny, folder / "model")
    for place in (straight, killed):
        place.mkdir()
        write_config(place, model)
    seconds = finish(straight)
    expected = results(straight)
    kills = request.config.getoption("--kills")
    done, runs = run_with_kills(killed, kills, seconds / 5, random.Random(25), expected)
    tables, metrics = results(killed)
    assert (tables, metrics) == expected
    assert {"main.tex", "tables.tex", "comparison.csv", "tables.html"} <= set(tables)
    assert len(metrics) == 7
    assert not list(killed.rglob("*.tmp"))
    once, computed = work(straight), work(killed)
    assert set(computed) == set(once)
    ratio = computed.total() / (runs * once.total())
    print(f"\n{kills} kills in {runs} run(s) of {seconds:.0f} s: {dict(done)}")
    print(f"items and steps computed: {computed.total()} instead of {runs} x {once.total()} ({ratio:.2f})")
