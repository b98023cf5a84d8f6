"""The judge of answers, in the configuration: which cells it grades, what its step depends on, and what is missing."""

from collections.abc import Iterator
from pathlib import Path

from orce.answers import grades
from orce.config import layout, settings
from orce.config.schema import Config, Source
from orce.errors import BadInput
from orce.methods import Registry
from orce.stage_settings import Grade


def graded(config: Config, dataset: str) -> bool:
    """Whether a judge grades the answers to a dataset."""
    return config.datasets[dataset].grading in grades.MODES


def groups(config: Config) -> bool:
    """Whether the grade step says which answers mean the same."""
    return config.grading is not None and config.grading.group != "none"


def gpus(config: Config) -> int:
    """GPUs of a job of the grade step: none if the judge is on a server and no NLI model runs here."""
    spec = config.grading
    served = spec is None or settings.on_server(config, spec.model)
    return 0 if served and not (spec and spec.group == "nli") else config.gpus


def grade(config: Config, dataset: str, name: str) -> Grade:
    """Settings of the grade step."""
    spec = config.grading
    assert spec is not None  # a rule asks for graded cells alone
    judge, group = spec.model, spec.group
    return Grade(
        task=config.datasets[dataset].task,
        label=f"grade {dataset}/{name}",
        grading=config.datasets[dataset].grading,
        prefer=spec.prefer,
        group=group,
        max_tokens=spec.max_tokens,
        model=settings.model(config, judge),
        engine="openai" if settings.on_server(config, judge) else config.engine.name,
        seed=config.seed,
        nli=settings.encoder(config, spec.nli or Source()) if group == "nli" else None,
        prompt=spec.prompt,
    )


def problems(config: Config) -> Iterator[str]:
    """Errors of grading and judge_reads that a JSON schema cannot express."""
    for name, dataset in config.datasets.items():
        if graded(config, name) and config.grading is None:
            yield f"datasets.{name}.grading: {dataset.grading} needs a judge: grading: {{model: NAME}}, a key of models"
        reads, trainer = dataset.judge_reads, settings.trained_on(config, name)
        taught = config.datasets.get(trainer, dataset).judge_reads
        if reads != taught:
            yield (
                f"datasets.{name}.judge_reads: {reads}, and the confidence LLMs of {trainer}, which judge this dataset, read "
                f"{taught}; give both the same"
            )
    spec = config.grading
    if spec is None:
        return
    if spec.model not in config.models or not config.models[spec.model].source:
        usable = [name for name, model in config.models.items() if model.source]
        yield f"grading.model: {spec.model!r} is not a model with weights or a server; they are {', '.join(usable)}"
    if (spec.group == "nli") != (spec.nli is not None):
        yield "grading.nli: goes with group: nli; give both, nli as {hub: ID} or {path: FOLDER}"


def files(config: Config) -> None:
    """Raises BadInput for a judge's template or NLI folder that is not there or cannot be used, from the run's folder."""
    spec = config.grading
    if spec is None:
        return
    if spec.prompt is not None:
        if not Path(spec.prompt).is_file():
            raise BadInput(
                f"config: grading.prompt: {spec.prompt} does not exist; expected a Jinja template, from {Path.cwd()}"
            )
        grades.grade_form(spec.prompt)
    folder = (spec.nli or {}).get("path")
    if folder is not None and not Path(folder).exists():
        raise BadInput(
            f"config: grading.nli.path: {folder} does not exist; expected the folder of the weights, from {Path.cwd()}"
        )


def notes(config: Config, registry: Registry) -> Iterator[str]:
    """A line for each table of a graded dataset with rows whose own answers only the task grades."""
    for name in config.paper_tables:
        table = config.tables[name]
        rows = [row for row in layout.labels(table, registry) if registry.judges(row) - {"greedy"}]
        own = [row for row in rows if any(registry.kind(leaf) == "prompted" for leaf in registry.leaves(row))]
        if own and graded(config, table.dataset):
            yield (
                f"config: tables.{name}: {', '.join(own)} give answers of their own, which the judge does not see: their "
                "accuracy is by exact grades, the other rows' is not"
            )
