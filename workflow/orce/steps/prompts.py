"""Freeze the examples of one split: draw them from the source with the seed and write prompts/{split}.jsonl."""

import numpy as np

from orce import tasks
from orce.runtime import files
from orce.runtime.progress import say
from orce.steps import add_settings, settings
from orce.tasks.parts import overlap


def add_arguments(parser):
    add_settings(parser)
    parser.add_argument("--split", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--manifest", required=True)


def run(args):
    options = settings(args.settings)
    examples = draw(options, args.split)
    files.write_jsonl(args.out, examples)
    drawn = {"task": options["task"], "source": options["source"], "from": options["splits"][args.split]["from"]}
    files.write_manifest(args.manifest, args.out, n=len(examples), split=args.split, **drawn)


def draw(options: dict, split: str) -> list[dict]:
    """The examples of `split`. Splits that share a source split are cut from one shuffled order: disjoint."""
    task = tasks.get(options["task"])
    origin = options["splits"][split]["from"]
    pool = task.load(options["source"], origin, options["seed"])
    if options["tests"] and split != "test":
        pool = without_overlap(pool, options)
    order = np.random.default_rng(options["seed"]).permutation(len(pool))
    places = _places(options, origin, len(pool))
    return [pool[i] for i in sorted(order[places[split]])]


def _places(options: dict, origin: str, total: int) -> dict[str, slice]:
    """Where each split that shares a source split lies in the shuffled order; all are checked, whichever is drawn."""
    places, start = {}, 0
    for name, spec in sorted(options["splits"].items()):
        if spec["from"] != origin:
            continue
        size = total - start if spec.get("size") is None else spec["size"]
        if not 0 < size <= total - start:
            raise files.BadInput(
                f"datasets.{options['dataset']}.splits.{name}: size {size} behind {start} examples taken by other "
                f"splits, but the source split {origin!r} has {total}"
            )
        places[name] = slice(start, start + size)
        start += size
    return places


def without_overlap(pool: list[dict], options: dict) -> list[dict]:
    """The pool without examples that stand, exactly or nearly, in a test set that the trained model will meet."""
    met = {}
    for tested in options["tests"]:
        met |= {match["train"]: match for match in overlap.matches(pool, draw(tested, "test"))}
    say(f"[prompts {options['dataset']}] {len(met)} of {len(pool)} training examples overlap with a test set: removed")
    return [example for example in pool if example["id"] not in met]
