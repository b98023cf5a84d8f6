"""Estimate what a configuration costs before anything runs: tokens, FLOPs and hours by rule.

A forward pass takes two FLOPs a weight and token (Kaplan et al., 2020, section 2.1), and attention 4 d for each token that a token
looks at, in each layer of width d. Rules that load no model are left out: they take seconds. docs/performance.md has the sources.
"""

import contextlib
import difflib
import json
import math
import re
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace

import yaml
from msgspec.structs import replace

from orce import methods
from orce.config import graph, settings
from orce.config.cells import aligned
from orce.config.check import here
from orce.config.graph import TRAININGS, Stage
from orce.config.schema import Config, Training
from orce.errors import BadInput
from orce.tasks import examples

KNOWN = SimpleNamespace(**yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")))
# FLOP/s sustained on prompts, in training and while generating: of a core, and as shares of a GPU's peak. Seconds of a load.
CORE, SHARES, LOAD = (60e9, 60e9, 25e9), (0.35, KNOWN.training[0][0], 0.15), {"cpu": 12, "cuda": 60}
# Weights that every token passes, weights of the output layer, layers, and the width of all query heads.
Sizes = namedtuple("Sizes", ("body", "head", "layers", "width"), defaults=(0, 0, 0))


def decoder(layers: int, hidden: int, mlp: int, heads: int, vocabulary: int, kv_heads: int, head: int) -> Sizes:
    """Of a gated MLP and grouped-query attention; norms and biases are left out. head: width of one."""
    each = 2 * hidden * head * (heads + kv_heads) + 3 * hidden * mlp
    return Sizes(layers * each, vocabulary * hidden, layers, heads * head)


GROUPED = ("num_key_value_heads", "head_dim")  # left out of a config.json where they follow from the others
SHAPE = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "vocab_size", *GROUPED)
SIZES = {name: decoder(*shape) for name, shape in KNOWN.models.items()}
Lengths = namedtuple(
    "Lengths", "ask judge answer ask_shared judge_shared questions passage passages", defaults=(5, 0, 0, 0, 0, 0)
)
LENGTHS = {tuple(name.split()): Lengths(**means) for name, means in KNOWN.lengths.items()}
OTHER = Lengths(200, 265, 10)  # of a task that is not among them


def add_arguments(parser):
    parser.add_argument("--configfile", nargs="+", default=[], help="files that override config.yaml, as for Snakemake")
    parser.add_argument("--parameters", nargs="+", default=[], metavar="MODEL=N", help="size of a model, such as 8e9")
    parser.add_argument("--items", nargs="+", default=[], metavar="DATASET.SPLIT=N", help="prompts of a split")
    parser.add_argument("--tokens", nargs="+", default=[], metavar="TASK=A,C,T", help="of both prompts and an answer")
    parser.add_argument("--gpu", default="H100", metavar="NAME", help=f"{', '.join(KNOWN.gpus)} (default: H100)")
    parser.add_argument("--tflops", type=float, help="peak of one GPU that is not among them")


def run(args):
    config = here(args.configfile)
    args.parameters, args.items, args.tokens = map(numbers, (args.parameters, args.items, args.tokens), (1, 1, 3))
    peak, note, unit = (0.0, "", "core") if config.device == "cpu" else (*card(config, args.gpu, args.tflops), "GPU")
    stages = graph.stages(config, config.paper_tables)
    speeds = rates(config, peak)
    costs = [(stage.rule, cost) for stage in stages if (cost := estimate(config, args, stage, speeds))]
    if not costs:
        return print("No job of these tables loads a model.")
    rows = {rule: [cost for name, cost in costs if rule in (name, "total")] for rule in [*dict(costs), "total"]}
    print(f"rule         jobs  prompt Mtok  generated Mtok  trained Mtok      PFLOP  {unit}-hours  longest job")
    for rule, some in rows.items():
        jobs, *tokens, flops, hours, _ = (sum(column) for column in zip(*some, strict=True))
        counts = "".join(f"{count / 1e6:>{width},.2f}" for count, width in zip(tokens, (13, 16, 14), strict=True))
        longest = max(cost[-1] for cost in some)
        print(f"{rule:<11}{jobs:>6}{counts}{f'{flops / 1e15:,.4g}':>11}{hours:>{len(unit) + 8}.3f}{longest:>13.3f}")
    shown = "{:.3g} TFLOP/s prompts, {:.3g} training, {:.3g} generating".format(*(speed / 1e12 for speed in speeds))
    print(f"\nSpeed: {shown}; {LOAD[config.device]} s a load. The longest job is in hours by the clock. {note}")
    if config.device != "cpu":
        compare(config, args, stages)
    tasks = {config.datasets[stage.cell.dataset].task for stage in stages} - {*args.tokens}
    if guessed := sorted(task for task in tasks if Path(task).stem not in {name for name, _ in LENGTHS}):
        print(f"{', '.join(guessed)}: {OTHER.ask} tokens a prompt are assumed; --tokens says others.")


def rates(config: Config, peak: float, training: float = SHARES[1]) -> tuple[float, ...]:
    """FLOP/s of a core, or of a GPU, for each kind of work. training: its share of the peak [TFLOP/s]."""
    return CORE if config.device == "cpu" else tuple(1e12 * peak * share for share in (SHARES[0], training, SHARES[2]))


def compare(config: Config, args, stages: list[Stage]) -> None:
    """Prints the hours of some GPUs by each share of training; a small one recomputes activations."""
    print(f"\nGPU-hours by training's share of the peak{''.join(f'{name:>10}' for name in KNOWN.compared)}")
    for share, source in KNOWN.training:
        hours = []
        for peak, memory in (KNOWN.gpus[name] for name in KNOWN.compared):
            again = replace(config.training, checkpointing=config.training.checkpointing or memory < 60)
            fitting, speeds = replace(config, training=again), rates(config, peak, share)
            hours.append(sum(cost[-2] for stage in stages if (cost := estimate(fitting, args, stage, speeds))))
        print(f"{f'{share:.0%}':<41}{''.join(f'{each:>10.1f}' for each in hours)}  {source}")


def estimate(config: Config, args, stage: Stage, speeds: tuple[float, ...]) -> tuple[float, ...] | None:
    """Jobs, tokens of prompts, generated, trained on, FLOPs, hours of devices, hours of a job by the clock; None without a model."""
    if not (works := [work(config, args, stage, split) for split in read(config, stage)]):
        return None
    *tokens, a, b, c = (sum(column) for column in zip(*works, strict=True))
    jobs, gpus = graph.shards(config, stage.rule), max(1, (config.training if stage.rule in TRAININGS else config).gpus)
    job = (a / speeds[0] + b / speeds[1] + c / speeds[2]) / jobs / gpus + LOAD[config.device]
    return jobs, *tokens, a + b + c, gpus * jobs * job / 3600, job / 3600


def minutes(config: Config, stage: Stage | None) -> int:
    """The time limit of a stage's job, from its estimate for an H100 or a core; of an unknown one without a stage."""
    limit, nothing = KNOWN.limit, SimpleNamespace(parameters={}, items={}, tokens={})
    with contextlib.suppress(BadInput):  # of a model or data set that is not in the tables
        if stage and (cost := estimate(config, nothing, stage, rates(config, KNOWN.gpus["H100"][0]))):
            return max(limit["least"], math.ceil(limit["times"] * 60 * cost[-1]))
    return limit["unknown"]


def numbers(arguments: list[str], values: int) -> dict[str, list[float]]:
    texts = {key: text for key, _, text in (argument.partition("=") for argument in arguments)}
    for key, text in texts.items():
        if not re.fullmatch(",".join([r"[1-9]\d*(?:\.\d+)?(?:e\d+)?"] * values), text):
            raise BadInput(f"'{key}={text}': expected KEY=NUMBER{',NUMBER' * (values - 1)}, above 0")
    return {key: [float(number) for number in text.split(",")] for key, text in texts.items()}


def card(config: Config, asked: str, peak: float | None) -> tuple[float, str]:
    """The peak of a GPU, and a note on its number format and memory."""
    if peak is not None:
        return peak, f"GPU: a peak of {peak:g} TFLOP/s, as given."
    if (name := {gpu.lower(): gpu for gpu in KNOWN.gpus}.get(asked.lower())) is None:
        close = ", ".join(difflib.get_close_matches(asked.upper(), KNOWN.gpus, n=3, cutoff=0.4) or KNOWN.gpus)
        raise BadInput(f"--gpu {asked!r}: not in the table; did you mean {close}? Or give its peak: --tflops N")
    peak, memory = KNOWN.gpus[name]
    dtype, times = ("float32", 2) if name in ("V100", "T4") else ("bfloat16", 1)
    note = f"GPU: {name}, {peak:g} TFLOP/s in {dtype}, {memory} GB; --gpu names another."
    note += "" if dtype == config.dtype else f" It has no {config.dtype}: set dtype: {dtype}."
    fit = next(words for least, words in KNOWN.fit.items() if memory >= times * least)
    return peak, f"{note} Models of 8B {fit}."


def read(config: Config, stage: Stage) -> list[str]:
    """The splits that a stage's model works on; none where it loads no model."""
    rule = graph.RULES[stage.rule]
    frozen = rule.prompts(config, stage).get("prompts", [("", "rl")])  # dpo reads pairs of that split
    return [split for _, split in frozen] if rule.loads(config, stage) else []


def work(config: Config, args, stage: Stage, split: str) -> tuple[float, ...]:
    """Tokens of prompts, generated and trained on; FLOPs of prompts, of training and of generating."""
    (rule, cell, name), training, transformers = stage, config.training, config.engine.name == "transformers"
    n, its = prompts(config, args, cell.dataset, split), lengths(config, args, cell.dataset, split)
    sizes = model(config, args, stage)
    batch = training.micro_batch_tokens if rule in TRAININGS else config.engine.batch_tokens
    asked, judged = computed(n, its.ask, its.ask_shared, batch), computed(n, its.judge, its.judge_shared, batch)
    answers, drawn, tested = n * its.answer, KNOWN.distinct * config.answers.samples, split in examples.TESTED
    generated, outputs, context = 0.0, n, its.judge
    if its.passages and (rule in ("candidates", "state") or rule in TRAININGS and training.grouped is True):
        # The questions about a passage are in one batch, which computes it once; n of them are drawn at random.
        judged -= (n - its.passages * (1 - math.exp(-n / its.passages))) * its.passage
    if rule in TRAININGS:
        epochs = settings.trained_options(config, name)["epochs"] if rule == "train" else getattr(config, rule).epochs
        tokens, outputs = judged + n * KNOWN.completions[rule], n * KNOWN.completions[rule]
        first = rule != "dpo" or config.dtype == "float32" and (aligned(name)[1] or config.dpo.rounds) == 1
        # In float32 the first round's candidates come with the reference's log-probabilities; otherwise they are computed.
        reference = 0 if first else forward(sizes, tokens, outputs, context)
        return 0, 0, epochs * tokens, reference, epochs * train(sizes, tokens, outputs, training, context), 0
    if rule == "sample":  # a tested split has one more answer; vllm still has its prompts in the cache
        drawn = drawn if transformers else config.answers.samples
        prompt, generated, context = asked * (1 + (tested and transformers)), answers * (drawn + tested), its.ask
    elif rule == "grade":  # one question for each different answer, a yes or no and its end
        prompt, generated = n * (drawn + tested) * (its.judge + its.answer), 2 * n * (drawn + tested)
    elif rule == "elicit":  # uses six tenths of its budget of tokens
        context, budget = its.ask + KNOWN.longer.get(name, 0), methods.of(config).settings(name)["max_tokens"]
        prompt, generated = n * (context - its.ask_shared), 0.6 * n * budget
    elif rule == "states":
        prompt, context = (judged, its.judge) if name == "judge" else (asked + answers, its.ask)
    elif name == "sample_likelihoods":
        prompt, outputs, context = asked + answers * drawn, answers * drawn, its.ask
    elif rule == "likelihoods":  # of the greedy answers, and P(True)'s question
        prompt, outputs = asked + answers + judged, answers + n
    else:
        prompt, outputs = judged + n * KNOWN.completions["train"], n * KNOWN.completions["train"]
    flops = forward(sizes, prompt, outputs, context), 0, forward(sizes, generated, generated, context)
    return prompt, generated, 0, *flops


def prompts(config, args, dataset: str, split: str) -> int:
    spec, given = config.datasets[dataset], args.items.get(f"{dataset}.{split}")
    origin, size = spec.splits[split].origin, given[0] if given else spec.splits[split].size
    if isinstance(size, int | float):
        return int(size)
    if not (total := LENGTHS.get((spec.task, origin), OTHER).questions):
        question = f"config: datasets.{dataset}.splits.{split}: how many examples has {origin!r}?"
        raise BadInput(f"{question} Say so with --items {dataset}.{split}=N")
    rows = examples.cut(spec.splits, origin, total)[split]
    return rows.stop - rows.start


def lengths(config, args, dataset: str, split: str) -> Lengths:
    spec = config.datasets[dataset]
    known = {origin: means for (task, origin), means in LENGTHS.items() if task == Path(spec.task).stem}
    usual = known.get(spec.splits[split].origin) or max(known.values(), default=OTHER)
    return Lengths(*args.tokens[spec.task]) if spec.task in args.tokens else usual


def model(config: Config, args, stage: Stage) -> Sizes:
    """As given, from the config.json of its folder, or from the table; a server's takes nothing here."""
    name = settings.base(config, graph.RULES[stage.rule].loads(config, stage) or "")
    source = config.models[name].source
    if settings.on_server(config, name) or name in args.parameters:
        return Sizes(*args.parameters.get(name, [0]))
    if "path" in source and (file := Path(source["path"], "config.json")).exists():
        shape = {key: value for key, value in json.loads(file.read_text()).items() if value is not None}
        heads = shape.get("num_attention_heads", 1)
        shape = dict(zip(GROUPED, (heads, shape.get("hidden_size", 0) // heads), strict=True)) | shape
        if all(key in shape for key in SHAPE):
            return decoder(*(shape[key] for key in SHAPE))
    if (origin := source.get("hub") or source.get("package") or source.get("path")) not in SIZES:
        raise BadInput(f"models.{name}: how large is {origin!r}? Say so with --parameters {name}=8e9")
    return SIZES[origin]


def computed(n: float, length: float, shared: float, batch: float) -> float:
    """Tokens computed for n prompts in batches of `batch` tokens, each with the shared beginning once."""
    return n * (length - shared) + max(1.0, n / max(1.0, (batch - shared) / (length - shared))) * shared


def forward(sizes: Sizes, tokens: float, outputs: float, context: float = 0.0) -> float:
    """FLOPs over `tokens`, each attending to `context` others, with the output layer at `outputs` of them."""
    return (2 * sizes.body + 4 * sizes.layers * sizes.width * context) * tokens + 2 * sizes.head * outputs


def train(sizes: Sizes, tokens: float, outputs: float, training: Training, context: float = 0.0) -> float:
    """FLOPs of an epoch. Backward costs one forward for the gradients of the activations, down to the lowest trained layer, one more
    for those of the weights where all are trained, and two of attention; checkpointing repeats the forward pass."""
    last = training.lora.last_layers if training.method == "lora" else None
    trained = min(1.0, last / sizes.layers) if last and sizes.layers else 1.0
    again, weights = training.checkpointing, forward(sizes, tokens, 0)
    passes, attention = 2 + (training.method == "full") + again, forward(sizes, tokens, 0, context) - weights
    above = trained * (passes * weights + (3 + again) * attention) + passes * forward(sizes, 0, outputs)
    return above + (1 - trained) * (weights + attention)
