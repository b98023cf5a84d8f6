"""Sample K answers to every prompt, and one greedy answer to every test prompt (section 3.1)."""

from orce import tasks
from orce.answers import asking, sampling
from orce.artefacts import files
from orce.runtime.progress import say
from orce.stage_settings import Sample
from orce.stages import add_shard, of_shard, open_engine, through_model
from orce.tasks.parts.prompt_files import by_split

Settings = Sample


def add_arguments(parser):
    add_shard(parser)
    parser.add_argument("--prompts", nargs="+", required=True, metavar="SPLIT=FILE")


def run(settings: Sample, args):
    items, budget = sampling.items(by_split(args.prompts)), sampling.Budget(asking.max_tokens(settings))

    def load(fast):
        sampling.tried(items[0], settings)
        return open_engine(settings, fast, sampling.messages(items, settings), asking.max_tokens(settings))

    def work(chunk, engine):
        records = sampling.records(chunk, engine, settings)
        budget.add(records)
        return records

    through_model(args, settings, items, "answers", load, work)
    if budget.cut:
        say(f"[{settings.label}] {budget}")
    examples, task = [example for _, example in of_shard(args, items)], tasks.get(settings.task)
    if line := sampling.near_misses(files.records(args.out, sampling.Sample), examples, task):
        say(f"[{settings.label}] {line}")
