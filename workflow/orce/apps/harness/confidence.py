"""The functions of orce_confidence.yaml: which questions, how they are asked, and how the replies are scored.

An answer that cannot be read is wrong. A confidence that cannot be read counts as 0.5, and in `unparsed`.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path

from orce import metrics, tasks
from orce.methods import cot
from orce.tasks.parts.prompt_files import loaded, read_prompts

TASK = str(
    Path(__file__).parents[4] / "config/demo/arithmetic.py"
)  # generated, so that the task runs without a download
UNPARSED = 0.5
SETTINGS = {"shots": 0}  # the harness has its own shots


def dataset(prompts: str | None = None, orce_task: str = TASK, split: str = "test", **_) -> dict:
    """{"test": questions} of a file of frozen prompts, or of a split of a generated task."""
    import datasets

    task = tasks.get(orce_task)
    examples = loaded(task, orce_task, {}, split, 0) if prompts is None else read_prompts(prompts)
    # As text: an example's parts differ from task to task, and a table would fill them with nulls.
    rows = [{"task": orce_task, "example": json.dumps(one), "reference": _shown(one["reference"])} for one in examples]
    return datasets.DatasetDict({"test": datasets.Dataset.from_list(rows)})


def prompt(doc: dict[str, str]) -> str:
    """The question with the request for an explanation, an answer and a confidence."""
    return cot.prompt(json.loads(doc["example"]), tasks.get(doc["task"]), SETTINGS)[-1]["content"]


def process_results(doc: dict[str, str], results: list[str]) -> dict:
    """The metrics of one reply; metrics of confidences get (confidence, correct) and are computed at the end."""
    example, task = json.loads(doc["example"]), tasks.get(doc["task"])
    answer, confidence = cot.read(results[0], example, task, SETTINGS)
    correct = bool(task.score(answer, example)["correct"])
    pair = (UNPARSED if confidence is None else confidence, correct)
    both = dict.fromkeys(("ece", "brier", "auroc", "aurc"), pair)
    return {"acc": float(correct), "unparsed": float(confidence is None)} | both


def ece(pairs: list[tuple[float, bool]]) -> float:
    return _number(metrics.expected_calibration_error, pairs)


def brier(pairs: list[tuple[float, bool]]) -> float:
    return _number(metrics.brier, pairs)


def auroc(pairs: list[tuple[float, bool]]) -> float:
    """NaN where all answers are right or all are wrong."""
    return _number(metrics.auroc, pairs)


def aurc(pairs: list[tuple[float, bool]]) -> float:
    return _number(metrics.aurc, pairs)


def _number(metric: Callable[..., float | None], pairs: list[tuple[float, bool]]) -> float:
    """A metric of (confidence, correct); NaN where it is undefined."""
    found = metric([stated for stated, _ in pairs], [right for _, right in pairs])
    return math.nan if found is None else found


def _shown(reference) -> str:
    return reference if isinstance(reference, str) else json.dumps(reference)
