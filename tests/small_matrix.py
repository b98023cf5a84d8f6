"""A small matrix through Snakemake: all seven methods on real MMLU questions, with a random model that answers with a letter.

The fixture `straight` is its finished run; tests that interrupt, extend or move the same run compare with it.
"""

import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import dry_run
import psutil
import yaml
from conftest import ROOT

from orce.config import check
from orce.settings.schema import Config

SNAKEMAKE = [str(Path(sys.executable).with_name("snakemake")), "--snakefile", str(ROOT / "Snakefile")]
MARK = "ORCE_TEST_FOLDER"  # in the environment of everything that a run starts: its folder
TIME = "seconds.txt"  # that the finished run took


def letter_model(tiny, folder, says: str = "ABCD") -> str:
    """The tiny model, changed so that it answers with a letter (or another sign), and not always the same one."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(tiny), AutoTokenizer.from_pretrained(tiny)
    letters = [tokenizer.encode(letter)[0] for letter in says]
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


def questions() -> dict:
    """The config's `datasets`: MMLU alone, twelve questions a split."""
    splits = {name: {"from": "test", "size": 12} for name in ("sft", "rl", "test")}
    return {"mmlu": {"task": "mmlu", "source": {"path": str(ROOT / "tests" / "data" / "mmlu")}, "splits": splits}}


def configuration(model: str) -> tuple[dict, dict]:
    """config.yaml with one dataset, model and table, and what goes over it: several chunks and checkpoints a step."""
    config, demo = (yaml.safe_load((ROOT / name).read_text()) for name in ("config.yaml", "config/demo.yaml"))
    config["datasets"] = questions()
    config["models"] = {"small": {"label": "small", "source": {"path": model}}}
    config["tables"] = {"main": {"kind": "main", "dataset": "mmlu", "models": ["small"]}}
    small = {key: value for key, value in demo.items() if key not in ("datasets", "models", "tables")}
    small |= {"paper_tables": ["main"], "engine": {"name": "transformers", "batch_tokens": 1024}}
    small["answers"] = {"samples": 4, "shards": 1, "chunk": 4, "max_tokens": 1}
    small["confidence"] = {"chunk": 4, "temperature": 2.0}
    small["evaluation"] |= {"bootstrap": 200}
    small["methods"] |= {"topk": {"k": 2, "max_tokens": 8}, "cot": {"max_tokens": 8}}
    small["training"] |= {"save_steps": 2, "lora": {"last_layers": 1, "dropout": 0.1}}
    for section, stage in ((small, "sft"), (small, "dpo"), (small["methods"], "conftuner")):
        section[stage] |= {"epochs": 2, "batch_size": 4}
    small["methods"]["conftuner"]["epochs"] = 12  # long enough to be caught at it
    return config, small


def write(folder: Path, config: dict, small: dict) -> None:
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / "small.yaml").write_text(yaml.safe_dump(small))


def start(folder: Path) -> subprocess.Popen:
    """Snakemake, in a session of its own, with its output in a file that outlives it."""
    around = os.environ | {MARK: str(folder), "ORCE_PROGRESS_SECONDS": "0", "OMP_NUM_THREADS": "1"}
    words = [*SNAKEMAKE, "--cores", "2", "--configfile", "small.yaml", "--", "paper_tables"]
    with open(folder / "output.txt", "a") as out:
        return subprocess.Popen(words, cwd=folder, env=around, stdout=out, stderr=out, start_new_session=True)


def finish(folder: Path) -> None:
    code = start(folder).wait()
    assert code == 0, (folder / "output.txt").read_text()[-6000:]


def run(folder: Path, model: str) -> None:
    """Write the configuration into `folder` and run it to the end."""
    write(folder, *configuration(model))
    started = time.monotonic()
    finish(folder)
    (folder / TIME).write_text(str(time.monotonic() - started))


def run_here(folder: Path, *configs: Path) -> Config:
    """Run every planned command of the tables in this process."""
    config = check.read_config([str(path) for path in configs])
    dry_run.run(folder, config, dry_run.commands_of(folder, *configs))
    return config


def marked(mark: str, value) -> list[psutil.Process]:
    """Live processes with MARK=VALUE in their environment, orphans included."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # ended meanwhile, or another user's
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(mark) == str(value):
                found.append(process)
    return found


# What a run publishes, apart from its logs, its timings and what it keeps of work in progress.
UNPUBLISHED = ("results/logs/", "results/benchmarks/")
# What trainings took, in their manifests and in the provenance made from these; and the digests over them.
SECONDS = rb'"(?:gpu_)?seconds": ?[0-9.]+'
TIMED = {
    "manifest.json": rb'"cost": ?\{[^}]*\}|"manifest_digest": ?"\w+"',
    "metrics.json": SECONDS,
    "metrics.manifest.json": rb'"(?:sha256|manifest_digest)": ?"\w+"',
    # Tables name the digests of the metrics that they show.
    **dict.fromkeys(
        ("main.manifest.json", "tables.manifest.json", "comparison.manifest.json"),
        rb'"inputs": ?\{[^}]*\}|"manifest_digest": ?"\w+"',
    ),
}


def published(folder) -> dict[str, bytes]:
    """Bytes of every file under results and paper_tables, but for the seconds that trainings took."""
    files = {}
    for path in (path for top in ("results", "paper_tables") for path in (folder / top).rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and not name.startswith(UNPUBLISHED) and ".partial" not in path.parts:
            content = path.read_bytes()
            files[name] = re.sub(TIMED[path.name], b"", content) if path.name in TIMED else content
    return files
