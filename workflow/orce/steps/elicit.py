"""Ask the answer LLM for answer and confidence together (prompted methods: Top-k, CoT)."""

from orce import methods
from orce.answers import elicit
from orce.steps import Lazy, add_settings, add_shard, in_chunks, settings, speed
from orce.steps.sample import open_engine
from orce.tasks.parts.prompts import read_prompts


def add_arguments(parser):
    add_settings(parser)
    add_shard(parser)
    parser.add_argument("--prompts", required=True)


def run(args):
    options, fast = settings(args.settings), speed("answers")
    items, method = read_prompts(args.prompts), methods.load(options["module"])

    def start():
        return open_engine(options, fast, elicit.messages(items, method, options), elicit.longest_reply(options))

    with Lazy(start) as engine:
        in_chunks(args, options, items, fast["chunk"], lambda chunk: elicit.records(chunk, engine(), method, options))
