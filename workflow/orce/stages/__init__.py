"""The stages of the workflow: one module a rule, read from top to bottom.

A stage has settings, the part of the configuration that it reads; a change of them runs it again.
Their `of(config, ...)` picks them for the wildcards of the stage's rule. `run` is its work, and the
signature of `run` its command line: settings, input files, outputs. Here is what several stages
share: that command line, work that resumes after its last chunk, questions with their answers.
"""

import argparse
import contextlib
import importlib
import inspect
import json
import re
import types
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
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
    n_wildcards = len(inspect.signature(pick).parameters) - 1
    return pick(config, *names[:n_wildcards])


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
    kind, about = unwrap_annotation(kind)
    required = default is inspect.Parameter.empty
    option: dict[str, Any] = {"required": True} if required else {"default": default}
    option |= about if isinstance(about, dict) else {"help": about}
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
    with contextlib.suppress(ValueError):
        value = json.loads(text)
        if isinstance(value, dict):
            return value
    example = '{"enable_thinking": false}'
    raise argparse.ArgumentTypeError(f"{text!r}: expected a JSON object, for example {example}")


def unwrap_annotation(kind: Any) -> tuple[Any, Any]:
    """(type, help text) of an Optional or Annotated parameter of `run`; None without a help text."""
    about = None
    while get_origin(kind) in (Annotated, Union, types.UnionType):
        if get_origin(kind) is Annotated:
            kind, about = get_args(kind)
        else:
            kind = get_args(kind)[0]  # the last is None
    return kind, about


class _Pairs(argparse.Action):
    """Each value is SPLIT=FILE, or FILE, whose name is its split."""

    def __call__(self, parser, namespace, values, option_string=None):
        files_by_split = {}
        for value in values:
            split, _, path = value.partition("=")
            if path and re.fullmatch(r"\w+", split):
                files_by_split[split] = path
            else:
                files_by_split[Path(value).stem] = value
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


class LazyModel(contextlib.AbstractContextManager):
    """`model` is loaded on first use, and closed on exit."""

    def __init__(self, load: Callable[[], Any]):
        self.load = load

    @cached_property
    def model(self) -> Any:
        model = self.load()
        # what is loaded lives as long as the process: the collector need not walk it again
        process.resume_collection()
        return model

    def __exit__(self, *_):
        if "model" in vars(self):
            self.model.close()


def write_in_chunks(
    settings: ModelSettings,
    items: list,
    out: str,
    load: Callable[[], Any] | LazyModel,
    work: Callable[[list, Any], Sequence[Any]],
    *depends: Any,
    kind: Literal["answers", "confidence"],
    shard: str = "0/1",
    readout: str | None = None,
) -> None:
    """Write one record per item of a shard to `out`, sealed: `work(chunk, model)`, of the model
    that `load()` opens.

    A killed stage resumes after its last chunk, if its settings, items and `depends` are the same;
    a stage whose chunks are all on disk loads no model. kind: whose speed settings have the size of
    a chunk. readout: of a confidence LLM; it changes the output, and no chunk.
    """
    first, shards = map(int, shard.split("/"))
    own = items[first::shards]
    progress = Progress(settings.label, len(own))
    sealed = to_mapping(settings)
    # all that a record depends on; what changes the speed alone is left out, so it may change
    # between two runs
    tag = files.digest(sealed, own, *depends, *store.base_digests(settings.model))
    if readout is not None:
        sealed["readout"] = readout

    def finish(path: Path) -> None:
        store.seal(out, sealed, at=path, n=len(own), **api_usage(path))

    # a model that the caller has opened is the caller's to close
    opened = contextlib.nullcontext(load) if isinstance(load, LazyModel) else LazyModel(load)
    with opened as lazy:
        chunks = files.in_chunks(
            out,
            own,
            speed(kind)["chunk"],
            tag,
            work=partial(_records_of, work, lazy),
            finished=finish,
            line=partial(read_out, readout, out),
        )
        for done in chunks:
            progress.update(done)
    # the chunks of a shard go when the shards are joined
    if shards == 1:
        files.forget_chunks(out, but=tag)


def _records_of(work: Callable[[list, Any], Sequence[Any]], lazy: LazyModel, chunk: list) -> list:
    """The records of a chunk; the first has what a server counted for all of them, under `spent`."""
    records = list(work(chunk, lazy.model))
    # only an engine that asks a server counts, and its records are structs
    if hasattr(lazy.model, "spent") and (usage := lazy.model.spent()):
        records[0] = replace(records[0], spent=usage)
    return records


def open_engine(settings: Any, conversations: list, max_tokens: int):
    """The engine of the answer LLM, sized for the longest conversation and its answer."""
    from orce.llm import engines

    whole = to_mapping(settings.model) | speed("answers") | {"name": settings.engine}
    longest = engines.longest(whole, conversations, max_tokens)
    say(f"[{settings.label}] starting the engine {settings.engine}")
    return engines.get(settings.engine).load(whole, longest)


def open_reader(settings: ModelSettings, prompts: list, weights: str | None, merged: bool = True):
    """The reader of the confidence LLM in a folder (None: the untrained one); merged: whether its
    adapter is. Raises BadInput, before it loads a model, for a prompt that the model cannot read.
    """
    from orce.judge.reader import STATEMENT_TOKENS, reader_of
    from orce.llm import kv_cache, language_model

    kv_cache.check_fits(to_mapping(settings.model), prompts, STATEMENT_TOKENS)
    say(f"[{settings.label}] starting the reader")
    lm = language_model.load(settings.model, weights, merged=merged)
    return reader_of(lm, speed("confidence")["batch_tokens"])


def seven_digits(logprobs: Iterable[float]) -> list[float]:
    """Log-probabilities to the seven digits that float32 has, for a record."""
    return [float(f"{value:.7g}") for value in logprobs]


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
                record = files.parse_object(f"{path}, line {number}", line)
                counted = record.get("spent", {})
                left_out.update(counted.pop("left_out", ()))
                counts.update(counted)
    total: dict[str, Any] = dict(counts)
    if left_out:
        total["left_out"] = sorted(left_out)
    return {"spent": total} if total else {}


def read_out(readout: str | None, path: str, line: bytes) -> bytes:
    """A line of a confidence LLM with its `confidence`: the value that it stated, or the mean or
    mode of its distribution. Without a readout, or of another method, the line as it is.
    """
    record = json.loads(line) if readout else {}
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
    greedy = {}
    for record in store.records(samples, Sample):
        if record.split == split and record.greedy is not UNSET:
            greedy[record.id] = cast(Tested, record)
    pairs = []
    for example in read_prompts(prompts):
        name = example["id"]
        if name not in greedy:
            raise BadInput(f"{samples}: no greedy answer for {split} id {name!r}; sample it again")
        pairs.append((example, greedy[name]))
    return pairs


def read_by_split(prompts: Prompts) -> dict[tuple[str, str], Example]:
    """{(split, id): example} of every frozen prompt, in the order of the files."""
    examples = {}
    for split, path in prompts.items():
        for example in read_prompts(path):
            examples[split, example["id"]] = example
    return examples


def read_realised(task: Task, surrogate: str, prompts: Prompts) -> list[Realised]:
    """The questions of some splits with their realised answers, in the files' order, as the
    confidence LLM reads them.
    """
    rows = {row.key: row for row in read_surrogate(surrogate)}
    pairs = []
    for key, example in read_by_split(prompts).items():
        row = rows.get(key)
        if row is None:
            split, name = key
            no_row = f"no row for id {name!r} of {prompts[split]}"
            raise BadInput(f"{surrogate}: {no_row}; sample it again")
        reasoning = None if row.raw is UNSET else row.raw
        prompt = judge_prompt(task, example, row.answer or None, reasoning)
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
        raise BadInput(
            f"shots is {settings.shots}, but a reasoned answer has no worked examples; use 0"
        )
    content = render("reasoned", question=task.question(example), kind=task.ANSWER_KIND)
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
        if record.judged is True:  # by its own label
            continue
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
