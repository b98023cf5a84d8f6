"""The grader of answers, in the configuration: which cells it grades, what its stage depends on, and what is missing."""

from collections.abc import Iterator
from pathlib import Path

from orce.config import settings
from orce.config.schema import Config
from orce.errors import BadInput
from orce.tasks.grading import grade_form


def graded(config: Config, dataset: str) -> bool:
    """Whether a grader grades the answers to a dataset."""
    return config.datasets[dataset].grading == "grader"


def groups(config: Config) -> bool:
    """Whether the stage says which answers mean the same."""
    return config.grading is not None and config.grading.group != "none"


def gpus(config: Config) -> int:
    """GPUs of a job: none if the grader is on a server and no NLI model runs here."""
    spec = config.grading
    local = spec is not None and (spec.group == "nli" or not settings.on_server(config, spec.model))
    return config.gpus if local else 0


def problems(config: Config) -> Iterator[str]:
    spec = config.grading
    for name, dataset in config.datasets.items():
        if graded(config, name) and spec is None:
            yield f"datasets.{name}.grading: needs a grader: grading: {{model: NAME}}, a key of models"
        reads, trainer = dataset.judge_reads, settings.trained_on(config, name)
        taught = config.datasets.get(trainer, dataset).judge_reads
        if reads != taught:
            yield (
                f"datasets.{name}.judge_reads: {reads}, and the confidence LLMs of {trainer}, which judge this dataset, read "
                f"{taught}; give both the same"
            )
    if spec is None:
        return
    if spec.model not in config.models or not config.models[spec.model].source:
        usable = [name for name, model in config.models.items() if model.source]
        yield f"grading.model: {spec.model!r} is not a model with weights or a server; they are {', '.join(usable)}"
    if (spec.group == "nli") != (spec.nli is not None):
        yield "grading.nli: goes with group: nli; give both, nli as {hub: ID} or {path: FOLDER}"


def files(config: Config) -> None:
    """Raises BadInput for a template or NLI folder that is not there or cannot be used, from the run's folder."""
    spec = config.grading
    if spec is None:
        return
    for key, path in {"prompt": spec.prompt, "nli.path": (spec.nli or {}).get("path")}.items():
        if path is not None and not Path(path).exists():
            raise BadInput(f"config: grading.{key}: {path} does not exist; expected it from {Path.cwd()}")
    grade_form(spec.prompt)
