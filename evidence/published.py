"""``python -m evidence.published``: the tables of docs/evidence/published.md, from files that others have released.

labels FILE...      RLCR's released outputs: five methods by the released labels and by our reading of the answers
reading SET PATH... how our reading of answers agrees with the labels that came with them
"""

import argparse
import csv
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from orce import metrics, tasks
from orce.apps.importers import rlcr
from orce.artefacts import files
from orce.errors import BadInput, explain
from orce.records import Example

EXAM_SETTINGS = re.compile(r"temp-(0\.0|1\.0)\.csv$")
FAITHFUL = dict.fromkeys(("GSM8K", "MultiArith", "SVAMP"), "numbers") | {
    "AQUA": "options",
    "StrategyQA": "yes or no",
    "sports": "yes or no",
}
EVOUNA = ("fid", "gpt35", "chatgpt", "gpt4", "newbing")


class Judged(dict):
    """A question as a task reads it, with the reference that an answer is compared with."""

    def __init__(self, reference: Any, equality: str = "normalised", choices: list[str] | None = None):
        super().__init__(question="", context=None, choices=choices, reference=reference, equality=equality)
        self.task = tasks.get("choice" if choices else "qa")

    def read(self, text: str) -> str | None:
        return self.task.extract(text, cast(Example, self))

    def right(self, text: str) -> bool:
        return self.task.score(self.read(text), cast(Example, self))["correct"]


# Labels


def labels(path: str, equality: str) -> Iterator[list[str]]:
    """Rows of the table: for each method the share right, AUROC, Brier and ECE, by the released labels and by those read."""
    options = SimpleNamespace(method=None, question=None, judgements="keep")
    rows = list(rlcr.read(path, options))
    for name in rows[0].stated:
        stated = [row.stated[name] for row in rows]
        confidence = np.array([one["confidence"] for one in stated], dtype=float)
        released = np.array([one["correct"] for one in stated], dtype=int)
        asked = [Judged(row.reference, equality, row.choices) for row in rows]
        answers = [one.read(record["answer"]) for one, record in zip(asked, stated, strict=True)]
        read = np.array([one.task.score(answer, cast(Example, one))["correct"] for one, answer in zip(asked, answers, strict=True)], dtype=int)  # fmt: skip
        for label, correct in (("released", released), ("read", read)):
            yield [name, label, *_numbers(confidence, correct)]
        alone = [int(((released == a) & (read == 1 - a)).sum()) for a in (1, 0)]
        yield [name, "changed", f"{alone[0]} right to wrong, {alone[1]} wrong to right, {answers.count(None)} unread"]


def _numbers(confidence: np.ndarray, correct: np.ndarray) -> list[str]:
    """Accuracy, AUROC, Brier score and ECE with bins closed on the right, and on the left.

    The mirror image of a bin closed on the left is one closed on the right, so 1 - c and 1 - y give the second.
    """
    right = metrics.expected_calibration_error(confidence, correct)
    left = metrics.expected_calibration_error(1 - confidence, 1 - correct)
    values = (correct.mean(), metrics.auroc(confidence, correct), metrics.brier(confidence, correct), right, left)
    return [f"{value:.4f}" for value in values]


# Reading


def gsm8k(path: str) -> Iterator[tuple[str, bool, bool]]:
    """The worked solutions of GSM8K's test set (test.jsonl), as they are and without their last line, the mark ####."""
    for record in files.read_jsonl(path):
        solution, gold = record["answer"].rsplit("####", 1)
        asked = Judged([gold.strip()], "numeric")
        yield "solutions", True, asked.right(record["answer"])
        yield "solutions without their mark", True, asked.right(solution.strip())


def openai(path: str) -> Iterator[tuple[str, bool, bool]]:
    """Solutions of four models (example_model_solutions.jsonl of openai/grade-school-math)."""
    for record in files.read_jsonl(path):
        asked = Judged([record["ground_truth"].rsplit("A:", 1)[1].strip()], "numeric")
        for name, one in record.items():
            if isinstance(one, dict):
                yield name, one["is_correct"], asked.right(one["solution"])


def abel(path: str) -> Iterator[tuple[str, bool, bool]]:
    """Solutions of GSM8K in numbered steps, as they are and without their mark #### (outputs/gsm8k*/ of GAIR-NLP/abel)."""
    for record in files.read_jsonl(path):
        asked = Judged([record["gold"].replace(",", "")], "numeric")
        yield "solutions", record["result"], asked.right(record["response"])
        yield "solutions without their mark", record["result"], asked.right(record["response"].split("####")[0].strip())


def mathematics(path: str) -> Iterator[tuple[str, bool, bool]]:
    """MATH's own solutions, whose reference is the content of the last box (src/data/math/test.jsonl of microsoft/ToRA)."""
    for record in files.read_jsonl(path):
        boxed = record["solution"].rsplit("\\boxed", 1)[1]
        depths = list(accumulate((sign == "{") - (sign == "}") for sign in boxed))
        reference = boxed[1 : depths.index(0)] if boxed[0] == "{" else boxed.split("$")[0]
        yield "solutions", True, Judged([reference], "math-verify").right(record["solution"])


def exams(path: str) -> Iterator[tuple[str, bool, bool]]:
    """Replies of nine models to multiple-choice exams at temperatures 0 and 1 (data/ of matthewrenze/jhu-llm-temperature).

    The label is whether the letter that the authors read is right; where they read none, the reply is left out.
    """
    csv.field_size_limit(2**30)
    for file in sorted(Path(path, "responses").glob("*.csv")):
        if not EXAM_SETTINGS.search(file.name):
            continue
        with open(file, newline="") as replies, open(Path(path, "details", file.name), newline="") as details:
            problems = {row["Problem ID"]: row for row in csv.DictReader(details)}
            for row in csv.DictReader(replies):
                problem = problems[row["Problem ID"]]
                options = dict(re.findall(r"^\s*([A-E]):[ ]*(.*)$", problem["Problem"].rsplit("Choices:", 1)[1], re.MULTILINE))  # fmt: skip
                theirs = problem[f"Answer {int(row['Response ID']) + 1}"].strip()
                if theirs in options and "".join(options) == "ABCDE"[: len(options)]:
                    ours = Judged(theirs, choices=list(options.values())).read(row["Text"])
                    yield f"{file.name.split(' - ')[0]}", True, ours == theirs


def reread(path: str) -> Iterator[tuple[str, bool, bool]]:
    """GSM8K, SVAMP and CommonsenseQA by text-davinci-003, ChatGPT and GPT-4o-mini (results/ of Tebmer/Rereading-LLM-Reasoning)."""
    for record in files.read_jsonl(path):
        if "target" in record:
            kind, asked = "numbers", Judged([f"{record['target']:.12g}"], "numeric")
        else:
            options = [one["text"] for one in record["question"]["choices"]]
            kind, asked = "options", Judged(record["answerKey"], choices=options)
        for name in ("vanilla", "cot"):
            replies = record[name]["generation"] if name in record else None
            if replies and replies[0]:
                yield kind, bool(record[name]["score"]), asked.right(replies[0])


def plan_and_solve(path: str) -> Iterator[tuple[str, bool, bool]]:
    """text-davinci-003's plans and solutions, which its second reply read (generated_result/ of AGI-Edgerunners/Plan-and-Solve-Prompting)."""
    for record in json.loads(Path(path).read_text()):
        answer, (_, *options) = str(record["answer"]).replace(",", ""), re.split(r"\([A-E]\)", record["question"])
        if answer in ("yes", "no"):
            kind, asked = "yes or no", Judged({"yes": "A", "no": "B"}[answer], choices=["yes", "no"])
        elif options and answer in "ABCDE":
            kind, asked = "options", Judged(answer, choices=[one.strip() for one in options])
        else:
            kind, asked = "numbers", Judged([answer], "numeric")
        yield kind, record["ans"], asked.right(record["chain-of-thought"])


def faithful(path: str) -> Iterator[tuple[str, bool, bool]]:
    """Six GPTs' replies in words to six sets (a checkout of veronica320/Faithful-COT); the label is whether the authors' reading is right."""
    for name, kind in FAITHFUL.items():
        asked = {}
        for place, record in enumerate(files.read_jsonl(Path(path, "data", name, "test.jsonl"))):
            gold, options = record["answer"], record.get("options")
            if kind == "yes or no":
                question = Judged("A" if gold else "B", choices=["yes", "no"])
            elif options:
                question = Judged(gold, choices=[re.sub(r"^[A-E]\)\s*", "", one) for one in options])
            else:
                question = Judged([gold.rsplit("####", 1)[-1].strip().replace(",", "")], "numeric")
            asked[record.get("id", place)] = question
        for file in sorted(Path(path, "output_dir", name, "test").glob("*/predictions.jsonl")):
            if file.parent.name.endswith(("_COT", "_LtM", "_standard")):
                for record in files.read_jsonl(file):
                    theirs, question = str(record["answer"]), asked[record["id"]]
                    if isinstance(record["completion"], str):
                        yield kind, _same(theirs, question), question.right(record["completion"])


def _same(theirs: str, asked: Judged) -> bool:
    """Whether the answer that the authors of Faithful-COT read is the reference."""
    if asked.task.ANSWER_KIND == "option letter":
        return {"1": "A", "True": "A", "0": "B", "False": "B"}.get(theirs, theirs.upper()) == asked["reference"]
    bare = re.sub(r"[^\d.\-]", "", theirs).strip(".")
    return asked.task.score(bare, cast(Example, asked))["correct"]


def evouna(path: str) -> Iterator[tuple[str, bool, bool]]:
    """Answers of five systems to TriviaQA's or Natural Questions' questions, judged by people (wangcunxiang/QA-Eval)."""
    for record in json.loads(Path(path).read_text()):
        for name in EVOUNA:
            if not record["improper"] and record.get(f"answer_{name}"):
                for equality in ("normalised", "contains"):
                    asked = Judged([one.strip() for one in record["golden_answer"].split("/") if one.strip()], equality)
                    yield f"{name}, {equality}", bool(record[f"judge_{name}"]), asked.right(record[f"answer_{name}"])


SETS = {
    "gsm8k": gsm8k, "openai": openai, "abel": abel, "reread": reread, "plan-and-solve": plan_and_solve, "faithful": faithful,
    "math": mathematics, "exams": exams, "evouna": evouna,
}  # fmt: skip


def reading(name: str, path: str) -> Iterator[list[str]]:
    """Rows of the table: answers, labelled right, read right, both, agreement."""
    counts: dict[str, Counter] = {}
    for part, label, ours in SETS[name](path):
        counts.setdefault(part, Counter())[label, ours] += 1
    for part, found in counts.items():
        n, both = sum(found.values()), found[True, True]
        agree = both + found[False, False]
        yield [
            part,
            str(n),
            str(both + found[True, False]),
            str(both + found[False, True]),
            str(both),
            f"{agree / n:.4f}",
        ]


def main(argv: list[str]) -> int:
    options = argparse.ArgumentParser(prog="python -m evidence.published", description=__doc__)
    options.add_argument("table", choices=("labels", "reading"))
    options.add_argument(
        "what", metavar="EQUALITY or SET", help=f"labels: how answers are compared; reading: {', '.join(SETS)}"
    )
    options.add_argument("paths", nargs="+", metavar="PATH")
    chosen = options.parse_args(argv)
    try:
        for path in chosen.paths:
            if Path(path).is_file():
                print(f"{path}: sha256 {hashlib.sha256(Path(path).read_bytes()).hexdigest()}")
            rows = labels(path, chosen.what) if chosen.table == "labels" else reading(chosen.what, path)
            print("\n".join(f"| {' | '.join(row)} |" for row in rows))
    except (BadInput, OSError) as error:
        print(f"published: {explain(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
