"""Compute confidences in the greedy answers from samples and likelihoods (measured methods: P(True), semantic entropy)."""

from orce import methods, tasks
from orce.answers import likelihoods
from orce.runtime import contents, files


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
    for example, record in likelihoods.items(args.prompts, args.samples):
        if args.likelihoods and example["id"] not in scored:
            raise files.BadInput(
                f"{args.likelihoods}: no record of id {example['id']!r} of {args.prompts}; {contents.again(args.likelihoods)}"
            )
        confidence = method.measure(record | scored.get(example["id"], {}), example, task)
        greedy = {key: record["greedy"][key] for key in ("answer", "correct", "f1")}
        records.append({"id": example["id"]} | greedy | {"confidence": confidence, "raw": record["greedy"]["raw"]})
    files.write_jsonl(args.out, records)
    contents.seal(args.out, n=len(records))


def read_likelihoods(path: str) -> dict[str, dict]:
    """The records of a likelihoods.jsonl by id."""
    return {one["id"]: one for one in files.read_jsonl(contents.verified(path), ("id", "logprobs", "p_true"))}
