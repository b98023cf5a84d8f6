"""Fills the settings of each stage (orce.settings.stage) from the configuration: a changed key
reruns only what it affects.

Pure functions of a configuration that orce.config.check has checked; the rules call them.
"""

import itertools
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from orce import methods
from orce.artefacts import files
from orce.config.cells import Cell, weights_manifest
from orce.errors import BadInput
from orce.runtime.modules import locate
from orce.settings.schema import Config, GivenFile, Optimisation, Part, Split, Trainer
from orce.settings.schema import Training as TrainingKeys
from orce.settings.stage import Model, Settings, Source, T, to_mapping
from orce.tasks.examples import SHOWN

TRAINING_SPLITS = ("sft", "rl")
AFTER = "sft, then "  # before the name of a split that is cut after sft and before "test"
# Keys of a dataset that say how the tasks qa and choice read its source.
READING = (
    "fields", "options", "shuffle", "answer_is", "equality", "answer_after", "answer_pattern", "answer_marks", "ask"
)  # fmt: skip
RATES = ("key", "requests_per_minute", "tokens_per_minute")  # of a model's api: they change no text
TUNED = ("beta", "learning_rate", "epochs")  # keys of dpo that a grid has
# Files of a model's folder that it is loaded from; of data and modules every file counts.
WEIGHTS = ("*.safetensors", "*.bin", "*.json", "*.jinja", "*.model", "*.txt")


def model_settings(config: Config, name: str) -> Model:
    """What a model is loaded with, from the source that its weights come from."""
    spec = config.models[name]
    weights = base_model(config, name)
    source = config.models[weights].source
    if "package" in source:  # a rule converts them
        source = {"path": str(Path(weights_manifest(weights)).parent)}
    return Model(
        source=msgspec.convert(source, Source),
        dtype=config.dtype,
        device=config.device,
        template_kwargs=spec.template_kwargs,
        api=(set_keys(spec.api, leave=RATES) if spec.api else {}) or UNSET,
    )


def base_model(config: Config, name: str) -> str:
    """The model whose weights `name` uses: itself, or the one that it shares them with."""
    if on_server(config, name):
        return name
    return config.models[name].source.get("model", name)


def weights_to_wait_for(config: Config, name: str) -> str | None:
    """The file that a job with this model waits for: the manifest of weights that are made, or
    fetched from the hub.
    """
    name = base_model(config, name)
    is_made = {"package", "hub"} & config.models[name].source.keys()
    return weights_manifest(name) if is_made else None


def judge_base(config: Config, name: str) -> str:
    """The model that is trained as confidence LLM for the answers of `name`: itself unless the
    config names another.
    """
    if name not in config.models:  # the NAME of a target .../sft-from-NAME/metrics.json
        raise BadInput(f"no model {name!r}; models are {', '.join(config.models)}")
    return config.models[name].confidence or name


def on_server(config: Config, name: str) -> bool:
    """Whether a server answers for the model, without a GPU of this run."""
    return "server" in config.models[name].source


def gives_logprobs(config: Config, name: str) -> bool:
    """Whether the model's server is asked for the log-probabilities of greedy answers."""
    api = config.models[name].api
    return api is not None and api.logprobs is True


def sampled_splits(config: Config, dataset: str, name: str) -> list[str]:
    """Splits that the answer LLM `name` is sampled on."""
    if not config.models[name].trains:
        return ["test"]
    return sorted(config.datasets[dataset].splits.keys() - {SHOWN})


def training_dataset(config: Config, dataset: str) -> str:
    """The dataset whose confidence LLMs judge `dataset`: itself, or another one out of domain."""
    return config.datasets[dataset].confidence_from or dataset


def training_splits(config: Config, dataset: str) -> dict[str, Split]:
    """Splits that the confidence LLMs judging `dataset` are trained and chosen on, if they come
    from the source of its own test split.

    Their questions are then left out of the test split: the splits of a source are cut in the order
    of their names, so each has a name before "test" here, in the order of its own dataset. With
    `validation` come the splits that are cut before it there. Empty for a dataset that its own
    confidence LLMs judge.
    """
    own = config.datasets[dataset]
    trained = config.datasets[training_dataset(config, dataset)]
    if own is trained or (own.task, own.source) != (trained.task, trained.source):
        return {}
    origin = own.splits["test"].origin
    shared: dict[str, Split] = {
        name: spec for name, spec in trained.splits.items() if spec.origin == origin
    }
    apart = {name: shared[name] for name in TRAINING_SPLITS if name in shared}
    if "validation" in shared:
        for name in sorted(shared.keys() - apart.keys()):
            if name == "validation" or shared[name].share is not None:
                apart[f"{AFTER}{name}"] = shared[name]
    return apart


def data_source(config: Config, dataset: str) -> dict[str, Any]:
    """Where a data set comes from, and how the tasks qa and choice read it."""
    spec = config.datasets[dataset]
    source = spec.source | set_keys(spec, READING)
    if isinstance(spec.answer_is, dict):  # with keys as JSON has them: 0 as "0", true as "true"
        source["answer_is"] = {str(key).lower(): option for key, option in spec.answer_is.items()}
    return source


def given_answers(config: Config, dataset: str, name: str) -> GivenFile | None:
    """The file of answers already made for a cell; None if its answer LLM is sampled."""
    given = config.models[name].answers
    return _of_cell(given.path, given.fields, dataset, name) if given else None


def given_confidences(config: Config, dataset: str, name: str, method: str) -> GivenFile:
    """The file of an external method's confidences for a cell."""
    given = methods.of(config).given[method]
    return _of_cell(given["path"], given.get("fields", UNSET), dataset, name)


def _of_cell(path: str, fields: Any, dataset: str, name: str) -> GivenFile:
    return GivenFile(
        path=path.replace("{dataset}", dataset).replace("{model}", name), fields=fields
    )


def groups_meanings(config: Config) -> bool:
    """Whether the grader's stage says which answers mean the same."""
    return config.grading is not None and config.grading.group != "none"


def grading_gpus(config: Config) -> int:
    """GPUs of a grading job: none if the grader is on a server and no NLI model runs here."""
    spec = config.grading
    local = spec is not None and (spec.group == "nli" or not on_server(config, spec.model or ""))
    return config.gpus if local else 0


def calibration_dataset(config: Config, dataset: str) -> str:
    """The dataset whose answers calibrations are fitted on. Raises BadInput where none is named."""
    fit = config.datasets[dataset].calibrate_on
    if fit is None:
        raise BadInput(
            f"config: datasets.{dataset}.calibrate_on: missing; name the dataset to fit calibrations on"
        )
    return fit


def judge_weights(config: Config, dataset: str, name: str, method: str) -> tuple[Cell, str] | None:
    """Cell and folder name of the confidence LLM of a method; None for a method without a trained
    one.
    """
    registry = methods.of(config)
    folder = registry.weights(method)
    if folder is None:
        return None
    return Cell(training_dataset(config, dataset), registry.parse(method).source or name), folder


def training_options(config: Config, method: str) -> dict[str, Any]:
    """Options of a method's own training; optimisation settings that it does not give come from
    sft.
    """
    inherited = set_keys(config.sft, Optimisation.__struct_fields__)
    return inherited | methods.of(config).settings(method)


def trials(config: Config) -> dict[str, dict[str, Any]]:
    """{name: keys of dpo} of every point of the grid `tune`, in the grid's order."""
    grid = config.tune
    trials = {}
    if grid is not None:
        for values in itertools.product(grid.beta, grid.learning_rate, grid.epochs):
            point = dict(zip(TUNED, values, strict=True))
            trials["-".join(f"{key}{value:g}" for key, value in point.items())] = point
    return trials


def trainer_settings(training: TrainingKeys) -> Trainer:
    """What all trainings share."""
    return Trainer(**{key: getattr(training, key) for key in Trainer.__struct_fields__})


def speed_settings(config: Config) -> dict[str, Any]:
    """Options of engine, reader and trainers that change no text, no reading and no loss, by kind
    of work.
    """
    engine = set_keys(config.engine, leave=("name",))
    rates = {
        f"{spec.source['server']} {spec.source['model']}": set_keys(spec.api, RATES)
        for spec in config.models.values()
        if "server" in spec.source and spec.api
    }
    return {
        "answers": engine | {"chunk": config.answers.chunk, "rates": rates},
        "confidence": {"batch_tokens": engine["batch_tokens"], "chunk": config.confidence.chunk},
        "training": set_keys(config.training, ("micro_batch_tokens", "report_to")),
    }


def set_keys(
    section: Part, keys: Collection[str] = (), leave: Collection[str] = ()
) -> dict[str, Any]:
    """The keys of a section that are set: all, some of them, or all but some."""
    known = msgspec.to_builtins(section)
    chosen = {*(keys or known)} - {*leave}
    return {key: value for key, value in known.items() if key in chosen}


def pick(
    kind: type[T],
    config: Config,
    what: str,
    dataset: str,
    name: str,
    *sections: Part,
    loads: str = "",
    **more: Any,
) -> T:
    """The settings of a stage in a cell: each of its keys from `more`, else from `sections`, else a
    value common to all cells.

    what: beginning of its progress lines. loads: the model that it loads, by default the cell's.
    """
    spec = config.datasets[dataset]
    known = {
        "dataset": dataset,
        "task": spec.task,
        "label": f"{what} {dataset}/{name}",
        "model": model_settings(config, loads or name),
        "engine": "openai" if on_server(config, loads or name) else config.engine.name,
        "training": trainer_settings(config.training),
        "shots": config.models[name].shots,
        "reasoning": spec.reasoning,
        "seed": config.seed,
    }
    for section in sections:
        known |= set_keys(section)
    known |= more
    return kind(**{key: known[key] for key in kind.__struct_fields__ if key in known})


def with_contents(
    chosen: Settings | Mapping[str, Any], made: Collection[str] = ()
) -> dict[str, Any]:
    """A step's settings with `contents`, {path: digest} of the local data, weights and modules that
    they name, if any.

    made: folders that a rule makes, which have a manifest for this.
    """
    settings = to_mapping(chosen)
    contents = {}
    for path, patterns in local_paths(settings):
        if path not in made and locate(path).exists():
            contents[path] = files.fingerprint(str(locate(path)), patterns)
    return settings | {"contents": contents} if contents else settings


def local_paths(value, key: str = "") -> Iterator[tuple[str, tuple[str, ...]]]:
    """(path, patterns of its files that count) of each local source, module and template in some
    settings.
    """
    if isinstance(value, str) and value.endswith((".py", ".j2")):
        yield value, ("*",)
    elif isinstance(value, list):
        for item in value:
            yield from local_paths(item, key)
    elif isinstance(value, dict):
        source = value.get("source")
        if isinstance(source, dict) and "path" in source:
            yield source["path"], WEIGHTS if key in ("model", "nli") else ("*",)
        for name, item in value.items():
            yield from local_paths(item, name)
