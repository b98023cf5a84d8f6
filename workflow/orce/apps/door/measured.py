"""The steps of the workflow, one after another, on somebody's questions."""

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from orce import methods, stages, tasks
from orce.__main__ import perform
from orce.apps.door import costs, questions, rows
from orce.apps.door.costs import Cost
from orce.apps.door.measured_table import Record, Table
from orce.apps.door.rows import DATASET, JUDGE, MODEL, Row
from orce.artefacts import files, store
from orce.config import cells, settings
from orce.config.schema import Api, Config
from orce.errors import BadInput
from orce.judging import judge
from orce.llm import engines
from orce.records import Tested
from orce.runtime import process
from orce.stage_settings import File, Settings
from orce.stages import import_answers, state

CHUNK = 256  # questions between two writes
LIKELIHOODS = ("likelihoods", "sample_likelihoods")
USUAL, OF_A_SERVER = ("likelihood", "agreement"), ("agreement",)


@dataclass(frozen=True)
class Asked:
    """What is asked for, beside the questions; see orce.apps.door.confidence. how: its further arguments."""

    model: str
    server_model: str | None
    judge: str | None
    task: str | None
    methods: Sequence[str] | None
    settings: Mapping[str, dict[str, Any]] | None
    how: dict[str, Any]


def table(asked: Asked, given, fields, answers, labels, folder: str | Path | None, fast: dict[str, int]) -> Table:
    """The answers and confidences. fast: {chunk, batch_tokens}, on which the last digits depend."""
    if isinstance(asked.methods, str):
        raise BadInput(f"methods is a text; expected a list of names: [{asked.methods!r}]")
    records = questions.read(given, fields, answers, labels)
    task = asked.task or ("choice" if any(one["choices"] for _, one in records) else "qa")
    tasks.get(task)
    named = (
        (OF_A_SERVER if asked.server_model else () if asked.judge else USUAL)
        if asked.methods is None
        else asked.methods
    )
    config = rows.configuration(asked.model, named, asked.settings, task, asked.server_model, dict(asked.how))
    already = [questions.given(record) for _, record in records]
    asked_for = rows.rows(config, named, asked.judge is not None, already)
    if asked.server_model and any(rows.reads(methods.of(config), row) for row in asked_for):
        config.models[MODEL].api = Api(logprobs=True)
    if not asked.model and (reader := next((row for row in asked_for if rows.asks(row, already[0])), None)):
        raise BadInput(
            f"{reader.name} needs the model: its folder, its hub id, or a server's address with server_model"
        )
    _check(config)
    if already[0] is None and not rows.samples(methods.of(config), asked_for):
        config.answers.samples = 0 if asked.how["engine"] != "vllm" or asked.server_model else 1
    examples = [questions.example(where, record, task) for where, record in records]
    labelled = questions.labelled(records[0][1])
    with contextlib.ExitStack() as stack:
        root = Path(folder) if folder is not None else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(_speed(fast))
        return Work(root.resolve(), config, examples, asked.judge).table(asked_for, already, labelled)


def _check(config: Config) -> None:
    """Fill in the device, and refuse a model that cannot be loaded before anything runs."""
    if settings.on_server(config, MODEL) or not config.models[MODEL].source:
        config.device, config.dtype = "cpu", "float32"  # what runs here; the server chooses its own
        return
    engines.get(config.engine.name)
    from transformers.utils import logging

    from orce.llm import language_model

    logging.disable_progress_bar()  # orce.runtime.process reports progress
    config.device = cast(Any, language_model.device_or_free(config.device))
    config.dtype = config.dtype or ("float32" if config.device == "cpu" else "bfloat16")
    language_model.origin(config.models[MODEL].source)


class Work:
    """One cell of the workflow, with its folders, in a folder of its own."""

    def __init__(self, root: Path, config: Config, examples: list[Any], judge: str | None):
        self.config, self.examples, self.judge, self.root = config, examples, judge, root
        self.registry, self.task = methods.of(config), config.datasets[DATASET].task
        self.prompts = root / cells.prompts(DATASET, "test")
        self.cell = root / cells.Cell(DATASET, MODEL).folder
        self.samples = self.cell / "samples.jsonl"
        self.spent: dict[str, Cost] = {}

    def table(self, found: list[Row], already: list[Record | None], labelled: bool) -> Table:
        store.write(self.prompts, self.examples, {"task": self.task})
        if any("sample" in row.steps for row in found) or already[0] is not None:
            self.answer(already)
        for file in LIKELIHOODS:
            if any(file in row.steps for row in found):
                chosen = stages.of("likelihoods", self.config, DATASET, MODEL, file)
                self.step(file, "likelihoods", chosen, *self.tested(), out=self.cell / f"{file}.jsonl")
        stated = {row.name: self.confidences(row) for row in found}
        spent = costs.total(self.spent.values())._asdict()
        by_row = {row.name: costs.total(self.spent[step] for step in row.steps)._asdict() for row in found}
        return Table(self.records(found, stated, labelled), by_row, spent)

    def answer(self, already: list[Record | None]) -> None:
        """The answers that are given, or else sampled."""
        if already[0] is None:
            chosen = stages.of("sample", self.config, DATASET, MODEL)
            return self.step("sample", "sample", chosen, "--prompts", f"test={self.prompts}", out=self.samples)
        source, manifest = self.root / "given.jsonl", store.manifest_path(self.samples)
        files.write_jsonl(source, already)
        chosen = import_answers.Settings(task=self.task, source=File(path=str(source)), label="given answers")
        arguments = ("--prompts", f"test={self.prompts}", "--manifest", str(manifest))
        self.step("sample", "import_answers", chosen, *arguments, out=self.samples)

    def confidences(self, row: Row) -> list[Record]:
        """The records of a row, in the order of the questions."""
        out = self.cell / row.name / "confidences.jsonl"
        if row.kind == "prompted":
            read = self.tested() if self.registry.get(row.name).ask else ("--prompts", str(self.prompts))
            self.step(row.name, "elicit", stages.of("elicit", self.config, DATASET, MODEL, row.name), *read, out=out)
        elif row.kind == "stated":
            weights = () if row.name != JUDGE else ("--weights", str(judge.located(str(self.judge))))
            self.step(row.name, "state", self.stating(row), *self.tested(), "--readout", "stated", *weights, out=out)
        else:
            chosen = settings.derive(self.config, DATASET, row.name)
            named = ("--task", chosen.task, "--method", chosen.method, *self.tested(), "--out", str(out))
            files_of = [file for file in LIKELIHOODS if file in row.steps]
            scored = [
                text for file in files_of for text in (f"--{file.replace('_', '-')}", str(self.cell / f"{file}.jsonl"))
            ]
            perform("orce.stages.derive", [*named, *scored])
        return store.read(out)

    def stating(self, row: Row) -> state.Settings:
        """Settings of a reading: of the answer LLM itself, or of a judge with the base model that its folder records."""
        if row.name != JUDGE:
            return state.Settings.of(self.config, DATASET, MODEL, row.name)
        loaded = judge.model_settings(judge.located(str(self.judge)), device=self.config.device)
        return state.Settings(reader=settings.READER, task=self.task, label=f"judge {DATASET}", model=loaded)

    def tested(self) -> tuple[str, ...]:
        return "--prompts", str(self.prompts), "--samples", str(self.samples)

    def step(self, name: str, step: str, chosen: Settings, *arguments: str, out: Path) -> None:
        """Run a step of the workflow, and note what it cost."""
        started = time.monotonic()
        perform(f"orce.stages.{step}", ["--settings", settings.to_argument(chosen), *arguments, "--out", str(out)])
        seconds = time.monotonic() - started
        sampled = store.records(self.samples, Tested) if "--samples" in arguments else []
        self.spent[name] = costs.of(step, chosen, self.examples, sampled, out, seconds)

    def records(self, found: list[Row], stated: dict[str, list[Record]], labelled: bool) -> list[Record]:
        """The records of the table."""
        sampled = {one["id"]: one["greedy"] for one in store.read(self.samples)} if "sample" in self.spent else {}
        made = []
        for i, example in enumerate(self.examples):
            mine: dict[str, Record] = {name: records[i] for name, records in stated.items()}
            main = sampled.get(example["id"]) or mine[found[0].name]
            record: Record = {"id": example["id"], "question": example["question"]}
            record |= _answer(main, labelled) | {"confidence": {name: one["confidence"] for name, one in mine.items()}}
            own = {
                row.name: _answer(mine[row.name], labelled)
                for row in found
                if row.name != JUDGE and self.registry.get(row.name).own
            }
            made.append(record | ({"own": own} if own else {}))
        return made


def _answer(record: Record, labelled: bool) -> Record:
    return {"answer": record["answer"]} | ({"correct": bool(record["correct"])} if labelled else {})


@contextlib.contextmanager
def _speed(fast: dict[str, int]) -> Iterator[None]:
    """Let the steps compute so much together; what the environment says about the rest stays."""
    before = os.environ.get(process.SPEED)
    chosen = {kind: process.speed(kind) | fast for kind in ("answers", "confidence")}
    os.environ[process.SPEED] = json.dumps(chosen)
    try:
        yield
    finally:
        if before is None:
            del os.environ[process.SPEED]
        else:
            os.environ[process.SPEED] = before
