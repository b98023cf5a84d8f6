# The configuration, checked, and functions of a job's wildcards. It is config.yaml, then the files of --configfile; the last one
# wins. An unreadable file is reported with its name and line.
import gc
import inspect
import re
import sys
from functools import cache, partial
from pathlib import Path
from shlex import quote

from snakemake.utils import update_config

# Not workflow.basedir: that is another folder where workflow/Snakefile was called.
CHECKOUT = Path(str(workflow.current_basedir)).parents[1]
sys.path.insert(0, str(CHECKOUT / "workflow"))
# A plan makes many objects that stay; to walk them again and again took a third of its time.
gc.set_threshold(100_000, 50, 100)

from orce import make, methods, stages
from orce.apps import plan
from orce.config import cells, check, graph, layout, load, settings, targets
from orce.errors import BadInput
from orce.runtime import preflight
from orce.runtime.process import printable

try:
    if Path("config.yaml").exists():
        load.mapping("config.yaml")
except BadInput as error:
    raise WorkflowError(str(error))


configfile: "config.yaml"


update_config(config, load.as_in_a_file(workflow.config_settings.config))
try:
    if unset := load.incomplete(config, Path.cwd()):
        raise BadInput(unset)
    if workflow.is_main_process:
        given = [Path(path) for path in workflow.overwrite_configfiles]
        # Snakemake takes the last of two equal keys, and forgets in which order two keys of a source came.
        whole = [path for path in (Path("config.yaml"), *given) if path.suffix != ".json" and path.exists()]
        load.in_order(whole)
        for note in load.presets_given_late(given, CHECKOUT / "config"):
            logger.warning(note)
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
    f" ORCE_SPEED={quote(settings.to_argument(settings.speed(CONFIG)))} ORCE_FETCHED=; "
)
shell.prefix(
    "set -euo pipefail; "
    + EXPORTED.replace("{", "{{").replace("}", "}}")
    # SLURM sends SIGTERM to every process of a job: tee must outlive the step that writes to it.
    + 'tee() {{ (trap "" TERM; exec tee "$@"); }}; '
)
# The output of a job goes to the screen and into its log.
RUN = "{params.command:q} {params.inputs:q} {params.more:q} {params.outputs:q} 2>&1 | tee {log:q}"
LEASED = f"python -m orce.runtime.lease {{resources.gpu}}/{{resources.gpus_wanted}} -- {RUN}"


# What a job asks for: a few seconds of a core, or a model with or without GPUs.
QUICK = 50  # jobs of seconds go first: a row of a table is there as soon as its model has done its part
LIGHT = {"mem_mb": 8000, "runtime": 60}


def on_gpus(number, name):
    minutes = lambda wildcards, attempt: attempt * (CONFIG.resources.runtime or limit(wildcards, name))
    return {"gpu": number, "gpus_wanted": number, "mem_mb": CONFIG.resources.mem_mb, "runtime": minutes}


def limit(wildcards, name):
    """Minutes by a job's estimate; `tune` is in no plan. A rule that took over resources is told by its own wildcard."""
    own = [rule for rule, about in graph.RULES.items() if about.name.strip("{}") in wildcards.keys()]
    return plan.minutes(CONFIG, None if "trial" in wildcards.keys() else stage([*own, name][0], wildcards))


# The stages that are divided into shards, which share the work of a cell: their files' kind, and the file of a shard.
SHARDED = {
    "sample": ("samples", "shards/{ungraded}samples"),
    "elicit": ("elicited", "shards/{prompted}"),
    "candidates": ("candidates", "{round}shards/candidates"),
    "state": ("stated", "shards/{stated}"),
    "likelihoods": ("likelihoods", "shards/{scored}"),
    "states": ("states", "shards/states-{states}"),
}


def divided(name):
    return name in SHARDED and graph.shards(CONFIG, name) > 1


def of_job(path, name):
    """A path that each job of a stage has for itself."""
    stem, ending = path.rsplit(".", 1)
    return f"{stem}-{{shard}}.{ending}" if divided(name) else path


def makes(name, whole=False):
    """The files of a stage in a cell, by the parameters of run; of a shard, unless they are the whole's."""
    about = graph.RULES[name]
    files = about.files(about.name, about.beside)
    if divided(name) and not whole:
        files = [of_job(f"{SHARDED[name][1]}.jsonl", name)]
    out, *more = (f"results/{{dataset}}/{{model}}/{file}" for file in files)
    return {"out": out} | {Path(path).name.split(".")[-2]: path for path in more}


# Models whose weights a rule makes, the folders of these, and models whose weights a rule fetches.
MADE = [name for name, spec in CONFIG.models.items() if settings.made(spec)]
FETCHED = [name for name, spec in CONFIG.models.items() if "hub" in spec.source]
CONVERTED = {str(Path(cells.converted(name)).parent) for name in MADE}


# Settings with digests of the local files that they name: replaced files are changed settings.
pinned = partial(settings.pinned, made=CONVERTED)


def stage(name, wildcards):
    """A job of a rule as a stage of the graph."""
    within = graph.RULES[name].name.format(**dict(wildcards.items()))
    return graph.Stage(name, cells.Cell(wildcards.dataset, wildcards.model), within)


@cache
def same_settings():
    """No files, as an input of all runs. Ends the run if files with other settings would be kept.

    An error would not do: Snakemake would take the file without the job that has it.
    """
    if workflow.is_main_process:
        wanted = workflow.dag_settings.targets
        try:
            preflight.same_settings(make.otherwise(CONFIG, wanted, preflight.kept(workflow), pinned))
        except BadInput as error:
            logger.error(printable(str(error)))
            raise SystemExit(1)
    return []


def reads(name):
    """Input function: the files of what a job's stage reads, by the names of its options, and those that it waits for."""
    return lambda wildcards: make.inputs(CONFIG, stage(name, wildcards))


def refuse(wildcards):
    """Raises BadInput: no rule makes this target."""
    target = f"results/{wildcards.unknown}"
    raise BadInput(f"{target}: {targets.hint(CONFIG, target)}")


def table_metrics(names):
    """metrics.json files of the rows of some tables, each once, in the order of the tables."""
    tables = [layout.metrics_paths(CONFIG.tables[name], REGISTRY) for name in names]
    return list(dict.fromkeys(path for paths in tables for path in paths))


def ablation_confidences(names):
    """confidences.jsonl files of the rows of the ablations among some tables, whose differences are printed."""
    names = [name for name in names if CONFIG.tables[name].kind == "ablation"]
    return [str(Path(path).with_name("confidences.jsonl")) for path in table_metrics(names)]


def shown(path, caption, category, /, **labels):
    """An output that Snakemake's report shows, with a caption of workflow/report."""
    return report(path, caption=f"../report/{caption}.rst", category=category, labels=labels)


def job(name, *names, **given):
    """Parameters of a rule's jobs: the command with the settings of its stage, and the options of its files and of the graph.

    names: wildcards that the settings of a stage outside of the graph depend on; given: its further options, values or functions
    of the wildcards. Snakemake records no parameter that depends on files, so that what a job is run again for stands apart.
    """
    parameters = {
        "command": partial(command, name=name, names=names),
        "inputs": lambda wildcards, input: make.options(make.arguments(name, dict(input.items()))),
        "more": partial(more, name=name, given=given),
        "outputs": lambda wildcards, output: make.options(make.arguments(name, dict(output.items()))),
        "note": (lambda wildcards: f" (shard {wildcards.shard})") if divided(name) else "",
    }
    if name == "derive":  # the digests of a task and a method of a user's own
        parameters["modules"] = lambda wildcards: settings.to_argument(
            pinned(graph.RULES[name].more(CONFIG, stage(name, wildcards)))
        )
    for function in filter(callable, parameters.values()):
        function.__signature__ = inspect.signature(function)  # Snakemake asks for it several times a job
    return parameters


def command(wildcards, name, names):
    run = stages.SHARED.get(name, name)
    start = ["python", "-m", "orce", run.replace("_", "-")]
    if run in graph.TRAININGS and (gpus := CONFIG.training.gpus) > 1:
        # --standalone takes a free port: trainings side by side do not meet.
        start[1:1] = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", gpus]
    if name in graph.RULES:
        chosen = make.settings(CONFIG, stage(name, wildcards))
    else:
        chosen = stages.of(name, CONFIG, *(getattr(wildcards, wildcard) for wildcard in names))
    return start if chosen is None else [*start, "--settings", settings.to_argument(pinned(chosen))]


def more(wildcards, name, given):
    shard = {"shard": f"{wildcards.shard}/{graph.shards(CONFIG, name)}"} if "shard" in wildcards.keys() else {}
    own = graph.RULES[name].more(CONFIG, stage(name, wildcards)) if name in graph.RULES else {}
    return make.options({key: get(wildcards) if callable(get) else get for key, get in given.items()} | shard | own)
