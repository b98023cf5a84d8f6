# What the rules share: the library on the path, the checked configuration, wildcards, and functions. No rules.
import sys
from pathlib import Path

sys.path.insert(0, str(Path(workflow.basedir) / "workflow"))

from orce import config as settings
from orce import methods
from orce.files import BadInput
from orce.tables import layout

try:
    settings.check(config)
except BadInput as error:
    raise WorkflowError(str(error))

# The interpreter and the library come from here and not from each command, so that moving them reruns nothing.
interpreter = Path(config["python"] or sys.executable)
shell.prefix(
    'set -euo pipefail; case "${{CONDA_PREFIX:-}}" in */.snakemake/conda/*) ;; '
    f"*) export PATH='{interpreter.parent}':$PATH ;; esac; "
    f"export PYTHONPATH='{workflow.basedir}/workflow' PYTHONUNBUFFERED=1; "
)

ALIGNED = {
    "dpo" if reward == "sc" else f"dpo-{reward}": reward for reward in methods.REWARDS
}
METHOD = r"(-({}))?(-from-[a-z0-9.-]+)?".format("|".join(methods.REWARDS))


wildcard_constraints:
    dataset="|".join(config["datasets"]),
    model="|".join(config["models"]),
    split="sft|rl|test",
    aligned="|".join(ALIGNED),
    reward="|".join(methods.REWARDS),
    shard=r"\d+",
    round=r"\d+",
    stated="({}){}".format("|".join(methods.names("stated")), METHOD),
    prompted="|".join(methods.names("prompted")),
    sampled="|".join(methods.names("sampled")),


def argument(step):
    """params function: the part of the configuration that a step needs, as its --settings argument."""
    return lambda wildcards: settings.to_argument(
        getattr(settings, step)(config, *_names(wildcards))
    )


def _names(wildcards):
    """dataset, model and method of a rule, as far as it has them."""
    named = [getattr(wildcards, key, None) for key in ("dataset", "model")]
    method = next(
        (
            getattr(wildcards, key)
            for key in ("stated", "prompted", "method")
            if key in wildcards.keys()
        ),
        None,
    )
    return [name for name in [*named, method] if name is not None]


def stage(which):
    """params function: settings of a training step."""
    return lambda wildcards: settings.to_argument(
        settings.stage(config, wildcards.dataset, wildcards.model, which)
    )


def base_weights(wildcards):
    """Manifests of the weights that a rule makes for this cell's models, if one does."""
    name = wildcards.model
    if "stated" in wildcards.keys():
        name = methods.parse(wildcards.stated).source or name
    found = {
        settings.converted(config, one) for one in (name, settings.judge(config, name))
    }
    return sorted(found - {None})


def answering_gpus(wildcards):
    """GPUs of a job in which the answer LLM generates: none where it answers behind a server."""
    return 0 if settings.served(config, wildcards.model) else config["gpus"]


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


def sampled_prompts(wildcards):
    names = settings.splits(config, wildcards.dataset, wildcards.model)
    return [f"results/{wildcards.dataset}/prompts/{split}.jsonl" for split in names]


def sampled_arguments(wildcards):
    names = settings.splits(config, wildcards.dataset, wildcards.model)
    return split_arguments(*names)(wildcards)


def prompt_manifests(wildcards):
    return [
        path.replace(".jsonl", ".manifest.json") for path in sampled_prompts(wildcards)
    ]


def confidence_weights(wildcards):
    """Manifest of the confidence LLM that a stated method reads with; nothing for the untrained model."""
    folder = settings.weights(
        config, wildcards.dataset, wildcards.model, wildcards.stated
    )
    return [] if folder is None else f"{folder}/manifest.json"


def made_from(wildcards):
    """Manifests that a method's metrics record."""
    found = [f"results/{wildcards.dataset}/{wildcards.model}/samples.manifest.json"]
    method = methods.parse(wildcards.method)
    if methods.get(method.name).KIND == "stated":
        folder = settings.weights(
            config, wildcards.dataset, wildcards.model, wildcards.method
        )
        found += [] if folder is None else [f"{folder}/manifest.json"]
    return found


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
