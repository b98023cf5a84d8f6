"""How sure a model is of its answers to questions in a file, by any method that trains nothing. See
docs/measure.md.

A call is a run of the workflow with one data set and one model, in a folder of its own, without
Snakemake.
"""

import contextlib
import difflib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args, get_type_hints

from msgspec import UNSET

from orce import stages, tasks
from orce.apps.run_here import Run
from orce.apps.table import Table, writable
from orce.artefacts import files, store, tables
from orce.config import cells, check, picking
from orce.errors import BadInput, public
from orce.judge import judge as judges
from orce.methods import Method, Registry
from orce.methods.samples import APART, BY_MEANING, all_apart
from orce.metrics import signs
from orce.metrics.definitions import ON_SCREEN
from orce.runtime import process
from orce.runtime.modules import short
from orce.runtime.process import say
from orce.settings import load
from orce.settings.schema import Config, Dataset
from orce.stages import state
from orce.tasks import qa
from orce.tasks.rows import GIVEN, Question, Record, blank, from_record

DATASET = "questions"
FIT = "fit"
MODEL = "model"
JUDGE = "judge"
GRADER = "grader"
CELL = cells.Cell(DATASET, MODEL)
EQUALITIES = get_args(get_args(get_type_hints(Dataset)["equality"])[0])
COLUMNS = ("id", "question", "answer", "correct")  # of the table, beside the methods
# of all questions, or of none
PRESENT = {"answers": "samples", "references": "labelled", "choices": "options"}
JUDGEMENTS = {"yes", "no", "true", "false", "right", "wrong", "correct", "incorrect"}
Questions = Any  # texts or mappings, a data frame, a mapping of columns, or the path of a file


@process.missing_extra_is_bad_input()
def confidence(
    model: Annotated[
        str | Path | None, "folder, hub id (ID or ID@REVISION), or address of a server"
    ],
    questions: Questions,
    methods: Annotated[
        Sequence[str] | None, {"type": str, "help": "a,b: names, or paths of Python files"}
    ] = None,
    answers: Sequence[Any] | None = None,
    labels: Sequence[Any] | None = None,
    *,
    fields: Annotated[tables.Fields | None, tables.OPTION] = None,
    server_model: Annotated[str | None, "the model's name on the server"] = None,
    equality: Annotated[
        str | None, "when two answers are the same: contains for sentences, numeric, ..."
    ] = None,
    fit: Annotated[
        Questions, {"type": str, "help": "labelled questions to fit probe, NAME+platt, ... on"}
    ] = None,
    group_by: Annotated[
        str | None, "a model asked which answers mean the same, and which are right"
    ] = None,
    judge: Annotated[
        str | Path | None, "folder of a trained confidence LLM: the row `judge`"
    ] = None,
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

    questions: texts, mappings with `question`, or the path of a file. A mapping may have id,
    context, choices, reference (an accepted answer, or a list), and answer or answers, which are
    given then. fields: the columns that these stand in. answers: one a question, a text, a list of
    samples or a mapping as in orce.given.records; without them the model is sampled, K times and
    once greedily. labels: one a question, the accepted answer or a list of them, or true or false
    of a given answer. The other arguments are the configuration's keys of that name, with the same
    defaults, and the workflow's own steps compute the numbers.
    """
    if isinstance(methods, str):
        raise BadInput(f"methods is a text; expected a list of names: [{methods!r}]")
    if not methods:
        methods = ["agreement"] if server_model else [] if judge else ["likelihood", "agreement"]
    asked = read_questions(questions, fields, answers, labels, task)
    known = [] if fit is None else read_questions(fit, fields, task=task)
    _complete(asked, known, equality, task)
    has_answers = asked[0].samples is not None
    has_labels = asked[0].labelled
    task = task or ("choice" if asked[0].options else "qa")
    place = str(model or "")
    grader_is_served = group_by is not None and "://" in group_by
    source = _source(place, server_model if "://" in place or not grader_is_served else None)
    specs: dict[str, Record] = {}
    for name in dict.fromkeys(methods):
        row = Path(name).stem if name.endswith(".py") else name
        if row in (*specs, *COLUMNS, *([JUDGE] if judge else [])):
            raise BadInput(
                f"{name}: the table has another column {row!r}; rename the file of the method"
            )
        specs[row] = {"module": name} if name.endswith(".py") else {}
    for name, values in (settings or {}).items():
        if name not in specs:
            raise BadInput(f"settings: {name!r} is not among the methods: {', '.join(specs)}")
        specs[name] |= values
    registry = Registry({name: spec for name, spec in specs.items() if "+" not in name})
    leaves = [leaf for name in specs for leaf in _leaves(registry, name, bool(known))]
    rows = {leaf: _usable(registry, leaf, source, [*asked, *known]) for leaf in leaves}
    with contextlib.ExitStack() as stack:
        root = Path(
            stack.enter_context(tempfile.TemporaryDirectory()) if folder is None else folder
        ).resolve()
        stack.enter_context(_speed(chunk=chunk, batch_tokens=batch_tokens))
        spec: Record = {
            "label": MODEL,
            "source": source,
            "template_kwargs": template_kwargs or {},
            "shots": shots,
        }
        spec["trains"] = any(row.states for row in rows.values())  # on questions to fit on
        if has_answers:
            spec["answers"] = {"path": str(root / "given.jsonl")}
            files.write_jsonl(
                spec["answers"]["path"],
                [_given(question.judgeable()) for question in (*asked, *known)],
            )
        if "server" in source and any(method.reads for method in rows.values()):
            spec["api"] = {"logprobs": True}
        sampled = {
            "samples": samples,
            "temperature": temperature,
            "top_p": top_p,
            "max_tokens": max_tokens,
        }
        models = {MODEL: spec}
        grading = None
        if group_by:
            grader = _source(group_by, server_model if "://" in group_by else None)
            models[GRADER] = {"label": GRADER, "source": grader, "trains": False}
            asks = {"model": GRADER, "group": "grader", "grades": bool(asked[0].reference)}
            grading = {"group": "nli", "nli": grader} if _classifies(grader) else asks
        config = _configuration(
            seed, engine, task, models, grading, sampled, registry, [*specs] or ["agreement"]
        )
        if local := [
            name
            for name, spec in models.items()
            if spec["source"] and "server" not in spec["source"]
        ]:
            _choose_device(config, local, device, dtype)
        if not has_answers and not any(
            row.compares or not row.logprobs_suffice for row in rows.values()
        ):
            config.answers.samples = 0 if engine != "vllm" or server_model else 1
        # a probe: of the next two
        prompts = {cells.prompts(DATASET, "test"): asked, cells.prompts(FIT, "test"): known}
        prompts |= {
            cells.prompts(DATASET, "sft"): known[::2],
            cells.prompts(DATASET, "rl"): known[1::2],
        }
        for file, some in prompts.items():
            store.write(root / file, [question.example(task) for question in some], {"task": task})
        weights = None if judge is None else judges.local_folder(str(judge))
        if weights:
            judges.check_weights(weights, config.device)
        return _table(root, config, registry, [*specs], weights, has_labels)


# What is asked for, as a configuration


def _source(model: str, server_model: str | None) -> Record:
    if model.startswith(("http://", "https://")):
        if not server_model:
            raise BadInput(
                f"{public(model)}: a server has several models; name one (server_model, --server-model)"
            )
        return {"server": model, "model": server_model}
    if server_model:
        raise BadInput(
            f"server_model names a model of a server, and {public(model)!r} is not an address (http://...)"
        )
    return judges.as_source(model) if model else {}  # of answers that are given


def _leaves(registry: Registry, name: str, labelled: bool) -> list[str]:
    """The methods that a row is computed from: itself, or those of a calibration or a combination."""
    derived = "+" in name or "of" in registry.given.get(name, {})
    alone = name in registry.names() and registry.get(name)
    if (
        alone
        and alone.calibrates
        or not labelled
        and (registry.fitted(name) if derived else alone and alone.states)
    ):
        ways = "orce.calibrate(confidences, correct) maps a column; fit=FILE (--fit) fits METHOD+platt, probe, ..."
        raise BadInput(f"{name!r} is fitted on labels: {ways}")
    return registry.leaves(name) if derived else [name]


def _usable(registry: Registry, name: str, source: Record, asked: list[Question]) -> Method:
    """The method. Raises BadInput for one that cannot be computed here, and says why."""
    # the last one without a training
    usable = [*registry.names("measured"), *registry.names("prompted"), "vanilla"]
    usable += [probe for probe in registry.names("fitted") if registry.get(probe).states]
    if name not in usable and name in registry.names():
        raise BadInput(
            f"{name!r} needs a training, which the workflow runs; name the trained folder: judge=FOLDER"
        )
    if name not in usable:
        close = difflib.get_close_matches(name.lower(), usable, 1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise BadInput(
            f"unknown method {name!r}; {hint}Methods are {', '.join(usable)}, or the path of a Python file"
        )
    method = registry.get(name)
    has_answers = asked[0].samples is not None
    if "server" in source and (
        not method.logprobs_suffice or method.states or method.kind == "stated"
    ):
        weights = "reads the model's own weights"
        texts = "asks the model for the probabilities of given texts"
        what = f"{texts if method.reads else weights}, which a server does not give"
        raise BadInput(f"{name} {what}; name a folder or hub id as the model")
    if (
        has_answers
        and method.compares
        and any(len(question.samples or ()) < 2 for question in asked)
    ):
        raise BadInput(
            f"{name} compares several samples of a question; give lists of texts as answers, or none"
        )
    if not source and not (has_answers and method.compares):
        raise BadInput(
            f"{name} needs the model: its folder, its hub id, or a server's address with server_model"
        )
    return method


def _classifies(source: Record) -> bool:
    if "server" in source:
        return False
    from orce.llm import language_model

    return language_model.classifies(source)


def _configuration(
    seed: int, engine: str, task: str, models: Record, grading: Record | None, sampled: Record, registry: Registry,
    rows: list[str],
) -> Config:  # fmt: skip
    """The paper's configuration with one data set, one to fit on, and the models, checked as any
    other.
    """
    dataset: Record = {"task": task, "source": {}, "grading": "grader" if grading else "exact"}
    if task in ("qa", "choice"):
        dataset["fields"] = {name: name for name in tasks.get(task).FIELDS}
    asked = {
        "calibrate_on": FIT,
        "splits": {name: {"from": name} for name in ("test", "sft", "rl")},
    }
    fit = {"confidence_from": DATASET, "splits": {"test": {"from": FIT}}}
    paper = load.read_mapping(check.PAPER)
    own = {
        "seed": seed,
        "device": "cpu",
        "engine": paper["engine"] | {"name": engine},
        "answers": paper["answers"] | sampled,
        "datasets": {DATASET: dataset | asked, FIT: dataset | fit},
        "models": models,
        "grading": grading,
        "methods": registry.given,
        "tables": {
            "asked": {"kind": "main", "dataset": DATASET, "models": [MODEL], "methods": rows}
        },
        "paper_tables": ["asked"],
    }
    return check.check(paper | own)


def _choose_device(config: Config, local: list[str], device: str | None, dtype: Any) -> None:
    """Choose the device and number format. Raises BadInput, before anything runs, for a local model
    that is not there or whose weights are not whole.
    """
    from transformers.utils import logging

    from orce.llm import language_model

    logging.disable_progress_bar()  # orce.runtime.process reports progress
    config.device = cast(Any, language_model.device_or_free(device))
    config.dtype = dtype or ("float32" if config.device == "cpu" else "bfloat16")
    for name in local:
        language_model.check_weights(config.models[name].source)


@contextlib.contextmanager
def _speed(**fast: int) -> Iterator[None]:
    """Let the stages compute so much together; what the environment says about the rest stays."""
    before = os.environ.get(process.SPEED)
    os.environ[process.SPEED] = json.dumps(
        {kind: process.speed(kind) | fast for kind in ("answers", "confidence")}
    )
    try:
        yield
    finally:
        del os.environ[process.SPEED]
        os.environ.update({} if before is None else {process.SPEED: before})


# The run


def _table(
    root: Path,
    config: Config,
    registry: Registry,
    methods: list[str],
    weights: Path | None,
    has_labels: bool,
) -> Table:
    """The table of a run in the folder `root`, which has the questions. weights: of the judge."""
    prompts = root / cells.prompts(DATASET, "test")
    task = config.datasets[DATASET].task
    run = Run(config, root)
    samples = run.path(CELL, "samples.jsonl")
    if config.models[MODEL].answers or weights:
        run.samples(CELL)
    rows = {name: run.confidences(CELL, name) for name in methods}
    if weights:  # by a trained confidence LLM of another run
        rows[JUDGE] = str(root / CELL.confidences(JUDGE))
        loaded = judges.model_settings(weights, device=config.device)
        settings = state.StateSettings(
            reader=picking.READER, task=task, label=f"{JUDGE} {DATASET}", model=loaded
        )
        with store.recording_inputs():
            state.run(settings, str(prompts), samples, rows[JUDGE], str(weights), readout="stated")
    stated = {name: store.read(path) for name, path in rows.items()}
    sampled = store.read(samples) if samples in run.made else []
    greedy = {line["id"]: line["greedy"] for line in sampled if "greedy" in line}

    def answer(record: Record) -> Record:
        return {"answer": record["answer"]} | (
            {"correct": bool(record["correct"])} if has_labels else {}
        )

    records = []
    examples = stages.read_prompts(str(prompts))
    for i, asked in enumerate(examples):
        mine = {name: lines[i] for name, lines in stated.items()}
        main = greedy.get(asked["id"]) or next(iter(mine.values()))
        record = {"id": asked["id"], "question": asked["question"], **answer(main)}
        record["confidence"] = {name: line["confidence"] for name, line in mine.items()}
        own = {
            name: answer(mine[name])
            for name in methods
            if registry.answers_scored(name) != {"greedy"}
        }
        records.append(record | ({"own": own} if own else {}))
    table = Table(records, [*rows])
    for name in table.methods:
        if unread := signs.unread_line(table.confidence(name).count(None), len(records)):
            table.hints.append(f"{name}: {unread}")
    pairs = zip(records, examples, strict=True) if has_labels and task == "qa" else ()
    wrong = [(record["answer"], example) for record, example in pairs if not record["correct"]]
    near = sum(qa.holds(str(text or ""), example) is not None for text, example in wrong)
    right = len(records) - len(wrong)
    if near > right:
        counted = f"{right} of {len(records)} right; {near} wrong answers contain the reference"
        table.hints.append(
            f'{counted}: --equality contains (equality="contains") counts them as right'
        )
    if config.grading is None and BY_MEANING.intersection(registry.bottom(methods)):
        answers_of = {line["id"]: line["answers"] for line in sampled if "greedy" in line}
        if all_apart(
            [(answers_of[example["id"]], example) for example in examples], tasks.get(task)
        ):
            table.hints.append(APART)
    return table


# Questions, answers and labels as people have them


def read_questions(
    questions: Questions,
    fields: tables.Fields | None,
    answers: Any = None,
    labels: Any = None,
    task: str | None = None,
) -> list[Question]:
    """Every question, with an answer and a reference where they are known. Raises BadInput naming
    the question.
    """
    if not isinstance(questions, str | Path):
        held = tables.held(questions)
        if not isinstance(held, list):
            raise BadInput(f"questions is {short(questions)}; a single question is a list of one")
        rows = [(f"question {i}", question) for i, question in enumerate(held, 1)]
    elif Path(questions).is_file():
        rows = tables.read(Path(questions))
    else:
        alone = f"a single question is a list of one: [{str(questions)!r}]"
        raise BadInput(f"{str(questions)!r}: no such file of questions; {alone}")
    if not rows:
        raise BadInput(
            "no questions; expected a list of texts or of mappings, or the path of a file"
        )
    columns = []
    for name, values in (("answers", answers), ("labels", labels)):
        held = [UNSET] * len(rows) if values is None else tables.held(values)
        if not isinstance(held, list) or len(held) != len(rows):
            count = len(held) if isinstance(held, list) else "a text"
            raise BadInput(f"{name}: expected {len(rows)}, one for each question, found {count}")
        columns.append(held)
    asked = [
        _question(row, answer, label, fields, task)
        for row, answer, label in zip(rows, *columns, strict=True)
    ]
    _refuse_words(asked, columns[1] if labels is not None else [])
    return asked


def _complete(
    asked: list[Question], known: list[Question], equality: str | None, task: str | None
) -> None:
    """Give ids and the equality to those without. Raises BadInput where questions lack what others
    have, or cannot be compared.
    """
    for split, some in {"test": asked, FIT: known}.items():
        for number, question in enumerate(some):
            question.id = question.id or f"{split}-{number}"
            question.more = ({"equality": equality} if equality else {}) | question.more
            if (kind := question.more.get("equality", "exact")) not in EQUALITIES:
                raise BadInput(
                    f"{question.where}: equality is {kind!r}; expected {', '.join(EQUALITIES)}"
                )
            qa.require(kind)
            if task in (None, "qa") and question.reference and not question.options:
                qa.comparable(f"{question.where}: reference", question.reference, kind)
    every = [*asked, *known]
    files.unique_ids(
        [{"id": question.id} for question in every], [question.where for question in every]
    )
    for what, key in PRESENT.items():
        some = asked if key == "labelled" else every
        lacking = [question.where for question in some if not getattr(question, key)]
        if 0 < len(lacking) < len(some):
            raise BadInput(
                f"{lacking[0]}: no {what}, and other questions have some; give them for all, or for none"
            )
    if lacking := [question.where for question in known if not question.labelled]:
        raise BadInput(f"{lacking[0]}: no reference; questions to fit on need one (fit)")


def _question(
    row: tables.Row, answer: Any, label: Any, fields: tables.Fields | None, task: str | None
) -> Question:
    where = row[0]
    record = (
        {"question": row[1]}
        if isinstance(row[1], str) and fields is None
        else tables.record(row, fields)
    )
    if blank(record.get("question")) or not isinstance(record["question"], str):
        there = f"; it has {', '.join(map(str, record))}" if "question" not in record else ""
        raise BadInput(
            f"{where}: 'question' is {record.get('question')!r}; expected a text that is not empty{there}"
        )
    # an empty cell
    record = {key: value for key, value in record.items() if value is not None and value != ""}
    if isinstance(answer, dict):
        record |= answer
    elif answer is not UNSET:
        record |= {"answers": answer or [None]} if isinstance(answer, list) else {"answer": answer}
    given = GIVEN & record.keys()
    if blank(label) or (
        label in (0, 1) and label is not bool(label) and given and "choices" not in record
    ):
        expected = (
            "expected the accepted answer, or a list of them; or True or False of a given answer"
        )
        raise BadInput(f"{where}: the label is {label!r}; {expected}")
    if label is not UNSET:
        record["correct" if isinstance(label, bool) else "reference"] = label
    if "correct" in record and not given:
        judged = f"correct is {short(record['correct'])}; true and false grade given answers, and none is given"
        raise BadInput(f"{where}: {judged}; an accepted answer is a reference")
    question = from_record(where, record, task)
    if task == "choice" and not question.options:
        raise BadInput(f"{where}: task choice shows options, and it has no 'choices'")
    return question


def _refuse_words(asked: list[Question], labels: Sequence[Any]) -> None:
    """Raises BadInput if labels are words for right and wrong, which would be accepted answers that
    no answer equals.
    """
    words = {label.strip().casefold() for label in labels if isinstance(label, str)}
    texts = str([(question.samples, question.greedy) for question in asked])
    answered = (
        words
        and asked[0].samples is not None
        and words.isdisjoint(re.findall(r"\w+", texts.casefold()))
    )
    if answered and words <= JUDGEMENTS:
        listed = ", ".join(sorted(words))
        raise BadInput(
            f"labels are {listed}, which no answer says; judgements of answers are True and False"
        )


def _given(question: Question) -> Record:
    """A record of the answers already made, as orce.given.records reads it."""
    text, right = question.greedy or (None, None)
    greedy = {"greedy": {"answer": text, "correct": right}} if question.greedy else {}
    marks = {} if question.judgements is None else {"correct": question.judgements}
    return {"id": question.id, "answers": question.samples} | greedy | marks


# The command line


def add_arguments(parser):
    parser.add_argument(
        "questions", help="a file with a question a line: .jsonl, .csv, .tsv, .json or .parquet"
    )
    parser.add_argument("--out", required=True, help="the scored questions: .jsonl or .csv")
    parser.add_argument(
        "--metrics", help="a JSON file for the metrics by method; the questions need references"
    )
    stages.add_options(parser, confidence, leave=("questions", "answers", "labels"))


def run(args):
    options = vars(args).copy()
    out = options.pop("out")
    metrics = options.pop("metrics")
    if Path(out).resolve() == Path(args.questions).resolve():
        raise BadInput(f"--out {out} is the input; name another file")
    writable(out)
    options["methods"] = args.methods and [name.strip() for name in args.methods.split(",")]
    options["folder"] = args.folder or Path(out).with_suffix(".work")
    table = confidence(**options)
    table.write(out)
    by_method = {} if metrics is None and "correct" not in table[0] else table.metrics()
    for method, values in by_method.items():
        say(f"[measure] {method}: {signs.shown(values, ON_SCREEN)}")
    if metrics is not None:
        files.write_json(metrics, by_method)
    print(table)
