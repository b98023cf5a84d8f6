"""Put the shards of the candidate confidences together, in the order of the RL prompts."""

from orce import work
from orce.runtime import files


def add_arguments(parser):
    parser.add_argument("--request", required=True)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--out", required=True)
    parser.add_argument("--manifest", required=True)


def run(args):
    request = work.load(args.request)
    records = work.records(request, args.shards)
    files.write_jsonl(args.out, records)
    files.write_manifest(args.manifest, args.out, n=len(records), candidates=request["candidates"])
