"""What each step needs of the configuration: its own part and nothing else, so that a changed key reruns what it concerns.

Pure functions of a configuration that orce.config.check has checked; the Snakefile calls them.
"""

import json

from orce import methods
from orce.config import layout
from orce.runtime.files import BadInput, digest

TRAINING_SPLITS = ("sft", "rl")


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


def base(config: dict, name: str) -> str:
    """The model whose weights `name` has: itself, or the one it borrows them from."""
    source = config["models"][name]["source"]
    return base(config, source["model"]) if "model" in source and "server" not in source else name


def converted(config: dict, name: str) -> str | None:
    """Manifest of the weights that a rule makes for this model, or None if they come from elsewhere."""
    name = base(config, name)
    return f"results/models/{name}/manifest.json" if "package" in config["models"][name]["source"] else None


def judge(config: dict, name: str) -> str:
    """The model that is trained as confidence LLM for the answers of `name`: itself unless the config names another."""
    if name not in config["models"]:  # the NAME of a target .../sft-from-NAME/metrics.json
        raise BadInput(f"no model {name!r}; models are {', '.join(config['models'])}")
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


def _cell(config: dict, what: str, dataset: str, name: str, base: str | None = None) -> dict:
    """Task, model and the label of progress lines; `base` is the model to load where it is not `name`."""
    label = f"{what} {dataset}/{name}"
    return {"task": config["datasets"][dataset]["task"], "label": label, "model": model(config, base or name)}


_OF_PAIRS = ("reference", "leave_one_out")  # keys of dpo that choose its pairs; the training does not read them


def stage(config: dict, dataset: str, name: str, which: str) -> dict:
    """Settings of a training step: sft, dpo or conftuner."""
    training = {key: value for key, value in config["training"].items() if key not in ("gpus", "launch")}
    optimisation = {key: value for key, value in config[which].items() if key not in ("rounds", *_OF_PAIRS)}
    cell = _cell(config, which, dataset, name, judge(config, name))
    return cell | {"training": training, "stage": optimisation, "seed": config["seed"]}


def request(config: dict, dataset: str, name: str, what: str) -> dict:
    """What is wanted of one cell, whole: settings that change the result, and the files it is made from."""
    if what == "samples":
        found = _samples(config, dataset, name)
    elif what.startswith("candidates"):
        found = _drawn(config, dataset, name, what)
    elif methods.get(methods.parse(what).name).KIND == "prompted":
        found = _asked(config, dataset, name, what)
    else:
        found = _stated(config, dataset, name, what)
    return found | {"what": what, "folder": f"results/{dataset}/{name}"}


def _samples(config, dataset, name):
    answers = {key: config["answers"][key] for key in ("samples", "temperature", "top_p", "max_tokens")}
    files = _prompts(dataset, splits(config, dataset, name))
    shots = {"kind": "samples", "shots": config["models"][name].get("shots"), "prompts": files}
    return answers | shots | _engine(config, name) | _cell(config, "sample", dataset, name)


def _asked(config, dataset, name, method):
    files = {"kind": "asked", "prompts": _prompts(dataset, ["test"])}
    return config["evaluation"].get(method, {}) | files | _engine(config, name) | _cell(config, method, dataset, name)


def _drawn(config, dataset, name, what):
    start = f"results/{dataset}/{name}"
    if what == "candidates":
        weights = f"{start}/sft"
    else:
        aligned, _, number = what.removeprefix("candidates-").rpartition("-")
        weights = f"{start}/rounds/{aligned}/{int(number) - 1}/model"
    files = {"kind": "drawn", "surrogate": f"{start}/surrogate.csv", "prompts": _prompts(dataset, ["rl"])}
    draw = {key: config["confidence"][key] for key in ("candidates", "temperature")} | {"seed": config["seed"]}
    # By transformers, as DPO is trained: the reference and the policy then differ by no kernel.
    where = {"weights": weights, "reader": "transformers"}
    return draw | files | where | _cell(config, what, dataset, name, judge(config, name))


def _stated(config, dataset, name, method):
    base = judge(config, methods.parse(method).source or name)
    files = {"kind": "stated", "prompts": _prompts(dataset, ["test"])}
    files["samples"] = f"results/{dataset}/{name}/samples.jsonl"
    where = {"weights": weights(config, dataset, name, method), "reader": config["evaluation"]["engine"]}
    return files | where | _cell(config, method, dataset, name, base)


def _prompts(dataset: str, names: list[str]) -> dict:
    return {split: f"results/{dataset}/prompts/{split}.jsonl" for split in names}


def _engine(config: dict, name: str) -> dict:
    return {"engine": {"name": "openai" if served(config, name) else config["engine"]["name"]}, "seed": config["seed"]}


def engine(config: dict) -> dict:
    """What changes the speed of answering and not the texts."""
    return {key: value for key, value in config["engine"].items() if key != "name"} | _chunk(config, "answers")


def reader(config: dict) -> dict:
    """What changes the speed of reading confidences and not the readings."""
    keys = ("batch_size", "gpu_memory_utilization", "max_model_len")
    return {key: config["engine"][key] for key in keys} | _chunk(config, "confidence")


def _chunk(config, part):
    return {"chunk": config[part]["chunk"]}


def pairs(config: dict, dataset: str, name: str) -> dict:
    cell = {"task": config["datasets"][dataset]["task"], "label": f"pairs {dataset}/{name}"}
    return cell | {key: config["dpo"][key] for key in _OF_PAIRS} | {"seed": config["seed"]}


def evaluate(config: dict, dataset: str, name: str, method: str) -> dict:
    evaluation = {key: config["evaluation"][key] for key in ("unparsed_confidence", "bootstrap")}
    cell = {"dataset": dataset, "model": name, "method": method, "seed": config["seed"]}
    return evaluation | cell | {"lineage": lineage(config, dataset, name, method)}


def lineage(config: dict, dataset: str, name: str, method: str) -> str:
    """Digest of every setting that a cell's numbers depend on, from its prompts to its readout."""
    parsed = methods.parse(method)
    module = methods.get(parsed.name)
    parts = [prompts(config, dataset), request(config, dataset, name, "samples"), config["evaluation"]["readout"]]
    if module.KIND != "sampled":
        parts.append(request(config, dataset, name, method))
    if module.KIND == "stated" and module.WEIGHTS is not None:
        parts += _training(config, trained_on(config, dataset), parsed.source or name, module.WEIGHTS, parsed.reward)
    return digest(parts)


def _training(config, dataset, name, folder, reward) -> list:
    parts = [prompts(config, dataset), request(config, dataset, name, "samples")]
    if folder == "dpo":
        steps = [
            request(config, dataset, name, "candidates"),
            pairs(config, dataset, name),
            config["dpo"]["rounds"],
            reward,
        ]
        return parts + steps + [stage(config, dataset, name, which) for which in ("sft", "dpo")]
    return [*parts, stage(config, dataset, name, folder)]


def tables(config: dict) -> dict:
    """Settings of the tables step: the tables to render, the models' labels and each dataset's task."""
    chosen = {name: config["tables"][name] for name in config["paper_tables"]}
    return {
        "tables": chosen,
        "order": config["paper_tables"],
        "models": {name: {"label": spec["label"]} for name, spec in config["models"].items()},
        "tasks": {name: spec["task"] for name, spec in config["datasets"].items()},
        "lineage": {
            path: lineage(config, *path.split("/")[1:4]) for name in chosen for _, path in layout.cells(chosen[name])
        },
    }


def weights(config: dict, dataset: str, name: str, method: str) -> str | None:
    """Folder of the confidence LLM that a method reads with; None where no trained one reads."""
    parsed = methods.parse(method)
    folder = methods.weights(parsed)
    return None if folder is None else f"results/{trained_on(config, dataset)}/{parsed.source or name}/{folder}"


def to_argument(settings: dict) -> str:
    """Settings as one command-line argument, in a canonical form: equal settings rerun nothing."""
    return json.dumps(settings, sort_keys=True, ensure_ascii=False)
