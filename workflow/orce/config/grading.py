"""The judge of answers, in the configuration: which cells it grades, what its step depends on, and what is missing."""

from collections.abc import Iterator
from pathlib import Path

from orce.answers import grades
from orce.config import layout, settings
from orce.errors import BadInput
from orce.methods import Registry
from orce.stage_settings import Encoder, Grade


def graded(config: dict, dataset: str) -> bool:
    """Whether a judge grades the answers to a dataset."""
    return config["datasets"][dataset].get("grading", "exact") in grades.MODES


def judge_manifest(config: dict) -> str | None:
    """Manifest of the judge's weights that a rule makes; None if they come from elsewhere."""
    return settings.base_manifest(config, config["grading"]["model"])


def groups(config: dict) -> bool:
    """Whether the grade step says which answers mean the same."""
    return config.get("grading", {}).get("group", "none") != "none"


def gpus(config: dict) -> int:
    """GPUs of a job of the grade step: none if the judge is on a server and no NLI model runs here."""
    spec = config.get("grading")
    served = spec is None or settings.on_server(config, spec["model"])
    return 0 if served and not (spec and spec.get("group") == "nli") else config["gpus"]


def grade(config: dict, dataset: str, name: str) -> Grade:
    """Settings of the grade step."""
    spec, judge = config["grading"], config["grading"]["model"]
    group = spec.get("group", "none")
    nli: Encoder = {"source": spec.get("nli", {}), "dtype": config["dtype"], "device": config["device"]}
    return Grade(
        task=config["datasets"][dataset]["task"],
        label=f"grade {dataset}/{name}",
        grading=config["datasets"][dataset]["grading"],
        prefer=spec.get("prefer", "judge"),
        group=group,
        max_tokens=spec.get("max_tokens", grades.MAX_TOKENS),
        model=settings.model(config, judge),
        engine="openai" if settings.on_server(config, judge) else config["engine"]["name"],
        seed=config["seed"],
        nli=nli if group == "nli" else None,
        prompt=spec.get("prompt"),
    )


def problems(config: dict) -> Iterator[str]:
    """Errors of grading and judge_reads that a JSON schema cannot express."""
    for name, dataset in config["datasets"].items():
        if graded(config, name) and "grading" not in config:
            yield f"datasets.{name}.grading: {dataset['grading']} needs a judge: grading: {{model: NAME}}, a key of models"
        reads, trainer = dataset.get("judge_reads", "answer"), settings.trained_on(config, name)
        taught = config["datasets"].get(trainer, dataset).get("judge_reads", "answer")
        if reads != taught:
            yield (
                f"datasets.{name}.judge_reads: {reads}, and the confidence LLMs of {trainer}, which judge this dataset, read "
                f"{taught}; give both the same"
            )
    spec = config.get("grading")
    if spec is None:
        return
    if not config["models"].get(spec["model"], {"source": {}})["source"]:
        usable = [name for name, model in config["models"].items() if model["source"]]
        yield f"grading.model: {spec['model']!r} is not a model with weights or a server; they are {', '.join(usable)}"
    if (spec.get("group") == "nli") != ("nli" in spec):
        yield "grading.nli: goes with group: nli; give both, nli as {hub: ID} or {path: FOLDER}"


def files(config: dict) -> None:
    """Raises BadInput for a judge's template or NLI folder that is not there or cannot be used, from the run's folder."""
    spec = config.get("grading", {})
    if "prompt" in spec:
        if not Path(spec["prompt"]).is_file():
            raise BadInput(
                f"config: grading.prompt: {spec['prompt']} does not exist; expected a Jinja template, from {Path.cwd()}"
            )
        grades.grade_form(spec["prompt"])
    folder = spec.get("nli", {}).get("path")
    if folder is not None and not Path(folder).exists():
        raise BadInput(
            f"config: grading.nli.path: {folder} does not exist; expected the folder of the weights, from {Path.cwd()}"
        )


def notes(config: dict, registry: Registry) -> Iterator[str]:
    """A line for each table of a graded dataset with rows whose own answers only the task grades."""
    for name in config["paper_tables"]:
        table = config["tables"][name]
        rows = [row for row in layout.labels(table, registry) if registry.judges(row) - {"greedy"}]
        own = [row for row in rows if any(registry.kind(leaf) == "prompted" for leaf in registry.leaves(row))]
        if own and graded(config, table["dataset"]):
            yield (
                f"config: tables.{name}: {', '.join(own)} give answers of their own, which the judge does not see: their "
                "accuracy is by exact grades, the other rows' is not"
            )
