"""Question-answer pairs as the confidence LLM reads them: realised answers for training, greedy answers for the test."""

from msgspec import UNSET

from orce import tasks
from orce.answers.surrogate import read_surrogate
from orce.errors import BadInput
from orce.records import Example, Messages, Realised
from orce.stage_settings import OfTask
from orce.tasks import Shown
from orce.tasks.parts.prompt_files import by_split, read_prompts
from orce.text.prompting import render


def messages(task: Shown, example: Example, answer: str | None, reasoning: str | None = None) -> Messages:
    """The confidence LLM's prompt for a fixed question-answer pair: the same for every method that reads pairs.

    reasoning: the whole reply that ends in the answer, where the confidence LLM reads that too (judge_reads: reasoning).
    """
    shown = {"question": task.question(example), "answer": task.display(answer, example)}
    return [{"role": "user", "content": render("confidence", reasoning=reasoning, **shown)}]


def load(task: Shown, surrogate, prompts: dict[str, str]) -> list[Realised]:
    """The pairs of the splits named in `prompts` {split: file}, in the files' order."""
    rows = {row.key: row for row in read_surrogate(surrogate)}
    pairs: list[Realised] = []
    for split, path in prompts.items():
        for example in read_prompts(path):
            row = rows.get((split, example["id"]))
            if row is None:
                raise BadInput(f"{surrogate}: no row for id {example['id']!r} of {path}; sample it again")
            answer, raw = row.answer or None, None if row.raw is UNSET else row.raw
            pairs.append(
                Realised(
                    id=example["id"],
                    prompt=messages(task, example, answer, raw),
                    kappa=row.kappa,
                    correct=bool(row.answer_correct),
                )
            )
    return pairs


def add_arguments(parser) -> None:
    """The arguments that name training pairs; `from_arguments` reads them."""
    parser.add_argument("--surrogate", required=True)
    parser.add_argument("--prompts", nargs="+", required=True, metavar="SPLIT=FILE")


def from_arguments(args, options: OfTask) -> list[Realised]:
    """The pairs that a step's command line names, for the task of its settings."""
    prompts = by_split(args.prompts)
    return load(tasks.get(options.task), args.surrogate, prompts)
