# What the rules share: the library on the path, the checked configuration, wildcards, and functions. No rules.
import functools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(workflow.basedir) / "workflow"))

from orce import methods, scope
from orce.config import check as configuration
from orce.config import layout, pictures, settings
from orce.runtime.files import BadInput

try:
    configuration.check(config)
except BadInput as error:
    raise WorkflowError(str(error))

# The interpreter and the library come from here and not from each command, so that moving them reruns nothing.
interpreter = Path(config["python"] or sys.executable)
shell.prefix(
    'set -euo pipefail; case "${{CONDA_PREFIX:-}}" in */.snakemake/conda/*) ;; '
    f"*) export PATH='{interpreter.parent}':$PATH ;; esac; "
    f"export PYTHONPATH='{workflow.basedir}/workflow' PYTHONUNBUFFERED=1; "
    # SLURM sends SIGTERM to every process of a job. The log must not end before the step that still writes to it.
    'tee() {{ (trap "" TERM; exec tee "$@"); }}; '
)

ALIGNED = {
    methods.weights(methods.Method("orce", reward, None)): reward
    for reward in methods.REWARDS
}
STATED = r"({})(-({}))?(-from-[a-z0-9.-]+)?".format(
    "|".join(methods.names("stated")), "|".join(methods.REWARDS)
)
PROMPTED = "|".join(methods.names("prompted"))
CANDIDATES = r"candidates(-({})-\d+)?".format("|".join(ALIGNED))
PICTURES = pictures.settings(config)


wildcard_constraints:
    dataset="|".join(config["datasets"]),
    model="|".join(config["models"]),
    split="sft|rl|test",
    aligned="|".join(ALIGNED),
    reward="|".join(methods.REWARDS),
    shard=r"\d+",
    round=r"\d+",
    stated=STATED,
    prompted=PROMPTED,
    sampled="|".join(methods.names("sampled")),
    weights="|".join(config["models"]),
    stage=f"tests|{CANDIDATES}",
    what=f"samples|{PROMPTED}|{CANDIDATES}|{STATED}",


def argument(step):
    """params function: the part of the configuration that a step needs, as its --settings argument."""
    return lambda wildcards: settings.to_argument(
        getattr(settings, step)(config, *_names(wildcards))
    )


def _names(wildcards):
    """dataset, model and method of a rule, as far as it has them."""
    names = [
        getattr(wildcards, key, None) for key in ("dataset", "model", "what", "method")
    ]
    return [name for name in names if name is not None]


def stage(which):
    """params function: settings of a training step."""
    return lambda wildcards: settings.to_argument(
        settings.stage(config, wildcards.dataset, wildcards.model, which)
    )


def base_weights(wildcards):
    """Manifest of the weights that a rule makes for this job's model, if one does."""
    name = getattr(wildcards, "weights", None) or settings.judge(
        config, wildcards.model
    )
    return settings.converted(config, name) or []


def answering_gpus(wildcards):
    """GPUs of a job in which the answer LLM generates: none where it answers behind a server."""
    return 0 if settings.served(config, wildcards.weights) else config["gpus"]


@functools.cache
def wanted():
    """All requests of this run; its targets are known once the rules are read."""
    targets = scope.targets(workflow.dag_settings.targets, workflow.is_main_process)
    return scope.wanted(config, targets)


def requests(wildcards, stage):
    """What this run wants of some weights at one stage."""
    return [
        one
        for one in wanted()
        if scope.stage(one.what) == stage
        and scope.weights(config, one) == wildcards.weights
    ]


def request_files(wildcards, stage):
    return [one.path for one in requests(wildcards, stage)]


def request_inputs(wildcards, stage):
    """The small files that stand for what the requests are served from."""
    found = (scope.inputs(config, one) for one in requests(wildcards, stage))
    return sorted({path for paths in found for path in paths})


def served(what):
    """Input function: the flags of the jobs that serve a cell's request. Ancient: they serve other cells too."""
    return lambda wc: ancient(
        scope.flags(
            config,
            scope.Request(wc.dataset, wc.model, what.format_map(dict(wc.items()))),
        )
    )


def split_arguments(*splits):
    """params function: the frozen prompts of some splits as SPLIT=FILE arguments."""
    return lambda wildcards: " ".join(
        f"{split}=results/{wildcards.dataset}/prompts/{split}.jsonl" for split in splits
    )


def launcher():
    """How a training step is started: by itself, or through accelerate on several GPUs."""
    gpus = config["training"]["gpus"]
    if gpus <= 1:
        return "python -m"
    extra = " ".join(config["training"]["launch"])
    return (
        f"python -m accelerate.commands.launch --num_processes {gpus} {extra} --module"
    )


def round_folder(wildcards, number):
    """Folder of what one DPO round before the last leaves behind."""
    return f"results/{wildcards.dataset}/{wildcards.model}/rounds/{wildcards.aligned}/{number}"


def round_pairs(wildcards, number, kind):
    """Pairs of a round (kind "jsonl") or their manifest: the first round's are shared by name of the reward."""
    if number == 1:
        return f"results/{wildcards.dataset}/{wildcards.model}/pairs/{ALIGNED[wildcards.aligned]}.{kind}"
    return f"{round_folder(wildcards, number)}/pairs.{kind}"


def round_start(wildcards, number):
    """Manifest of the model that a round starts from: the warm start, then what the round before left."""
    if number == 1:
        return f"results/{wildcards.dataset}/{wildcards.model}/sft/manifest.json"
    return f"{round_folder(wildcards, number - 1)}/model/manifest.json"


def confidence_weights(wildcards):
    """Manifest of the confidence LLM that a stated method reads with; nothing for the untrained model."""
    folder = settings.weights(
        config, wildcards.dataset, wildcards.model, wildcards.stated
    )
    return [] if folder is None else f"{folder}/manifest.json"


def unknown_cell(wildcards):
    """Input function of the cells of a dataset or model that the configuration does not have."""
    dataset, model, _ = wildcards.unknown.split("/")
    for kind, name in (("dataset", dataset), ("model", model)):
        if name not in config[f"{kind}s"]:
            known = ", ".join(config[f"{kind}s"])
            raise BadInput(
                f"results/{wildcards.unknown}: no {kind} {name!r}; {kind}s are {known}"
            )


def made_from(wildcards):
    """Manifests that a method's metrics record."""
    found = [f"results/{wildcards.dataset}/{wildcards.model}/samples.manifest.json"]
    folder = settings.weights(
        config, wildcards.dataset, wildcards.model, wildcards.method
    )
    return found + ([] if folder is None else [f"{folder}/manifest.json"])


def table_metrics(names):
    """metrics.json files behind some tables, each once."""
    return sorted(
        {path for name in names for _, path in layout.cells(config["tables"][name])}
    )


def overlap_reports(names):
    """Overlap reports of the datasets that some tables evaluate on."""
    return expand(
        "results/{dataset}/overlap.json",
        dataset=sorted({config["tables"][name]["dataset"] for name in names}),
    )
