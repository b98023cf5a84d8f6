"""Take answers made elsewhere as the samples of a model, in place of stage one."""

from orce import stages, tasks
from orce.answers import given_records
from orce.artefacts import store
from orce.runtime.progress import say
from orce.stage_settings import Import, plain
from orce.tasks.examples import read_prompts

Settings = Import


def add_arguments(parser):
    parser.add_argument("--prompts", nargs="+", required=True, metavar="SPLIT=FILE")
    parser.add_argument("--out", required=True)
    parser.add_argument("--manifest", required=True)


def run(settings: Import, args):
    path, task = settings.source.path, tasks.get(settings.task)
    found, records = given_records.read(settings.source), []
    for argument in args.prompts:
        split, _, prompts = argument.partition("=")
        examples = read_prompts(prompts)
        given_records.require(found, examples, path)
        records += [given_records.samples(*found[example["id"]], split, example, task) for example in examples]
        if line := stages.near_misses(records[-len(examples) :], examples, task):
            say(f"[{settings.label}] {split}: {line}")
    say(f"[{settings.label}] {len(records)} of the {len(found)} records of {path}")
    store.write(args.out, records, settings, args.manifest, given=plain(settings.source))
