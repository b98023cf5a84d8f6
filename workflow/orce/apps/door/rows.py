"""Which methods are asked for, what each of them needs, and the configuration that the workflow's steps are given."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orce import methods
from orce.config import check, settings
from orce.config.schema import Config, Dataset, Model
from orce.errors import BadInput
from orce.judging.judge import as_source

DATASET, MODEL = "questions", "model"  # the cell of the questions
JUDGE = "judge"
KINDS = ("measured", "prompted")
UNTRAINED = ("vanilla",)  # stated by the answer LLM itself


@dataclass(frozen=True)
class Row:
    """A method that is asked for. steps: the steps with a cost that it needs, in their order."""

    name: str
    kind: str
    steps: tuple[str, ...]


def configuration(
    model: str,
    asked: Sequence[str],
    own: Mapping[str, dict[str, Any]] | None,
    task: str,
    server_model: str | None,
    how: dict[str, Any],
) -> Config:
    """The configuration of a run with one dataset and one model, in the form that orce.config.settings reads.

    own: settings of methods, {NAME: {KEY: VALUE}}. how: the further arguments of `confidence`. Raises BadInput for an
    unknown method.
    """
    given = {_stem(one): {"module": one} for one in asked if one.endswith(".py")}
    names = [_stem(one) for one in asked]
    for name, values in (own or {}).items():
        if name not in names:
            raise BadInput(f"settings: {name!r} is not among the methods: {', '.join(names)}")
        given[name] = given.get(name, {}) | dict(values)
    config: Any = check.paper()  # in part with None, which the loading of the model fills in
    config.seed, config.device, config.dtype = how["seed"], how["device"], how["dtype"]
    config.engine.name = how["engine"]
    for key in ("samples", "temperature", "top_p", "max_tokens"):
        setattr(config.answers, key, how[key])
    config.datasets = {DATASET: Dataset(task=task, source={}, splits={})}
    source: Any = _source(model, server_model)
    keywords = how["template_kwargs"] or {}
    config.models = {MODEL: Model(label=model, source=source, template_kwargs=keywords, shots=how["shots"])}
    config.methods, config.rewards, config.evaluation.readout = given, {}, "stated"
    return config


def rows(config: Config, asked: Sequence[str], judge: bool, given: Sequence[dict[str, Any] | None]) -> list[Row]:
    """The rows that are asked for. Raises BadInput, in one line, for one that cannot be computed, and says why."""
    registry, server = methods.of(config), settings.on_server(config, MODEL)
    found = [_row(config, registry, _stem(one), server) for one in dict.fromkeys(asked)]
    if judge:
        found.append(Row(JUDGE, "stated", ("sample", JUDGE)))
    if not found:
        raise BadInput(f"no methods; there are {', '.join(usable(registry))}")
    one_answer = any(answers is not None and len(answers.get("answers", [0])) < 2 for answers in given)
    for row in found:
        if one_answer and compares(registry, row):
            raise BadInput(
                f"{row.name} compares several samples of a question; give answers as lists of texts, or leave them out"
            )
        if server and given and given[0] is not None and "logprobs" in reads(registry, row):
            raise BadInput(f"{row.name} reads token probabilities, and the server has none of answers that are given")
    return found


def asks(row: Row, given: dict[str, Any] | None) -> bool:
    """Whether a row needs the model: for its answers, or for what it reads of them."""
    return given is None or bool(set(row.steps) - {"sample", JUDGE})


def usable(registry: methods.Registry) -> list[str]:
    """The methods that train nothing."""
    return [*(name for kind in KINDS for name in registry.names(kind)), *UNTRAINED]


def compares(registry: methods.Registry, row: Row) -> bool:
    """Whether a row is computed from the K samples alone."""
    return row.name != JUDGE and registry.get(row.name).compares


def samples(registry: methods.Registry, found: Sequence[Row]) -> bool:
    """Whether any of the rows reads samples, and not the greedy answer alone."""
    read = [registry.get(row.name) for row in found if row.name != JUDGE]
    return any(method.compares or not method.logprobs_suffice for method in read)


def _row(config: Config, registry: methods.Registry, name: str, server: bool) -> Row:
    names = usable(registry)
    if name not in names:
        raise BadInput(_unknown(registry, name, names))
    method = registry.get(name)
    kind, reads = method.kind, method.reads
    if server and (not method.logprobs_suffice or kind == "stated"):
        what = "asks the model for the probabilities of given texts" if reads else "reads the model's own weights"
        raise BadInput(f"{name} {what}, which a server does not give; name a folder or hub id as the model")
    if method.prompt:
        return Row(name, kind, (name,))
    if kind in ("prompted", "stated"):
        return Row(name, kind, ("sample", name))
    return Row(name, kind, ("sample", *(() if server else method.likelihoods)))


def _unknown(registry: methods.Registry, name: str, names: list[str]) -> str:
    if name in registry.calibrations() or "+" in name:
        return (
            f"{name!r} is fitted on labels: orce.calibrate(confidences, correct) does that with the table's confidences"
        )
    if name in registry.names():
        return f"{name!r} needs a training, which the workflow runs; name the trained folder: judge=FOLDER"
    close = difflib.get_close_matches(name.lower(), names, 1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"unknown method {name!r}; {hint}Methods are {', '.join(names)}, or the path of a Python file"


def reads(registry: methods.Registry, row: Row) -> tuple[str, ...]:
    """What a row reads besides the answers: logprobs, likelihoods."""
    return () if row.name == JUDGE else registry.get(row.name).reads


def _source(model: str, server_model: str | None) -> dict[str, Any]:
    if model.startswith(("http://", "https://")):
        if not server_model:
            raise BadInput(f"{model}: a server has several models; name one (server_model, --server-model)")
        return {"server": model, "model": server_model}
    if server_model:
        raise BadInput(f"server_model names a model of a server, and {model!r} is not an address (http://...)")
    return as_source(model) if model else {}  # of answers that are given


def _stem(name: str) -> str:
    """The name of a row: the method's, or its file's."""
    return name.rpartition("/")[2].removesuffix(".py")
