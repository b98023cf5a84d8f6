"""The items that a calibration, a combination or a probe is fitted on: never a test item."""

from orce.errors import BadInput
from orce.evaluation import stated
from orce.tasks import Task
from orce.tasks.parts.prompt_files import read_prompts


def in_both(task: Task, prompts: str, fit_prompts: str) -> set[str]:
    """Ids of the questions to fit on that are in the test set too."""
    tested = {task.question(example) for example in read_prompts(prompts)}
    return {one["id"] for one in read_prompts(fit_prompts) if task.question(one) in tested}


def fitting_items(path: str, shared: set[str]) -> list[tuple[float, bool]]:
    """(confidence, correct) of the items to fit on: those with a readable confidence that are not in the test set.

    Raises BadInput if they do not hold a right and a wrong answer.
    """
    items = [
        (one.confidence, bool(one.correct))
        for one in stated.records(path)
        if one.confidence is not None and one.id not in shared
    ]
    require_both([right for _, right in items], path)
    return items


def require_both(correct: list[bool], path: str) -> None:
    """Raises BadInput if the items to fit on do not hold a right and a wrong answer."""
    if set(correct) != {True, False}:
        raise BadInput(
            f"{path}: {len(correct)} items to fit on, without both a right and a wrong answer; name a larger set in calibrate_on"
        )
