"""The stages of the workflow: one module a rule, read from top to bottom.

A stage has settings, what it reads of the configuration and so what runs it again, with
`of(config, ...)`, which picks that for the wildcards of its rule; and `run`, its work. The
signature of `run` is its command line: the settings, input files, outputs. Here is what several
stages share: that command line, resuming after the last chunk, the questions with their answers.
"""

import argparse
import contextlib
import importlib
import inspect
import json
import re
import types
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    NoReturn,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from msgspec import UNSET
from msgspec.structs import replace

from orce.align.surrogate import read_surrogate
from orce.artefacts import files, store
from orce.artefacts.records import PROMPT_KEYS, Example, Messages, Realised, Sample, Tested
from orce.errors import BadInput, printable
from orce.runtime import process
from orce.runtime.process import Progress, say, speed
from orce.settings.schema import Config
from orce.settings.stage import AnswerSettings, ModelSettings, Settings, parse_argument, to_mapping
from orce.tasks import Task, judge_prompt
from orce.text import render

# rules that run the stage of another one, with their own settings
SHARED = {"tune_dpo": "dpo", "tune_state": "state"}
# {split: file of its frozen prompts}; on the command line SPLIT=FILE, or FILE with this name
Prompts = dict[str, str]
Shard = Annotated[str, "I/N: every N-th item, from the I-th (default: all)"]
Readout = Annotated[
    Literal["stated", "mean", "mode"] | None, "the value to use as `confidence` (default: none)"
]


def stage_module(rule: str) -> Any:
    return importlib.import_module(f"orce.stages.{SHARED.get(rule, rule)}")


def settings_type(command: Any) -> Any:
    """The type of the parameter `settings` of a stage's `run`; None for a stage without settings."""
    return get_type_hints(command.run).get("settings")


def pick_settings(rule: str, config: Config, *names: str) -> Any:
    """The settings of a rule for its wildcards, from as many of them as it depends on; None for a
    rule without settings.
    """
    kind = settings_type(stage_module(rule))
    if kind is None:
        return None
    pick = kind.for_trial if rule.startswith("tune_") else kind.of
    return pick(config, *names[: len(inspect.signature(pick).parameters) - 1])


# The command line


class Parser(argparse.ArgumentParser):
    """A parser whose messages can start no escape sequence: they quote the words of the command,
    such as names of files.
    """

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def argument_parser(command: Any, program: str | None = None) -> argparse.ArgumentParser:
    """The command line of a module: what its `add_arguments` adds, or an option for each parameter
    of `run`.
    """
    options = Parser(prog=program, description=command.__doc__)
    if hasattr(command, "add_arguments"):
        command.add_arguments(options)
    else:
        add_options(options, command.run, blank=True)
    return options


def add_options(
    options: argparse.ArgumentParser,
    function: Callable[..., Any],
    leave: Sequence[str] = (),
    blank: bool = False,
) -> None:
    """Add an option for each parameter of a function; Annotated has its help, or what argparse has
    for it.

    blank: an option without a value has its default, because a rule's command has the same options
    in every job.
    """
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in leave:
            options.add_argument(
                f"--{name.replace('_', '-')}",
                **argument_options(hints[name], parameter.default, blank),
            )


def argument_options(kind: Any, default: Any, blank: bool) -> dict[str, Any]:
    """What argparse's add_argument takes for a parameter of this type and default."""
    required = default is inspect.Parameter.empty
    option: dict[str, Any] = {"required": True} if required else {"default": default}
    kind, about = unwrap_annotation(kind)
    if isinstance(about, dict):
        option |= about
    elif about:
        option["help"] = about
    if isinstance(kind, type) and issubclass(kind, Settings):
        return option | {"help": "a JSON object (or @FILE): the part of the config it needs"}
    if kind is bool:
        return option | {"action": "store_true"}
    several = "+" if required else "*"
    if kind == Prompts:
        return option | {"nargs": several, "action": _Pairs, "metavar": "[SPLIT=]FILE"}
    if get_origin(kind) is list:
        return option | {"nargs": several}
    if blank and not required:
        option |= {"nargs": "?", "const": default}
    if get_origin(kind) is Literal:
        return option | {"choices": get_args(kind)}
    if kind is str:
        return {"type": weights_folder} | option
    return {"type": json_object if get_origin(kind) in (dict, Mapping) else kind} | option


def weights_folder(text: str) -> str:
    """A folder of weights may be named by its manifest, which is the rules' file for it."""
    return text.removesuffix("/manifest.json")


def json_object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        example = '{"enable_thinking": false}'
        raise argparse.ArgumentTypeError(f"expected a JSON object, for example {example}")
    return value


def unwrap_annotation(kind: Any) -> tuple[Any, Any]:
    """(type, help text) of an Optional or Annotated parameter of `run`; None without a help text."""
    about = None
    while get_origin(kind) in (Annotated, Union, types.UnionType):
        if get_origin(kind) is Annotated:
            kind, about = get_args(kind)
        else:
            kind = next(member for member in get_args(kind) if member is not types.NoneType)
    return kind, about


class _Pairs(argparse.Action):
    """Each value is SPLIT=FILE, or FILE, whose name is its split."""

    def __call__(self, parser, namespace, values, option_string=None):
        files_by_split = {}
        for value in values:
            match = re.fullmatch(r"(?:(\w+)=)?(.+)", value, re.DOTALL)
            if match is not None:
                split, path = match.groups()
                files_by_split[split or Path(path).stem] = path
        setattr(namespace, self.dest, files_by_split)


def run(command: Any, argv: Sequence[str], program: str | None = None) -> None:
    """Run the command in a module. Raises what it raises: BadInput for bad input."""
    args = argument_parser(command, program).parse_args(argv)
    with store.recording_inputs():
        if hasattr(command, "add_arguments"):
            command.run(args)
            return
        kind = settings_type(command)
        if kind is not None:
            args.settings = parse_argument(kind, args.settings)
        command.run(**vars(args))


# Work on many items

Work = Literal["answers", "confidence"]  # a section of the speed settings


class LazyModel:
    """Loads a model by `load(speed)` on first use, and closes it on exit."""

    def __init__(self, load: Callable[[dict[str, Any]], Any], kind: Work):
        self.load = load
        self.kind = kind
        self.model = None

    def __call__(self):
        if self.model is None:
            self.model = self.load(speed(self.kind))
            # what is loaded lives as long as the process: the collector need not walk it again
            process.resume_collection()
        return self.model

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.model is not None:
            self.model.close()


def write_in_chunks(
    settings: ModelSettings,
    items: list,
    out: str,
    load: Callable[[dict[str, Any]], Any] | LazyModel,
    work: Callable[[list, Any], Sequence[Any]],
    *depends: Any,
    kind: Work,
    shard: str = "0/1",
    readout: str | None = None,
) -> None:
    """Write one record per item of a shard to `out`, sealed: `work(chunk, model)`, of the model
    that `load(speed)` opens.

    A killed stage resumes after its last chunk, if its settings, items and `depends` are the same;
    a stage whose chunks are all on disk loads no model. readout: of a confidence LLM; it changes
    the output, and no chunk.
    """
    first, shards = map(int, shard.split("/"))
    mine = items[first::shards]
    progress = Progress(settings.label, len(mine))
    # all that a record depends on; what changes the speed alone is left out, so it may change
    # between two runs
    tag = files.digest(to_mapping(settings), mine, *depends, *store.base_digests(settings.model))
    sealed = to_mapping(settings)
    if readout is not None:
        sealed |= {"readout": readout}
    # a model that the caller has opened is the caller's to close
    opened = contextlib.nullcontext(load) if isinstance(load, LazyModel) else LazyModel(load, kind)
    with opened as model:
        chunks = files.in_chunks(
            out,
            mine,
            speed(kind)["chunk"],
            tag,
            work=partial(_records_of, work, model),
            finished=partial(_seal_chunks, out, sealed, len(mine)),
            line=readout_mapper(readout, out),
        )
        for done in chunks:
            progress.update(done)
    # the chunks of a shard go when the shards are joined
    if shards == 1:
        files.forget_chunks(out, but=tag)


def _records_of(work: Callable[[list, Any], Sequence[Any]], model: LazyModel, chunk: list) -> list:
    """The records of a chunk; the first has what a server counted for all of them, under `spent`."""
    records = [*work(chunk, model())]
    usage = model().spent() if hasattr(model(), "spent") else None
    if usage:
        first = records[0]
        counted = {"spent": usage}
        records[0] = first | counted if isinstance(first, dict) else replace(first, **counted)
    return records


def _seal_chunks(out: str, settings: dict[str, Any], n: int, path: Path) -> None:
    store.seal(out, settings, at=path, n=n, **api_usage(path))


def open_engine(settings: Any, fast: dict[str, int], conversations: list, max_tokens: int):
    """The engine of the answer LLM, sized for the longest conversation and its answer."""
    from orce.llm import engines

    whole = {**to_mapping(settings.model), **fast, "name": settings.engine}
    longest = engines.longest(whole, conversations, max_tokens)
    say(f"[{settings.label}] starting the engine {settings.engine}")
    return engines.get(settings.engine).load(whole, longest)


def open_reader(
    settings: ModelSettings,
    fast: dict[str, int],
    prompts: list,
    weights: str | None,
    merged: bool = True,
):
    """The reader of the confidence LLM in a folder (None: the untrained one); merged: whether its
    adapter is. Raises BadInput, before it loads a model, for a prompt that the model cannot read.
    """
    from orce.judge.reader import STATEMENT_TOKENS, reader_of
    from orce.llm import kv_cache, language_model

    kv_cache.check_fits(to_mapping(settings.model), prompts, STATEMENT_TOKENS)
    say(f"[{settings.label}] starting the reader")
    lm = language_model.load(settings.model, weights, merged=merged)
    return reader_of(lm, fast["batch_tokens"])


# Shards and readouts


def api_usage(*paths: Any) -> dict[str, Any]:
    """Total tokens and requests that API servers reported in these files, for a seal; {} if none."""
    counts = Counter()
    left_out = set()
    for path in paths:
        with open(path, "rb") as handle:
            for number, line in enumerate(handle, 1):
                # only the first record of a chunk has it: a look at the bytes spares parsing the
                # others
                if b'"spent"' not in line:
                    continue
                counted = files.parse_line(path, number, line).get("spent", {})
                left_out.update(counted.pop("left_out", ()))
                counts.update(counted)
    total: dict[str, Any] = dict(counts)
    if left_out:
        total["left_out"] = sorted(left_out)
    return {"spent": total} if total else {}


def readout_mapper(readout: str | None, path: str) -> Callable[[bytes], bytes] | None:
    """Returns a function that adds `confidence` to a JSON line of a confidence LLM: the value that
    it stated, or the mean or mode of its distribution. None without a readout.
    """
    return partial(_read_out, readout, path) if readout else None


def _read_out(readout: str, path: str, line: bytes) -> bytes:
    record = json.loads(line)
    if "stated" not in record:
        return line
    if readout not in record:
        why = "as they were read for another evaluation.readout"
        raise BadInput(f"{path}: its records have no {readout}, {why}; {store.remake_hint(path)}")
    return files.to_line(record | {"confidence": record[readout]}).encode()


# Questions and answers


def read_prompts(path) -> list[Example]:
    """Frozen examples of one split, ids unique."""
    examples = cast(list[Example], store.read(path, PROMPT_KEYS))
    return files.unique_ids(examples, (f"{path}, line {i}" for i in range(1, len(examples) + 1)))


def read_tested(prompts: str, samples: str, split: str = "test") -> list[tuple[Example, Tested]]:
    """(example, its samples with a greedy answer) of every example of a split; `prompts` and
    `samples` are the two files.
    """
    examples = read_prompts(prompts)
    greedy: dict[str, Tested] = {}
    for record in store.records(samples, Sample):
        if record.split == split and record.greedy is not UNSET:
            greedy[record.id] = cast(Tested, record)
    pairs = []
    for example in examples:
        name = example["id"]
        if name not in greedy:
            raise BadInput(f"{samples}: no greedy answer for {split} id {name!r}; sample it again")
        pairs.append((example, greedy[name]))
    return pairs


def read_by_split(prompts: Prompts) -> list[tuple[str, Example]]:
    """(split, example) of every frozen prompt, in the order of the files."""
    pairs = []
    for split, path in prompts.items():
        pairs += [(split, example) for example in read_prompts(path)]
    return pairs


def read_realised(task: Task, surrogate: str, prompts: Prompts) -> list[Realised]:
    """The questions of some splits with their realised answers, in the files' order, as the
    confidence LLM reads them.
    """
    rows = {row.key: row for row in read_surrogate(surrogate)}
    pairs = []
    for split, example in read_by_split(prompts):
        row = rows.get((split, example["id"]))
        if row is None:
            named = f"no row for id {example['id']!r} of {prompts[split]}"
            raise BadInput(f"{surrogate}: {named}; sample it again")
        reply = None if row.raw is UNSET else row.raw
        prompt = judge_prompt(task, example, row.answer or None, reply)
        correct = bool(row.answer_correct)
        pairs.append(Realised(id=row.id, prompt=prompt, kappa=row.kappa, correct=correct))
    return pairs


def answer_prompt(task: Task, example: Example, settings: AnswerSettings) -> Messages:
    """The conversation that asks the answer LLM a question: at once, or after it has reasoned
    (`reasoning: true`).
    """
    if not settings.reasoning:
        return task.prompt(example, settings.shots)
    if settings.shots:
        shots = f"shots is {settings.shots}"
        raise BadInput(f"{shots}, but a reasoned answer has no worked examples; use 0")
    question = task.question(example)
    content = render("reasoned", question=question, kind=task.ANSWER_KIND)
    return [{"role": "user", "content": content}]


def near_miss_report(records: Sequence[Sample], examples: list[Example], task: Task) -> str | None:
    """A line about answers that count as wrong although they contain an accepted answer; None
    without any, or if the task cannot tell.
    """
    if not hasattr(task, "holds"):
        return None
    wrong = 0
    near = 0
    for record, example in zip(records, examples, strict=True):
        for answer, right in zip(record.answers, record.correct, strict=True):
            if answer is not None and not right:
                wrong += 1
                near += task.holds(answer, example) is not None
    if not near:
        return None
    remedy = (
        "equality: contains counts them as right (datasets.NAME.equality, or a key of the question)"
    )
    counted = f"{near} of {wrong} wrong answers contain an accepted answer"
    return f"{counted}; if they only say it in more words, {remedy}"
