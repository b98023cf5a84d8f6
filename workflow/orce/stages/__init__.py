"""The stages of the workflow: one module a rule, with the rule's name.

A stage has `Settings`, the type of what it reads of the configuration, if it reads any; `add_arguments(parser)`, its input
and output files; and `run(settings, args)`. What every stage repeats is here: the command line, resuming after the last
chunk, opening a model when it is needed.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from orce.answers import shards
from orce.artefacts import files, store
from orce.runtime import startup
from orce.runtime.progress import Progress, say
from orce.runtime.speed import speed
from orce.stage_settings import Elicit, Grade, Sample, WithModel, parsed, plain

SHARED = {  # rules that run the stage of another rule, with other inputs
    "tune_dpo": "dpo",
    "tune_state": "state",
    "gather_samples": "gather",
    "gather_elicited": "gather",
    "gather_candidates": "gather",
    "gather_stated": "gather",
    "gather_likelihoods": "gather",
    "gather_states": "gather",
}


def parser(command: Any, program: str | None = None) -> argparse.ArgumentParser:
    """The command line of a module: a stage, or any other with `add_arguments` and `run`."""
    options = argparse.ArgumentParser(prog=program, description=command.__doc__)
    if hasattr(command, "Settings"):
        options.add_argument(
            "--settings", required=True, help="a JSON object (or @FILE): the part of the config it needs"
        )
    command.add_arguments(options)
    return options


def run(command: Any, argv: Sequence[str], program: str | None = None) -> None:
    """Run the command in a module. Raises what it raises: BadInput for bad input."""
    args = parser(command, program).parse_args(argv)
    with store.step():
        if hasattr(command, "Settings"):
            command.run(parsed(command.Settings, args.settings), args)
        else:
            command.run(args)


def add_shard(parser) -> None:
    """The arguments of a stage that works through many items; `in_chunks` reads them."""
    parser.add_argument("--shard", default="0/1", metavar="I/N", help="every N-th item, from the I-th (default: all)")
    parser.add_argument("--out", required=True)


def of_shard(args, items: list) -> list:
    """The items of the shard that --shard names."""
    shard, shards = map(int, args.shard.split("/"))
    return items[shard::shards]


def through_model(
    args,
    settings: WithModel,
    items: list,
    kind: str,
    load: Callable,
    work: Callable[[Any, Any], Sequence[Any]],
    *depends,
) -> None:
    """`in_chunks`, where a model does the work: `work(chunk, model)`, of the model that `load(fast)` opens.

    kind: the section of the speed settings `fast`: answers or confidence.
    """
    fast = speed(kind)
    with Lazy(lambda: load(fast)) as model:
        in_chunks(
            args, settings, items, fast["chunk"], lambda chunk: accounted(work(chunk, model()), model()), *depends
        )


def in_chunks(
    args,
    settings: WithModel,
    items: list,
    chunk: int,
    work: Callable[[Any], Sequence[Any]],
    *depends,
) -> None:
    """Apply `work` to this shard's items and write one record per item to --out; a killed stage resumes after its last chunk.

    Chunks of a killed stage are reused only if its settings, items and `depends` were the same.
    """
    mine = of_shard(args, items)
    progress = Progress(settings.label, len(mine))
    tag = files.digest(plain(settings), mine, *depends, *store.base_digests(settings.model))
    for done in store.in_chunks(args.out, mine, chunk, tag, work, settings):
        progress.update(done)
    if args.shard == "0/1":
        _whole(args.out, settings, getattr(args, "readout", None))
        files.forget_chunks(args.out, but=tag)


def _whole(path: str, settings: WithModel, readout: str | None) -> None:
    """Finish the output of a stage that has one shard, as `gather` does for several.

    Its chunks stay, as a second name of the same bytes: another readout then reads no model.
    """
    counted = shards.counted([path])
    if readout is not None:
        shards.write([path], path, plain(settings) | {"readout": readout}, readout, **counted)
    elif "spent" in counted:
        store.seal(path, settings, **counted)


def accounted(records: Sequence[Any], engine) -> Sequence[Any]:
    """The records of a chunk; the first has what a server counted for the chunk (`spent`, orce.llm.account)."""
    spent = engine.account.take() if hasattr(engine, "account") else {}
    if not spent:
        return records
    first = records[0]
    told = first | {"spent": spent} if isinstance(first, dict) else msgspec.structs.replace(first, spent=spent)
    return [told, *records[1:]]


class Lazy:
    """Opens an engine or a reader when the first chunk needs it: a stage whose chunks are all on disk loads no model."""

    def __init__(self, open: Callable):
        self._open, self._opened = open, None

    def __call__(self):
        if self._opened is None:
            self._opened = self._open()
            startup.imported()
        return self._opened

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._opened is not None:
            self._opened.close()


def open_engine(settings: Sample | Elicit | Grade, fast: dict[str, int], conversations: list, max_tokens: int):
    """The engine of the answer LLM, sized for the longest conversation and its answer."""
    from orce.llm import engines

    whole = {**plain(settings.model), **fast, "name": settings.engine}
    longest = engines.longest(whole, conversations, max_tokens)
    say(f"[{settings.label}] starting the engine {settings.engine}")
    return engines.get(settings.engine).load(whole, longest)


def open_reader(settings: WithModel, fast: dict[str, int], prompts: list):
    """The reader of confidence LLMs. Raises BadInput, before it loads a model, for a prompt that the model cannot read."""
    from orce.judging.distribution import STATEMENT_TOKENS
    from orce.judging.reader import SwitchingReader
    from orce.llm import engines

    engines.longest({**plain(settings.model), "name": "transformers"}, prompts, STATEMENT_TOKENS)
    say(f"[{settings.label}] starting the reader")
    return SwitchingReader(settings.model, fast["batch_tokens"])
