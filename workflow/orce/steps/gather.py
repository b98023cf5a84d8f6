"""Join the shards of a stage, in the order of its items."""

from orce.runtime import files


def add_arguments(parser):
    parser.add_argument("--shards", nargs="+", required=True, help="in their order")
    parser.add_argument(
        "--readout", choices=["stated", "mean"], help="of a confidence LLM: the value to use as `confidence`"
    )
    parser.add_argument("--out", required=True)
    parser.add_argument("--manifest", help="written beside --out, with its digest")


def run(args):
    parts = [files.read_jsonl(path) for path in args.shards]
    records = [parts[i % len(parts)][i // len(parts)] for i in range(sum(map(len, parts)))]
    files.write_jsonl(args.out, [read_out(record, args.readout) for record in records])
    if args.manifest:
        files.write_manifest(args.manifest, args.out, n=len(records))
    for path in args.shards:
        files.forget_chunks(path)


def read_out(record: dict, readout: str | None) -> dict:
    """The record with its `confidence`: the stated value, or the mean of the distribution where there is one."""
    if readout is None or "stated" not in record:
        return record
    return {**record, "confidence": record[readout]}
