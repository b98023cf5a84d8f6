"""Estimate the cost of a configuration before anything runs, and compare with what has been spent so far."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

from orce.config import graph
from orce.config.graph import TRAININGS, Stage
from orce.config.load import here
from orce.config.schema import Config
from orce.errors import BadInput
from orce.plan.cost import disk, flops, gpus, schedule
from orce.plan.cost.lengths import Lengths, Prompts
from orce.plan.cost.workload import Work, Workload, jobs, seconds
from orce.reports.benchmarks import costs


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
    gpu.add_argument("--gpu", default="H100", metavar="NAME", help=f"{', '.join(gpus.GPUS)} (default: H100)")
    gpu.add_argument("--tflops", type=float, help="peak of one GPU that is not among them")
    parser.add_argument("--memory", action="store_true", help="also memory at the peak of each stage (needs torch)")
    parser.add_argument(
        "--measure", action="store_true", help="run each stage for a while on this machine, and take its speed"
    )
    parser.add_argument("--seconds", type=float, default=60, help="of each measurement (60)")


def run(args):
    config, results = here(args.configfile), Path(args.results)
    given = {task: Lengths(*values) for task, values in _pairs(args.tokens, 3).items()}
    items = {tuple(key.split(".", 1)): int(value) for key, (value,) in _pairs(args.items, 1).items()}
    prompts = Prompts(results, given, items)
    load = Workload(config, prompts, {name: value for name, (value,) in _pairs(args.parameters, 1).items()})
    on = device(config, args)
    if args.measure:
        on = measured(config, load, on, args.seconds)
    rows = lines(config, list(load.works()), jobs(config, load.stages), on, spent(config, results))
    print(table(rows, f"{on.name}-hours"))
    print(notes(config, prompts, on, load))
    if config.device != "cpu":
        print(card(config, args))
    print(floor(rows, on))
    print(above_the_floor(list(load.works()), rows[-1].hours, on))
    clock = job_hours(config, load, on)
    print(spread(config, clock, on))
    print(volumes(disk.volume(load, config)))
    if args.memory:
        from orce.plan.cost import memory

        judged = (*TRAININGS, "candidates", "state")
        names = sorted({load.model_of(stage) for stage in load.by_stage() if stage.rule in judged})
        gpu = None if config.device == "cpu" else 1e9 * gpus.find(args.gpu).memory
        print(memory.text(config, {name: load.sizes(name) for name in names}, gpu))
    print(limits(config, longest(clock)))


def _pairs(arguments: list[str], values: int) -> dict[str, list[float]]:
    """KEY=NUMBER[,NUMBER ...] arguments."""
    numbers = {}
    for argument in arguments:
        key, _, text = argument.partition("=")
        try:
            numbers[key] = [float(part) for part in text.split(",")]
        except ValueError:
            numbers[key] = []
        if len(numbers[key]) != values or min(numbers[key]) <= 0:
            raise BadInput(f"{argument!r}: expected KEY=NUMBER" + ",NUMBER" * (values - 1) + ", above 0")
    return numbers


def device(config: Config, args) -> flops.Device:
    return flops.CORE if config.device == "cpu" else flops.gpu(args.tflops or gpus.find(args.gpu).tflops)


def measured(config: Config, load: Workload, on: flops.Device, seconds: float) -> flops.Device:
    """The device at hand, with the speeds that its own runs of each kind of stage have shown."""
    from orce.plan.gpu_check import take

    take(1)
    from orce.plan.trial import speeds

    speed = speeds.of_config(config, load, seconds)
    return replace(on, compute=speed.reading, train=speed.training, decode=speed.generating)


def spent(config: Config, results: Path) -> dict[str, float]:
    """Hours that each rule took so far: of CPU time, or of GPUs held."""
    hours = {}
    for one in costs(results):
        gpus = config.training.gpus if one.rule in TRAININGS else config.gpus
        hours[one.rule] = (one.cpu_seconds if config.device == "cpu" else one.seconds * gpus) / 3600
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


def lines(
    config: Config, works: list[Work], counted: dict[str, int], on: flops.Device, hours: dict[str, float]
) -> list[Line]:
    """One line per rule, in the order of the workflow, and the total."""
    rows = []
    for rule, count in counted.items():
        mine = [work for work in works if work.rule == rule]
        tokens = {
            kind: sum(getattr(work, f"{kind}_tokens") for work in mine) / 1e6
            for kind in ("prompt", "generated", "trained")
        }
        waiting = count * schedule.gpus(config, rule) * on.load_seconds
        estimate = (sum(seconds(work, on) for work in mine) + waiting) / 3600
        pflop = sum(work.compute + work.train + work.decode for work in mine) / 1e15
        rows.append(Line(rule, count, **tokens, pflop=pflop, hours=estimate, spent=hours.get(rule)))
    names = ("jobs", "prompt", "generated", "trained", "pflop", "hours")
    if others := [value for rule, value in hours.items() if rule not in counted]:
        rows.append(Line("other rules", 0, 0.0, 0.0, 0.0, 0.0, 0.0, sum(others)))
    known = [row.spent for row in rows if row.spent is not None]
    total = {name: sum(getattr(row, name) for row in rows) for name in names}
    return [*rows, Line("total", **total, spent=sum(known) if known else None)]


def job_hours(config: Config, load: Workload, on: flops.Device) -> dict[Stage, float]:
    """Hours of one job of each stage, by the clock: the model's start, and an even share of the work."""
    clock = {}
    for stage, works in load.by_stage().items():
        shares = graph.shards(config, stage.rule) * schedule.gpus(config, stage.rule)
        clock[stage] = (on.load_seconds + sum(seconds(work, on) for work in works) / shares) / 3600
    return clock


def longest(clock: dict[Stage, float]) -> dict[str, float]:
    """Hours of the longest job of each rule."""
    hours_of: dict[str, float] = {}
    for stage, hours in clock.items():
        hours_of[stage.rule] = max(hours_of.get(stage.rule, 0.0), hours)
    return hours_of


def floor(rows: list[Line], on: flops.Device) -> str:
    """The hours that no device of this peak can go below, and how far the estimate is above them."""
    least, total = rows[-1].pflop * 1e15 / on.peak / 3600, rows[-1].hours
    above = f", {total / least:.1f} times as much" if least else ""
    return (
        f"Floor: {_hours(least)} {on.name}-hours, all of these operations at the peak of {on.peak / 1e12:g} TFLOP/s. "
        f"The estimate is {_hours(total)}{above}."
    )


def card(config: Config, args) -> str:
    """The GPU that the hours are for, and what it needs where it is not like the default."""
    if args.tflops:
        return f"GPU: a peak of {args.tflops:g} TFLOP/s, as given."
    gpu = gpus.find(args.gpu)
    said = (
        f"GPU: {gpu.name}, {gpu.tflops:g} TFLOP/s in {gpu.dtype}, {gpu.memory} GB ({gpu.source}); --gpu names another."
    )
    if gpu.dtype != config.dtype:
        said += f" It has no {config.dtype}: set dtype: {gpu.dtype}."
    try:
        needed = gpu.preset
    except BadInput as error:
        return f"{said} But {error}: name smaller models."
    small = config.training.checkpointing
    if needed and not small:
        said += f" Models of 8B need --configfile {needed} there: these hours are without it."
    if small and not needed:
        said += " It has room for training without checkpointing; this configuration is made for a smaller GPU."
    return said


def above_the_floor(works: list[Work], hours: float, on: flops.Device) -> str:
    """What the estimate has above the floor: each kind of work below the peak, and the loads; trainings at 40 % of the peak."""
    added = {}
    for kind, name in (("compute", "prompts"), ("train", "training"), ("decode", "generating")):
        operations, rate = sum(getattr(work, kind) for work in works), getattr(on, kind)
        added[f"{name} at {rate / on.peak:.0%} of it"] = operations / rate / 3600 - operations / on.peak / 3600
    floor_hours = sum(work.compute + work.train + work.decode for work in works) / on.peak / 3600
    added["loads"] = hours - floor_hours - sum(added.values())
    parts = ", ".join(f"{name} +{_hours(value)}" for name, value in added.items())
    trained = sum(work.train for work in works)
    faster = hours - trained / on.train / 3600 + trained / (0.4 * on.peak) / 3600
    return (
        f"Above the floor: {parts}. With training at 40 % of the peak the estimate is {_hours(faster)}; which share a GPU "
        "reaches, --measure tells."
    )


def spread(config: Config, clock: dict[Stage, float], on: flops.Device) -> str:
    """Hours by the clock on some numbers of devices."""
    shown = [f"{_hours(schedule.makespan(config, clock, count))} h on {count}" for count in (1, 4, 8)]
    return f"By the clock, one job after another on each {on.name}: {', '.join(shown)}."


def _hours(value: float) -> str:
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.2g}" if value < 10 else f"{value:.3g}"


def volumes(sizes: disk.Volumes) -> str:
    """What the run takes on disk."""
    models, trainings, checkpoints, texts, states = (f"{size / 1e9:.3g} GB" for size in sizes)
    return (
        f"Disk: models {models}, trained weights {trainings}, texts and readings {texts}; while a training runs, checkpoints "
        f"{checkpoints}{f' and states of frozen layers {states}' if sizes.states else ''}."
    )


def limits(config: Config, hours: dict[str, float]) -> str:
    """What to choose for `runtime`, the time limit of a job: twice the estimate, and no less than ten minutes."""
    if not hours:
        return "No job of these tables loads a model."
    shown = ", ".join(f"{rule} {max(10, math.ceil(120 * one))}" for rule, one in hours.items())
    limit = config.resources.runtime
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


def notes(config: Config, prompts: Prompts, on: flops.Device, load: Workload) -> str:
    """Where the numbers come from, in a few lines."""
    used = sorted({stage.cell.dataset for stage in load.stages})
    counted = [name for name in used if prompts.measured(name)]
    guessed = [name for name in used if name not in counted]
    share = {"prompts": on.compute, "training": on.train, "generating": on.decode}
    speed = ", ".join(f"{rate / 1e12:.3g} TFLOP/s {what} ({rate / on.peak:.0%})" for what, rate in share.items())
    speed += f", {on.load_seconds:g} s a load"
    return (
        f"\nSpeed: {speed}. Prompts counted: {', '.join(counted) or 'none'}; by the dataset cards: {', '.join(guessed) or 'none'}.\n"
        "docs/performance.md says what the estimate is made of. Rules that load no model are left out of it."
    )
