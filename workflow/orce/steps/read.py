"""Confidence LLMs that share their base serve requests, of many datasets and methods, from one start."""

from orce import work
from orce.llm import engines
from orce.runtime.progress import say


def add_arguments(parser):
    work.add_arguments(parser)


def run(args):
    work.run(args, key, start)


def key(request: dict) -> tuple:
    return request["model"], request["reader"]


def start(pieces: list[work.Piece], speed: dict):
    """The reader of all confidence LLMs that `pieces` name."""
    from orce.confidence import distribution, readers

    model, reader = key(pieces[0].request)
    adapters = sorted({one.request["weights"] for one in pieces} - {None})
    prompts = (messages for one in pieces for messages in one.prompts())
    longest = engines.longest(model | {"name": reader}, prompts, distribution.BUDGET)
    say(f"[{pieces[0].label}] starting the reader {reader} for {len(adapters)} confidence LLMs")
    return readers.open(speed | {"model": model, "engine": reader}, adapters, longest)
