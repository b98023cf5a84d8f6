"""Answers in sentences, each right or wrong by construction, as exact, contains and a judge grade them (docs/grading.md).

python -m evidence.sentences                         # exact and contains alone
python -m evidence.sentences --judge FOLDER          # and a model in a folder, such as results/models/smollm2
python -m evidence.sentences --judge FOLDER --prompt mine.j2
"""

import argparse
from collections.abc import Iterator, Sequence
from typing import cast

from orce import tasks
from orce.answers import grades
from orce.llm import engines
from orce.records import Example, Question
from orce.stage_settings import Model, Verdicts

N = 15
FORMS = {  # how an answer is given, and whether it is right; {other} is the answer to another question of the same kind
    "sentence": ("It is {right}.", True),
    "longer sentence": ("As far as I remember, that would be {right}.", True),
    "other answer": ("It is {other}.", False),
    "denied": ("Many would say {right}, but it is {other}.", False),
}


def pairs() -> list[dict]:
    """{form, question, reference, other, answer, right} of N questions from worldfacts' test split, in all FORMS."""
    facts = tasks.get("config/demo/worldfacts.py").load({}, "test", 0)
    kinds = {
        kind: [dict(one) for one in facts if one.get("kind") == kind] for kind in ("capital", "country", "currency")
    }
    asked = [(kinds[kind][i], kinds[kind][i + 1 :]) for i in range(N // len(kinds)) for kind in kinds]
    return [pair for fact, others in asked for pair in _of(fact, others)]


def _of(fact: dict, others: list[dict]) -> Iterator[dict]:
    other = next(one["reference"][0] for one in others if one["reference"][0] not in fact["reference"])
    for form, (said, right) in FORMS.items():
        answer = said.format(right=fact["reference"][0], other=other)
        yield {
            "form": form,
            "question": fact["question"],
            "reference": fact["reference"],
            "answer": answer,
            "right": right,
        }


def exact(equality: str, found: list[dict]) -> list[bool]:
    """The grades of task qa under an equality."""
    task, grades = tasks.get("qa"), []
    for pair in found:
        shown = {"question": pair["question"], "reference": pair["reference"], "equality": equality}
        example = cast(Example, shown | {"context": None, "choices": None})
        grades.append(task.score(task.extract(pair["answer"], example), example)["correct"])
    return grades


def judged(options: dict, prompt: str | None, found: list[dict]) -> list[bool | None]:
    """The grades of a model, by the options of its engine; None for a reply that cannot be read."""
    engine = engines.get(options["name"]).load(options)
    asked = [Question(one["question"], one["reference"], one["answer"]) for one in found]
    how = Verdicts(
        task="qa",
        label="judge",
        model=cast(Model, options),
        engine=options["name"],
        max_tokens=grades.MAX_TOKENS,
        seed=0,
    )
    said = grades.verdicts(asked, engine, grades.grade_form(prompt), how)
    engine.close()
    return [one.judge for one in said]


def row(name: str, found: list[dict], grades: Sequence[bool | None]) -> str:
    """A row of the table: agreement with the labels in all and in each form, and the replies that could not be read."""
    agree = [grade == one["right"] for grade, one in zip(grades, found, strict=True)]
    of = {form: [same for same, one in zip(agree, found, strict=True) if one["form"] == form] for form in FORMS}
    cells = [f"{sum(agree)} of {len(agree)}", *(f"{sum(same)} of {len(same)}" for same in of.values())]
    return f"| {name} | {' | '.join(cells)} | {sum(grade is None for grade in grades)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judge", nargs="*", default=[], help="folders of models")
    parser.add_argument("--prompt", help="a template for the judges (default: the package's own)")
    args = parser.parse_args()
    found = pairs()
    print(f"| grades by | agreement | {' | '.join(FORMS)} | unread |\n| --- |{' --- |' * (len(FORMS) + 2)}")
    for equality in ("normalised", "contains"):
        print(row(f"exact, equality {equality}", found, exact(equality, found)))
    for folder in args.judge:
        options = {"name": "transformers", "source": {"path": folder}, "dtype": "float32", "device": "cpu"}
        print(row(f"judge {folder}", found, judged(options, args.prompt, found)))


if __name__ == "__main__":
    main()
