"""The configuration, checked before anything runs. orce.config.settings cuts it into what each step needs."""

import difflib
import math
from pathlib import Path

import jsonschema
import yaml

from orce import methods, tasks
from orce.alignment import registry as rewards
from orce.config import settings
from orce.config.layout import check_names
from orce.config.settings import TRAINING_SPLITS
from orce.llm import engines
from orce.runtime.files import BadInput

SCHEMA = Path(__file__).with_name("schema.yaml")


def check(config: dict) -> None:
    """Raises BadInput with one line that names the key and says what would be right."""
    schema = yaml.safe_load(SCHEMA.read_text())
    for error in jsonschema.Draft202012Validator(schema).iter_errors(config):
        raise BadInput(_explain(jsonschema.exceptions.best_match([error]), schema))
    for problem in _problems(config):
        raise BadInput(f"config: {problem}")


def _explain(error, schema: dict, prefix: str = "") -> str:
    key = ".".join([*filter(None, [prefix]), *map(str, error.absolute_path)]) or "top level"
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        known = list(error.schema.get("properties", {}))
        unknown = [name for name in error.instance if name not in known]
        close = difflib.get_close_matches(unknown[0], known, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"keys are {', '.join(known)}"
        return f"config: {key}: unknown key {unknown[0]!r}; {hint}"
    hint = _description(schema, error.absolute_path)
    return f"config: {key}: {error.message}" + (f" ({hint})" if hint else "")


def _description(schema: dict, path) -> str | None:
    """What the schema says of the key at `path`, with its unit."""
    for part in path:
        schema = schema.get("properties", {}).get(part) or schema.get("additionalProperties") or {}
        if not isinstance(schema, dict):
            return None
    unit = f"; in {schema['unit']}" if "unit" in schema else ""
    return f"{schema['description']}{unit}" if "description" in schema else None


def _problems(config: dict):
    """What a schema cannot say."""
    datasets, models = config["datasets"], config["models"]
    yield from _unbounded(config)
    if config["engine"]["name"] not in engines.names():
        yield f"engine.name: no engine {config['engine']['name']!r}; engines are {', '.join(engines.names())}"
    for name, dataset in datasets.items():
        yield from _dataset_problems(f"datasets.{name}", dataset, datasets)
    for name, model in models.items():
        yield from _model_problems(f"models.{name}", name, model, models)
    for name in config["paper_tables"]:
        if name not in config["tables"]:
            yield f"paper_tables: no table {name!r}; tables are {', '.join(config['tables'])}"
    registry = methods.of(config)
    for name, table in config["tables"].items():
        yield from _table_problems(f"tables.{name}", table, datasets, models)
        yield from _row_problems(f"tables.{name}.methods", table, registry)
    check_names(config["tables"])
    if config["device"] == "cuda" and 0 in (config["gpus"], config["training"]["gpus"]):
        yield "gpus and training.gpus must be at least 1 where device is cuda"
    yield from _method_problems(config, registry)
    yield from _reward_problems(registry)
    trained = {f"methods.{name}": settings.trained_options(config, name) for name in registry.trained()}
    for key, options in ({"sft": config["sft"], "dpo": config["dpo"]} | trained).items():
        yield from _batch_problems(key, options, max(1, config["training"]["gpus"]))


def _unbounded(value, key=""):
    """YAML has .nan and .inf, which pass for numbers."""
    if isinstance(value, float) and not math.isfinite(value):
        yield f"{key}: {value} is no finite number"
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in pairs:
        yield from _unbounded(part, f"{key}.{name}".strip("."))


def _method_problems(config, registry):
    """What the config says of its methods, against the SETTINGS of each."""
    shared = yaml.safe_load(SCHEMA.read_text())["$defs"]
    for name in registry.given:
        module = registry.get(name)  # BadInput for a method that is nowhere, or whose file is broken
        allowed = dict(getattr(module, "SETTINGS", {}))
        if hasattr(module, "train"):
            allowed |= shared["optimisation"]
        options = {key: value for key, value in registry.given[name].items() if key != "module"}
        schema = {"$defs": shared, "type": "object", "additionalProperties": False, "properties": allowed}
        for error in jsonschema.Draft202012Validator(schema).iter_errors(options):
            yield _explain(error, schema, f"methods.{name}").removeprefix("config: ")
    for name in registry.names("prompted"):
        if "max_tokens" not in registry.settings(name):
            yield f"methods.{name}.max_tokens: missing; say how many tokens the text of a prompted method may take"


def _reward_problems(registry):
    for name, path in registry.rewards.given.items():
        if name in rewards.LABELS:
            yield f"rewards.{name}: {name!r} is a reward of this package; choose another name"
        rewards.own(path)  # BadInput for what its file lacks


def _batch_problems(stage, spec, processes):
    if spec["batch_size"] % (spec["micro_batch_size"] * processes):
        yield (
            f"{stage}.batch_size: {spec['batch_size']} is no multiple of micro_batch_size x training.gpus, "
            f"{spec['micro_batch_size']} x {processes}; lower micro_batch_size"
        )


def _dataset_problems(key, dataset, datasets):
    splits = dataset["splits"]
    if not tasks.known(dataset["task"]):
        yield f"{key}.task: no task {dataset['task']!r}; tasks are {', '.join(tasks.names())}, or a path to a .py file"
    source = dataset.get("confidence_from")
    if source is None and not {"sft", "rl"} <= set(splits):
        yield f"{key}.splits: sft and rl are needed to train; or name the dataset to take confidence LLMs from"
    if source is not None and "confidence_from" in datasets.get(source, {"confidence_from": 1}):
        yield f"{key}.confidence_from: {source!r} is no dataset that is trained on; they are " + ", ".join(
            name for name in datasets if "confidence_from" not in datasets[name]
        )
    shared = splits["test"]["from"] in {splits[split]["from"] for split in TRAINING_SPLITS if split in splits}
    if dataset.get("remove_overlap") and shared:
        yield f"{key}.remove_overlap: needs a test split from another source split than the training splits"
    for split in TRAINING_SPLITS:
        if (
            split in splits
            and splits[split]["from"] == splits["test"]["from"]
            and None
            in (
                splits[split].get("size"),
                splits["test"].get("size"),
            )
        ):
            yield (
                f"{key}.splits.{split}.from: {splits[split]['from']!r} is the test split's source too; a training "
                "split may share it only if both have a size, so that they are cut apart"
            )

    yield from _takes_all(key, splits)


def _takes_all(key, splits):
    """A split without a size takes what is left of its source: none may come behind it in the order of prompts.draw."""
    names = sorted(splits)
    for i, name in enumerate(names):
        behind = [other for other in names[i + 1 :] if splits[other]["from"] == splits[name]["from"]]
        if splits[name].get("size") is None and behind:
            yield f"{key}.splits.{name}.size: without a size it takes all, and nothing is left for {behind[0]}; give it one"


def _model_problems(key, name, model, models):
    with_weights = [other for other, spec in models.items() if not {"model", "server"} & set(spec["source"])]
    shared = model["source"].get("model") if "server" not in model["source"] else None
    if shared is not None and shared not in with_weights:
        yield f"{key}.source.model: {shared!r} is no model with weights of its own; they are {', '.join(with_weights)}"
    judge = model.get("confidence", None if "server" in model["source"] else name)
    if judge is None and model.get("trains", True):
        yield f"{key}.confidence: a model behind a server cannot be trained; name the model to train as confidence LLM"
    if judge not in (None, name, *with_weights):
        yield f"{key}.confidence: {judge!r} is no model with weights of its own; they are {', '.join(with_weights)}"


def _row_problems(key, table, registry):
    for method in table.get("methods", []):
        try:
            registry.weights(method)
        except BadInput as error:
            yield f"{key}: {error}"


def _table_problems(key, table, datasets, models):
    if table["dataset"] not in datasets:
        yield f"{key}.dataset: no dataset {table['dataset']!r}; datasets are {', '.join(datasets)}"
    for model in [*table["models"], *([table["source"]] if "source" in table else [])]:
        if model not in models:
            yield f"{key}: no model {model!r}; models are {', '.join(models)}"
    if table["kind"] == "transfer" and "source" not in table:
        yield f"{key}.source: name the model whose confidence LLMs are transferred"
    for model in [table.get("source")] if table["kind"] == "transfer" else table["models"]:
        if not models.get(model, {}).get("trains", True):
            yield f"{key}: model {model!r} has trains: false, and this table needs its confidence LLMs; name another"
