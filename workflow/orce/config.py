"""The configuration: checked before anything runs, and cut into what each step needs.

Every step gets only the part of the configuration that it depends on, so that a changed key reruns what it concerns
and nothing else. Pure functions of the configuration; the Snakefile calls them.
"""

import difflib
import json
from pathlib import Path

import jsonschema
import yaml

from orce import methods
from orce.files import BadInput

SCHEMA = Path(__file__).parents[1] / "schemas" / "config.schema.yaml"
TRAINING_SPLITS = ("sft", "rl")


def check(config: dict) -> None:
    """Raises BadInput with one line that names the key and says what would be right."""
    schema = yaml.safe_load(SCHEMA.read_text())
    for error in jsonschema.Draft202012Validator(schema).iter_errors(config):
        raise BadInput(_explain(jsonschema.exceptions.best_match([error]), schema))
    for problem in _problems(config):
        raise BadInput(f"config: {problem}")


def _explain(error, schema: dict) -> str:
    key = ".".join(str(part) for part in error.absolute_path) or "top level"
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        known = list(error.schema.get("properties", {}))
        unknown = [name for name in error.instance if name not in known]
        close = difflib.get_close_matches(unknown[0], known, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"keys are {', '.join(known)}"
        return f"config: {key}: unknown key {unknown[0]!r}; {hint}"
    hint = _description(schema, error.absolute_path)
    return f"config: {key}: {error.message}" + (f" ({hint})" if hint else "")


def _description(schema: dict, path) -> str | None:
    """What the schema says of the key at `path`."""
    for part in path:
        schema = schema.get("properties", {}).get(part) or schema.get("additionalProperties") or {}
        if not isinstance(schema, dict):
            return None
    return schema.get("description")


def _problems(config: dict):
    """What a schema cannot say."""
    datasets, models = config["datasets"], config["models"]
    for name, dataset in datasets.items():
        yield from _dataset_problems(f"datasets.{name}", dataset, datasets)
    for name, model in models.items():
        yield from _model_problems(f"models.{name}", name, model, models)
    for name in config["paper_tables"]:
        if name not in config["tables"]:
            yield f"paper_tables: no table {name!r}; tables are {', '.join(config['tables'])}"
    for name, table in config["tables"].items():
        yield from _table_problems(f"tables.{name}", table, datasets, models)
    if config["device"] == "cuda" and 0 in (config["gpus"], config["training"]["gpus"]):
        yield "gpus and training.gpus must be at least 1 where device is cuda"


def _dataset_problems(key, dataset, datasets):
    splits = dataset["splits"]
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


def _table_problems(key, table, datasets, models):
    if table["dataset"] not in datasets:
        yield f"{key}.dataset: no dataset {table['dataset']!r}; datasets are {', '.join(datasets)}"
    for model in [*table["models"], *([table["source"]] if "source" in table else [])]:
        if model not in models:
            yield f"{key}: no model {model!r}; models are {', '.join(models)}"
    if table["kind"] == "transfer" and "source" not in table:
        yield f"{key}.source: name the model whose confidence LLMs are transferred"


# What each step depends on


def model(config: dict, name: str) -> dict:
    """Settings to load a model: source {hub, revision}, {path} or {server, model}, dtype, device, template_kwargs."""
    spec = config["models"][name]
    source = spec["source"]
    if "model" in source and "server" not in source:
        return model(config, source["model"]) | {"template_kwargs": spec.get("template_kwargs", {})}
    if "package" in source:
        source = {"path": f"results/models/{name}"}
    return {
        "source": source,
        "dtype": config["dtype"],
        "device": config["device"],
        "template_kwargs": spec.get("template_kwargs", {}),
    }


def converted(config: dict, name: str) -> str | None:
    """Manifest of the weights that a rule makes for this model, or None if they come from elsewhere."""
    source = config["models"][name]["source"]
    if "model" in source and "server" not in source:
        return converted(config, source["model"])
    return f"results/models/{name}/manifest.json" if "package" in source else None


def judge(config: dict, name: str) -> str:
    """The model that is trained as confidence LLM for the answers of `name`: itself unless the config names another."""
    return config["models"][name].get("confidence", name)


def served(config: dict, name: str) -> bool:
    """Whether the model answers behind a server, without a GPU of ours."""
    return "server" in config["models"][name]["source"]


def splits(config: dict, dataset: str, name: str) -> list[str]:
    """Splits that the answer LLM `name` is sampled on."""
    if not config["models"][name].get("trains", True):
        return ["test"]
    return list(config["datasets"][dataset]["splits"])


def trained_on(config: dict, dataset: str) -> str:
    """The dataset whose confidence LLMs judge `dataset`: itself, or another one out of domain."""
    return config["datasets"][dataset].get("confidence_from", dataset)


def prompts(config: dict, dataset: str) -> dict:
    """Settings of the prompts step; tests: the sets to keep training examples away from, if the config says so."""
    wanted = config["datasets"][dataset].get("remove_overlap", False)
    tested = [name for name in config["datasets"] if trained_on(config, name) == dataset]
    return _cut(config, dataset) | {"tests": [_cut(config, name) | {"tests": []} for name in tested if wanted]}


def _cut(config: dict, dataset: str) -> dict:
    spec = config["datasets"][dataset]
    cut = {"task": spec["task"], "source": spec["source"], "splits": spec["splits"]}
    return cut | {"dataset": dataset, "seed": config["seed"]}


def _engine(config: dict, name: str) -> dict:
    engine = config["engine"] | ({"name": "openai"} if served(config, name) else {})
    return {"engine": engine, "seed": config["seed"]}


def sample(config: dict, dataset: str, name: str) -> dict:
    answers = {key: value for key, value in config["answers"].items() if key != "shards"}
    return (
        answers
        | _engine(config, name)
        | _cell(config, "sample", dataset, name)
        | {"shots": config["models"][name].get("shots")}
    )


def _cell(config: dict, what: str, dataset: str, name: str, base: str | None = None) -> dict:
    """Task, model and the label of progress lines; `base` is the model to load where it is not `name`."""
    label = f"{what} {dataset}/{name}"
    return {"task": config["datasets"][dataset]["task"], "label": label, "model": model(config, base or name)}


def stage(config: dict, dataset: str, name: str, which: str) -> dict:
    """Settings of a training step: sft, dpo or conftuner."""
    training = {key: value for key, value in config["training"].items() if key not in ("gpus", "launch")}
    optimisation = {key: value for key, value in config[which].items() if key not in ("rounds", "leave_one_out")}
    cell = _cell(config, which, dataset, name, judge(config, name))
    return cell | {"training": training, "stage": optimisation, "seed": config["seed"]}


def candidates(config: dict, dataset: str, name: str) -> dict:
    batch = {"batch_size": config["engine"]["batch_size"], "seed": config["seed"]}
    return config["confidence"] | batch | _cell(config, "candidates", dataset, name, judge(config, name))


def pairs(config: dict, dataset: str, name: str) -> dict:
    cell = {"task": config["datasets"][dataset]["task"], "label": f"pairs {dataset}/{name}"}
    return cell | {"leave_one_out": config["dpo"]["leave_one_out"], "seed": config["seed"]}


def state(config: dict, dataset: str, name: str, method: str) -> dict:
    base = judge(config, methods.parse(method).source or name)
    batch = {"batch_size": config["engine"]["batch_size"]}
    evaluation = {key: config["evaluation"][key] for key in ("readout", "chunk")}
    return _cell(config, method, dataset, name, base) | evaluation | batch


def ask(config: dict, dataset: str, name: str, method: str) -> dict:
    chunk = {"chunk": config["evaluation"]["chunk"]}
    return _cell(config, method, dataset, name) | _engine(config, name) | chunk | config["evaluation"].get(method, {})


def evaluate(config: dict, dataset: str, name: str, method: str) -> dict:
    evaluation = {key: config["evaluation"][key] for key in ("unparsed_confidence", "bootstrap")}
    return evaluation | {"dataset": dataset, "model": name, "method": method, "seed": config["seed"]}


def tables(config: dict) -> dict:
    """Settings of the tables step: the tables to render, the models' labels and each dataset's task."""
    chosen = {name: config["tables"][name] for name in config["paper_tables"]}
    return {
        "tables": chosen,
        "order": config["paper_tables"],
        "models": {name: {"label": spec["label"]} for name, spec in config["models"].items()},
        "tasks": {name: spec["task"] for name, spec in config["datasets"].items()},
    }


def weights(config: dict, dataset: str, name: str, method: str) -> str | None:
    """Folder of the confidence LLM that a stated method reads with; None for the untrained model."""
    parsed = methods.parse(method)
    folder = methods.get(parsed.name).WEIGHTS
    if folder is None:
        return None
    if parsed.reward not in (None, "sc"):
        folder = f"{folder}-{parsed.reward}"
    return f"results/{trained_on(config, dataset)}/{parsed.source or name}/{folder}"


def to_argument(settings: dict) -> str:
    """Settings as one command-line argument, in a canonical form: equal settings rerun nothing."""
    return json.dumps(settings, sort_keys=True, ensure_ascii=False)
