"""How sure a model is of its answers to questions in a file, by any method that trains nothing. See
docs/measure.md.

A call is a run of the workflow with one data set and one model, in a folder of its own, without
Snakemake.
"""

import contextlib
import inspect
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from orce import stages, tasks
from orce.apps import questions as brought
from orce.apps.run_here import Run
from orce.apps.table import RESERVED, Table, check_wanted, judged_answer, labelled_records, writable
from orce.artefacts import files, store, tables
from orce.config import cells, check
from orce.errors import BadInput, did_you_mean, public
from orce.judge import judge as judges
from orce.judge.judge import READOUTS
from orce.methods import Method, Registry
from orce.methods.prompted import BY_TEXT
from orce.methods.samples import APART, BY_MEANING, all_apart
from orce.metrics import signs
from orce.metrics.definitions import ON_SCREEN
from orce.runtime import process
from orce.runtime.modules import short, typed
from orce.runtime.process import say, show
from orce.settings import load
from orce.settings.schema import Config
from orce.stages import state
from orce.tasks import qa
from orce.tasks.rows import Question, Record

# Names in the configuration of a call: the data sets, the models, and two rows.
DATASET = "questions"
FIT = "fit"
MODEL = "model"
GRADER = "grader"
JUDGE = "judge"
GIVEN = "given"  # the row of the confidences that the questions come with
CELL = cells.Cell(DATASET, MODEL)
# Files in the folder of a call, of what the questions come with.
ANSWERS_FILE = "given.jsonl"
CONFIDENCES_FILE = "given-confidences.jsonl"
Questions = Any  # texts or mappings, a data frame, a mapping of columns, or the path of a file
# The option of the command, and argument, that sets a key of the configuration: what a message
# names.
OPTION_OF = {
    "answers.samples": "samples",
    "answers.temperature": "temperature",
    "answers.top_p": "top_p",
    "answers.max_tokens": "max_tokens",
    "seed": "seed",
    "engine": "engine",
    f"datasets.{DATASET}.task": "task",
    f"models.{MODEL}.source": "model",
    f"models.{MODEL}.template_kwargs": "template_kwargs",
    f"models.{MODEL}.shots": "shots",
    "methods:": "methods",  # a row's name, which may be a file's
    "methods": "settings",
}


@process.missing_extra_is_bad_input()
@process.say_tallies()
@typed
def confidence(
    model: Annotated[
        str | Path | None,
        {
            "type": str,
            "required": False,
            "help": "folder, hub id (ID or ID@REVISION), or address of a server; none for rows that need no model",
        },
    ],
    questions: Questions,
    methods: Annotated[
        Sequence[str] | None, {"type": str, "help": "a,b: names, or paths of Python files"}
    ] = None,
    answers: Iterable[Any] | None = None,
    labels: Iterable[Any] | None = None,
    *,
    fields: Annotated[tables.Fields | None, tables.OPTION] = None,
    server_model: Annotated[str | None, "the model's name on the server"] = None,
    equality: Annotated[
        str | None, "when two answers are the same: contains for sentences, numeric, ..."
    ] = None,
    limit: Annotated[int | None, "the first so many questions alone"] = None,
    fit: Annotated[
        Questions, {"type": str, "help": "labelled questions to fit probe, NAME+platt, ... on"}
    ] = None,
    group_by: Annotated[
        str | None, "a model asked which answers mean the same, and which are right"
    ] = None,
    judge: Annotated[
        str | Path | None, "folder or hub id of a trained confidence LLM: the row `judge`"
    ] = None,
    readout: Annotated[
        Literal["stated", "mean", "mode"], "what the judge's confidence is (default: stated)"
    ] = "stated",
    folder: Annotated[
        str | Path | None, "keeps what is finished (default: --out with .work for its ending)"
    ] = None,
    settings: Annotated[Mapping[str, Any] | None, 'of methods, as JSON: {"topk": {"k": 2}}'] = None,
    task: Annotated[
        str | None, "how questions are shown and answers read (default: qa, or choice)"
    ] = None,
    samples: Annotated[int, "K, answers sampled to each question (default: 10)"] = 10,
    temperature: float = 0.7,
    top_p: float = 1.0,
    max_tokens: Annotated[int | None, "budget of an answer (default: the task's)"] = None,
    shots: Annotated[int | None, "worked examples, for a task that has some"] = None,
    seed: int = 42,
    engine: Annotated[str, "transformers (default) or vllm"] = "transformers",
    device: Annotated[
        str | None, "cpu, cuda (all visible GPUs), cuda:1, ... (default: one GPU if any)"
    ] = None,
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"] | None, "default: float32 on a CPU"
    ] = None,
    template_kwargs: Annotated[
        Mapping[str, Any] | None, "a JSON object for the chat template"
    ] = None,
    chunk: Annotated[int, "questions between two writes"] = 256,
    batch_tokens: Annotated[int, "tokens computed together"] = process.USUAL["batch_tokens"],
) -> Table:
    """How sure `model` is of its answers to `questions`, by each of `methods` (docs/measure.md).

    questions: texts, mappings with `question`, what holds such rows in a program, or the path of a
    file. A mapping may have id, context, choices, reference (an accepted answer, or a list), answer
    or answers, which are given then, and confidence. fields: the columns that these stand in; the
    other columns keep their names. answers: one a question, a text, a list of samples or a mapping
    as in orce.given.records; without them the model is sampled, K times and once greedily. labels:
    one a question, the accepted answer or a list of them, or true or false of a given answer or of
    each of its samples; None where there is none. The other arguments are the configuration's keys
    of that name, with the same defaults, and the workflow's own steps compute the numbers. Raises
    BadInput, in one line, before a model is asked where that is possible.
    """
    if not isinstance(methods, list | tuple | None) or not all(
        isinstance(name, str) for name in methods or ()
    ):
        raise BadInput(f"methods is {short(methods)}; expected a list of names: ['agreement']")
    if readout not in READOUTS:
        raise BadInput(f"readout is {readout!r}; expected {', '.join(READOUTS)}")
    asked = brought.read(questions, fields, answers, labels, task, limit)
    known = [] if fit is None else brought.read(fit, fields, task=task)
    brought.complete(asked, known, equality, task)
    source, grader = _sources(model, server_model, group_by)
    has_answers = asked[0].samples is not None
    if judge is not None and not source and not has_answers:
        raise BadInput(
            "--judge (judge=) judges answers, and the questions have none; "
            "name their column, --fields answer=COLUMN, or the model that answers, --model"
        )
    names = methods or _usual_methods(asked, source, judge)
    rows = _rows(names, settings or {}, source, has_judge=judge is not None)
    place = tempfile.TemporaryDirectory() if folder is None else contextlib.nullcontext(folder)
    with place as name, _speed(chunk=chunk, batch_tokens=batch_tokens):
        root = Path(name).resolve()
        if GIVEN in rows:
            rows[GIVEN] = {"path": str(root / CONFIDENCES_FILE), "label": GIVEN}
        registry = Registry({name: spec for name, spec in rows.items() if "+" not in name})
        leaves = _leaves(registry, rows, source, asked, known)
        asks = any(not method.compares and method.kind != "external" for method in leaves)
        brought.name_the_nameless([*asked, *known], are_shown=bool(asks or judge or group_by))
        answer_llm: Record = {
            "label": MODEL,
            "source": source,
            "template_kwargs": template_kwargs or {},
            "shots": shots,
            "trains": any(method.states for method in leaves),  # on questions to fit on
        }
        if has_answers:
            answer_llm["answers"] = {"path": str(root / ANSWERS_FILE)}
        if "server" in source and any(method.reads for method in leaves):
            answer_llm["api"] = {"logprobs": True}
        task = task or ("choice" if asked[0].options else "qa")
        config = _configuration(
            answer_llm,
            grader,
            grades=any(question.reference for question in asked),
            registry=registry,
            rows=[*rows],
            task=task,
            seed=seed,
            engine=engine,
            sampled={
                "samples": samples,
                "temperature": temperature,
                "top_p": top_p,
                "max_tokens": max_tokens,
            },
        )
        _check_columns(asked, [*rows, JUDGE] if judge else [*rows], registry)
        reads_samples = any(
            method.compares or method.states or not method.logprobs_suffice for method in leaves
        )
        if not has_answers and not reads_samples:  # the greedy answers are enough
            config.answers.samples = 0
        weights = None if judge is None else judges.local_folder(str(judge))
        _choose_device(config, device, dtype, weights is not None)
        if weights is not None:
            judges.check_weights(weights, config.device)
        _write_questions(root, asked, known, task)
        run = Run(config, root)
        confidences = {name: run.confidences(CELL, name) for name in rows}
        if weights is not None:
            confidences[JUDGE] = _by_judge(run, weights, readout)
        return _table(run, confidences, asked)


# What is asked for


def _sources(
    model: str | Path | None, server_model: str | None, group_by: str | None
) -> tuple[Record, Record]:
    """The sources of the model and of the grader; {} where there is none. `server_model` is the
    name of whichever is on a server.
    """
    answering = str(model or "")
    grading = group_by or ""
    if server_model and "://" not in answering + grading:
        raise BadInput(
            f"server_model names a model of a server, and {public(answering)!r} is not an address (http://...)"
        )
    return _source(answering, server_model), _source(grading, server_model)


def _source(model: str, server_model: str | None) -> Record:
    if not model:
        return {}
    if not model.startswith(("http://", "https://")):
        return judges.as_source(model)
    if not server_model:
        raise BadInput(
            f"{public(model)}: a server has several models; name one (server_model, --server-model)"
        )
    return {"server": model, "model": server_model}


def _usual_methods(
    asked: list[Question], source: Record, judge: str | Path | None
) -> Sequence[str]:
    """The methods where none is named."""
    if any("confidence" in question.more for question in asked):
        return [GIVEN]
    if judge is not None:
        return []
    usual = ["likelihood"] if source and "server" not in source else []
    if asked[0].samples is None or len(asked[0].samples) > 1:
        usual.append("agreement")
    if not usual:
        raise BadInput(
            "the questions have one answer each, and no confidence in it; name its column "
            "(--fields confidence=COLUMN), or a method and its model (--methods vanilla --model MODEL)"
        )
    return usual


def _rows(
    names: Sequence[str], settings: Mapping[str, Any], source: Record, has_judge: bool
) -> dict[str, Record]:
    """{row: what the configuration says of its method}, in the order of the names, each once."""
    rows: dict[str, Record] = {}
    for name in dict.fromkeys(names):
        is_file = name.endswith(".py")
        row = Path(name).stem if is_file else name
        if row in rows or row in RESERVED or (has_judge and row == JUDGE):
            raise BadInput(
                f"{name}: the table has another column {row!r}; rename the file of the method"
            )
        rows[row] = {}
        if is_file:
            rows[row]["module"] = name
        elif "server" in source and name in BY_TEXT:
            rows[row]["module"] = BY_TEXT[name]
    if not isinstance(settings, Mapping):
        raise BadInput(f"settings is {settings!r}; expected {{'topk': {{'k': 2}}}}")
    for name, values in settings.items():
        if name not in rows:
            raise BadInput(f"settings: {name!r} is not among the methods: {', '.join(rows)}")
        if not isinstance(values, Mapping):
            raise BadInput(f"settings: {name} is {values!r}; expected its keys, such as {{'k': 2}}")
        rows[name] |= values
    return rows


def _leaves(
    registry: Registry,
    rows: Iterable[str],
    source: Record,
    asked: list[Question],
    known: list[Question],
) -> list[Method]:
    """The methods that the rows are computed from: themselves, or those of a calibration or a
    combination. Raises BadInput for one that cannot be computed here, and for a row that is fitted
    where there is nothing to fit on.
    """
    leaves = []
    for row in rows:
        names = [row]
        is_fitted = False
        if "+" in row or "of" in registry.given.get(row, {}):
            names = registry.leaves(row)
            is_fitted = bool(registry.fitted(row))
        elif row in registry.names():
            method = registry.get(row)
            is_fitted = bool(method.states)
            if method.calibrates:
                ways = f"name a row to calibrate, METHOD+{row}, or map a column by orce.calibrate"
                raise BadInput(f"{row!r} is no row of its own; {ways}")
        if is_fitted and not known:
            raise BadInput(
                f"{row!r} is fitted on questions with references; name some: --fit FILE (fit=)"
            )
        leaves += [_usable(registry, name, source, [*asked, *known]) for name in names]
    return leaves


def _usable(registry: Registry, name: str, source: Record, asked: list[Question]) -> Method:
    """The method. Raises BadInput for one that cannot be computed here, and says why."""
    # without a training
    usable = [*registry.names("measured"), *registry.names("prompted"), "vanilla"]
    usable += [probe for probe in registry.names("fitted") if registry.get(probe).states]
    usable += [GIVEN]
    if name not in usable and name in registry.names():
        raise BadInput(
            f"{name!r} needs a training, which the workflow runs; name the trained folder: --judge FOLDER (judge=)"
        )
    if name not in usable:
        hint = did_you_mean(name.lower(), usable)
        raise BadInput(
            f"unknown method {name!r}; {hint}Methods are {', '.join(usable)}, or the path of a Python file"
        )
    method = registry.get(name)
    if name == GIVEN:
        if not any("confidence" in question.more for question in asked):
            raise BadInput(
                "given: no question has a key 'confidence'; name its column (--fields confidence=COLUMN), "
                "or a method that computes one"
            )
        return method
    has_answers = asked[0].samples is not None
    if "server" in source:
        _check_served(name, method, has_answers)
    if has_answers and method.compares:
        _check_compared(name, method, asked)
    if not source and not (has_answers and method.compares):
        raise BadInput(
            f"{name} needs the model: --model (model=) with its folder, its hub id, or a server's address and --server-model"
        )
    return method


def _check_columns(asked: list[Question], columns: list[str], registry: Registry) -> None:
    """Raises BadInput for a column of the questions whose name the output has for one of its own."""
    taken = ["own", *columns]
    for name in columns:
        if name != JUDGE and registry.answers_scored(name) != {"greedy"}:
            taken += [f"{name}_answer", f"{name}_correct"]
    for question in asked:
        for name in taken:
            is_earlier = name == "own" and isinstance(question.more.get(name), Mapping)
            if name in question.more and not is_earlier:
                raise BadInput(
                    f"{question.where}: the output has a column {name!r} of its own; rename that of the questions"
                )


def _check_served(name: str, method: Method, has_answers: bool) -> None:
    """Raises BadInput for a method that a server cannot serve."""
    if method.states:
        reason = "reads the hidden states of the model, which a server does not give"
    elif not method.logprobs_suffice:
        reason = "asks the model for the probabilities of given texts, which a server does not give"
    elif method.reads and has_answers:
        reason = (
            "is a probability of tokens that a server tells of its own replies alone, and these answers are given; "
            "vanilla, linguistic and p_true ask it about given answers"
        )
    elif method.kind == "stated":
        reason = "reads the model's own weights, which a server does not give"
    else:
        return
    raise BadInput(f"{name} {reason}; name a folder or hub id as the model")


def _check_compared(name: str, method: Method, asked: list[Question]) -> None:
    """Raises BadInput where a method that compares samples has one alone, or chooses one of which
    no label says anything.
    """
    for question in asked:
        if len(question.samples or ()) < 2:
            raise BadInput(
                f"{name} compares several samples of a question; give lists of texts as answers, or none"
            )
        if method.state and brought.judges_one(question):
            raise BadInput(
                f"{question.where}: {name} chooses one of the answers, and 'correct' is of one alone; "
                "give true or false for each, or a reference"
            )


# The same, as a configuration


def _configuration(
    answer_llm: Record,
    grader: Record,
    grades: bool,
    registry: Registry,
    rows: list[str],
    task: str,
    seed: int,
    engine: str,
    sampled: Record,
) -> Config:
    """The paper's configuration with one data set, one to fit on, and the models, checked as any
    other.

    grader: the source of the model that compares answers; grades: whether it also says which are
    right.
    """
    models = {MODEL: answer_llm}
    grading = None
    if grader:
        models[GRADER] = {"label": GRADER, "source": grader, "trains": False}
        grading = {"model": GRADER, "group": "grader", "grades": grades}
        if _classifies(grader):
            grading = {"group": "nli", "nli": grader}
    dataset: Record = {"task": task, "source": {}, "grading": "grader" if grading else "exact"}
    if task in ("qa", "choice"):
        dataset["fields"] = {name: name for name in tasks.get(task).FIELDS}
    asked = {
        "calibrate_on": FIT,
        "splits": {name: {"from": name} for name in ("test", "sft", "rl")},
    }
    fit = {"confidence_from": DATASET, "splits": {"test": {"from": FIT}}}
    paper = load.read_mapping(check.PAPER)
    # of a judge alone, the row is in no table: a configuration has one at least
    table = {
        "kind": "main",
        "dataset": DATASET,
        "models": [MODEL],
        "methods": rows or ["agreement"],
    }
    own = {
        "seed": seed,
        "device": "cpu",
        "engine": paper["engine"] | {"name": engine},
        "answers": paper["answers"] | sampled,
        "datasets": {DATASET: dataset | asked, FIT: dataset | fit},
        "models": models,
        "grading": grading,
        "methods": registry.given,
        "tables": {"asked": table},
        "paper_tables": ["asked"],
    }
    try:
        return check.check(paper | own)
    except BadInput as error:
        raise BadInput(_by_option(str(error))) from None


def _by_option(message: str) -> str:
    """A message `config: KEY: ...` with the option that sets the key in place of `config`."""
    for key, option in OPTION_OF.items():
        if message.startswith(f"config: {key}"):
            return message.replace("config", f"--{option.replace('_', '-')} ({option}=)", 1)
    return message


def _classifies(source: Record) -> bool:
    if "server" in source:
        return False
    from orce.llm import language_model

    return language_model.classifies(source)


def _choose_device(config: Config, device: str | None, dtype: Any, judged: bool) -> None:
    """Choose the device and number format, where a model has weights here. Raises BadInput, before
    anything runs, for a local model that is not there or whose weights are not whole.
    """
    sources = [model.source for model in config.models.values()]
    local = [source for source in sources if source and "server" not in source]
    if not local and not judged:
        return
    from orce.llm import language_model

    config.device = cast(Any, language_model.device_or_free(device))
    config.dtype = dtype or ("float32" if config.device == "cpu" else "bfloat16")
    # after torch, which is named where both are missing
    from transformers.utils import logging

    logging.disable_progress_bar()  # orce.runtime.process reports progress
    for source in local:
        language_model.check_weights(source)


@contextlib.contextmanager
def _speed(**fast: int) -> Iterator[None]:
    """Let the stages compute so much together; what the environment says about the rest stays."""
    for name, size in fast.items():
        if size < 1:
            raise BadInput(f"{name} is {size}; expected a whole number, from 1 on")
    before = os.environ.get(process.SPEED)
    speed = {kind: process.speed(kind) | fast for kind in ("answers", "confidence")}
    os.environ[process.SPEED] = json.dumps(speed)
    try:
        yield
    finally:
        if before is None:
            del os.environ[process.SPEED]
        else:
            os.environ[process.SPEED] = before


def _write_questions(root: Path, asked: list[Question], known: list[Question], task: str) -> None:
    """Write what the stages read: the frozen prompts, and the answers and confidences that came
    with them.
    """
    prompts = {
        cells.prompts(DATASET, "test"): asked,
        cells.prompts(FIT, "test"): known,
        # a probe is fitted on these two
        cells.prompts(DATASET, "sft"): known[::2],
        cells.prompts(DATASET, "rl"): known[1::2],
    }
    for file, questions in prompts.items():
        store.write(root / file, [question.example(task) for question in questions], {"task": task})
    every = [*asked, *known]
    if asked[0].samples is not None:
        files.write_jsonl(root / ANSWERS_FILE, map(brought.answers_given, every))
    if any("confidence" in question.more for question in every):
        files.write_jsonl(root / CONFIDENCES_FILE, map(brought.confidence_given, every))


# The run


def _by_judge(run: Run, weights: Path, readout: stages.Readout) -> str:
    """The confidences of a confidence LLM that another run has trained, in the greedy answers of
    this one.
    """
    out = run.path(CELL, f"{JUDGE}/confidences.jsonl")
    settings = state.StateSettings(
        task=run.config.datasets[DATASET].task,
        label=f"{JUDGE} {DATASET}",
        model=judges.model_settings(weights, device=run.config.device),
        mode=readout == "mode",
    )
    samples = run.samples(CELL)
    with store.recording_inputs():
        state.run(settings, run.test(CELL), samples, out, str(weights), readout=readout)
    return out


def _table(run: Run, confidences: dict[str, str], asked: list[Question]) -> Table:
    """The table of a run. confidences: {row: its file}."""
    if run.config.models[MODEL].answers:
        run.samples(CELL)
    path = run.path(CELL, "samples.jsonl")
    sampled = store.read(path) if path in run.made else []
    samples = {line["id"]: line for line in sampled if "greedy" in line}
    stated = {name: store.read(file) for name, file in confidences.items()}
    rows = [name for name in confidences if name != JUDGE]
    choosing = [name for name in rows if run.registry.answers_scored(name) != {"greedy"}]
    records = []
    for i, question in enumerate(asked):  # the order of the files
        lines = {name: rows[i] for name, rows in stated.items()}
        greedy = samples.get(question.id, {}).get("greedy")
        records.append(_record(question, lines, greedy, choosing))
    table = Table(records, [*confidences])
    table.hints += _hints(run, table, rows, asked, samples)
    return table


def _record(
    question: Question, lines: dict[str, Record], greedy: Record | None, choosing: list[str]
) -> Record:
    """A record of the table. lines: each row's confidence; choosing: the rows whose confidences are
    in answers of their own.
    """
    main = greedy or next(iter(lines.values()))
    record: Record = {"id": question.id, "question": question.text}
    record |= _answer(main, question.labelled)
    if greedy and greedy["raw"] not in ("", greedy["answer"]):
        record["reply"] = greedy["raw"]
    record["confidence"] = {name: line["confidence"] for name, line in lines.items()}
    own = {}
    for name, line in lines.items():
        if name in choosing or line["answer"] != main["answer"]:
            own[name] = _answer(line, question.labelled)
    if own:
        record["own"] = own
    for key, value in question.more.items():
        # a column that is not read stays in the table; `own` is an earlier output's
        if key not in brought.KEYS and key != "own":
            record.setdefault(key, value)
    return record


def _answer(line: Record, is_labelled: bool) -> Record:
    correct = {"correct": bool(line["correct"])} if is_labelled else {}
    return {"answer": line["answer"]} | correct


def _hints(
    run: Run, table: Table, rows: list[str], asked: list[Question], samples: Record
) -> Iterator[str]:
    """What is to be said below the table."""
    for name in table.methods:
        unread = signs.unread_line(table.confidence(name).count(None), len(table))
        if unread:
            yield f"{name}: {unread}"
    for name in table.methods:
        other = sum(judged_answer(record, name)["answer"] != record["answer"] for record in table)
        if other:
            yield f"{name}: of an answer of its own in {other} of {len(table)} questions (`own` in the output)"
    empty = sum(record["answer"] is None for record in table)
    if empty:
        yield f"{empty} of {len(table)} answers are empty, or none could be read in them"
    below = run.registry.bottom(rows)
    by_tokens = [name for name in below if "logprobs" in run.registry.get(name).reads]
    if by_tokens and any("reply" in record for record in table):
        of = "of the whole reply (`reply` in the output), not only of the answer"
        yield f"{', '.join(by_tokens)}: {of}"
    task = run.config.datasets[DATASET].task
    examples = [question.example(task) for question in asked]
    pairs = zip(table, examples, strict=True)
    labelled = [(record, example) for record, example in pairs if "correct" in record]
    if 0 < len(labelled) < len(table):
        yield f"{len(labelled)} of {len(table)} questions have a label: metrics are of these"
    if task == "qa":
        # neither a label beside an answer nor a grader compares it with the reference
        judged = {
            name for name, sample in samples.items() if sample.get("judged") or sample.get("graded")
        }
        yield from _contains_hint([pair for pair in labelled if pair[0]["id"] not in judged])
    if run.config.grading is None and BY_MEANING.intersection(below):
        answers = [(samples[example["id"]]["answers"], example) for example in examples]
        if all_apart(answers, tasks.get(task)):
            yield APART


def _contains_hint(labelled: list[tuple[Record, Any]]) -> Iterator[str]:
    """A line that names `contains`, where more wrong answers hold the reference than answers are
    right.
    """
    wrong = [(record, example) for record, example in labelled if not record["correct"]]
    near = sum(qa.holds(record["answer"] or "", example) is not None for record, example in wrong)
    right = len(labelled) - len(wrong)
    if near > right:
        counted = f"{right} of {len(labelled)} right; {near} wrong answers contain the reference"
        yield f'{counted}: --equality contains (equality="contains") counts them as right'


# The command line


def add_arguments(parser):
    parser.add_argument(
        "questions", help="a file with a question a line: .jsonl, .csv, .tsv, .json or .parquet"
    )
    parser.add_argument("--out", required=True, help="the scored questions: .jsonl or .csv")
    parser.add_argument(
        "--metrics", help="a JSON file for the metrics by method; the questions need references"
    )
    parser.add_argument(
        "--threshold-for-risk",
        type=float,
        metavar="RISK",
        help="keep answers so that at most this share of them is wrong, and mark the others for review",
    )
    parser.add_argument(
        "--threshold-for-coverage",
        type=float,
        metavar="SHARE",
        help="keep this share of the answers, the surest, and mark the others for review",
    )
    parser.add_argument(
        "--delta", type=float, default=0.05, help="probability that the threshold may fail RISK"
    )
    parser.add_argument("--by", help="the method that the threshold is of (default: the first)")
    parser.add_argument(
        "--calibration",
        metavar="FILE",
        help="an output of this command with `correct`, to choose the threshold on "
        "(default: the questions with a reference)",
    )
    stages.add_options(parser, confidence, leave=("questions", "answers", "labels"))


def _check_decision(args: Any, asked: list[Question]) -> None:
    """Raises BadInput, before a model is asked, for metrics or a threshold that cannot be."""
    has_labels = any(question.labelled for question in asked)
    if args.metrics is not None and not has_labels:
        raise BadInput(
            "--metrics needs answers known to be right or wrong; give some questions a reference"
        )
    if _thresholds(args) == (None, None):
        if args.by is not None or args.calibration is not None:
            raise BadInput(
                "--by and --calibration are of a threshold; give --threshold-for-risk too"
            )
        return
    check_wanted(*_thresholds(args), args.delta)
    source, _ = _sources(args.model, args.server_model, args.group_by)
    names = args.methods or _usual_methods(asked, source, args.judge)
    rows = [*_rows(names, {}, source, has_judge=args.judge is not None)]
    rows += [JUDGE] if args.judge else []
    if args.calibration is not None:
        if not Path(args.calibration).is_file():
            raise BadInput(f"--calibration {args.calibration}: no such file")
        labelled_records(Path(args.calibration), args.by or rows[0])
    if args.by is not None and args.by not in rows:
        hint = did_you_mean(args.by, rows)
        raise BadInput(f"--by: no method {args.by!r}; {hint}They are {', '.join(rows)}")
    if args.threshold_for_risk is not None and not (has_labels or args.calibration):
        raise BadInput(
            "--threshold-for-risk is chosen on questions with a reference, and none has one; "
            "give some of them references, or --calibration FILE"
        )


def _thresholds(args: Any) -> tuple[float | None, float | None]:
    """(risk, coverage)."""
    return args.threshold_for_risk, args.threshold_for_coverage


def _check_outputs(args: Any) -> None:
    """Raises BadInput for an output that would take the place of an input, or of the other output."""
    taken = {
        "the input": args.questions,
        "the file of --fit": args.fit,
        "the file of --calibration": args.calibration,
        "the folder of finished work (--folder)": args.folder,
    }
    if args.metrics and Path(args.metrics).is_dir():
        raise BadInput(f"--metrics {args.metrics} is a folder; name a file in .json")
    for option, output in {"--out": args.out, "--metrics": args.metrics}.items():
        for what, path in taken.items():
            if output and path and Path(output).resolve() == Path(path).resolve():
                raise BadInput(f"{option} {output} is {what}; name another file")
        taken["the file of --out"] = args.out


def run(args):
    writable(args.out)
    args.folder = args.folder or Path(args.out).with_suffix(".work")
    _check_outputs(args)
    args.methods = args.methods and [name.strip() for name in args.methods.split(",")]
    args.questions = brought.read(args.questions, args.fields, task=args.task, limit=args.limit)
    _check_decision(args, args.questions)
    parameters = inspect.signature(confidence).parameters
    table = confidence(**{name: value for name, value in vars(args).items() if name in parameters})
    if _thresholds(args) != (None, None):
        table.keep(*_thresholds(args), args.by, args.delta, args.calibration)
    table.write(args.out)
    if args.metrics is not None or table.has_labels:
        by_method = table.metrics()
        for method, values in by_method.items():
            say(f"[measure] {method}: {signs.metrics_line(values, ON_SCREEN)}")
        if args.metrics is not None:
            files.write_json(args.metrics, by_method)
    show(str(table))
