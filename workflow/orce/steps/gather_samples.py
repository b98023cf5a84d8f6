"""Put the shards of the answer samples together, in the order of the prompts."""

from orce import work
from orce.runtime import files


def add_arguments(parser):
    parser.add_argument("--request", required=True)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--out", required=True)
    parser.add_argument("--manifest", required=True)


def run(args):
    records = work.records(work.load(args.request), args.shards)
    files.write_jsonl(args.out, records)
    answers = [answer for record in records for answer in record["answers"]]
    files.write_manifest(args.manifest, args.out, n=len(records), n_unread=sum(answer is None for answer in answers))
