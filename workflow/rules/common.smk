# Shared by all rules: the checked configuration and functions of a job's wildcards. No rules. config.smk has put the library
# on the path.
import re
import sys
from functools import partial
from pathlib import Path
from shlex import quote

from orce import make, methods, stages
from orce.config import cells, check, graph, layout, settings, targets
from orce.errors import BadInput
from orce.runtime.process import printable

try:
    CONFIG = check.check(config)
    check.data(CONFIG)
    if workflow.is_main_process:
        check.rows(CONFIG)
    library = check.on_path(CHECKOUT / "workflow")
    interpreter = check.on_path(Path(CONFIG.python or sys.executable).parent)
except BadInput as error:
    raise WorkflowError(printable(str(error)))

REGISTRY = methods.of(CONFIG)
PICTURES = stages.of("figures", CONFIG)
TABLES = CONFIG.paper_tables


wildcard_constraints:
    **targets.wildcards(CONFIG, REGISTRY),


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
COMMAND = "orce {params.command:q} {params.options:q}"
TRAIN = f"{{params.launch:q}} {COMMAND} --out {{params.folder:q}}"
RUN = f"python -m {COMMAND}"
LEASE = "python -m orce.runtime.lease {resources.gpu}/{resources.gpus_wanted} --"


def logged(*words):
    """The shell command of these words, which goes to the screen and into the log."""
    return " ".join([*words, "2>&1 | tee {log:q}"])


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
GRADING = on_gpus(settings.grading_gpus(CONFIG))
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


def stage(rule, wildcards):
    """A job as a stage of the graph."""
    name = graph.RULES[rule].name.format(**dict(wildcards.items()))
    return graph.Stage(rule, cells.Cell(wildcards.dataset, wildcards.model), name)


def reads(rule):
    """Input function: the files of what a job's stage reads, by the names of its options, and those that it waits for."""
    return lambda wildcards: make.inputs(CONFIG, stage(rule, wildcards))


def training_prompts(wildcards):
    """Frozen prompts that the confidence LLMs of a dataset are trained on."""
    dataset = settings.trained_on(CONFIG, wildcards.dataset)
    splits = [
        one
        for one in settings.TRAINING_SPLITS
        if one in CONFIG.datasets[dataset].splits
    ]
    return [cells.prompts(dataset, split) for split in splits]


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
    target = f"results/{wildcards.unknown}"
    raise BadInput(f"{target}: {targets.hint(CONFIG, target)}")


# Params and outputs


def shown(path, caption, category, /, **labels):
    """An output that Snakemake's report shows, with a caption of workflow/report."""
    return report(
        path, caption=f"../report/{caption}.rst", category=category, labels=labels
    )


def argument(step, *names):
    """The part of the configuration that a step needs, for the wildcards `names` of its rule.

    A function, not a string, in which Snakemake would take {x} of a label for a wildcard. With digests of the local files
    that the settings name: replaced files are changed settings.
    """
    return lambda wildcards: pinned(
        step(CONFIG, *(getattr(wildcards, name) for name in names))
    )


def pinned(settings_of_step):
    return settings.to_argument(settings.pinned(settings_of_step, CONVERTED))


def job(rule, leave=()):
    """Parameters of a job: the command with the settings of its stage, and the options of its inputs and of the graph.

    Snakemake records no parameter that depends on inputs: with the inputs, a changed setting would not be noticed.
    """
    return {
        "command": partial(command, rule=rule),
        "options": partial(options, rule=rule, leave=leave),
        "more": partial(more, rule=rule),
    }


def options(wildcards, input, rule, leave=(), only=None):
    """A job's inputs but those to `leave`, or some of them alone."""
    read = {
        name: files
        for name, files in input.items()
        if name in (only or input.keys()) and name not in leave
    }
    return make.options(make.arguments(rule, read))


def command(wildcards, rule):
    step = stages.SHARED.get(rule, rule).replace("_", "-")
    chosen = make.settings(CONFIG, stage(rule, wildcards))
    return [step] if chosen is None else [step, "--settings", pinned(chosen)]


def more(wildcards, rule):
    return make.options(graph.more(CONFIG, stage(rule, wildcards)))


def rendered(config, *tables):
    """Settings of one table, or of all."""
    return settings.tables(config, list(tables) or TABLES)


def task_of(wildcards):
    return CONFIG.datasets[wildcards.dataset].task


def launcher(wildcards):
    """How a training step is started: by itself, or through torchrun on several GPUs."""
    gpus = CONFIG.training.gpus
    if gpus <= 1:
        return ["python", "-m"]
    # --standalone takes a free port: trainings side by side do not meet.
    launch = ["python", "-m", "torch.distributed.run", "--standalone"]
    return [*launch, "--nproc-per-node", gpus, "-m"]
