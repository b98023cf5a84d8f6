"""The front door: how sure a model is of its answers, without a configuration and without Snakemake.

A call is a run of the workflow with one data set and one model, in a folder of its own.
"""

import contextlib
import difflib
import json
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from orce import make, stages, tasks
from orce.apps.door.questions import Questions, already, example, labelled, read
from orce.apps.door.table import Table
from orce.artefacts import files, store
from orce.config import cells, check, graph, load
from orce.config import settings as parts
from orce.config.graph import Stage
from orce.config.schema import Config
from orce.errors import BadInput
from orce.judging import judge as judges
from orce.llm import chat
from orce.methods import Method, Registry
from orce.records import Example
from orce.runtime import process
from orce.stage_settings import Model
from orce.stages import elicit, likelihoods, state

__all__ = ["Table", "confidence"]
DATASET, MODEL, JUDGE = "questions", "model", "judge"
CELL = cells.Cell(DATASET, MODEL)
JUDGED = Stage("state", CELL, JUDGE)  # by a trained confidence LLM of another run
CHUNK = 256  # questions between two writes
Record = dict[str, Any]


def confidence(
    model: str | Path | None,
    questions: Questions,
    methods: Sequence[str] | None = None,
    answers: Sequence[Any] | None = None,
    labels: Sequence[Any] | None = None,
    *,
    fields: Mapping[str, str | list[str]] | None = None,
    server_model: str | None = None,
    judge: str | Path | None = None,
    folder: str | Path | None = None,
    settings: Mapping[str, dict[str, Any]] | None = None,
    task: str | None = None,
    samples: int = 10,
    temperature: float = 0.7,
    top_p: float = 1.0,
    max_tokens: int | None = None,
    shots: int | None = None,
    seed: int = 42,
    engine: str = "transformers",
    device: str | None = None,
    dtype: str | None = None,
    template_kwargs: dict[str, Any] | None = None,
    chunk: int = CHUNK,
    batch_tokens: int = process.USUAL["batch_tokens"],
) -> Table:
    """How sure `model` is of its answers to `questions`, by each of `methods`.

    model: a folder or hub id (ID or ID@REVISION), or the address of an OpenAI-compatible server with its `server_model`; None
    where the methods read given answers alone.
    questions: texts, mappings with `question`, or the path of a file (.jsonl, .csv, ...). A mapping may have id, context,
    choices, reference (an accepted answer, or a list), and answer or answers, which are given then. fields: the columns that these
    stand in, {"question": "doc.question", "answers": "resps.0"}, with dots into nested JSON; other columns are then not read.
    methods: names, or paths of Python files with a method of your own (default: likelihood and agreement; agreement alone on
    a server). answers, labels: one a question, in place of the ones in the mappings; without answers the model is sampled, K =
    `samples` times and once greedily. judge: the folder of a trained confidence LLM, which becomes the row `judge`.
    settings: of methods, {"topk": {"k": 2}}. folder: keeps what is finished, so that the same call goes on where a killed
    one stopped. task: how questions are shown and answers read (default: qa, or choice where there are choices). The other
    arguments are the keys of that name in the configuration, with the same defaults.

    The workflow's own steps compute it: with equal ids, settings, chunk and batch_tokens the numbers equal its rows.
    Raises BadInput, in one line, for what cannot be done.
    """
    if isinstance(methods, str):
        raise BadInput(f"methods is a text; expected a list of names: [{methods!r}]")
    if methods is None:
        methods = ("agreement",) if server_model else () if judge else ("likelihood", "agreement")
    records = read(questions, fields, answers, labels)
    given = [already(record) for _, record in records]
    task = task or ("choice" if any(one["choices"] for _, one in records) else "qa")
    source, registry = _source(str(model or ""), server_model), _registry(methods, settings or {})
    names = dict.fromkeys(map(_stem, methods))
    _refuse(registry, [*names, *([JUDGE] if judge else [])], source, given)
    reads = {name: registry.get(name) for name in names}
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()) if folder is None else folder).resolve()
        stack.enter_context(_speed({"chunk": chunk, "batch_tokens": batch_tokens}))
        spec: Record = {"label": MODEL, "source": source, "template_kwargs": template_kwargs or {}, "shots": shots}
        if given[0] is not None:
            spec["answers"] = {"path": str(root / "given.jsonl")}
            files.write_jsonl(spec["answers"]["path"], given)
        if "server" in source and any(one.reads for one in reads.values()):
            spec["api"] = {"logprobs": True}
        sampled = {"samples": samples, "temperature": temperature, "top_p": top_p, "max_tokens": max_tokens}
        config = _configuration(seed, engine, task, spec, sampled, registry, [*names])
        config.device, config.dtype = _placed(config, device, dtype)
        if given[0] is None and all(not one.compares and one.logprobs_suffice for one in reads.values()):
            config.answers.samples = 0 if engine != "vllm" or server_model else 1
        examples = [example(where, record, task) for where, record in records]
        weights = None if judge is None else judges.located(str(judge))
        return _table(_Run(root, config, cast(Any, examples), weights), reads, labelled(records[0][1]))


# What is asked for, as a configuration


def _source(model: str, server_model: str | None) -> Record:
    if model.startswith(("http://", "https://")):
        if not server_model:
            raise BadInput(f"{model}: a server has several models; name one (server_model, --server-model)")
        return {"server": model, "model": server_model}
    if server_model:
        raise BadInput(f"server_model names a model of a server, and {model!r} is not an address (http://...)")
    return judges.as_source(model) if model else {}  # of answers that are given


def _registry(asked: Sequence[str], own: Mapping[str, Record]) -> Registry:
    """own: settings of methods, {NAME: {KEY: VALUE}}."""
    given: dict[str, Record] = {_stem(one): {"module": one} for one in asked if one.endswith(".py")}
    names = [_stem(one) for one in asked]
    for name, values in own.items():
        if name not in names:
            raise BadInput(f"settings: {name!r} is not among the methods: {', '.join(names)}")
        given[name] = given.get(name, {}) | dict(values)
    return Registry(given)


def _stem(name: str) -> str:
    """The name of a method, also of one that is named by its file."""
    return name.rpartition("/")[2].removesuffix(".py")


def _refuse(registry: Registry, names: list[str], source: Record, given: list[Record | None]) -> None:
    """Raises BadInput for a method that cannot be computed here, and says why."""
    usable = [*registry.names("measured"), *registry.names("prompted"), "vanilla"]  # the last one without a training
    if not names:
        raise BadInput(f"no methods; there are {', '.join(usable)}")
    one_answer = any(answers is not None and len(answers.get("answers", [0])) < 2 for answers in given)
    for name in names:
        if name != JUDGE and name not in usable:
            raise BadInput(_unknown(registry, name, usable))
        method = Method(JUDGE, "stated") if name == JUDGE else registry.get(name)
        if name != JUDGE and "server" in source and (not method.logprobs_suffice or method.kind == "stated"):
            what = "asks the model for the probabilities of given texts" if method.reads else "reads the model's own weights"  # fmt: skip
            raise BadInput(f"{name} {what}, which a server does not give; name a folder or hub id as the model")
        if method.compares and one_answer:
            raise BadInput(
                f"{name} compares several samples of a question; give answers as lists of texts, or leave them out"
            )
        if "server" in source and given[0] is not None and "logprobs" in method.reads:
            raise BadInput(f"{name} reads token probabilities, and the server has none of answers that are given")
        if not source and (given[0] is None or name != JUDGE and not method.compares):
            raise BadInput(f"{name} needs the model: its folder, its hub id, or a server's address with server_model")


def _unknown(registry: Registry, name: str, usable: list[str]) -> str:
    if name in registry.calibrations() or "+" in name:
        return (
            f"{name!r} is fitted on labels: orce.calibrate(confidences, correct) does that with the table's confidences"
        )
    if name in registry.names():
        return f"{name!r} needs a training, which the workflow runs; name the trained folder: judge=FOLDER"
    close = difflib.get_close_matches(name.lower(), usable, 1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"unknown method {name!r}; {hint}Methods are {', '.join(usable)}, or the path of a Python file"


def _configuration(
    seed: int, engine: str, task: str, model: Record, sampled: Record, registry: Registry, names: list[str]
) -> Config:
    """The paper's configuration with one data set and one model, checked as any other."""
    dataset = {"task": task, "source": {}, "splits": {"test": {"from": "test"}}}
    if task in ("qa", "choice"):
        dataset["fields"] = {name: name for name in tasks.get(task).FIELDS}
    paper = load.mapping(check.PAPER)
    table = {"kind": "main", "dataset": DATASET, "models": [MODEL], "methods": names or ["agreement"]}
    return check.check(
        paper
        | {
            "seed": seed,
            "device": "cpu",
            "engine": paper["engine"] | {"name": engine},
            "answers": paper["answers"] | sampled,
            "evaluation": paper["evaluation"] | {"readout": "stated"},
            "datasets": {DATASET: dataset},
            "models": {MODEL: model | {"trains": False}},  # a server cannot
            "methods": registry.given,
            "tables": {"asked": table},
            "paper_tables": ["asked"],
        }
    )


def _placed(config: Config, device: str | None, dtype: str | None) -> tuple[Any, Any]:
    """The device and number format. Raises BadInput for a model that is not there, before anything runs."""
    if parts.on_server(config, MODEL) or not config.models[MODEL].source:
        return "cpu", "float32"  # of what runs here; the server chooses its own
    from transformers.utils import logging

    from orce.llm import language_model

    logging.disable_progress_bar()  # orce.runtime.process reports progress
    found = language_model.device_or_free(device)
    language_model.origin(config.models[MODEL].source)
    return found, dtype or ("float32" if found == "cpu" else "bfloat16")


@contextlib.contextmanager
def _speed(fast: dict[str, int]) -> Iterator[None]:
    """Let the stages compute so much together; what the environment says about the rest stays."""
    before = os.environ.get(process.SPEED)
    os.environ[process.SPEED] = json.dumps({kind: process.speed(kind) | fast for kind in ("answers", "confidence")})
    try:
        yield
    finally:
        del os.environ[process.SPEED]
        if before is not None:
            os.environ[process.SPEED] = before


# The run


class _Run(NamedTuple):
    """weights: of the judge."""

    root: Path
    config: Config
    examples: list[Example]
    weights: Path | None


def _table(run: _Run, reads: dict[str, Method], has_labels: bool) -> Table:
    root, config = run.root, run.config
    prompts = root / cells.prompts(DATASET, "test")
    store.write(prompts, run.examples, {"task": config.datasets[DATASET].task})
    wanted = {name: graph.row(config, CELL, name) for name in reads} | ({JUDGE: JUDGED} if run.weights else {})
    answers, spent, started = graph.answers(config, CELL), dict[Stage, Cost](), time.monotonic()

    def ran(stage: Stage) -> None:
        nonlocal started
        if stage.rule != "derive":
            spent[stage] = _cost(stage, run, time.monotonic() - started)
        started = time.monotonic()

    done: set[Stage] = set()
    if config.models[MODEL].answers or run.weights:
        make.make(config, answers, ran, root, done)
    for stage in wanted.values():
        if stage != JUDGED:
            make.make(config, stage, ran, root, done)
    if run.weights:
        out = str(root / JUDGED.files[0])
        with store.step():
            state.run(_judging(run), str(prompts), str(root / CELL.samples), out, str(run.weights), readout="stated")
        ran(JUDGED)
    stated = {name: store.read(root / stage.files[0]) for name, stage in wanted.items()}
    sampled = {one["id"]: one["greedy"] for one in store.read(root / CELL.samples)} if answers in spent else {}
    records = []
    for i, asked in enumerate(run.examples):
        mine = {name: found[i] for name, found in stated.items()}
        main = sampled.get(asked["id"]) or next(iter(mine.values()))
        record = {"id": asked["id"], "question": asked["question"], **_answer(main, has_labels)}
        record["confidence"] = {name: one["confidence"] for name, one in mine.items()}
        if own := {name: _answer(mine[name], has_labels) for name, method in reads.items() if method.own}:
            record["own"] = own
        records.append(record)

    def needed(stage: Stage) -> set[Stage]:
        read = {"samples": [answers]} if stage == JUDGED else graph.reads(config, stage)
        return {stage}.union(*(needed(one) for many in read.values() for one in many))

    costs = {name: [spent[one] for one in needed(stage) if one in spent] for name, stage in wanted.items()}
    by_method = {name: _total(found)._asdict() for name, found in costs.items()}
    return Table(records, by_method, _total(spent.values())._asdict())


def _answer(record: Record, has_label: bool) -> Record:
    return {"answer": record["answer"]} | ({"correct": bool(record["correct"])} if has_label else {})


def _judging(run: _Run) -> state.Settings:
    """Of a judge with the base model that its folder records."""
    loaded = judges.model_settings(run.weights, device=run.config.device)
    task = run.config.datasets[DATASET].task
    return state.Settings(reader=parts.READER, task=task, label=f"{JUDGE} {DATASET}", model=loaded)


# What it cost


class Cost(NamedTuple):
    """None for what a server does not say.

    passes: texts that the model wrote or read for a question. prompt_tokens: counted once for all samples of a prompt, and without
    the second question to a model whose statement could not be read; a server's own counts are taken as they are.
    """

    passes: int | None = 0
    prompt_tokens: int | None = 0
    generated_tokens: int | None = 0
    seconds: float | None = 0.0


def _total(costs: Iterable[Cost]) -> Cost:
    """The sum of several stages' costs; None where one of them is not known."""
    columns = zip(Cost(), *costs, strict=True)
    return Cost(*(None if None in column else sum(column) for column in columns))


def _cost(stage: Stage, run: _Run, seconds: float) -> Cost:
    if stage.rule == "import_answers":
        return Cost(seconds=seconds)
    chosen: Any = _judging(run) if stage == JUDGED else make.settings(run.config, stage)
    passes = 1
    if stage.rule == "sample":
        passes = chosen.samples + 1
    elif stage.rule == "likelihoods" and chosen.scored == "greedy":
        passes = 2
    if chosen.model.source.server:
        counted = store.facts(run.root / stage.files[0]).get("spent", {})
        return Cost(passes, counted.get("prompt_tokens"), counted.get("completion_tokens"), seconds)
    asked, written = _texts(stage, run, chosen)
    return Cost(passes, _tokens(asked, chosen.model), _tokens(written, chosen.model), seconds)


def _texts(stage: Stage, run: _Run, chosen: Any) -> tuple[list, list[str]]:
    """(conversations and texts that the model read, texts that it wrote)."""
    task, prompts, rule = tasks.get(chosen.task), str(run.root / cells.prompts(DATASET, "test")), stage.rule
    records = store.read(run.root / stage.files[0])
    raw = [one.get("raw", []) for one in records]
    written = [text for one in raw for text in (one if isinstance(one, list) else [one])]
    if rule == "sample":
        asked: list = [stages.answer_prompt(task, one, chosen) for one in run.examples]
        return asked, [*written, *(one["greedy"]["raw"] for one in records)]
    way = elicit.way(chosen) if rule == "elicit" else None
    if way and not way.method.ask:
        return [way.prompt(one) for one in run.examples], written
    items = stages.tested(prompts, str(run.root / CELL.samples))
    greedy = [(one, record.greedy) for one, record in items]
    if way:
        return [way.prompt(*item) for item in greedy], written
    if rule == "state":
        return state.asked(greedy, chosen), written
    asked = [stages.answer_prompt(task, one, chosen) for one in run.examples]
    if chosen.scored == "samples":
        return [*asked, *(text for _, record in items for text in record.raw)], []
    return [*asked, *(one.raw for _, one in greedy), *(likelihoods.p_true_prompt(task, *item) for item in items)], []


def _tokens(texts: list, model: Model) -> int:
    """Of conversations and texts."""
    from orce.llm import language_model

    keywords = model.template_kwargs or {}
    tokenizer, _ = language_model.vocabulary(model.source, keywords or None)
    written = [one if isinstance(one, str) else chat.render(tokenizer, one, keywords) for one in texts]
    return sum(map(len, tokenizer(written, add_special_tokens=False)["input_ids"])) if written else 0
