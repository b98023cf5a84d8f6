"""Question-answer pairs as the confidence LLM reads them: realised answers for training, greedy ones for the test."""

from orce import files
from orce.chat import Messages
from orce.prompting import render
from orce.steps import read_prompts
from orce.surrogate import read_surrogate


def messages(task, example: dict, answer: str | None) -> Messages:
    """The confidence LLM's prompt for a fixed question-answer pair: the same for every method that reads pairs."""
    content = render("confidence", question=task.question(example), answer=task.display(answer, example))
    return [{"role": "user", "content": content}]


def load(task, surrogate, prompts: dict[str, str]) -> list[dict]:
    """Pairs {id, prompt, kappa, correct} of the splits named in `prompts` {split: file}, in the files' order."""
    frame = read_surrogate(surrogate)
    pairs = []
    for split, path in prompts.items():
        rows = frame[frame["split"] == split].set_index("id")
        for example in read_prompts(path):
            if example["id"] not in rows.index:
                raise files.BadInput(f"{surrogate}: no row for id {example['id']!r} of {path}; sample it again")
            row = rows.loc[example["id"]]
            answer = row["answer"] or None
            pairs.append(
                {
                    "id": example["id"],
                    "prompt": messages(task, example, answer),
                    "kappa": float(row["kappa"]),
                    "correct": bool(row["answer_correct"]),
                }
            )
    return pairs


def split_files(arguments: list[str]) -> dict[str, str]:
    """SPLIT=FILE arguments as a dict."""
    return dict(argument.split("=", 1) for argument in arguments)
