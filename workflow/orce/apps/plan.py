"""Estimate what a configuration costs before anything runs: tokens, FLOPs and hours by rule, for
the jobs that Snakemake plans.

A forward pass takes two FLOPs a weight and token (Kaplan et al., 2020, section 2.1), and attention
4 d for each token that a token looks at, in each layer of width d. Rules that load no model are
left out: they take seconds. docs/performance.md has the sources.
"""

import contextlib
import difflib
import heapq
import json
import math
from collections import namedtuple
from collections.abc import Iterable, Mapping
from graphlib import TopologicalSorter
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import yaml

from orce import methods
from orce.apps.planned import Command, plan_jobs, waits
from orce.config import picking
from orce.config.cells import Cell, reward_and_round
from orce.config.check import read_here
from orce.errors import BadInput
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
# Weights that every token passes, weights of the output layer, layers, and the width of all query
# heads.
Sizes = namedtuple("Sizes", ("body", "head", "layers", "width"), defaults=(0, 0, 0))


def decoder(
    layers: int, hidden: int, mlp: int, heads: int, vocabulary: int, kv_heads: int, head: int
) -> Sizes:
    """Of a gated MLP and grouped-query attention; norms and biases are left out. head: width of
    one.
    """
    each = 2 * hidden * head * (heads + kv_heads) + 3 * hidden * mlp
    return Sizes(layers * each, vocabulary * hidden, layers, heads * head)


# left out of a config.json where they follow from the others
GROUPED = ("num_key_value_heads", "head_dim")
SHAPE = (
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "vocab_size",
    *GROUPED,
)
SIZES = {name: decoder(*shape) for name, shape in KNOWN.models.items()}
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


class Cost(NamedTuple):
    """Of a job: tokens of prompts, generated and trained on, FLOPs, hours of all its devices, and
    hours by the clock.
    """

    prompt: float
    generated: float
    trained: float
    flops: float
    device_hours: float
    hours: float


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


def show(
    config: Config,
    commands: list[Command],
    gpu: tuple[float, str] | None,
    number: int | None = None,
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
    for rule in (*LOADING, "total"):
        some = [cost for name, cost in with_model if rule in (name, "total")]
        if some:
            process.show(line_of(rule, some, unit))
    prompts, training, generating = (speed / 1e12 for speed in speeds)
    process.show(
        f"\nSpeed: {prompts:.3g} TFLOP/s prompts, {training:.3g} training, {generating:.3g} generating;"
        f" {LOAD[config.device]} s a load. The longest job is in hours by the clock. {note}"
    )
    if number is not None:
        process.show(by_the_clock(config, commands, jobs, costs, number, unit))
    known = {name for name, _ in LENGTHS}
    tasks = {config.datasets[job.cell.dataset].task for job in jobs if job}
    guessed = sorted(task for task in tasks if Path(task).stem not in known)
    if guessed:
        process.show(f"{', '.join(guessed)}: {OTHER.ask} tokens a prompt are assumed.")


def line_of(rule: str, costs: list[Cost], unit: str) -> str:
    """A line of the printed table: the sums of some jobs, and the longest of them."""
    total = Cost(*(sum(column) for column in zip(*costs, strict=True)))
    millions = [tokens / 1e6 for tokens in (total.prompt, total.generated, total.trained)]
    tokens = "{:>13,.2f}{:>16,.2f}{:>14,.2f}".format(*millions)
    flops = f"{total.flops / 1e15:,.4g}"
    hours = f"{total.device_hours:>{len(unit) + 8}.3f}{max(cost.hours for cost in costs):>13.3f}"
    return f"{rule:<11}{len(costs):>6}{tokens}{flops:>11}{hours}"


def job_of(command: Command) -> Job | None:
    """What a planned command does with a model; None if it loads none."""
    rule = command.stage
    if rule not in LOADING:
        return None
    dataset, model, *path = Path(command.out).parts[1:]
    if path[0] == "shards":
        path = path[2:]
    file = path.pop()
    name = "/".join(path) if file in NAMED_BY_FOLDER else Path(file).stem
    shard = command.options.get("--shard") or ["0/1"]
    return Job(rule, Cell(dataset, model), name, splits(command.reads), int(shard[0].split("/")[1]))


def splits(files: Iterable[str]) -> tuple[str, ...]:
    """The splits whose frozen prompts are among some files. DPO reads none: its pairs are of the RL
    split.
    """
    frozen = [path for path in map(Path, files) if path.parent.name == "prompts"]
    return tuple(sorted(path.stem for path in frozen)) or ("rl",)


def rates(config: Config, peak: float) -> tuple[float, ...]:
    """FLOP/s of a core, or of a GPU with this peak [TFLOP/s], for each kind of work."""
    if config.device == "cpu":
        return CORE
    return tuple(1e12 * peak * share for share in SHARES)


def estimate(config: Config, job: Job, speeds: tuple[float, ...]) -> Cost | None:
    """None without a model, as where no model grades."""
    if not loaded_model(config, job):
        return None
    works = [job_tokens(config, job, split) for split in job.splits]
    prompt, generated, trained, *flops = (
        sum(column) / job.shards for column in zip(*works, strict=True)
    )
    gpus = devices(config, job)
    busy = sum(each / speed for each, speed in zip(flops, speeds, strict=True))
    seconds = busy / gpus + LOAD[config.device]
    return Cost(prompt, generated, trained, sum(flops), gpus * seconds / 3600, seconds / 3600)


def devices(config: Config, job: Job) -> int:
    """GPUs of a job, or one core."""
    return max(1, (config.training if job.rule in TRAININGS else config).gpus)


def loaded_model(config: Config, job: Job) -> str:
    """The model that a job loads: the answer LLM, the base of the confidence LLM, which may be
    another cell's, or the grader.
    """
    if job.rule == "grade":
        return config.grading.model or "" if config.grading else ""
    answering = job.rule in ("sample", "elicit", "likelihoods")
    if answering or (job.rule, job.name) == ("states", "answers"):
        return job.cell.model
    source = methods.of(config).parse(job.name).source if job.rule == "state" else None
    return picking.judge_base(config, source or job.cell.model)


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


def by_the_clock(
    config: Config,
    commands: list[Command],
    jobs: list[Job | None],
    costs: list[Cost | None],
    number: int,
    unit: str,
) -> str:
    """What a number of GPUs, or cores, takes by the clock, and the chain of jobs that no number of
    them makes shorter.
    """
    hours = [cost.hours if cost else 0.0 for cost in costs]
    needed = [
        devices(config, job) if job and cost else 0 for job, cost in zip(jobs, costs, strict=True)
    ]
    if max(needed) > number:
        raise BadInput(f"--gpus {number}: a job needs {max(needed)}")
    inputs = waits(commands)
    chains = longest_chains(hours, inputs)
    lengths = [length for length, _ in chains]
    clock = schedule(hours, needed, inputs, lengths, number)
    longest = max(lengths)
    chain = [lengths.index(longest)]
    while (following := chains[chain[-1]][1]) is not None:
        chain.append(following)
    files = [commands[index].out.removesuffix("/manifest.json") for index in chain if hours[index]]
    return (
        f"On {number} {unit}s: {clock:.3g} hours by the clock; jobs without a model take seconds. The longest chain of jobs, "
        f"which no more {unit}s shorten, takes {longest:.3g}: {' > '.join(files)}"
    )


def longest_chains(hours: list[float], inputs: list[set[int]]) -> list[tuple[float, int | None]]:
    """For each job, the hours of the longest chain of jobs that starts with it, and the next job of
    that chain.

    inputs: the jobs that each job waits for.
    """
    after = [0.0] * len(hours)
    following: list[int | None] = [None] * len(hours)
    chains: dict[int, tuple[float, int | None]] = {}
    for job in reversed([*TopologicalSorter(dict(enumerate(inputs))).static_order()]):
        chains[job] = hours[job] + after[job], following[job]
        for source in inputs[job]:
            if chains[job][0] > after[source]:
                after[source] = chains[job][0]
                following[source] = job
    return [chains[job] for job in range(len(hours))]


def schedule(hours, needed, inputs, urgency, number: int) -> float:
    """Hours until the last job ends. A job starts when its inputs are there and enough devices are
    free, the most urgent first.
    """
    clock = 0.0
    free = number
    waiting = set(range(len(hours)))
    unfinished = set(range(len(hours)))
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
        return peak, f"GPU: a peak of {peak:g} TFLOP/s, as given."
    name = next((gpu for gpu in KNOWN.gpus if gpu.lower() == asked.lower()), None)
    if name is None:
        close = difflib.get_close_matches(asked.upper(), KNOWN.gpus, n=3, cutoff=0.4)
        meant = f"did you mean {', '.join(close or KNOWN.gpus)}?"
        raise BadInput(f"--gpu {asked!r}: not in the table; {meant} Or give its peak: --tflops N")
    peak, memory = KNOWN.gpus[name]
    dtype, times = ("float32", 2) if name in ("V100", "T4") else ("bfloat16", 1)
    note = f"GPU: {name}, {peak:g} TFLOP/s in {dtype}, {memory} GB; --gpu names another."
    note += "" if dtype == config.dtype else f" It has no {config.dtype}: set dtype: {dtype}."
    fit = next(words for least, words in KNOWN.fit.items() if memory >= times * least)
    return peak, f"{note} Models of 8B {fit}."


def job_tokens(config: Config, job: Job, split: str) -> tuple[float, ...]:
    """Tokens of prompts, generated and trained on; FLOPs of prompts, of training and of generating."""
    rule, cell, name, *_ = job
    training = config.training
    transformers = config.engine.name == "transformers"
    n = prompts(config, cell.dataset, split)
    its = lengths(config, cell.dataset, split)
    sizes = model_sizes(config, job)
    batch = training.micro_batch_tokens if rule in TRAININGS else config.engine.batch_tokens
    asked = computed_tokens(n, its.ask, its.ask_shared, batch)
    judged = computed_tokens(n, its.judge, its.judge_shared, batch)
    answers = n * its.answer
    drawn = KNOWN.distinct * config.answers.samples
    tested = split in examples.TESTED
    generated = 0.0
    outputs = n
    context = its.judge
    if its.passages and (
        rule in ("candidates", "state") or rule in TRAININGS and training.grouped is True
    ):
        # The questions about a passage are in one batch, which computes it once; n of them are
        # drawn at random.
        judged -= (n - its.passages * (1 - math.exp(-n / its.passages))) * its.passage
    if rule in TRAININGS:
        epochs = (
            picking.training_options(config, name)["epochs"]
            if rule == "train"
            else getattr(config, rule).epochs
        )
        tokens = judged + n * KNOWN.completions[rule]
        outputs = n * KNOWN.completions[rule]
        # The reference comes with the candidates: an adapter's in bfloat16, and in float32 that of
        # the first round.
        first = (reward_and_round(name)[1] or config.dpo.rounds) == 1
        comes = first if config.dtype == "float32" else keeps_reference(config)
        reference = 0.0
        if rule == "dpo" and not comes:
            reference = forward_flops(sizes, tokens, outputs, context)
        return (
            0,
            0,
            epochs * tokens,
            reference,
            training_flops(sizes, tokens, outputs, training, context, epochs),
            0,
        )
    # a tested split has one more answer; vllm still has its prompts in the cache
    if rule == "sample":
        drawn = drawn if transformers else config.answers.samples
        prompt = asked * (1 + (tested and transformers))
        generated = answers * (drawn + tested)
        context = its.ask
    elif rule == "grade":  # one question for each different answer, a yes or no and its end
        prompt = n * (drawn + tested) * (its.judge + its.answer)
        generated = 2 * n * (drawn + tested)
    elif rule == "elicit":  # uses six tenths of its budget of tokens
        context = its.ask + KNOWN.longer.get(name, 0)
        budget = methods.of(config).settings(name)["max_tokens"]
        prompt = n * (context - its.ask_shared)
        generated = 0.6 * n * budget
    elif rule == "states":
        prompt, context = (judged, its.judge) if name == "judge" else (asked + answers, its.ask)
    elif name == "sample_likelihoods":
        prompt = asked + answers * drawn
        outputs = answers * drawn
        context = its.ask
    elif rule == "likelihoods":  # of the greedy answers, and P(True)'s question
        prompt = asked + answers + judged
        outputs = answers + n
    else:  # the distribution over the 101 values, and the turn's end after the likely ones
        outputs = n * (KNOWN.completions["train"] + KNOWN.ends)
        prompt = judged + outputs
    if rule == "candidates" and not name and keeps_reference(config):
        prompt += judged + n * KNOWN.turns
        outputs += n * KNOWN.turns
    flops = (
        forward_flops(sizes, prompt, outputs, context),
        0,
        forward_flops(sizes, generated, generated, context),
    )
    return prompt, generated, 0, *flops


def keeps_reference(config: Config) -> bool:
    """Whether the first candidates come with the log-probabilities of all turns, DPO's reference."""
    return config.training.method == "lora" and config.dtype != "float32"


def prompts(config: Config, dataset: str, split: str) -> int:
    """How many prompts a split has."""
    spec = config.datasets[dataset]
    splits: dict[str, Split] = {**spec.splits}
    origin = splits[split].origin
    size = splits[split].size
    if isinstance(size, int):
        return size
    total = LENGTHS.get((spec.task, origin), OTHER).questions
    if not total:
        key = f"datasets.{dataset}.splits.{split}"
        question = f"how many examples has {origin!r}?"
        raise BadInput(f"config: {key}: {question} For an estimate, give a number as its size")
    rows = examples.split_slices(splits, origin, total)[split]
    return rows.stop - rows.start


def lengths(config: Config, dataset: str, split: str) -> Lengths:
    spec = config.datasets[dataset]
    stem = Path(spec.task).stem
    known = {origin: means for (task, origin), means in LENGTHS.items() if task == stem}
    splits: dict[str, Split] = {**spec.splits}
    return known.get(splits[split].origin) or max(known.values(), default=OTHER)


def model_sizes(config: Config, job: Job) -> Sizes:
    """From the config.json of its folder, or from the table; a server's takes nothing here."""
    name = picking.base_model(config, loaded_model(config, job))
    source = config.models[name].source
    if picking.on_server(config, name):
        return Sizes(0)
    file = Path(source.get("path", ""), "config.json")
    if "path" in source and file.exists():
        given = json.loads(file.read_text())
        shape = {key: value for key, value in given.items() if value is not None}
        heads = shape.get("num_attention_heads", 1)
        usual = (heads, shape.get("hidden_size", 0) // heads)
        shape = dict(zip(GROUPED, usual, strict=True)) | shape
        if all(key in shape for key in SHAPE):
            return decoder(*(shape[key] for key in SHAPE))
    origin = source.get("hub") or source.get("package") or source.get("path")
    if origin not in SIZES:
        remedy = "an estimate needs a folder with its config.json (source: {path: FOLDER})"
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
