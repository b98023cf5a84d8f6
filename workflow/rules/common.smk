# Shared by all rules: the checked configuration and functions of a job's wildcards. No rules. config.smk has put the library
# on the path.
import re
import sys
from functools import partial
from pathlib import Path
from shlex import quote

from orce import methods, stages
from orce.config import (
    cells,
    check,
    grading,
    graph,
    hints,
    layout,
    matrix,
    pictures,
    read,
    settings,
    sources,
    weights,
)
from orce.errors import BadInput
from orce.runtime.process import printable

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
    for note in weights.notes(CONFIG, REGISTRY):
        logger.warning(note)
PICTURES = pictures.settings(CONFIG)
TABLES = CONFIG.paper_tables


wildcard_constraints:
    **hints.wildcards(CONFIG, REGISTRY),


# The interpreter, the library and the speed settings are exported here instead of being part of each command, so that
# changing them reruns nothing.
EXPORTED = (
    f"export PATH={quote(interpreter)}:$PATH PYTHONPATH={quote(library)} PYTHONUNBUFFERED=1"
    f" ORCE_SPEED={quote(settings.to_argument(settings.speed(CONFIG)))}; "
)
shell.prefix(
    "set -euo pipefail; "
    + EXPORTED.replace("{", "{{").replace("}", "}}")
    # SLURM sends SIGTERM to every process of a job: tee must outlive the step that writes to it.
    + 'tee() {{ (trap "" TERM; exec tee "$@"); }}; '
)
LEASE = "python -m orce.runtime.lease {resources.gpu}/{resources.gpus_wanted} -- "

# What a job asks for: a few seconds of a core, the same with more memory, or a model with or without GPUs.
QUICK = 50  # jobs of seconds go first: a row of a table is there as soon as its model has done its part
LIGHT = {"mem_mb": 4000, "runtime": 30}
ROOMY = {"mem_mb": 8000, "runtime": 30}
HEAVY = {"mem_mb": CONFIG.resources.mem_mb, "runtime": CONFIG.resources.runtime}


def on_gpus(number):
    return {"gpu": number, "gpus_wanted": number} | HEAVY


def answering_gpus(wildcards):
    """None if the answer LLM runs on a server."""
    return 0 if settings.on_server(CONFIG, wildcards.model) else CONFIG.gpus


GPU_JOB = on_gpus(CONFIG.gpus)
TRAINING = on_gpus(CONFIG.training.gpus)
GRADING = on_gpus(grading.gpus(CONFIG))
ANSWERING = on_gpus(answering_gpus)


class Shards:
    """The jobs that a stage is divided into; a single one writes the stage's output itself."""

    def __init__(self, shards):
        self.shards = shards
        self.end = "-{shard}" if shards > 1 else ""
        self.params = {
            "shard": ["--shard", f"{{shard}}/{shards}"] if shards > 1 else [],
            "note": " (shard {shard})" if shards > 1 else "",
        }

    def output(self, whole, part, manifest=True):
        """The output of one job under the folder of its cell; readers of the whole file may want its manifest."""
        out = f"results/{{dataset}}/{{model}}/{part if self.end else whole}{self.end}.jsonl"
        sealed = manifest and not self.end
        return {"out": out} | ({"manifest": cells.manifest(out)} if sealed else {})

    def log(self, stem):
        return f"results/logs/{stem}{self.end}.log"

    def benchmark(self, stem):
        return f"results/benchmarks/{stem}{self.end}.tsv"


ANSWERS = Shards(CONFIG.answers.shards)
READINGS = Shards(CONFIG.confidence.shards)

# Models whose weights a rule makes, and the folders of these.
MADE = [name for name, spec in CONFIG.models.items() if settings.made(spec)]
CONVERTED = {str(Path(cells.converted(name)).parent) for name in MADE}


# Inputs

TESTED = {  # the test questions of a cell, with the answers to them
    "prompts": "results/{dataset}/prompts/test.jsonl",
    "samples": "results/{dataset}/{model}/samples.jsonl",
    "manifest": "results/{dataset}/{model}/samples.manifest.json",
}


def stage(rule, wildcards):
    """A job as a stage of the graph."""
    name = graph.RULES[rule].name.format(**dict(wildcards.items()))
    return graph.Stage(rule, cells.Cell(wildcards.dataset, wildcards.model), name)


def read_by(rule, name, wildcards):
    """The stages that make an input of a job."""
    return graph.reads(CONFIG, stage(rule, wildcards)).get(name, [])


def reads(rule, name):
    """Input function: the files of the stages that the graph has under this name; the first one of each."""
    return lambda wildcards: [one.files[0] for one in read_by(rule, name, wildcards)]


def sealed(rule, name):
    """Input function: the manifests of these files."""
    return lambda wildcards: [one.manifest for one in read_by(rule, name, wildcards)]


def base(rule):
    """Input function: the manifest of the rule's model, where the run converts its weights."""
    return lambda wildcards: (
        settings.base_manifest(CONFIG, graph.model(CONFIG, stage(rule, wildcards)))
        or []
    )


def chosen(wildcards, names):
    return [getattr(wildcards, name) for name in names]


def frozen(splits, *names):
    """Input function: frozen prompts of the splits that a function gives for some wildcards."""
    return lambda wildcards: [
        cells.prompts(wildcards.dataset, split)
        for split in splits(CONFIG, *chosen(wildcards, names))
    ]


def training_prompts(wildcards, splits=settings.TRAINING_SPLITS):
    """Frozen prompts that the confidence LLMs of a dataset are trained on."""
    dataset = settings.trained_on(CONFIG, wildcards.dataset)
    has = CONFIG.datasets[dataset].splits
    return [cells.prompts(dataset, split) for split in splits if split in has]


def fit_on(wildcards):
    """Frozen prompts that a method is fitted on: of the training splits, or the test prompts of the set to calibrate on."""
    if read_by("fit", "fit_states", wildcards):
        splits = settings.training_splits(CONFIG, wildcards.fitted)
        return training_prompts(wildcards, splits)
    on = {one.cell.dataset for one in read_by("fit", "fit_confidences", wildcards)}
    return [cells.prompts(dataset, "test") for dataset in on]


def table_metrics(names):
    """metrics.json files of the rows of some tables, each once, in the order of the tables."""
    found = [layout.cells(CONFIG.tables[name], REGISTRY) for name in names]
    return list(dict.fromkeys(path for rows in found for _, path in rows))


def ablation_confidences(names):
    """confidences.jsonl files of the rows of the ablations among some tables, whose differences are printed."""
    names = [name for name in names if CONFIG.tables[name].kind == "ablation"]
    return [
        str(Path(path).with_name("confidences.jsonl")) for path in table_metrics(names)
    ]


def of_table(wildcards, files):
    return files([wildcards.table])


def refuse(wildcards):
    """Raises BadInput: no rule makes this target."""
    hints.refuse(CONFIG, f"results/{wildcards.unknown}")


# Params and outputs


def shown(path, caption, category, /, **labels):
    """An output that Snakemake's report shows, with a caption of workflow/report."""
    return report(
        path, caption=f"../report/{caption}.rst", category=category, labels=labels
    )


def of(rule):
    """What picks the settings of a rule's stage from the configuration, for its wildcards."""
    return partial(stages.of, rule)


def argument(step, *names):
    """The part of the configuration that a step needs, for the wildcards `names` of its rule.

    A function, not a string, in which Snakemake would take {x} of a label for a wildcard. With digests of the local files
    that the settings name: replaced files are changed settings.
    """
    return lambda wildcards: settings.to_argument(
        sources.pinned(step(CONFIG, *chosen(wildcards, names)), CONVERTED)
    )


def rendered(config, *tables):
    """Settings of one table, or of all."""
    return settings.tables(config, list(tables) or TABLES)


# Inputs without an option of their name: a job waits for them, or a parameter has their folder.
WAITED_FOR = ("base", "manifest", "pairs", "sft", "start", "weights")


def files(wildcards, input):
    """A rule's named inputs as the step's options; a list of prompts as SPLIT=FILE."""
    options = []
    for name, value in input.items():
        if name not in WAITED_FOR and value:
            paths = [value] if isinstance(value, str) else list(value)
            if name in ("prompts", "fit_on") and not isinstance(value, str):
                paths = [f"{Path(path).stem}={path}" for path in paths]
            options += [f"--{name.replace('_', '-')}", *paths]
    return options


def inputs_and(step, *names):
    """Parameters: the options of the inputs, and the settings as `argument` has them."""
    return {"files": files, "settings": argument(step, *names)}


def weights_of(wildcards, rule):
    """Folder of the confidence LLM that a job reads, in a list; an empty one where it is untrained."""
    made = read_by(rule, "weights", wildcards)
    return [one.cell.weights(one.name) for one in made]


def start_of(wildcards):
    return weights_of(wildcards, "candidates")[0]


def weights_option(wildcards):
    return [
        word for path in weights_of(wildcards, "state") for word in ("--weights", path)
    ]


def task_of(wildcards):
    return CONFIG.datasets[wildcards.dataset].task


def module_of(wildcards, kind):
    """The module of the method that a wildcard names."""
    return REGISTRY.module(getattr(wildcards, kind))


def seed_and_flag(wildcards):
    """The seed of the realised answers, and the flag that keeps the replies where a judge reads them.

    One parameter and not two: a further one would rerun what is there without it.
    """
    whole = settings.reasoning_is_read(CONFIG, wildcards.dataset)
    return [CONFIG.seed, "--reasoning"] if whole else CONFIG.seed


def launcher(wildcards):
    """How a training step is started: by itself, or through torchrun on several GPUs."""
    gpus = CONFIG.training.gpus
    if gpus <= 1:
        return ["python", "-m"]
    # --standalone takes a free port: trainings side by side do not meet.
    launch = ["python", "-m", "torch.distributed.run", "--standalone"]
    return [*launch, "--nproc-per-node", gpus, "-m"]
