"""Validate the configuration before anything runs. orce.config.settings then selects what each step needs."""

import importlib.util
import itertools
import re
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from orce import methods, tasks
from orce.alignment import registry as rewards
from orce.config import combined, given_files, grading, layout, removed, settings, sources, weights
from orce.config.layout import check_names
from orce.config.schema import Config, Count, Dataset, FromZero, Optimisation
from orce.config.settings import TRAINING_SPLITS
from orce.config.typed import typed, unknown
from orce.errors import BadInput
from orce.llm import engines
from orce.tasks import choice, qa
from orce.tasks.examples import SHOWN
from orce.tasks.rows import local

OURS = (  # fields of a request that the package sets
    "model", "messages", "stream", "n", "seed", "temperature", "top_p", "max_tokens", "max_completion_tokens", "logprobs"
)  # fmt: skip
LONGEST_LABEL = 100  # characters
FIRST_READ = 2**24  # bytes up to which a dry run looks into a file of JSON, CSV or TSV
# What the rules write next to a cell's folders: in results/, results/DATASET/ and results/DATASET/MODEL/.
RESERVED = {
    "datasets": ("models", "logs", "benchmarks", "metrics.csv", "tuned.yaml"),
    "models": ("prompts", "overlap.json", "overlap.manifest.json"),
    "methods": ("dpo", "pairs", "shards", "states", "tune"),
}


def check(config: dict[str, Any]) -> Config:
    """The configuration, every key checked. Merged sources are reduced to the intended one (orce.config.sources), in place.

    Raises BadInput with one line that names the key and says what would be right.
    """
    sources.clean(config)
    for problem in itertools.chain(removed.problems(config), _conflicts(config)):
        raise BadInput(f"config: {problem}")
    checked = typed(config, Config)
    for problem in _problems(checked):
        raise BadInput(f"config: {problem}")
    return checked


def data(config: Config) -> None:
    """Raises BadInput naming the first local file or program that is not there, seen from the folder of the run, or that
    does not fit the settings."""
    for part, entries, what in (
        ("datasets", config.datasets, "folder or file of the data"),
        ("models", config.models, "folder of the weights"),
    ):
        for name, entry in entries.items():
            path = entry.source.get("path")
            if path is not None and not Path(path).exists():
                raise BadInput(
                    f"config: {part}.{name}.source.path: {path} does not exist; expected the {what}, from {Path.cwd()}"
                )
    for name, dataset in config.datasets.items():
        if problem := _one_file(dataset):
            raise BadInput(f"config: datasets.{name}.splits: {problem}")
    python = config.python
    if python is not None and shutil.which(python) is None:
        raise BadInput(f"config: python: {python} is not there, or no program; expected the path of an interpreter")
    for problem in weights.problems(config, methods.of(config)):
        raise BadInput(f"config: {problem}")
    given_files.files(config)
    grading.files(config)
    for name in config.training.report_to:
        if importlib.util.find_spec(name) is None:
            raise BadInput(f"config: training.report_to: {name} is not installed; pip install {name}")


def _one_file(dataset: Dataset) -> str | None:
    """What is wrong where the splits of one file are said to be different ones, and would have its rows in common."""
    path, names = dataset.source.get("path"), sorted({spec.origin for spec in dataset.splits.values()})
    if dataset.task not in ("choice", "qa") or path is None or not Path(path).is_file() or len(names) == 1:
        return None
    return (
        f"{path} is one file, so from: {' and from: '.join(names)} are the same rows, and training questions would be in the "
        "test set; give all splits the same from, which cuts them apart, or a folder with a file for each"
    )


def rows(config: Config) -> None:
    """Raises BadInput naming the first dataset whose local files begin with rows that its `fields` misread."""
    for name, dataset in config.datasets.items():
        if dataset.task not in ("choice", "qa"):
            continue
        task, source = {"choice": choice, "qa": qa}[dataset.task], settings.data_source(config, name)
        for split in {spec.origin for spec in dataset.splits.values()}:
            try:
                path = local(source, split)
            except BadInput:
                continue
            # JSON, CSV and TSV files are read as a whole.
            if path.suffix not in (".jsonl", ".parquet") and path.stat().st_size > FIRST_READ:
                continue
            try:
                task.load(source, split, first=3)
            except BadInput as error:
                raise BadInput(f"config: datasets.{name}: {error}") from None


def required() -> list[str]:
    """Top-level keys that every configuration has."""
    return [field.name for field in msgspec.structs.fields(Config) if field.required]


def _conflicts(config: dict[str, Any]):
    """Sources whose keys do not go together."""
    for part in ("datasets", "models"):
        entries = config.get(part)
        for name, entry in entries.items() if isinstance(entries, dict) else ():
            source = entry.get("source") if isinstance(entry, dict) else None
            if isinstance(source, dict) and (problem := sources.problem(part, source)):
                yield f"{part}.{name}.source: {problem}"


def _problems(config: Config):
    """Errors that types cannot express."""
    datasets, models = config.datasets, config.models
    for part, reserved in RESERVED.items():
        for name in (name for name in getattr(config, part) if name in reserved):
            yield f"{part}.{name}: {name!r} is what a run itself writes under results/; choose another name"
    if config.engine.name not in engines.names():
        yield f"engine.name: no engine {config.engine.name!r}; engines are {', '.join(engines.names())}"
    for name, dataset in datasets.items():
        yield from _dataset_problems(f"datasets.{name}", dataset, datasets)
    for name, model in models.items():
        yield from _model_problems(f"models.{name}", name, model, models)
    for name in config.paper_tables:
        if name not in config.tables:
            yield f"paper_tables: no table {name!r}; tables are {', '.join(config.tables)}"
    yield from grading.problems(config)
    registry = methods.of(config)
    yield from combined.problems(registry)
    for name, table in config.tables.items():
        yield from combined.table(f"tables.{name}.methods", table, registry)
        yield from _table_problems(f"tables.{name}", table, datasets, models)
        yield from _row_problems(f"tables.{name}.methods", table, registry)
        yield from _untrainable(f"tables.{name}", table, datasets, registry)
        yield from _unmeasurable(f"tables.{name}", table, datasets, models, registry)
        yield from given_files.table(f"tables.{name}.methods", config, table, registry)
    check_names(config.tables)
    if config.device == "cuda" and 0 in (config.gpus, config.training.gpus):
        yield "gpus and training.gpus must be at least 1 where device is cuda"
    yield from _method_problems(config, registry)
    yield from _dtype_problems(config, registry)
    yield from _reward_problems(registry)
    yield from _text_problems(config, registry)
    trained = {f"methods.{name}": settings.trained_options(config, name)["batch_size"] for name in registry.trained()}
    sizes = {"sft": config.sft.batch_size, "dpo": config.dpo.batch_size}
    for key, size in (sizes | trained).items():
        yield from _batch_problems(key, size, max(1, config.training.gpus))


def _dtype_problems(config, registry):
    if config.dtype != "float16":
        return
    for name in config.paper_tables:
        trained = registry.with_weights(layout.labels(config.tables[name], registry))
        if trained:
            yield (
                f"dtype: {trained[0]} of the table {name!r} is trained, and in float16 small gradients vanish; take "
                "bfloat16 or float32, or list only methods without training under methods"
            )
            return


def _method_problems(config, registry):
    """The settings of each method: those that its SETTINGS has, each of the kind of its default, and of a training."""
    for name, given in registry.given.items():
        if "path" in given:
            yield from given_files.external(config, name)
        elif "of" not in given:
            method = registry.get(name)  # BadInput for a method that is nowhere, or whose file is broken
            known = {key: _kind(default) for key, default in method.settings.items()}
            if method.train:
                known |= {field.name: field.type for field in msgspec.structs.fields(Optimisation)}
            for key, value in given.items():
                if key not in (*known, "module"):
                    raise unknown(f"methods.{name}", key, [*known])
                typed(value, known.get(key, str), f"methods.{name}.{key}")
    for name in registry.names("prompted"):
        if "max_tokens" not in registry.settings(name):
            yield f"methods.{name}.max_tokens: missing; say how many tokens the text of a prompted method may take"


def _kind(default):
    """What a setting may be, by its default."""
    if isinstance(default, bool) or not isinstance(default, int | float):
        return type(default)
    return Count if isinstance(default, int) and default else FromZero


def _reward_problems(registry):
    for name, path in registry.rewards.given.items():
        if name in rewards.LABELS:
            yield f"rewards.{name}: {name!r} is a reward of this package; choose another name"
        rewards.own(path)  # BadInput for what its file lacks


def _batch_problems(stage, size, processes):
    if size % processes:
        yield f"{stage}.batch_size: {size} is not a multiple of training.gpus, {processes}"


def _dataset_problems(key, dataset, datasets):
    splits = dataset.splits
    if "test" not in splits:
        yield f"{key}.splits: no test; its examples are those of the tables"
        return
    yield from _task_problems(key, dataset.task)
    yield from _reading_problems(key, dataset)
    yield from given_files.require_fields(key, dataset)
    source = dataset.confidence_from
    if source is not None and (source not in datasets or datasets[source].confidence_from is not None):
        yield f"{key}.confidence_from: {source!r} is not a dataset that is trained on; they are " + ", ".join(
            name for name in datasets if datasets[name].confidence_from is None
        )
    yield from _split_problems(key, splits, dataset.remove_overlap)
    yield from _calibration_problems(key, dataset, datasets)
    yield from _trainer_problems(key, dataset, datasets.get(source))


def _calibration_problems(key, dataset, datasets):
    """A set to fit calibrations on: judged by the same confidence LLMs, and not the test split."""
    other = datasets.get(dataset.calibrate_on)
    if dataset.calibrate_on is None:
        return
    judged_by = dataset.confidence_from or key.removeprefix("datasets.")
    if other is None or other.confidence_from != judged_by:
        yield (
            f"{key}.calibrate_on: {dataset.calibrate_on!r} is not a dataset with confidence_from: {judged_by}; add one, with "
            "a validation split, or a held-out part of a training split, as its test split"
        )
    elif (other.task, other.source) == (dataset.task, dataset.source) and (
        other.splits["test"].origin == dataset.splits["test"].origin
    ):
        yield (
            f"{key}.calibrate_on: {dataset.calibrate_on!r} has the test questions of this dataset; nothing is fitted on "
            "those, name another split of the source"
        )


def _trainer_problems(key, dataset, trainer):
    """A dataset that shares a source split with the training of its judges must be cut apart from that."""
    if trainer is None or (dataset.task, dataset.source) != (trainer.task, trainer.source):
        return
    origin = dataset.splits["test"].origin
    shared = [name for name in TRAINING_SPLITS if name in trainer.splits and trainer.splits[name].origin == origin]
    if shared and trainer.remove_overlap:
        yield f"{key}.splits.test.from: with remove_overlap, {origin!r} cannot also be a training split's"
    for name in shared:
        if trainer.splits[name].share is None:
            yield (
                f"{key}.splits.test.from: datasets.{dataset.confidence_from}.splits.{name} takes {origin!r} too; "
                "give that a size, so that the two are cut apart"
            )


def _reading_problems(key, dataset):
    """How the tasks qa and choice read a source; no other task has such keys."""
    task = tasks.get(dataset.task) if tasks.known(dataset.task) else None
    known, options = getattr(task, "FIELDS", {}), getattr(task, "OPTIONS", ())
    for name in settings.READING:
        if getattr(dataset, name) is not UNSET and name not in ("fields", *options):
            yield f"{key}.{name}: a key of task {'qa' if name in qa.OPTIONS else 'choice'}, and not of {dataset.task}"
    given = dataset.fields or {}
    if given and not known:
        yield f"{key}.fields: a key of the tasks qa and choice, and not of {dataset.task}"
    for name in known if task else ():
        if known[name] and name not in given:
            yield f"{key}.fields.{name}: missing; name the column of the {name}"
    for name in given if known else ():
        if name not in known:
            yield f"{key}.fields.{name}: not of task {dataset.task}, whose fields are {', '.join(known)}"
    if task is choice and ("choices" in given) == (dataset.options is not UNSET):
        yield f"{key}.fields.choices: name the column of the options (of BIG-bench: target_scores), or give the same options to all questions as options"
    meant, options = dataset.answer_is, dataset.options or []
    for option in meant.values() if isinstance(meant, dict) and options else ():
        if option not in options:
            yield f"{key}.answer_is: {option!r} is none of the options {', '.join(options)}"
    if task is choice and isinstance(given.get("answer"), list):
        yield f"{key}.fields.answer: task choice has one column of the right option"
    try:
        re.compile(dataset.answer_pattern or "")
    except re.error as error:
        yield f"{key}.answer_pattern: {dataset.answer_pattern!r} is not a regular expression ({error})"
    if SHOWN in dataset.splits:
        if task is not qa:
            yield f"{key}.splits.{SHOWN}: task qa has worked examples of your own, and {dataset.task} has not"
        elif dataset.reasoning or "answer" not in given:
            yield f"{key}.splits.{SHOWN}: a worked example is a question with its answer (fields.answer), and no reasoning"
    if task is qa:
        try:
            qa.require(dataset.equality or "normalised")
        except BadInput as error:
            yield f"{key}.equality: {error}"


def _task_problems(key, task):
    if not tasks.known(task):
        yield f"{key}.task: no task {task!r}; tasks are {', '.join(tasks.NAMES)}, or a path to a .py file"
        return
    try:
        tasks.get(task)
    except BadInput as error:
        yield f"{key}.task: {error}"


def _split_problems(key, splits, remove_overlap):
    test = splits["test"]
    for split in TRAINING_SPLITS:
        shared = split in splits and splits[split].origin == test.origin
        if shared and remove_overlap:
            yield f"{key}.remove_overlap: needs a test split from another source split than the training splits"
        if shared and None in (splits[split].share, test.share):
            yield (
                f"{key}.splits.{split}.from: {test.origin!r} is the test split's source too; a training split may "
                "share it only if both have a size, so that they are cut apart"
            )
    for origin in {spec.origin: None for spec in splits.values()}:
        sizes = {name: spec.share for name, spec in sorted(splits.items()) if spec.origin == origin}
        rest = [name for name, size in sizes.items() if size is None]
        if len(rest) > 1:
            yield (
                f"{key}.splits.{rest[0]}.size: without a size it takes what is left of {origin!r}, and nothing is left for "
                f"{rest[1]}; give one of them a size"
            )
        shares = [Fraction(size) for size in sizes.values() if isinstance(size, str)]
        if sum(shares) > 1 or (sum(shares) == 1 and len(shares) < len(sizes)):
            yield f"{key}.splits: the shares of {origin!r} come to {sum(shares)}, and nothing is left for more"


def _model_problems(key, name, model, models):
    if model.api is not None:
        for field in OURS:
            if field in (model.api.request or {}):
                yield f"{key}.api.request.{field}: the package sets this field of a request itself"
    if model.api is not None and "server" not in model.source:
        yield f"{key}.api: says how a server is asked, and this model has none; name it as source: {{server, model}}"
    with_weights = [
        other for other, spec in models.items() if spec.source and not {"model", "server"} & set(spec.source)
    ]
    shared = model.source.get("model") if "server" not in model.source else None
    if shared is not None and shared not in with_weights:
        yield f"{key}.source.model: {shared!r} is not a model with weights of its own; they are {', '.join(with_weights)}"
    judge = model.confidence or (name if model.source and "server" not in model.source else None)
    if judge is None and model.source:
        yield (
            f"{key}.confidence: a model on a server cannot be trained; name the model to train as confidence LLM, "
            "which also states the confidences of Vanilla"
        )
    if judge not in (None, name, *with_weights):
        yield f"{key}.confidence: {judge!r} is not a model with weights of its own; they are {', '.join(with_weights)}"


def _text_problems(config, registry):
    """Labels and captions: one printable line each, as they are printed in LaTeX, HTML, RST, pictures and a terminal."""
    texts = {f"models.{name}.label": model.label for name, model in config.models.items()}
    for name, table in config.tables.items():
        texts[f"tables.{name}.caption"] = " ".join((table.caption if table.caption is not UNSET else "-").split())
        rows = table.methods
        texts |= {f"tables.{name}.methods.{row}": text for row, text in rows.items()} if isinstance(rows, dict) else {}
        try:
            layout.label(table)
        except BadInput as error:
            yield f"tables.{name}.label: {error}"
    own = {name: registry.get(name).label for name in registry.names()}
    own |= {f"orce-{reward}": registry.rewards.label(reward) for reward in registry.rewards.names()}
    texts |= {f"{name}: LABEL of its module": str(text) for name, text in own.items()}
    for key, text in texts.items():
        yield from _unprintable(key, text)


def _unprintable(key, text):
    odd = next((character for character in text if not character.isprintable()), None)
    if odd is not None:
        yield f"{key}: U+{ord(odd):04X} in {text!r} cannot be printed; a label is one line of printable characters"
    elif not text.strip() or len(text) > LONGEST_LABEL * (10 if key.endswith("caption") else 1):
        yield f"{key}: {len(text)} characters; a label has 1 to {LONGEST_LABEL}, a caption ten times as many"


def _row_problems(key, table, registry):
    for method in table.methods or ():
        try:
            registry.weights(method)
        except BadInput as error:
            yield f"{key}: {error}"


def _table_problems(key, table, datasets, models):
    if table.dataset not in datasets:
        yield f"{key}.dataset: no dataset {table.dataset!r}; datasets are {', '.join(datasets)}"
    for model in [*table.models, *([table.source] if table.source else [])]:
        if model not in models:
            yield f"{key}: no model {model!r}; models are {', '.join(models)}"
    if table.kind == "transfer" and not table.source:
        yield f"{key}.source: name the model whose confidence LLMs are transferred"
    for model in [table.source] if table.kind == "transfer" else table.models:
        if model in models and not models[model].trains:
            yield f"{key}: model {model!r} has trains: false, and this table needs its confidence LLMs; name another"


def _unmeasurable(key, table, datasets, models, registry):
    """Rows that need a calibration set, or log-probabilities that a server does not give."""
    served = [name for name in table.models if name in models and "server" in models[name].source]
    rows = table.methods or ()
    for method in dict.fromkeys(row for above in rows for row in registry.fitted(above)):
        if table.dataset in datasets and datasets[table.dataset].calibrate_on is None:
            how = registry.fits(method)
            yield f"{key}: {method} needs datasets.{table.dataset}.calibrate_on, the dataset to fit {how} on"
    untrained = [name for name in table.models if name in models and not models[name].trains]
    for method in registry.probed(rows) if untrained else []:
        yield f"{key}: {method} is fitted on training questions, and model {untrained[0]!r} has trains: false"
    for method in dict.fromkeys(leaf for row in rows for leaf in registry.leaves(row)):
        name = registry.parse(method)
        measure = registry.get(name.method)
        if not measure.needs_weights:
            continue
        enough = measure.likelihoods and measure.logprobs_suffice
        for model in served:
            if not (enough and settings.logprobs(models[model])):
                or_else = f"; or ask that for log-probabilities: models.{model}.api.logprobs: true" if enough else ""
                yield f"{key}: {name.method} needs the weights of the answer LLM, and model {model!r} is on a server{or_else}"


def _untrainable(key, table, datasets, registry):
    """Rows whose confidence LLM would be trained on a dataset without training splits."""
    if table.dataset not in datasets:
        return  # said elsewhere
    trained_on = datasets[table.dataset].confidence_from or table.dataset
    splits = datasets[trained_on].splits if trained_on in datasets else TRAINING_SPLITS
    missing = [split for split in TRAINING_SPLITS if split not in splits]
    if not missing or (table.kind == "transfer" and not table.source):
        return
    rows = layout.labels(table, registry)
    trained = [*registry.with_weights(rows), *registry.probed(rows)]
    if trained:
        yield (
            f"{key}: {trained[0]} is trained, and datasets.{trained_on}.splits has no {' and no '.join(missing)}; give "
            "both, or confidence_from, or list only methods without training under methods"
        )
