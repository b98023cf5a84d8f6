"""Confidence as agreement among the answers already sampled (sampled methods: Self-Consistency)."""

from orce import methods, tasks
from orce.answers import given_records, meanings
from orce.artefacts import store
from orce.errors import BadInput
from orce.records import Confidence, Sample
from orce.tasks.examples import read_prompts


def add_arguments(parser):
    parser.add_argument("--task", required=True)
    parser.add_argument("--method", required=True)
    parser.add_argument("--prompts", required=True)
    parser.add_argument("--samples", required=True)
    parser.add_argument("--out", required=True)


def run(args):
    task, method = tasks.get(args.task), methods.load(args.method)
    found = {record.id: record for record in store.records(args.samples, Sample)}
    records = []
    for example in read_prompts(args.prompts):
        if example["id"] not in found:
            raise BadInput(f"{args.samples}: no answers for id {example['id']!r} of {args.prompts}; sample it again")
        sampled = found[example["id"]]
        read, confidence = method.state(sampled.answers, example, meanings.task_of(task, sampled))
        said = given_records.scored(sampled, read, example, task)
        records.append(Confidence.of(example, said, confidence, sampled.answers))
    store.write(args.out, records, {"task": args.task, "method": args.method})
