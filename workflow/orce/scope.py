"""What a run of the workflow is after, so that one engine start serves all of it and nothing else.

An engine start costs a minute at 8B, and the paper's matrix asks three sets of weights for some hundred things. So a
run first writes down what it wants of each model as requests, one a cell, and one job for each set of weights serves
them together (rules answer and read). Which cells a run wants follows from its targets. Cheap: the Snakefile asks.
"""

import json
import os
import re
from typing import NamedTuple

from orce import methods
from orce.config import layout, settings

ANSWERS = "answers"


class Request(NamedTuple):
    """Texts or readings wanted of one cell.

    `what` is samples, a prompted method (cot), candidates or candidates-ALIGNED-ROUND, or a stated method (orce-nrd).
    """

    dataset: str
    model: str
    what: str

    @property
    def path(self) -> str:
        return f"results/{self.dataset}/{self.model}/requests/{self.what}.json"


def targets(given, main: bool) -> list[str]:
    """The targets of this run: those of its main process. Jobs on other machines, which have their own, inherit them."""
    if main or "ORCE_TARGETS" not in os.environ:
        os.environ["ORCE_TARGETS"] = json.dumps(sorted(map(str, given)))
    return json.loads(os.environ["ORCE_TARGETS"])


def stage(what: str) -> str:
    """What is served at the same time: answers, candidates (of one round), or tests."""
    if what == "samples" or what in methods.names("prompted"):
        return ANSWERS
    return what if what.startswith("candidates") else "tests"


def weights(config: dict, request: Request) -> str:
    """The model, with weights of its own, that serves a request."""
    name = request.model
    if stage(request.what) == "tests":
        name = methods.parse(request.what).source or name
    if stage(request.what) != ANSWERS:
        name = settings.judge(config, name)
    return settings.base(config, name)


def wanted(config: dict, targets: list[str]) -> list[Request]:
    """All requests behind some targets of the workflow; no targets means the tables."""
    found: set[Request] = set()
    for target in targets or ["paper_tables"]:
        for cell in _cells(config, target):
            found |= _behind(config, *cell)
    return sorted(found)


def _cells(config: dict, target: str) -> list[tuple[str, str, str | None]]:
    """(dataset, model, method) of the cells that a target concerns; method None: the answers alone."""
    found = re.match(r"results/([^/]+)/([^/]+)/([^/]+)", target)
    if not found or found[1] not in config["datasets"] or found[2] not in config["models"]:
        paths = [path for name in config["paper_tables"] for _, path in layout.cells(config["tables"][name])]
        return [tuple(path.split("/")[1:4]) for path in paths]
    dataset, model, name = found.groups()
    return [(dataset, model, _method(name))]


def _method(name: str) -> str | None:
    """The method that a folder or file of a cell belongs to."""
    if name.startswith("dpo"):
        return "orce" + name.removeprefix("dpo")
    if name.startswith(("candidates", "pairs", "rounds")):
        return "orce"
    try:
        methods.parse(name)
    except ValueError:
        return None
    return name


def _behind(config: dict, dataset: str, model: str, method: str | None) -> set[Request]:
    found = {Request(dataset, model, "samples")}
    if method is None:
        return found
    parsed = methods.parse(method)
    module = methods.get(parsed.name)
    if module.KIND != "sampled":
        found.add(Request(dataset, model, method))
    if module.KIND == "stated" and module.WEIGHTS is not None:
        trained = settings.trained_on(config, dataset), parsed.source or model
        found.add(Request(*trained, "samples"))
        if module.WEIGHTS == "dpo":
            aligned = methods.weights(parsed)
            later = range(2, config["dpo"]["rounds"] + 1)
            found |= {Request(*trained, what) for what in ("candidates", *(f"candidates-{aligned}-{r}" for r in later))}
    return found


def flags(config: dict, request: Request) -> list[str]:
    """Files that the jobs serving a request leave behind, one a shard."""
    group = stage(request.what)
    shards = config["answers" if group == ANSWERS else "confidence"]["shards"]
    return [f"results/engines/{weights(config, request)}/{group}-{shard}.done" for shard in range(shards)]


def inputs(config: dict, request: Request) -> list[str]:
    """Small files that stand for what a request is served from: manifests, and the surrogate."""
    spec = settings.request(config, *request)
    found = [path.replace(".jsonl", ".manifest.json") for path in spec["prompts"].values()]
    if spec["kind"] == "stated":
        found.append(f"results/{request.dataset}/{request.model}/samples.manifest.json")
    found += [spec["surrogate"]] if "surrogate" in spec else []
    found += [f"{spec['weights']}/manifest.json"] if spec.get("weights") else []
    return found
