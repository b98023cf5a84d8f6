"""Ask the answer LLM for answer and confidence together (Top-k, CoT), or for confidence in its greedy answer."""

from typing import Any

from orce import methods
from orce.answers import ask, elicit, tested
from orce.stage_settings import Elicit
from orce.stages import add_shard, open_engine, through_model
from orce.tasks.parts.prompts import read_prompts

Settings = Elicit


def add_arguments(parser):
    add_shard(parser)
    parser.add_argument("--prompts", required=True)
    parser.add_argument("--samples", help="with the greedy answers, for an asked method")


def run(settings: Elicit, args):
    method = methods.load(settings.module)
    way: Any = ask if method.KIND == "asked" else elicit
    items = tested.items(args.prompts, args.samples) if way is ask else read_prompts(args.prompts)

    def load(fast):
        way.tried(items[0], method, settings)
        return open_engine(settings, fast, way.messages(items, method, settings), way.longest_reply(settings))

    def work(chunk, engine):
        return way.records(chunk, engine, method, settings)

    through_model(args, settings, items, "answers", load, work)
