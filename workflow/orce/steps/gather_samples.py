"""Put the shards of the answer samples together, in the order of the prompts."""

from orce import files


def add_arguments(parser):
    parser.add_argument("--shards", nargs="+", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--manifest", required=True)


def run(args):
    shards = [files.read_jsonl(path, ("id", "split", "answers", "raw", "correct")) for path in args.shards]
    total = sum(map(len, shards))
    records = [shards[i % len(shards)][i // len(shards)] for i in range(total)]
    files.write_jsonl(args.out, records)
    answers = [answer for record in records for answer in record["answers"]]
    files.write_manifest(args.manifest, args.out, n=total, n_unread=sum(answer is None for answer in answers))
