"""Put the shards of a method's confidences together, in the order of the test prompts."""

from orce import work
from orce.runtime import files


def add_arguments(parser):
    parser.add_argument("--request", required=True)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--readout", choices=["stated", "mean"], default="stated", help="of a confidence LLM")
    parser.add_argument("--out", required=True)


def run(args):
    records = work.records(work.load(args.request), args.shards)
    files.write_jsonl(args.out, [read_out(record, args.readout) for record in records])


def read_out(record: dict, readout: str) -> dict:
    """The record with its `confidence`: the stated value, or the mean of the distribution where there is one."""
    if "stated" not in record:
        return record
    return {**record, "confidence": record["mean"] if readout == "mean" else record["stated"]}
