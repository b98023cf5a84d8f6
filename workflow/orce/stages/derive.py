"""Compute confidences in the greedy answers from samples and likelihoods (measured methods: P(True), semantic entropy)."""

from typing import Any

from msgspec import UnsetType

from orce import methods, stages, tasks
from orce.answers import meanings
from orce.artefacts import store
from orce.errors import BadInput
from orce.records import Confidence, Number, Tested


def add_arguments(parser):
    parser.add_argument("--task", required=True)
    parser.add_argument("--method", required=True)
    parser.add_argument("--prompts", required=True)
    parser.add_argument("--samples", required=True)
    parser.add_argument("--likelihoods", help="for methods that read them")
    parser.add_argument("--sample-likelihoods", help="for methods that read the samples' log-probabilities")
    parser.add_argument("--out", required=True)


def run(args):
    task, method = tasks.get(args.task), methods.load(args.method)
    given = {
        args.likelihoods: ("logprobs", "p_true"),
        args.sample_likelihoods: ("sample_logprobs",),
    }
    scored = [(path, read_by_id(path, keys)) for path, keys in given.items() if path]
    records = []
    for example, record in stages.tested(args.prompts, args.samples):
        seen: dict[str, Any] = {**record.seen()}
        if not args.likelihoods and "logprobs" in getattr(method, "READS", ()):
            seen["logprobs"] = logprobs(record, args.samples)
        for path, of in scored:
            if example["id"] not in of:
                raise BadInput(f"{path}: no record of id {example['id']!r} of {args.prompts}; {store.again(path)}")
            seen = seen | of[example["id"]]
        confidence = method.measure(seen, example, meanings.task_of(task, record))
        records.append(Confidence.of(example, record.greedy, confidence, record.greedy.raw))
    store.write(args.out, records, {"task": args.task, "method": args.method})


def logprobs(record: Tested, samples: str) -> list[Number]:
    """The log-probabilities that a server gave of a greedy answer's tokens; an empty answer has none."""
    given = record.greedy.logprobs
    if isinstance(given, UnsetType) and record.greedy.raw:
        raise BadInput(
            f"{samples}: no log-probabilities of the answer to {record.id!r}: the server gave none; leave out the row"
        )
    return [] if isinstance(given, UnsetType) else given


def read_by_id(path: str, keys: tuple[str, ...]) -> dict[str, dict]:
    """The records of a file of the cell by id."""
    return {one["id"]: one for one in store.read(path, ("id", *keys))}
