"""The answer LLM serves requests, of many datasets and methods, from one engine start."""

from orce import work
from orce.llm import engines
from orce.runtime.progress import say


def add_arguments(parser):
    work.add_arguments(parser)


def run(args):
    work.run(args, key, start)


def key(request: dict) -> tuple:
    return request["model"], request["engine"]


def start(pieces: list[work.Piece], speed: dict):
    """The engine that generates for `pieces`, as large as the longest of their prompts needs."""
    request = pieces[0].request
    whole = request["model"] | speed | request["engine"]
    sizes = [engines.longest(whole, one.prompts(), work.kind(one.request).max_tokens(one.request)) for one in pieces]
    say(f"[{pieces[0].label}] starting the engine {whole['name']}")
    return engines.get(whole["name"]).load(whole, max((size for size in sizes if size is not None), default=None))
