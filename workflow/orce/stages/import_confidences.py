"""Take the confidences of a method that ran elsewhere as a row of the tables."""

from orce import stages, tasks
from orce.answers import given_records
from orce.artefacts import store
from orce.runtime.progress import say
from orce.stage_settings import Import, plain

Settings = Import


def add_arguments(parser):
    parser.add_argument("--prompts", required=True, help="frozen test prompts")
    parser.add_argument("--samples", required=True, help="with the greedy answers")
    parser.add_argument("--out", required=True)


def run(settings: Import, args):
    path, task = settings.source.path, tasks.get(settings.task)
    items = stages.tested(args.prompts, args.samples)
    found = given_records.read(settings.source, "confidence")
    given_records.require(found, [example for example, _ in items], path)
    records = [
        given_records.confidence(*found[example["id"]], record.greedy, example, task) for example, record in items
    ]
    unread = sum(one.confidence is None for one in records)
    others = len(found) - len(records)
    left = f"; {others} for other questions left out" if others else ""
    say(f"[{settings.label}] {len(records)} confidences of {path}, {unread} of them unreadable{left}")
    store.write(args.out, records, settings, given=plain(settings.source))
