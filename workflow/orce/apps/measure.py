"""How sure a model is of its answers to questions in a file, by any method that trains nothing. See docs/measure.md.

A call is a run of the workflow with one data set and one model, in a folder of its own, without Snakemake.
"""

import contextlib
import difflib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np
from msgspec import UNSET

from orce import make, stages, tasks
from orce import score as judges
from orce.apps import given
from orce.apps.table import Table
from orce.artefacts import files, store, tables
from orce.config import cells, check, graph, load
from orce.config import settings as parts
from orce.config.graph import Stage
from orce.config.schema import Config
from orce.errors import BadInput
from orce.methods import Method, Registry
from orce.runtime import process
from orce.runtime.process import say
from orce.stages import state
from orce.tasks.examples import unique_ids

DATASET, MODEL, JUDGE = "questions", "model", "judge"
CELL = cells.Cell(DATASET, MODEL)
GIVEN = ("answer", "answers", "greedy", "correct")  # keys of answers already made: orce.tasks.given_records
NO_REFERENCE = {"qa": [""]}  # that no answer equals, for questions without one
JUDGEMENTS = {"yes", "no", "true", "false", "right", "wrong", "correct", "incorrect"}
METRICS = ("accuracy", "ece", "brier", "auroc", "aurc")  # on the screen
Record = dict[str, Any]  # a question with what people know of it
Questions = str | Path | Sequence[str | Mapping[str, Any]]


def confidence(
    model: Annotated[str | Path | None, "folder, hub id (ID or ID@REVISION), or address of a server"],
    questions: Questions,
    methods: Annotated[Sequence[str] | None, {"type": str, "help": "a,b: names, or paths of Python files"}] = None,
    answers: Sequence[Any] | None = None,
    labels: Sequence[Any] | None = None,
    *,
    fields: Annotated[tables.Fields | None, tables.OPTION] = None,
    server_model: Annotated[str | None, "the model's name on the server"] = None,
    judge: Annotated[str | Path | None, "folder of a trained confidence LLM: the row `judge`"] = None,
    folder: Annotated[str | Path | None, "keeps what is finished (default: --out with .work for its ending)"] = None,
    settings: Annotated[Mapping[str, Any] | None, 'of methods, as JSON: {"topk": {"k": 2}}'] = None,
    task: Annotated[str | None, "how questions are shown and answers read (default: qa, or choice)"] = None,
    samples: Annotated[int, "K, answers sampled to each question (default: 10)"] = 10,
    temperature: float = 0.7,
    top_p: float = 1.0,
    max_tokens: Annotated[int | None, "budget of an answer (default: the task's)"] = None,
    shots: Annotated[int | None, "worked examples, for a task that has some"] = None,
    seed: int = 42,
    engine: Annotated[str, "transformers (default) or vllm"] = "transformers",
    device: Annotated[str | None, "cpu, cuda (all visible GPUs), cuda:1, ... (default: one GPU if any)"] = None,
    dtype: Annotated[Literal["float32", "bfloat16", "float16"] | None, "default: float32 on a CPU"] = None,
    template_kwargs: Annotated[Mapping[str, Any] | None, "a JSON object for the chat template"] = None,
    chunk: Annotated[int, "questions between two writes"] = 256,
    batch_tokens: Annotated[int, "tokens computed together"] = process.USUAL["batch_tokens"],
) -> Table:
    """How sure `model` is of its answers to `questions`, by each of `methods` (docs/measure.md).

    questions: texts, mappings with `question`, or the path of a file. A mapping may have id, context, choices, reference (an
    accepted answer, or a list), and answer or answers, which are given then. fields: the columns that these stand in. answers: one
    a question, a text, a list of samples or a mapping as in orce.tasks.given_records; without them the model is sampled, K times
    and once greedily. labels: one a question, the accepted answer or a list of them, or true or false of a given answer. The other
    arguments are the configuration's keys of that name, with the same defaults, and the workflow's own steps compute the numbers.

    Raises BadInput, in one line, for what cannot be done.
    """
    if isinstance(methods, str):
        raise BadInput(f"methods is a text; expected a list of names: [{methods!r}]")
    if not methods:
        methods = ["agreement"] if server_model else [] if judge else ["likelihood", "agreement"]
    records = read(questions, fields, answers, labels)
    has_answers, has_labels = already(records[0]) is not None, given.labelled(records[0])
    task = task or ("choice" if records[0]["choices"] else "qa")
    source = _source(str(model or ""), server_model)
    specs: dict[str, Record] = {}
    for name in methods:
        specs.update({Path(name).stem: {"module": name}} if name.endswith(".py") else {name: {}})
    for name, values in (settings or {}).items():
        if name not in specs:
            raise BadInput(f"settings: {name!r} is not among the methods: {', '.join(specs)}")
        specs[name] |= values
    registry = Registry(specs)
    rows = {name: _usable(registry, name, source, records) for name in specs}
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()) if folder is None else folder).resolve()
        stack.enter_context(_speed(chunk=chunk, batch_tokens=batch_tokens))
        spec: Record = {"label": MODEL, "source": source, "template_kwargs": template_kwargs or {}, "shots": shots}
        if has_answers:
            spec["answers"] = {"path": str(root / "given.jsonl")}
            files.write_jsonl(spec["answers"]["path"], map(already, records))
        if "server" in source and any(method.reads for method in rows.values()):
            spec["api"] = {"logprobs": True}
        sampled = {"samples": samples, "temperature": temperature, "top_p": top_p, "max_tokens": max_tokens}
        config = _configuration(seed, engine, task, spec, sampled, registry, [*rows] or ["agreement"])
        if source and "server" not in source:
            _choose_device(config, device, dtype)
        if not has_answers and not any(row.compares or not row.logprobs_suffice for row in rows.values()):
            config.answers.samples = 0 if engine != "vllm" or server_model else 1
        examples = [_example(record, task) for record in records]
        return _table(root, config, examples, rows, None if judge is None else judges.located(str(judge)), has_labels)


# What is asked for, as a configuration


def _source(model: str, server_model: str | None) -> Record:
    if model.startswith(("http://", "https://")):
        if not server_model:
            raise BadInput(f"{model}: a server has several models; name one (server_model, --server-model)")
        return {"server": model, "model": server_model}
    if server_model:
        raise BadInput(f"server_model names a model of a server, and {model!r} is not an address (http://...)")
    return judges.as_source(model) if model else {}  # of answers that are given


def _usable(registry: Registry, name: str, source: Record, records: list[Record]) -> Method:
    """The method. Raises BadInput for one that cannot be computed here, and says why."""
    usable = [*registry.names("measured"), *registry.names("prompted"), "vanilla"]  # the last one without a training
    if name in registry.calibrations() or "+" in name:
        instead = "orce.calibrate(confidences, correct) does that with the table's confidences"
        raise BadInput(f"{name!r} is fitted on labels: {instead}")
    if name not in usable and name in registry.names():
        raise BadInput(f"{name!r} needs a training, which the workflow runs; name the trained folder: judge=FOLDER")
    if name not in usable:
        close = difflib.get_close_matches(name.lower(), usable, 1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise BadInput(f"unknown method {name!r}; {hint}Methods are {', '.join(usable)}, or the path of a Python file")
    method, has_answers = registry.get(name), already(records[0]) is not None
    if "server" in source and (not method.logprobs_suffice or method.kind == "stated"):
        weights, texts = "reads the model's own weights", "asks the model for the probabilities of given texts"
        what = f"{texts if method.reads else weights}, which a server does not give"
        raise BadInput(f"{name} {what}; name a folder or hub id as the model")
    if has_answers and method.compares and any(len(record.get("answers") or [0]) < 2 for record in records):
        raise BadInput(f"{name} compares several samples of a question; give lists of texts as answers, or none")
    if not source and not (has_answers and method.compares):
        raise BadInput(f"{name} needs the model: its folder, its hub id, or a server's address with server_model")
    return method


def _configuration(
    seed: int, engine: str, task: str, model: Record, sampled: Record, registry: Registry, rows: list[str]
) -> Config:
    """The paper's configuration with one data set and one model, checked as any other."""
    dataset: Record = {"task": task, "source": {}, "splits": {"test": {"from": "test"}}}
    if task in ("qa", "choice"):
        dataset["fields"] = {name: name for name in tasks.get(task).FIELDS}
    paper = load.mapping(check.PAPER)
    own = {
        "seed": seed,
        "device": "cpu",
        "engine": paper["engine"] | {"name": engine},
        "answers": paper["answers"] | sampled,
        "datasets": {DATASET: dataset},
        "models": {MODEL: model | {"trains": False}},  # a server cannot
        "methods": registry.given,
        "tables": {"asked": {"kind": "main", "dataset": DATASET, "models": [MODEL], "methods": rows}},
        "paper_tables": ["asked"],
    }
    return check.check(paper | own)


def _choose_device(config: Config, device: str | None, dtype: Any) -> None:
    """Choose the device and number format. Raises BadInput for a missing model, before anything runs."""
    from transformers.utils import logging

    from orce.llm import language_model

    logging.disable_progress_bar()  # orce.runtime.process reports progress
    config.device = cast(Any, language_model.device_or_free(device))
    config.dtype = dtype or ("float32" if config.device == "cpu" else "bfloat16")
    language_model.origin(config.models[MODEL].source)


@contextlib.contextmanager
def _speed(**fast: int) -> Iterator[None]:
    """Let the stages compute so much together; what the environment says about the rest stays."""
    before = os.environ.get(process.SPEED)
    os.environ[process.SPEED] = json.dumps({kind: process.speed(kind) | fast for kind in ("answers", "confidence")})
    try:
        yield
    finally:
        del os.environ[process.SPEED]
        os.environ.update({} if before is None else {process.SPEED: before})


# The run


def _table(
    root: Path, config: Config, examples: list[Any], methods: dict[str, Method], weights: Path | None, has_labels: bool
) -> Table:
    """The table of a run in the folder `root`. weights: of the judge."""
    prompts, task = root / cells.prompts(DATASET, "test"), config.datasets[DATASET].task
    store.write(prompts, examples, {"task": task})
    rows = {name: graph.row(config, CELL, name) for name in methods}
    answers, done = graph.answers(config, CELL), set[Stage]()
    for stage in [*([answers] if config.models[MODEL].answers or weights else []), *rows.values()]:
        make.make(config, stage, root=root, done=done)
    if weights:
        rows[JUDGE] = Stage("state", CELL, JUDGE)  # by a trained confidence LLM of another run
        loaded = judges.model_settings(weights, device=config.device)
        settings = state.Settings(reader=parts.READER, task=task, label=f"{JUDGE} {DATASET}", model=loaded)
        out = str(root / rows[JUDGE].files[0])
        with store.step():
            state.run(settings, str(prompts), str(root / answers.files[0]), out, str(weights), readout="stated")
    stated = {name: store.read(root / stage.files[0]) for name, stage in rows.items()}
    greedy = {line["id"]: line["greedy"] for line in store.read(root / answers.files[0])} if answers in done else {}

    def answer(record: Record) -> Record:
        return {"answer": record["answer"]} | ({"correct": bool(record["correct"])} if has_labels else {})

    records = []
    for i, asked in enumerate(examples):
        mine = {name: lines[i] for name, lines in stated.items()}
        main = greedy.get(asked["id"]) or next(iter(mine.values()))
        record = {"id": asked["id"], "question": asked["question"], **answer(main)}
        record["confidence"] = {name: line["confidence"] for name, line in mine.items()}
        own = {name: answer(mine[name]) for name, method in methods.items() if method.own}
        records.append(record | ({"own": own} if own else {}))
    return Table(records, [*rows])


# Questions, answers and labels as people have them


def read(questions: Questions, fields: tables.Fields | None, answers=None, labels=None) -> list[Record]:
    """A record of every question, with an answer and a reference where they are known. Raises BadInput naming the question."""
    if not isinstance(questions, str | Path):
        rows: list[Any] = [(f"question {i}", asked) for i, asked in enumerate(questions, 1)]
    elif Path(questions).is_file():
        rows = tables.read(Path(questions))
    else:
        alone = f"a single question is a list of one: [{str(questions)!r}]"
        raise BadInput(f"{str(questions)!r}: no such file of questions; {alone}")
    if not rows:
        raise BadInput("no questions; expected a list of texts or of mappings, or the path of a file")
    for name, values in (("answers", answers), ("labels", labels)):
        if values is not None and (isinstance(values, str) or len(values) != len(rows)):
            count = "a text" if isinstance(values, str) else len(values)
            raise BadInput(f"{name}: expected {len(rows)}, one for each question, found {count}")
    columns = [[UNSET] * len(rows) if values is None else values for values in (answers, labels)]
    records, wheres = [], [where for where, _ in rows]
    for number, (row, answer, label) in enumerate(zip(rows, *columns, strict=True)):
        record = _record(row, fields, number)
        record |= {} if answer is UNSET else _answered(row[0], answer)
        records.append(record if label is UNSET else record | _labelled(row[0], record, label))
    unique_ids(records, wheres)
    _refuse_words(records, () if labels is None else labels)
    having: dict[str, Any] = {"answers": already, "references": given.labelled, "choices": itemgetter("choices")}
    for what, has in having.items():
        lacking = [where for where, record in zip(wheres, records, strict=True) if not has(record)]
        if 0 < len(lacking) < len(records):
            raise BadInput(f"{lacking[0]}: no {what}, and other questions have some; give them for all, or for none")
    return records


def _record(row: tuple[str, Any], fields: tables.Fields | None, number: int) -> Record:
    where, asked = row
    record = {"question": asked} if isinstance(asked, str) and fields is None else tables.record(row, fields)
    if not isinstance(record.get("question"), str) or not record["question"].strip():
        there = f"; it has {', '.join(map(str, record))}" if "question" not in record else ""
        raise BadInput(f"{where}: 'question' is {record.get('question')!r}; expected a text that is not empty{there}")
    record = {key: None if value == "" else value for key, value in record.items()}  # an empty cell of a table
    return {"context": None, "choices": None} | record | {"id": str(record.get("id") or f"test-{number}")}


def _answered(where: str, value: Any) -> Record:
    if isinstance(value, str) or value is None:
        return {"answer": value or ""}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and value:
        return {"answers": list(value)}
    raise BadInput(f"{where}: the answer is {value!r}; expected a text, a list of samples, or a mapping")


def _labelled(where: str, record: Record, value: Any) -> Record:
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, bool):
        if already(record) is None:
            raise BadInput(f"{where}: the label is {value}; true and false grade given answers, and none is given")
        several = len(record.get("answers") or ())
        if several > 1:
            raise BadInput(f"{where}: one label for {several} samples; give the accepted answer, or 'correct' for each")
        return {"correct": [value] if several else value}
    if isinstance(value, str | list) and value:
        return {"reference": value}
    expected = "expected the accepted answer, or a list of them; or True or False of a given answer"
    raise BadInput(f"{where}: the label is {value!r}; {expected}")


def _refuse_words(records: list[Record], labels: Sequence[Any]) -> None:
    """Raises BadInput if labels are words for right and wrong, which would be accepted answers that no answer equals."""
    words = {str(label).strip().casefold() for label in labels}
    texts = str([record[key] for record in records for key in ("answer", "answers", "greedy") if record.get(key)])
    answered = words and all(map(already, records)) and words.isdisjoint(re.findall(r"\w+", texts.casefold()))
    if answered and words <= JUDGEMENTS:
        listed = ", ".join(sorted(words))
        raise BadInput(f"labels are {listed}, which no answer says; judgements of answers are True and False")


def already(record: Record) -> Record | None:
    """The answers already made of a record, as orce.tasks.given_records reads them; None without any."""
    if all(record.get(key) is None for key in ("answer", "answers", "greedy")):
        return None
    complete = given.judgeable(record)
    return {key: complete[key] for key in ("id", *GIVEN) if complete.get(key) is not None}


def _example(record: Record, task: str) -> Record:
    """The frozen prompt of a record."""
    if task == "choice" and not record["choices"]:
        raise BadInput(f"question {record['id']!r}: task choice shows options, and it has no 'choices'")
    kept = {key: value for key, value in record.items() if key not in (*GIVEN, "references")}
    return kept | {"reference": given.references(record) or NO_REFERENCE.get(task, "")}


# The command line


def add_arguments(parser):
    parser.add_argument("questions", help="a file with a question a line: .jsonl, .csv, .tsv, .json or .parquet")
    parser.add_argument("--out", required=True, help="the scored questions: .jsonl or .csv")
    parser.add_argument("--metrics", help="a JSON file for the metrics by method; the questions need references")
    stages.add_options(parser, confidence, leave=("questions", "answers", "labels"))


def run(args):
    options = vars(args).copy()
    out, metrics = options.pop("out"), options.pop("metrics")
    if Path(out).resolve() == Path(args.questions).resolve():
        raise BadInput(f"--out {out} is the input; name another file")
    options["methods"] = args.methods and [name.strip() for name in args.methods.split(",")]
    options["folder"] = args.folder or Path(out).with_suffix(".work")
    table = confidence(**options)
    table.write(out)
    print(table)
    if metrics is None and "correct" not in table[0]:
        return
    by_method = table.metrics()
    for method, values in by_method.items():
        shown = (f"{name} {values[name]:.4f}" for name in METRICS if values[name] is not None)
        say(f"[measure] {method}: {', '.join(shown)}")
    if metrics is not None:
        files.write_json(metrics, by_method)
