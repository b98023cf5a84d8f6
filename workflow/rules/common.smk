# Shared by all rules: the checked configuration, wildcards and functions. No rules. config.smk has put the library on the path.
import re
import shlex
import sys
from functools import partial
from pathlib import Path

from orce import methods
from orce.alignment.registry import PAPER
from orce.config import (
    cells,
    check,
    grading,
    hints,
    layout,
    matrix,
    needs,
    pictures,
    read,
    settings,
    sources,
    weights,
)
from orce.config.cells import Cell, manifest
from orce.errors import BadInput
from orce.runtime.progress import printable

try:
    CONFIG = check.check(config)
    check.data(CONFIG)
    if workflow.is_main_process:
        check.rows(CONFIG)
    library = read.on_path(CHECKOUT / "workflow")
    interpreter = read.on_path(Path(CONFIG.python or sys.executable).parent)
except BadInput as error:
    raise WorkflowError(printable(str(error)))

REGISTRY = methods.of(CONFIG)
if workflow.is_main_process:
    for note in [*weights.notes(CONFIG, REGISTRY), *grading.notes(CONFIG, REGISTRY)]:
        logger.warning(note)
PICTURES = pictures.settings(CONFIG)
TABLES = CONFIG.paper_tables


class Shards:
    """The jobs that a stage is divided into; a single one writes the stage's output itself."""

    def __init__(self, shards):
        self.shards = shards
        several = shards > 1
        self.option = ["--shard", f"{{shard}}/{shards}"] if several else []
        self.note = " (shard {shard})" if several else ""

    def output(self, whole, part, manifest=True):
        """The output of one job under the folder of its cell; readers of the whole file may want its manifest."""
        if self.shards > 1:
            return {"out": f"{CELL}/{part}-{{shard}}.jsonl"}
        sealed = {"manifest": f"{CELL}/{whole}.manifest.json"} if manifest else {}
        return {"out": f"{CELL}/{whole}.jsonl"} | sealed

    def parts(self, part):
        """The outputs of all jobs."""
        return [f"{CELL}/{part}-{shard}.jsonl" for shard in range(self.shards)]

    def named(self, stem, kind):
        """The name of a job's log or benchmark."""
        return f"{stem}{'-{shard}' if self.shards > 1 else ''}.{kind}"


CELL = "results/{dataset}/{model}"
ANSWERS = Shards(CONFIG.answers.shards)
READINGS = Shards(CONFIG.confidence.shards)

# What the grade step writes where it says which answers mean the same.
MEANINGS = {"meanings": f"{CELL}/meanings.jsonl"} if grading.groups(CONFIG) else {}

# Folders of the weights that a rule makes.
CONVERTED = {
    str(Path(cells.converted(name)).parent)
    for name, spec in CONFIG.models.items()
    if settings.made(spec)
}


def answering_gpus(wildcards):
    """GPUs of a job in which the answer LLM generates: none if it runs on a server."""
    return 0 if settings.on_server(CONFIG, wildcards.model) else CONFIG.gpus


# Jobs of seconds go first: a row of a table is there as soon as its model has done its part.
QUICK = 50

# The interpreter, the library and the speed settings are exported here instead of being part of each command, so that
# changing them reruns nothing.
PREFIX = {
    "PATH": f"{interpreter}:$PATH",
    "PYTHONPATH": library,
    "PYTHONUNBUFFERED": "1",
    "ORCE_SPEED": settings.to_argument(settings.speed(CONFIG)),
}


# What a job asks for: a few seconds of a core, the same with more memory, or a model with or without GPUs.
LIGHT = {"mem_mb": 4000, "runtime": 30}
ROOMY = {"mem_mb": 8000, "runtime": 30}
HEAVY = {
    "mem_mb": CONFIG.resources.mem_mb,
    "runtime": CONFIG.resources.runtime,
}
GPU_JOB = {"gpu": CONFIG.gpus, "gpus_wanted": CONFIG.gpus} | HEAVY
TRAINING = {key: CONFIG.training.gpus for key in ("gpu", "gpus_wanted")} | HEAVY
GRADING = {key: grading.gpus(CONFIG) for key in ("gpu", "gpus_wanted")} | HEAVY
ANSWERING = {key: answering_gpus for key in ("gpu", "gpus_wanted")} | HEAVY

LEASE = "python -m orce.runtime.lease {resources.gpu}/{resources.gpus_wanted} -- "
GATHER = (
    "python -m orce gather --shards {input:q} --out {output.out:q} 2>&1 | tee {log:q}"
)


def exported(name, value):
    """A shell assignment that expands nothing but $PATH."""
    quoted = shlex.quote(value.removesuffix(":$PATH"))
    return f"export {name}={quoted}{':$PATH' if value.endswith(':$PATH') else ''}; "


shell.prefix(
    "set -euo pipefail; "
    + "".join(exported(*pair) for pair in PREFIX.items())
    .replace("{", "{{")
    .replace("}", "}}")
    # SLURM sends SIGTERM to every process of a job: tee must outlive the step that writes to it.
    + 'tee() {{ (trap "" TERM; exec tee "$@"); }}; '
)


wildcard_constraints:
    **hints.wildcards(CONFIG, REGISTRY),


# A pattern of the models whose weights a rule makes.
PACKAGED = (
    "|".join(
        re.escape(name) for name, spec in CONFIG.models.items() if settings.made(spec)
    )
    or "(?!)"
)


def argument(step, *names):
    """params function: the part of the configuration that a step needs, for the wildcards `names` of its rule.

    A function, not a string, in which Snakemake would take {x} of a label for a wildcard.
    """
    return partial(step_settings, step=step, names=names)


def step_settings(wildcards, step, names):
    values = [getattr(wildcards, name) for name in names]
    return pinned(step(CONFIG, *values))


def pinned(found):
    """Settings as an argument, with digests of the local files that they name: replaced files are changed settings."""
    return settings.to_argument(sources.pinned(found, CONVERTED))


def cell_of(wildcards):
    return Cell(wildcards.dataset, wildcards.model)


def frozen(wildcards, splits, kind="jsonl"):
    """Frozen prompts of some splits, or their manifests."""
    return [f"results/{wildcards.dataset}/prompts/{split}.{kind}" for split in splits]


def training_splits_of(dataset):
    """The splits that confidence LLMs are trained on, where a dataset has them."""
    has = CONFIG.datasets[dataset].splits
    return [split for split in settings.TRAINING_SPLITS if split in has]


def sampled_prompts(wildcards):
    """Frozen prompts that the answer LLM of a cell is sampled on."""
    return frozen(
        wildcards, settings.splits(CONFIG, wildcards.dataset, wildcards.model)
    )


def seed_and_flag(wildcards):
    """params function: the seed of the realised answers, and the flag that keeps the replies where a judge reads them.

    One parameter and not two: a further one would rerun what is there without it.
    """
    whole = settings.reasoning_is_read(CONFIG, wildcards.dataset)
    return [CONFIG.seed, "--reasoning"] if whole else CONFIG.seed


def trained_prompts(wildcards):
    """Frozen prompts that a method with a training of its own sees."""
    return frozen(wildcards, settings.training_splits(CONFIG, wildcards.trained))


def task_of(wildcards):
    return CONFIG.datasets[wildcards.dataset].task


def module_of(wildcards, kind):
    """The module of the method that a wildcard names."""
    return REGISTRY.module(getattr(wildcards, kind))


def rendered(config, table=None):
    """Settings of one table, or of all."""
    return settings.tables(config, TABLES if table is None else [table])


def refuse(wildcards):
    """Input function of a target that no rule makes; raises BadInput."""
    hints.refuse(CONFIG, f"results/{wildcards.unknown}")


READ = {
    "prompts",
    "samples",
    "likelihoods",
    "sample_likelihoods",
    "similarities",
    "surrogate",
    "candidates",
    "fit_prompts",
    "fit_on",
    "fit_states",
    "states",
    "fit_confidences",
    "confidences",
    "manifests",
}  # named inputs that a step reads by the option of that name; the others are there to be waited for


def files(wildcards, input):
    """params function: a rule's named inputs as the step's options; a list of prompts as SPLIT=FILE."""
    options = []
    for name, value in input.items():
        if name in READ and value:
            paths = [value] if isinstance(value, str) else list(value)
            if name in ("prompts", "fit_on") and not isinstance(value, str):
                paths = [f"{Path(path).stem}={path}" for path in paths]
            options += [f"--{name.replace('_', '-')}", *paths]
    return options


def base_weights(wildcards):
    """Manifest of the converted weights of a cell's answer LLM; empty if they need no conversion."""
    return settings.base_manifest(CONFIG, wildcards.model) or []


def judge_weights(wildcards):
    """The same for the base model of a cell's confidence LLM."""
    return settings.base_manifest(CONFIG, settings.judge(CONFIG, wildcards.model)) or []


def launcher(wildcards):
    """How a training step is started: by itself, or through torchrun on several GPUs."""
    gpus = CONFIG.training.gpus
    if gpus <= 1:
        return ["python", "-m"]
    # --standalone takes a free port: trainings side by side do not meet.
    launch = ["python", "-m", "torch.distributed.run", "--standalone"]
    return [*launch, "--nproc-per-node", gpus, *CONFIG.training.launch, "-m"]


def round_of(wildcards):
    """(reward, number) of the DPO round whose candidates or pairs a rule makes."""
    if not wildcards.round:
        return PAPER, 1
    number, reward, _ = wildcards.round.removeprefix("round").split("/")
    return reward, int(number)


def sampled_from(wildcards):
    """Folder of the confidence LLM that a round's candidates are sampled from: the one that the round starts from."""
    return cell_of(wildcards).weights(cells.round_start(*round_of(wildcards)))


def dpo_round(wildcards):
    """(reward, number) of the DPO round that trains a confidence LLM."""
    reward, number = cells.aligned(wildcards.aligned)
    return reward, number or CONFIG.dpo.rounds


def dpo_pairs(wildcards):
    return cell_of(wildcards).pairs(*dpo_round(wildcards))


def dpo_start(wildcards):
    return cell_of(wildcards).weights(cells.round_start(*dpo_round(wildcards)))


def manifest_of(path):
    """Input function: the manifest of the file or folder that another input function names."""
    return lambda wildcards: manifest(path(wildcards))


def stated_weights(wildcards):
    """Folder of a stated method's confidence LLM; empty for the untrained model."""
    found = settings.weights(
        CONFIG, wildcards.dataset, wildcards.model, wildcards.stated
    )
    return [] if found is None else found[0].weights(found[1])


def judge_option(wildcards):
    """params function: that folder as the step's option."""
    folder = stated_weights(wildcards)
    return ["--weights", folder] if folder else []


def stated_inputs(wildcards):
    """Manifests of that confidence LLM and of its converted base model, as far as there are such."""
    source = REGISTRY.parse(wildcards.stated).source or wildcards.model
    base = settings.base_manifest(CONFIG, settings.judge(CONFIG, source))
    folder = stated_weights(wildcards)
    return [*([base] if base else []), *([manifest(folder)] if folder else [])]


def likelihoods_of(wildcards):
    """The likelihoods of a cell, where its measured method reads them."""
    reads = "likelihoods" in REGISTRY.likelihoods(wildcards.measured)
    served = settings.gives_logprobs(CONFIG, wildcards.model)
    enough = served and REGISTRY.reads_only_logprobs(wildcards.measured)
    return cell_of(wildcards).likelihoods if reads and not enough else []


def sample_likelihoods_of(wildcards):
    """The same of its samples."""
    reads = "sample_likelihoods" in REGISTRY.likelihoods(wildcards.measured)
    return cell_of(wildcards).sample_likelihoods if reads else []


def similarities_of(wildcards):
    """How alike its samples are, where an embedding model says so and its measured method reads it."""
    reads = settings.embeds(CONFIG, wildcards.measured)
    return cell_of(wildcards).similarities if reads else []


def read_prompts(wildcards):
    """Frozen prompts of the splits whose hidden states are read."""
    return frozen(
        wildcards, settings.read_splits(CONFIG, wildcards.dataset, wildcards.model)
    )


def encoded_weights(wildcards):
    """Manifest of the converted weights of the model whose hidden states are read."""
    judged = wildcards.states == "judge"
    return judge_weights(wildcards) if judged else base_weights(wildcards)


def probed_on(wildcards):
    """The cell whose training questions a probed method is fitted on."""
    return Cell(settings.trained_on(CONFIG, wildcards.dataset), wildcards.model)


def probe_prompts(wildcards):
    """Frozen prompts there."""
    dataset = probed_on(wildcards).dataset
    splits = settings.training_splits(CONFIG, wildcards.probed)
    return [cells.prompts(dataset, split) for split in splits]


def probe_states(cell):
    """Input function: the hidden states, in the cell that a function names, that a probed method reads."""
    return lambda wildcards: list(
        map(cell(wildcards).states, REGISTRY.states(wildcards.probed))
    )


def greedy_answers(wildcards):
    """The samples with the greedy answers, where the answer LLM is asked about these."""
    asked = REGISTRY.get(wildcards.prompted).KIND == "asked"
    return [cell_of(wildcards).samples] if asked else []


def greedy_manifests(wildcards):
    return [manifest(path) for path in greedy_answers(wildcards)]


def combined_from(wildcards):
    """Confidences of the rows that a combined one is made from."""
    return list(map(cell_of(wildcards).confidences, REGISTRY.below(wildcards.combined)))


def fitted_row(wildcards):
    """The calibrated or combined row that a rule makes."""
    if "combined" in wildcards.keys():
        return wildcards.combined
    return f"{wildcards.below}+{wildcards.calibration}"


def fitting_cell(wildcards):
    """The cell of the dataset that such a row is fitted on; None for one that fits nothing."""
    if not REGISTRY.fits(fitted_row(wildcards)):
        return None
    return Cell(settings.calibrated_on(CONFIG, wildcards.dataset), wildcards.model)


def fit_prompts(wildcards):
    cell = fitting_cell(wildcards)
    return [] if cell is None else [cells.prompts(cell.dataset, "test")]


def fit_confidences(wildcards):
    """There, the confidences of the rows below."""
    cell = fitting_cell(wildcards)
    below = REGISTRY.below(fitted_row(wildcards))
    return [] if cell is None else list(map(cell.confidences, below))


def made_from(wildcards):
    """Manifests that go into a method's metrics.json."""
    cell, rows = cell_of(wildcards), REGISTRY.leaves(wildcards.method)
    found = [settings.weights(CONFIG, *cell, row) for row in rows]
    weights = [manifest(one[0].weights(one[1])) for one in found if one is not None]
    return [manifest(cell.samples), *dict.fromkeys(weights)]


def table_metrics(names):
    """metrics.json files of the rows of some tables, each once, in the order of the tables."""
    return list(
        dict.fromkeys(
            path
            for name in names
            for _, path in layout.cells(CONFIG.tables[name], REGISTRY)
        )
    )


def ablation_confidences(names):
    """confidences.jsonl files of the rows of the ablations among some tables, whose differences are printed."""
    ablations = [name for name in names if CONFIG.tables[name].kind == "ablation"]
    return [
        path.replace("metrics.json", "confidences.jsonl")
        for path in table_metrics(ablations)
    ]
