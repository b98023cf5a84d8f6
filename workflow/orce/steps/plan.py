"""Estimate the cost of a configuration before anything runs, and compare with what has been spent so far."""

import copy
import math
from dataclasses import dataclass
from pathlib import Path

from orce.config import check as configuration
from orce.config import read
from orce.cost import flops
from orce.cost.lengths import Lengths, Prompts
from orce.cost.workload import TRAININGS, Work, Workload, jobs
from orce.reports import run_page
from orce.runtime.files import BadInput


def add_arguments(parser):
    parser.add_argument("--configfile", nargs="+", default=[], help="files that override config.yaml, as for Snakemake")
    parser.add_argument("--results", default="results", help="folder of the results so far")
    model = parser.add_argument_group("the estimate's assumptions")
    model.add_argument("--parameters", nargs="+", default=[], metavar="MODEL=N", help="size of a model, such as 8e9")
    model.add_argument("--items", nargs="+", default=[], metavar="DATASET.SPLIT=N", help="prompts of a split")
    model.add_argument(
        "--tokens",
        nargs="+",
        default=[],
        metavar="TASK=A,C,T",
        help="mean tokens of answer prompt, confidence prompt, answer",
    )
    gpu = parser.add_argument_group("GPUs (device: cuda)")
    gpu.add_argument(
        "--tflops", type=float, default=989, help="peak of one GPU (default: 989, H100 and H200, bfloat16)"
    )
    gpu.add_argument("--utilisation", type=float, default=0.4, help="of the peak, on prompts and in training (0.4)")
    gpu.add_argument("--decode-utilisation", type=float, default=0.15, help="of the peak, while generating (0.15)")
    gpu.add_argument("--start", type=float, default=60, help="seconds to load a model, engine start included (60)")
    cpu = parser.add_argument_group("cores (device: cpu)")
    cpu.add_argument("--gflops", type=float, default=60, help="of one core, on prompts and in training (60)")
    cpu.add_argument("--decode-gflops", type=float, default=25, help="of one core, while generating (25)")
    cpu.add_argument("--cpu-start", type=float, default=12, help="seconds to import and load a model (12)")


def run(args):
    config, results = read_config(["config.yaml", *args.configfile]), Path(args.results)
    given = {task: Lengths(*values) for task, values in _pairs(args.tokens, 3).items()}
    items = {tuple(key.split(".", 1)): int(value) for key, (value,) in _pairs(args.items, 1).items()}
    prompts = Prompts(results, given, items)
    load = Workload(config, prompts, {name: value for name, (value,) in _pairs(args.parameters, 1).items()})
    rows = lines(config, list(load.works()), jobs(config, load.stages), device(config, args), spent(config, results))
    unit = f"{device(config, args).name}-hours"
    print(table(rows, unit))
    print(notes(config, prompts, args, load))
    print(limits(config, longest(config, list(load.works()), device(config, args))))


def read_config(paths: list[str]) -> dict:
    """The configuration as Snakemake reads it: later files override keys of earlier ones; checked."""
    config: dict = {}
    for path in paths:
        _override(config, read.mapping(path))
    configuration.check(config)
    return config


def _override(base: dict, over: dict) -> None:
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            _override(base[key], value)
        else:
            base[key] = copy.deepcopy(value)


def _pairs(arguments: list[str], values: int) -> dict[str, list[float]]:
    """KEY=NUMBER[,NUMBER ...] arguments."""
    found = {}
    for argument in arguments:
        key, _, text = argument.partition("=")
        try:
            found[key] = [float(part) for part in text.split(",")]
        except ValueError:
            found[key] = []
        if len(found[key]) != values or min(found[key]) <= 0:
            raise BadInput(f"{argument!r}: expected KEY=NUMBER" + ",NUMBER" * (values - 1) + ", above 0")
    return found


def device(config: dict, args) -> flops.Device:
    if config["device"] == "cpu":
        return flops.core(args.gflops, args.decode_gflops, args.cpu_start)
    return flops.gpu(args.tflops, args.utilisation, args.decode_utilisation, args.start)


def spent(config: dict, results: Path) -> dict[str, float]:
    """Hours that each rule took so far: of CPU time, or of GPUs held."""
    hours = {}
    for one in run_page.costs(results):
        gpus = config["training"]["gpus"] if one.rule in TRAININGS else config["gpus"]
        hours[one.rule] = (one.cpu_seconds if config["device"] == "cpu" else one.seconds * gpus) / 3600
    return hours


@dataclass(frozen=True)
class Line:
    """One rule of the table: millions of tokens, 10^15 FLOPs, hours estimated and hours spent (None: not run)."""

    rule: str
    jobs: int
    prompt: float
    generated: float
    trained: float
    pflop: float
    hours: float
    spent: float | None


def lines(config: dict, works: list[Work], counted: dict[str, int], on: flops.Device, hours: dict) -> list[Line]:
    """One line per rule, in the order of the workflow, and the total."""
    rows = []
    for rule, count in counted.items():
        mine = [work for work in works if work.rule == rule]
        compute, decode = sum(work.compute for work in mine), sum(work.decode for work in mine)
        devices = config["training"]["gpus"] if rule in TRAININGS else config["gpus"]
        tokens = {
            kind: sum(getattr(work, f"{kind}_tokens") for work in mine) / 1e6
            for kind in ("prompt", "generated", "trained")
        }
        estimate = flops.hours(on, compute, decode, count, max(devices, 1))
        pflop = (compute + decode) / 1e15
        rows.append(Line(rule, count, **tokens, pflop=pflop, hours=estimate, spent=hours.get(rule)))
    names = ("jobs", "prompt", "generated", "trained", "pflop", "hours")
    if others := [value for rule, value in hours.items() if rule not in counted]:
        rows.append(Line("other rules", 0, 0.0, 0.0, 0.0, 0.0, 0.0, sum(others)))
    known = [row.spent for row in rows if row.spent is not None]
    total = {name: sum(getattr(row, name) for row in rows) for name in names}
    return [*rows, Line("total", **total, spent=sum(known) if known else None)]


def longest(config: dict, works: list[Work], on: flops.Device) -> dict[str, float]:
    """Hours of the longest job of each rule, by the clock: the model's start, and an even share of its cell's work."""
    found: dict[str, float] = {}
    cells: dict[tuple, list[Work]] = {}
    for work in works:
        # The splits of a cell are sampled in one job; its trainings and methods are jobs of their own.
        key = (work.dataset, work.model) if work.rule == "sample" else (work.dataset, work.model, len(cells))
        cells.setdefault((work.rule, *key), []).append(work)
    for (rule, *_), mine in cells.items():
        shards = {"sample": "answers", "elicit": "answers", "candidates": "confidence", "state": "confidence"}
        shards |= {"likelihoods": "confidence"}
        parts = config[shards[rule]]["shards"] if rule in shards else 1
        devices = max(1, config["training"]["gpus"] if rule in TRAININGS else config["gpus"])
        compute, decode = sum(work.compute for work in mine), sum(work.decode for work in mine)
        hours = flops.hours(on, compute / parts, decode / parts, 1, devices) / devices
        found[rule] = max(found.get(rule, 0.0), hours)
    return found


def limits(config: dict, hours: dict[str, float]) -> str:
    """What to choose for `runtime`, the time limit of a job: twice the estimate, and no less than ten minutes."""
    if not hours:
        return "No job of these tables loads a model."
    shown = ", ".join(f"{rule} {max(10, math.ceil(120 * one))}" for rule, one in hours.items())
    limit = config["resources"]["runtime"]
    short = [rule for rule, one in hours.items() if 60 * one > limit]
    warning = f" resources.runtime is {limit}: too short for {', '.join(short)}." if short else ""
    return f"A job's time limit (runtime, in minutes): at least {shown}; that is twice the longest job.{warning}"


def table(rows: list[Line], unit: str) -> str:
    tokens = ("prompt Mtok", "generated Mtok", "trained Mtok")
    text: list[tuple[str, ...]] = [("rule", "jobs", *tokens, "PFLOP", unit, "spent", "spent/est.")]
    for row in rows:
        ratio = (
            ["-", "-"]
            if row.spent is None
            else [f"{row.spent:.3f}", f"{row.spent / row.hours:.2f}" if row.hours else "-"]
        )
        numbers = [f"{value:,.2f}" for value in (row.prompt, row.generated, row.trained)]
        text.append((row.rule, str(row.jobs), *numbers, f"{row.pflop:,.4g}", f"{row.hours:.3f}", *ratio))
    widths = [max(map(len, column)) for column in zip(*text, strict=True)]
    padded = [
        [cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(r, widths, strict=True))]
        for r in text
    ]
    return "\n".join("  ".join(row) for row in padded)


def notes(config: dict, prompts: Prompts, args, load: Workload) -> str:
    """Where the numbers come from, in a few lines."""
    used = sorted({stage.cell.dataset for stage in load.stages})
    counted = [name for name in used if prompts.measured(name)]
    guessed = [name for name in used if name not in counted]
    if config["device"] == "cpu":
        speed = f"{args.gflops:g} GFLOP/s a core ({args.decode_gflops:g} while generating), {args.cpu_start:g} s a load"
    else:
        speed = f"{args.tflops:g} TFLOP/s at {args.utilisation:.0%} ({args.decode_utilisation:.0%} while generating), "
        speed += f"{args.start:g} s a load"
    return (
        f"\nSpeed: {speed}. Prompts counted: {', '.join(counted) or 'none'}; assumed: {', '.join(guessed) or 'none'}.\n"
        "docs/performance.md says what the estimate is made of. Rules that load no model are left out of it."
    )
