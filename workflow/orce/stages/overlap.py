"""Report the training examples that are, exactly, nearly or as a twin, in a test set."""

from orce import tasks
from orce.artefacts import store
from orce.runtime.progress import say
from orce.tasks import near_duplicates
from orce.tasks.examples import read_prompts


def add_arguments(parser):
    parser.add_argument(
        "--train", nargs="*", required=True, help="prompt files of the training splits, if there are any"
    )
    parser.add_argument("--test", required=True, help="prompt file of the test split")
    parser.add_argument("--task", help="of the test set, for its twins: questions that ask the same")
    parser.add_argument("--out", required=True)


def run(args):
    test, task = read_prompts(args.test), tasks.get(args.task) if args.task else None
    report = {}
    for path in args.train:
        train = read_prompts(path)
        found = near_duplicates.matches(train, test, task=task)
        counts = {kind: sum(match.kind == kind for match in found) for kind in ("exact", "twin", "near")}
        report[path] = {
            "n_train": len(train),
            "n_test": len(test),
            **counts,
            "matches": [match._asdict() for match in found],
        }
        say(
            f"[overlap] {path} with {args.test}: {counts['exact']} exact, {counts['twin']} twin, {counts['near']} near, of {len(train)}"
        )
    store.write_object(args.out, report, {"task": args.task})
