"""Compute confidences in the greedy answers from samples and likelihoods (measured methods: P(True), semantic entropy)."""

from typing import Any

from orce import methods, tasks
from orce.answers import meanings, tested
from orce.artefacts import store
from orce.errors import BadInput


def add_arguments(parser):
    parser.add_argument("--task", required=True)
    parser.add_argument("--method", required=True)
    parser.add_argument("--prompts", required=True)
    parser.add_argument("--samples", required=True)
    parser.add_argument("--likelihoods", help="for methods that read them")
    parser.add_argument("--out", required=True)


def run(args):
    task, method = tasks.get(args.task), methods.load(args.method)
    scored = read_likelihoods(args.likelihoods) if args.likelihoods else {}
    records = []
    for example, record in tested.items(args.prompts, args.samples):
        if args.likelihoods and example["id"] not in scored:
            raise BadInput(
                f"{args.likelihoods}: no record of id {example['id']!r} of {args.prompts}; {store.again(args.likelihoods)}"
            )
        seen = record | scored.get(example["id"], {}) if scored else with_logprobs(record, method, args.samples)
        confidence = method.measure(seen, example, meanings.task_of(task, record))
        records.append(tested.record(example, record, confidence))
    store.write(args.out, records, {"task": args.task, "method": args.method})


def with_logprobs(record: Any, method, samples: str) -> dict:
    """The record with the log-probabilities that a server gave of its greedy answer, for a method that reads them."""
    if "logprobs" not in getattr(method, "READS", ()):
        return record
    if "logprobs" not in record["greedy"] and record["greedy"]["raw"]:
        raise BadInput(
            f"{samples}: no log-probabilities of the answer to {record['id']!r}: the server gave none; leave out the row"
        )
    return record | {"logprobs": record["greedy"].get("logprobs", [])}


def read_likelihoods(path: str) -> dict[str, dict]:
    """The records of a likelihoods.jsonl by id."""
    return {one["id"]: one for one in store.read(path, ("id", "logprobs", "p_true"))}
