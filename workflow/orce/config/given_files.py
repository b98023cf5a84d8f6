"""Answers and confidences made elsewhere, in the configuration: what a row then needs, and whether its files are there."""

from collections.abc import Iterator
from pathlib import Path

from orce import methods
from orce.config import layout, settings
from orce.config.schema import Config, Dataset, External, Table
from orce.config.typed import typed
from orce.errors import BadInput
from orce.methods import Registry
from orce.stage_settings import File

NEW_ANSWERS = ("prompted",)  # kinds of methods that give answers of their own
ASKING = ("prompted", "asked")
JUDGING = ("stated",)


def external(config: Config, name: str) -> Iterator[str]:
    """Problems of an external method's entry under `methods`."""
    typed(config.methods[name], External, f"methods.{name}")
    if name in Registry().names():
        yield f"methods.{name}: {name!r} is a method of this package; choose another name for confidences made elsewhere"


def table(key: str, config: Config, spec: Table, registry: Registry) -> Iterator[str]:
    """Rows that need a model, a question or references that the configuration does not have."""
    if spec.dataset not in config.datasets or set(spec.models) - set(config.models):
        return  # said elsewhere
    fields = config.datasets[spec.dataset].fields or {}
    free = config.datasets[spec.dataset].task == "qa"
    for model in spec.models:
        path = settings.given_answers(config, spec.dataset, model)
        if path is None and not config.models[model].source:
            yield f"models.{model}.source: names no weights and no server; name them, or its answers (models.{model}.answers.path)"
        if path is None and free and "answer" not in fields:
            yield (
                f"datasets.{spec.dataset}.fields.answer: missing; name the column of the answer, or give {model!r} "
                "answers with judgements (answers.path)"
            )
        for row in _leaves(spec, registry):
            yield from _row(f"{key}: {row}", config, spec.dataset, model, row, registry)


def _leaves(spec: Table, registry: Registry) -> list[str]:
    """The rows of a table, and in place of one that is computed from others, those at its bottom."""
    rows = layout.labels(spec, registry)
    return list(dict.fromkeys(leaf for row in rows for leaf in registry.leaves(row)))


def _row(key: str, config: Config, dataset: str, model: str, row: str, registry: Registry) -> Iterator[str]:
    method = registry.parse(row).method
    kind, spec = registry.get(method).kind, config.models[model]
    reads = registry.get(method).needs_weights
    if not spec.source and (kind in ASKING or reads):
        yield f"{key} needs the answer LLM, and of models.{model} only its answers are known (source: {{}})"
    if not spec.source and kind in JUDGING and spec.confidence is None:
        yield f"{key} needs a confidence LLM: name a model with weights as models.{model}.confidence"
    if config.datasets[dataset].task != "qa":
        return
    fields = config.datasets[dataset].fields or {}
    if kind in NEW_ANSWERS and "answer" not in fields:
        yield f"{key} gives answers of its own; to judge them, name datasets.{dataset}.fields.answer"
    if "question" not in fields and (kind in (*ASKING, *JUDGING) or reads):
        yield f"{key} reads the question; name its column, datasets.{dataset}.fields.question"


def require_fields(key: str, dataset: Dataset) -> Iterator[str]:
    """A question of task qa is known by its text, or at least by its id."""
    if dataset.task == "qa" and not {"question", "id"} & set(dataset.fields or {}):
        yield f"{key}.fields.question: missing; name the column of the question"


def files(config: Config) -> None:
    """Raises BadInput naming the first given file of the tables to be made that is not there, from the run's folder."""
    registry = methods.of(config)
    for name in config.paper_tables:
        spec = config.tables[name]
        for model in spec.models:
            cell = (spec.dataset, model)
            _exists(settings.given_answers(config, *cell), _key(config, model))
            for row in _leaves(spec, registry):
                method = registry.parse(row).method
                if registry.get(method).kind == "external":
                    _exists(settings.given_confidences(config, *cell, method), f"methods.{method}.path")


def _key(config: Config, model: str) -> str:
    return f"models.{model}.answers.path" if config.models[model].answers is not None else "answers.path"


def _exists(given: File | None, key: str) -> None:
    if given is not None and not Path(given.path).is_file():
        raise BadInput(
            f"config: {key}: {given.path} does not exist; expected JSON lines, CSV or Parquet, from {Path.cwd()}"
        )
