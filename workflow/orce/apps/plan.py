"""Estimate what a configuration costs before anything runs: tokens, FLOPs and hours by rule, for
the jobs that Snakemake plans.

A forward pass takes two FLOPs a weight and token (Kaplan et al., 2020, section 2.1), and attention
4 d for each token that a token looks at, in each layer of width d. Rules that load no model are
left out: they take seconds. docs/performance.md has the sources.
"""

import contextlib
import heapq
import json
import math
from collections import namedtuple
from collections.abc import Iterable, Mapping
from graphlib import TopologicalSorter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import yaml

from orce import methods
from orce.apps.planned import Command, plan_jobs, waits
from orce.config import picking
from orce.config.cells import Cell, reward_and_round
from orce.config.check import read_here
from orce.errors import BadInput, did_you_mean
from orce.runtime import process
from orce.runtime.preflight import ANSWERING, JUDGING
from orce.settings.schema import Config, Split, Training
from orce.tasks import examples

KNOWN = SimpleNamespace(
    **yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
)
# FLOP/s sustained on prompts, in training and while generating: of a core, and as shares of a GPU's
# peak. Seconds of a load.
CORE = (60e9, 60e9, 25e9)
SHARES = (0.35, 0.25, 0.15)
LOAD = {"cpu": 12, "cuda": 60}
FLOAT32_ALONE = ("V100", "T4")  # GPUs without bfloat16
# Weights that every token passes, weights of the output layer, layers, and the width of all query
# heads.
Sizes = namedtuple("Sizes", ("body", "head", "layers", "width"), defaults=(0, 0, 0))


def decoder(
    layers: int, hidden: int, mlp: int, heads: int, vocabulary: int, kv_heads: int, head: int
) -> Sizes:
    """The sizes of a decoder with a gated MLP and grouped-query attention; norms and biases are
    left out. head: the width of one head.
    """
    layer = 2 * hidden * head * (heads + kv_heads) + 3 * hidden * mlp
    return Sizes(layers * layer, vocabulary * hidden, layers, heads * head)


# the keys of a config.json, in the order of `decoder`
SHAPE = (
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "vocab_size",
    "num_key_value_heads",
    "head_dim",
)
SIZES = {name: decoder(*shape) for name, shape in KNOWN.models.items()}
# mean tokens, and numbers of questions and passages: plan.yaml says of what
Lengths = namedtuple(
    "Lengths",
    "ask judge answer ask_shared judge_shared questions passage passages",
    defaults=(5, 0, 0, 0, 0, 0),
)
LENGTHS = {tuple(name.split()): Lengths(**means) for name, means in KNOWN.lengths.items()}
OTHER = Lengths(200, 265, 10)  # of a task that is not among them
TRAININGS = ("sft", "train", "dpo")
# Rules that load a model; the other ones take seconds.
LOADING = (*dict.fromkeys((*ANSWERING, "grade", *JUDGING)),)
# wildcards that have the name of a job
NAMES = ("prompted", "stated", "trained", "aligned", "scored", "states", "round")
# outputs whose folder has this name; for candidates it is the round, and none in the first
NAMED_BY_FOLDER = ("confidences.jsonl", "manifest.json", "candidates.jsonl")


class Job(NamedTuple):
    """What a rule with a model does in a cell. name: of its method, confidence LLM or file. shards:
    jobs that share this work.
    """

    rule: str
    cell: Cell
    name: str
    splits: tuple[str, ...]
    shards: int = 1


class Work(NamedTuple):
    """Of a job on one split: tokens of prompts, generated and trained on; FLOPs of prompts, of
    training and of generating.
    """

    prompt: float
    generated: float
    trained: float
    prompt_flops: float
    training_flops: float
    generating_flops: float


class Cost(NamedTuple):
    """Of a job: tokens of prompts, generated and trained on, FLOPs, hours of all its devices, hours
    by the clock, and its devices: GPUs, or one core.
    """

    prompt: float
    generated: float
    trained: float
    flops: float
    device_hours: float
    hours: float
    devices: int


def add_arguments(parser):
    parser.add_argument(
        "--configfile",
        nargs="+",
        default=[],
        help="files that override config.yaml, as for Snakemake",
    )
    parser.add_argument(
        "--gpu", default="H100", metavar="NAME", help=f"{', '.join(KNOWN.gpus)} (default: H100)"
    )
    parser.add_argument("--tflops", type=float, help="peak of one GPU that is not among them")
    parser.add_argument(
        "--gpus", type=int, metavar="N", help="say the hours by the clock on N GPUs (on N cores)"
    )


def run(args):
    config = read_here(args.configfile)
    gpu = None if config.device == "cpu" else gpu_peak(config, args.gpu, args.tflops)
    show(config, plan_jobs(args.configfile), gpu, args.gpus)


# What is printed


def show(
    config: Config,
    commands: list[Command],
    gpu: tuple[float, str] | None,
    number: int | None,
) -> None:
    """Prints the estimate. gpu: its peak [TFLOP/s] and a note on it, or None for cores. number: of
    GPUs, or cores, whose hours by the clock are said too.
    """
    peak, note = gpu or (0.0, "")
    unit = "GPU" if gpu else "core"
    jobs = [job_of(command) for command in commands]
    speeds = rates(config, peak)
    costs = [estimate(config, job, speeds) if job else None for job in jobs]
    with_model = [(job.rule, cost) for job, cost in zip(jobs, costs, strict=True) if job and cost]
    if not with_model:
        return process.show("No job of these tables loads a model.")
    tokens = "prompt Mtok  generated Mtok  trained Mtok"
    process.show(f"rule         jobs  {tokens}      PFLOP  {unit}-hours  longest job")
    for rule in LOADING:
        some = [cost for name, cost in with_model if name == rule]
        if some:
            process.show(line_of(rule, some, unit))
    process.show(line_of("total", [cost for _, cost in with_model], unit))
    prompts, training, generating = (speed / 1e12 for speed in speeds)
    process.show(
        f"\nSpeed: {prompts:.3g} TFLOP/s prompts, {training:.3g} training, {generating:.3g} generating;"
        f" {LOAD[config.device]} s a load. The longest job is in hours by the clock. {note}"
    )
    if number is not None:
        process.show(by_the_clock(commands, costs, number, unit))
    known = {name for name, _ in LENGTHS}
    tasks = {config.datasets[job.cell.dataset].task for job in jobs if job}
    guessed = sorted(task for task in tasks if Path(task).stem not in known)
    if guessed:
        process.show(f"{', '.join(guessed)}: {OTHER.ask} tokens a prompt are assumed.")


def line_of(rule: str, costs: list[Cost], unit: str) -> str:
    """A line of the printed table: the sums of some jobs, and the longest of them."""
    total = Cost(*(sum(column) for column in zip(*costs, strict=True)))
    longest = max(cost.hours for cost in costs)
    return (
        f"{rule:<11}{len(costs):>6}"
        f"{total.prompt / 1e6:>13,.2f}{total.generated / 1e6:>16,.2f}{total.trained / 1e6:>14,.2f}"
        f"{total.flops / 1e15:>11,.4g}{total.device_hours:>{len(unit) + 8}.3f}{longest:>13.3f}"
    )


def by_the_clock(commands: list[Command], costs: list[Cost | None], number: int, unit: str) -> str:
    """What a number of GPUs, or cores, takes by the clock, and the chain of jobs that no number of
    them makes shorter.
    """
    hours = [cost.hours if cost else 0.0 for cost in costs]
    needed = [cost.devices if cost else 0 for cost in costs]
    if max(needed) > number:
        raise BadInput(f"--gpus {number}: a job needs {max(needed)}")
    inputs = waits(commands)
    chains = longest_chains(hours, inputs)
    urgency = [length for length, _ in chains]
    clock = schedule(hours, needed, inputs, urgency, number)
    longest, jobs = max(chains)
    files = [commands[job].out.removesuffix("/manifest.json") for job in jobs if hours[job]]
    return (
        f"On {number} {unit}s: {clock:.3g} hours by the clock; jobs without a model take seconds. The longest chain of jobs, "
        f"which no more {unit}s shorten, takes {longest:.3g}: {' > '.join(files)}"
    )


# Jobs of which each waits for the one before, with the sum of their hours before them.
Chain = tuple[float, list[int]]


def longest_chains(hours: list[float], inputs: list[set[int]]) -> list[Chain]:
    """For each job, the longest chain that starts with it. inputs: the jobs that each job waits for."""
    order = [*TopologicalSorter(dict(enumerate(inputs))).static_order()]
    chains: dict[int, Chain] = {}
    following: dict[int, Chain] = {}  # the longest chain of those that wait for a job
    for job in reversed(order):
        after, jobs = following.get(job, (0.0, []))
        chains[job] = (hours[job] + after, [job, *jobs])
        for source in inputs[job]:
            following[source] = max(chains[job], following.get(source, chains[job]))
    return [chains[job] for job in range(len(hours))]


def schedule(hours, needed, inputs, urgency, number: int) -> float:
    """Hours until the last job ends. A job starts when its inputs are there and enough devices are
    free, the most urgent first.
    """
    clock = 0.0
    free = number
    waiting = set(range(len(hours)))
    unfinished = set(waiting)
    running: list[tuple[float, int]] = []  # (end, job), the next end first
    while unfinished:
        ready = [job for job in waiting if not inputs[job] & unfinished]
        for job in sorted(ready, key=lambda job: -urgency[job]):
            if needed[job] <= free:
                waiting.remove(job)
                free -= needed[job]
                heapq.heappush(running, (clock + hours[job], job))
        clock, job = heapq.heappop(running)
        unfinished.remove(job)
        free += needed[job]
    return clock


def gpu_peak(config: Config, asked: str, peak: float | None) -> tuple[float, str]:
    """The peak of a GPU, and a note on its number format and memory."""
    if peak is not None:
        if not 0 < peak < math.inf:
            raise BadInput(f"--tflops is {peak:g}; expected a number above 0")
        return peak, f"GPU: a peak of {peak:g} TFLOP/s, as given."
    name = next((gpu for gpu in KNOWN.gpus if gpu.lower() == asked.lower()), None)
    if name is None:
        meant = did_you_mean(asked.upper(), KNOWN.gpus)
        known = f"{meant}It has {', '.join(KNOWN.gpus)}"
        raise BadInput(f"--gpu {asked!r}: not in the table; {known}. Or give its peak: --tflops N")
    peak, memory = KNOWN.gpus[name]
    dtype = "float32" if name in FLOAT32_ALONE else "bfloat16"
    note = f"GPU: {name}, {peak:g} TFLOP/s in {dtype}, {memory} GB; --gpu names another."
    if dtype != config.dtype:
        note += f" It has no {config.dtype}: set dtype: {dtype}."
    models = memory / 2 if dtype == "float32" else memory  # as much as in bfloat16
    fit = next(words for least, words in KNOWN.fit.items() if models >= least)
    return peak, f"{note} Models of 8B {fit}."


def rates(config: Config, peak: float) -> tuple[float, ...]:
    """FLOP/s of a core, or of a GPU with this peak [TFLOP/s], for each kind of work."""
    if config.device == "cpu":
        return CORE
    return tuple(1e12 * peak * share for share in SHARES)


# What a job costs


def minutes(
    config: Config, rule: str, wildcards: Mapping[str, str], files: Iterable[str], shards: int
) -> int:
    """The time limit of a job, from its estimate for an H100 or a core. files: its inputs; shards:
    jobs that share its work.
    """
    limit = KNOWN.limit
    if rule in LOADING:
        name = next((wildcards[name] for name in NAMES if name in wildcards), "")
        job = Job(rule, Cell(wildcards["dataset"], wildcards["model"]), name, splits(files), shards)
        with contextlib.suppress(BadInput):  # of a model or data set that is not in the tables
            if cost := estimate(config, job, rates(config, KNOWN.gpus["H100"][0])):
                return max(limit["least"], math.ceil(limit["times"] * 60 * cost.hours))
    return limit["unknown"]


def job_of(command: Command) -> Job | None:
    """What a planned command does with a model; None if it loads none."""
    rule = command.stage
    if rule not in LOADING:
        return None
    dataset, model, *folders, file = Path(command.out).parts[1:]
    if folders[:1] == ["shards"]:
        folders = folders[2:]
    name = "/".join(folders) if file in NAMED_BY_FOLDER else Path(file).stem
    shard = command.options.get("--shard") or ["0/1"]
    return Job(rule, Cell(dataset, model), name, splits(command.reads), int(shard[0].split("/")[1]))


def splits(files: Iterable[str]) -> tuple[str, ...]:
    """The splits whose frozen prompts are among some files. DPO reads none: its pairs are of the RL
    split.
    """
    frozen = [path for path in map(Path, files) if path.parent.name == "prompts"]
    return tuple(sorted(path.stem for path in frozen)) or ("rl",)


def estimate(config: Config, job: Job, speeds: tuple[float, ...]) -> Cost | None:
    """None without a model, as where no model grades."""
    if not loaded_model(config, job):
        return None
    works = [job_tokens(config, job, split) for split in job.splits]
    prompt, generated, trained, *flops = (
        sum(column) / job.shards for column in zip(*works, strict=True)
    )
    gpus = (config.training if job.rule in TRAININGS else config).gpus
    devices = max(1, gpus)
    busy = sum(each / speed for each, speed in zip(flops, speeds, strict=True))
    seconds = busy / devices + LOAD[config.device]
    hours = seconds / 3600
    return Cost(prompt, generated, trained, sum(flops), devices * hours, hours, devices)


def loaded_model(config: Config, job: Job) -> str:
    """The model that a job loads: the answer LLM, the base of the confidence LLM, which may be
    another cell's, or the grader. Empty where no model grades.
    """
    if job.rule == "grade":
        return "" if config.grading is None else config.grading.model or ""
    answering = job.rule in ("sample", "elicit", "likelihoods")
    if answering or (job.rule, job.name) == ("states", "answers"):
        return job.cell.model
    source = methods.of(config).parse(job.name).source if job.rule == "state" else None
    return picking.judge_base(config, source or job.cell.model)


def job_tokens(config: Config, job: Job, split: str) -> Work:
    """What a job computes for the questions of a split."""
    n = prompts(config, job.cell.dataset, split)
    length = lengths(config, job.cell.dataset, split)
    sizes = model_sizes(config, job)
    is_training = job.rule in TRAININGS
    batch = config.training.micro_batch_tokens if is_training else config.engine.batch_tokens
    asked = computed_tokens(n, length.ask, length.ask_shared, batch)
    judged = computed_tokens(n, length.judge, length.judge_shared, batch)
    by_passage = is_training and config.training.grouped is True
    if length.passages and (by_passage or job.rule in ("candidates", "state")):
        # The questions about a passage are in one batch, which computes it once; n of them are
        # drawn at random.
        passages = length.passages * (1 - math.exp(-n / length.passages))
        judged -= (n - passages) * length.passage
    if is_training:
        return training_work(config, job, sizes, n, judged, length.judge)
    answers = n * length.answer
    drawn = KNOWN.distinct * config.answers.samples  # different answers to a question
    tested = split in examples.TESTED  # which has one more answer, the greedy one
    prompt = judged
    generated = 0.0
    outputs = n  # tokens that pass the output layer
    context = length.judge
    if job.rule == "sample":
        context = length.ask
        prompt = asked
        if config.engine.name == "transformers":
            prompt *= 1 + tested
        else:  # vllm has the prompts of the greedy answers in its cache, and computes every sample
            drawn = config.answers.samples
        generated = answers * (drawn + tested)
    elif job.rule == "grade":  # one question for each different answer, a yes or no and its end
        prompt = n * (drawn + tested) * (length.judge + length.answer)
        generated = 2 * n * (drawn + tested)
    elif job.rule == "elicit":  # uses six tenths of its budget of tokens
        context = length.ask + KNOWN.longer.get(job.name, 0)
        prompt = n * (context - length.ask_shared)
        generated = 0.6 * n * methods.of(config).settings(job.name)["max_tokens"]
    elif (job.rule, job.name) == ("states", "answers"):
        context = length.ask
        prompt = asked + answers
    elif job.name == "sample_likelihoods":
        context = length.ask
        outputs = answers * drawn
        prompt = asked + outputs
    elif job.rule == "likelihoods":  # of the greedy answers, and P(True)'s question
        outputs = answers + n
        prompt = asked + answers + judged
    elif job.rule in ("candidates", "state"):
        # the distribution over the 101 values, and the turn's end after the likely ones
        outputs = n * (KNOWN.completions["train"] + KNOWN.ends)
        prompt = judged + outputs
    if job.rule == "candidates" and not job.name and keeps_reference(config):
        prompt += judged + n * KNOWN.turns
        outputs += n * KNOWN.turns
    prompt_flops = forward_flops(sizes, prompt, outputs, context)
    generating_flops = forward_flops(sizes, generated, generated, context)
    return Work(prompt, generated, 0, prompt_flops, 0, generating_flops)


def training_work(
    config: Config, job: Job, sizes: Sizes, n: int, judged: float, context: float
) -> Work:
    """What a training computes for n questions. judged: tokens of their prompts, context: of one."""
    if job.rule == "train":
        epochs = picking.training_options(config, job.name)["epochs"]
    else:
        epochs = getattr(config, job.rule).epochs
    outputs = n * KNOWN.completions[job.rule]
    tokens = judged + outputs
    reference = 0.0
    if job.rule == "dpo" and not has_reference(config, job.name):
        reference = forward_flops(sizes, tokens, outputs, context)
    training = training_flops(sizes, tokens, outputs, config.training, context, epochs)
    return Work(0, 0, epochs * tokens, reference, training, 0)


def has_reference(config: Config, name: str) -> bool:
    """Whether DPO's reference comes with the candidates: in float32 that of the first round."""
    if config.dtype == "float32":
        return (reward_and_round(name)[1] or config.dpo.rounds) == 1
    return keeps_reference(config)


def keeps_reference(config: Config) -> bool:
    """Whether the first candidates come with the log-probabilities of all turns, DPO's reference."""
    return config.training.method == "lora" and config.dtype != "float32"


def prompts(config: Config, dataset: str, split: str) -> int:
    """How many prompts a split has."""
    spec = config.datasets[dataset]
    splits: Mapping[Any, Split] = spec.splits
    size = splits[split].size
    if isinstance(size, int):
        return size
    origin = splits[split].origin
    total = LENGTHS.get((spec.task, origin), OTHER).questions
    if not total:
        key = f"datasets.{dataset}.splits.{split}"
        question = f"how many examples has {origin!r}?"
        raise BadInput(f"config: {key}: {question} For an estimate, give a number as its size")
    rows = examples.split_slices(splits, origin, total)[split]
    return rows.stop - rows.start


def lengths(config: Config, dataset: str, split: str) -> Lengths:
    """Those of the source's split, else of the longest split of the same task."""
    spec = config.datasets[dataset]
    splits: Mapping[Any, Split] = spec.splits
    stem = Path(spec.task).stem
    known = {origin: means for (task, origin), means in LENGTHS.items() if task == stem}
    return known.get(splits[split].origin) or max(known.values(), default=OTHER)


def model_sizes(config: Config, job: Job) -> Sizes:
    """From the config.json of its folder, or from the table; a server's takes nothing here."""
    name = picking.base_model(config, loaded_model(config, job))
    source = config.models[name].source
    if picking.on_server(config, name):
        return Sizes(0)
    remedy = "an estimate needs a folder with its config.json (source: {path: FOLDER})"
    file = Path(source.get("path", ""), "config.json")
    if "path" in source and file.exists():
        given = json.loads(file.read_text())
        heads = given.get("num_attention_heads") or 1
        head = (given.get("hidden_size") or 0) // heads
        usual = {"num_key_value_heads": heads, "head_dim": head}  # where they are left out
        shape: list[Any] = [given.get(key) or usual.get(key) for key in SHAPE]
        if all(shape):
            return decoder(*shape)
        lacking = [key for key, value in zip(SHAPE, shape, strict=True) if not value]
        remedy = f"its config.json has no {', '.join(lacking)}, which an estimate needs"
    origin = source.get("hub") or source.get("package") or source.get("path")
    if origin not in SIZES:
        raise BadInput(f"models.{name}: how large is {origin!r}? {remedy}")
    return SIZES[origin]


def computed_tokens(n: float, length: float, shared: float, batch: float) -> float:
    """Tokens computed for n prompts in batches of `batch` tokens, each with the shared beginning
    once.
    """
    own = length - shared
    batches = max(1.0, n / max(1.0, (batch - shared) / own))
    return n * own + batches * shared


def forward_flops(sizes: Sizes, tokens: float, outputs: float, context: float = 0.0) -> float:
    """FLOPs over `tokens`, each attending to `context` others, with the output layer at `outputs`
    of them.
    """
    each = 2 * sizes.body + 4 * sizes.layers * sizes.width * context
    return each * tokens + 2 * sizes.head * outputs


def training_flops(
    sizes: Sizes,
    tokens: float,
    outputs: float,
    training: Training,
    context: float = 0.0,
    epochs: float = 1,
) -> float:
    """FLOPs of some epochs. Backward costs one forward for the gradients of the activations, down
    to the lowest trained layer, one more for those of the weights where all are trained, and two of
    attention; checkpointing repeats the forward pass.
    """
    last = training.lora.last_layers if training.method == "lora" else None
    trained = min(1.0, last / sizes.layers) if last and sizes.layers else 1.0
    again = training.checkpointing
    weights = forward_flops(sizes, tokens, 0)
    passes = 2 + (training.method == "full") + again
    attention = forward_flops(sizes, tokens, 0, context) - weights
    layers = passes * weights + (3 + again) * attention
    output = passes * forward_flops(sizes, 0, outputs)
    # Below the lowest trained layer there is the forward pass alone, and one for all epochs where
    # memory keeps what comes out of it; four bytes a number are assumed.
    kept = training.gpus <= 1 and 4 * tokens * sizes.width <= process.KEPT_BYTES
    passes_below = min(1, epochs) if kept else epochs
    below = passes_below * (1 - trained) * (weights + attention)
    return epochs * (trained * layers + output) + below
