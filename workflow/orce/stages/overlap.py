"""Report the training examples that are, exactly, nearly or as a twin, in a test set."""

from collections import Counter
from typing import Annotated

from orce import stages, tasks
from orce.artefacts import store
from orce.runtime.process import say
from orce.tasks.examples import find_overlaps


def run(
    test: Annotated[str, "prompt file of the test split"],
    out: str,
    train: Annotated[list[str], "prompt files of the training splits, if there are any"] = [],  # noqa: B006
    task: Annotated[
        str | None, "of the test set, for its twins: questions that ask the same"
    ] = None,
):
    """Reads frozen training and test prompts; writes overlap.json: how many training examples are
    in the test set, and which.
    """
    tested = stages.read_prompts(test)
    asked = tasks.get(task) if task else None
    report = {}
    for path in train:
        learned = stages.read_prompts(path)
        matches = find_overlaps(learned, tested, task=asked)
        counts = Counter(exact=0, twin=0, near=0)
        counts.update(match.kind for match in matches)
        report[path] = {
            "n_train": len(learned),
            "n_test": len(tested),
            **counts,
            "matches": [match._asdict() for match in matches],
        }
        counted = ", ".join(f"{n} {kind}" for kind, n in counts.items())
        say(f"[overlap] {path} with {test}: {counted}, of {len(learned)}")
    store.write_object(out, report, {"task": task})
