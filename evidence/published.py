"""The tables of docs/evidence/published.md, from files that others have released: ``python evidence/published.py SET PATH...``.

rlcr: RLCR's five methods measured by the released labels and by our reading of the answers. Any other set: how our reading
of its replies agrees with the labels that came with them; samples: the same of a run's own replies, whose labels are ours.
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
from typing import Any, ClassVar, cast

import numpy as np

from orce import metrics, tasks

Labelled = Iterator[tuple[str, bool, bool]]  # which replies, whether their label is right, whether our reading is
FAITHFUL = dict.fromkeys(("GSM8K", "MultiArith", "SVAMP"), "numbers") | {"AQUA": "options", "StrategyQA": "yes or no", "sports": "yes or no"}  # fmt: skip
EVOUNA = ("fid", "gpt35", "chatgpt", "gpt4", "newbing")
OPTIONS = re.compile(r"^[ \t]*([A-Z])\)[ \t]*(.*?)\s*(?=^[ \t]*[A-Z]\)|\Z)", re.MULTILINE | re.DOTALL)


class Question(dict):
    """What a task needs of a question to read a reply to it: the reference, and the options if it has some.

    rules: {rule: [how many answers it read, how many of these are right]} of all questions, None for what nothing read.
    """

    rules: ClassVar[dict[str | None, list[int]]] = {}

    def __init__(self, reference: Any, equality: str = "numeric", choices: list[str] | None = None):
        super().__init__(question="", context=None, choices=choices, reference=reference, equality=equality)
        self.task = tasks.get("choice" if choices else "qa")

    def read(self, reply: str) -> str | None:
        return self.task.extract(reply, cast(Any, self))

    def is_right(self, answer: str | None) -> bool:
        return self.task.score(answer, cast(Any, self))["correct"]

    def right(self, reply: str) -> bool:
        answer = self.read(reply)
        right = self.is_right(answer)
        self.count(getattr(answer, "by", None), right)
        return right

    @classmethod
    def count(cls, rule: str | None, right: bool) -> None:
        counts = cls.rules.setdefault(rule, [0, 0])
        counts[0] += 1
        counts[1] += right


def yes_or_no(yes: bool) -> Question:
    return Question("A" if yes else "B", choices=["yes", "no"])


def lines(path: str | Path) -> list[dict]:
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


# Labels


def rlcr(path: str) -> Iterator[list[str]]:
    """For each method the share right, AUROC, Brier and ECE, by the released labels and by those read (eval_outputs/)."""
    import pyarrow.ipc

    with pyarrow.memory_map(path) as source:
        records = pyarrow.ipc.open_stream(source).read_all().to_pylist()
    questions = [rlcr_question(record["problem"], record["answer"]) for record in records]
    for name in (key.removesuffix("-output_0") for key in records[0] if key.endswith("-output_0")):
        confidence = np.array([record[f"{name}-confidence_levels"][0] for record in records], float)
        answers = [asked.read(record[f"{name}-output_0"]) for asked, record in zip(questions, records, strict=True)]
        released = np.array([record[f"{name}-evals"][0] for record in records], int)
        read = np.array([asked.is_right(answer) for asked, answer in zip(questions, answers, strict=True)], int)
        for label, correct in (("released", released), ("read", read)):
            # The mirror image of a bin that is closed on the left is closed on the right.
            ece, mirrored = (metrics.expected_calibration_error(abs(side - confidence), abs(side - correct)) for side in (0, 1))  # fmt: skip
            values = correct.mean(), metrics.auroc(confidence, correct), metrics.brier(confidence, correct), ece, mirrored  # fmt: skip
            yield [name, label, *(f"{value:.4f}" for value in values)]
        lost, won = (int(((released == label) & (read == 1 - label)).sum()) for label in (1, 0))
        yield [name, "changed", f"{lost} right to wrong, {won} wrong to right, {answers.count(None)} unread"]


def rlcr_question(problem: str, answer: str) -> Question:
    """Of a problem whose answer is 'Option B which is ...' the options, which begin with the last A; else MATH's answer."""
    right = re.match(r"Option ([A-Z]) which is\b", answer)
    if not right:
        return Question([answer], "math-verify")
    listed = OPTIONS.findall(problem)
    first = max(i for i, (letter, _) in enumerate(listed) if letter == "A")
    return Question(right[1], choices=[text.strip() for _, text in listed[first:]])


# Reading


def gsm8k(path: str) -> Labelled:
    """The worked solutions of GSM8K's test set (test.jsonl), as they are and without their last line, the mark ####."""
    for record in lines(path):
        solution, gold = record["answer"].rsplit("####", 1)
        asked = Question([gold.strip()])
        yield "solutions", True, asked.right(record["answer"])
        yield "solutions without their mark", True, asked.right(solution.strip())


def openai(path: str) -> Labelled:
    """Solutions of four models (example_model_solutions.jsonl of openai/grade-school-math)."""
    for record in lines(path):
        asked = Question([record["ground_truth"].rsplit("A:", 1)[1].strip()])
        for name, reply in record.items():
            if isinstance(reply, dict):
                yield name, reply["is_correct"], asked.right(reply["solution"])


def abel(path: str) -> Labelled:
    """Solutions of GSM8K in numbered steps, as they are and without their mark #### (outputs/gsm8k*/ of GAIR-NLP/abel)."""
    for record in lines(path):
        asked = Question([record["gold"].replace(",", "")])
        yield "solutions", record["result"], asked.right(record["response"])
        yield "solutions without their mark", record["result"], asked.right(record["response"].split("####")[0].strip())


def mathematics(path: str) -> Labelled:
    """MATH's own solutions, whose reference is the content of the last box (src/data/math/test.jsonl of microsoft/ToRA)."""
    for record in lines(path):
        boxed = record["solution"].rsplit("\\boxed", 1)[1]
        depths = list(accumulate((sign == "{") - (sign == "}") for sign in boxed))
        reference = boxed[1 : depths.index(0)] if boxed[0] == "{" else boxed.split("$")[0]
        yield "solutions", True, Question([reference], "math-verify").right(record["solution"])


def exams(path: str) -> Labelled:
    """Replies of nine models to multiple-choice exams at temperatures 0 and 1 (data/ of matthewrenze/jhu-llm-temperature).

    The label is the letter that the authors read; where they read none, the reply is left out.
    """
    csv.field_size_limit(2**30)
    for file in sorted(Path(path, "responses").glob("*temp-[01].0.csv")):
        with open(file, newline="") as replies, open(Path(path, "details", file.name), newline="") as details:
            problems = {row["Problem ID"]: row for row in csv.DictReader(details)}
            for row in csv.DictReader(replies):
                problem = problems[row["Problem ID"]]
                listed = problem["Problem"].rsplit("Choices:", 1)[1]
                options = dict(re.findall(r"^\s*([A-E]):[ ]*(.*)$", listed, re.MULTILINE))
                letter = problem[f"Answer {int(row['Response ID']) + 1}"].strip()
                if letter in options and "".join(options) == "ABCDE"[: len(options)]:
                    yield file.name.split(" - ")[0], True, Question(letter, choices=[*options.values()]).right(row["Text"])  # fmt: skip


def reread(path: str) -> Labelled:
    """GSM8K, SVAMP and CommonsenseQA by text-davinci-003, ChatGPT and GPT-4o-mini (results/ of Tebmer/Rereading-LLM-Reasoning)."""
    for record in lines(path):
        if "target" in record:
            kind, asked = "numbers", Question([f"{record['target']:.12g}"])
        else:
            options = [option["text"] for option in record["question"]["choices"]]
            kind, asked = "options", Question(record["answerKey"], choices=options)
        for name in ("vanilla", "cot"):
            replies = record[name]["generation"] if name in record else None
            if replies and replies[0]:
                yield kind, bool(record[name]["score"]), asked.right(replies[0])


def plan_and_solve(path: str) -> Labelled:
    """text-davinci-003's plans and solutions, which its second reply read (generated_result/ of AGI-Edgerunners/Plan-and-Solve-Prompting)."""
    for record in json.loads(Path(path).read_text()):
        answer, (_, *options) = str(record["answer"]).replace(",", ""), re.split(r"\([A-E]\)", record["question"])
        if answer in ("yes", "no"):
            kind, asked = "yes or no", yes_or_no(answer == "yes")
        elif options and answer in "ABCDE":
            kind, asked = "options", Question(answer, choices=[option.strip() for option in options])
        else:
            kind, asked = "numbers", Question([answer])
        yield kind, record["ans"], asked.right(record["chain-of-thought"])


def faithful(path: str) -> Labelled:
    """Six GPTs' replies in words to six sets (a checkout of veronica320/Faithful-COT); the label is whether the authors' reading is right."""
    for name, kind in FAITHFUL.items():
        asked = {}
        for number, record in enumerate(lines(Path(path, "data", name, "test.jsonl"))):
            gold, options = record["answer"], record.get("options")
            if kind == "yes or no":
                question = yes_or_no(gold)
            elif options:
                question = Question(gold, choices=[re.sub(r"^[A-E]\)\s*", "", option) for option in options])
            else:
                question = Question([gold.rsplit("####", 1)[-1].strip().replace(",", "")])
            asked[record.get("id", number)] = question
        for file in sorted(Path(path, "output_dir", name, "test").glob("*/predictions.jsonl")):
            if file.parent.name.endswith(("_COT", "_LtM", "_standard")):
                for record in lines(file):
                    question, theirs = asked[record["id"]], str(record["answer"])
                    if kind == "numbers":
                        theirs = re.sub(r"[^\d.\-]", "", theirs).strip(".")
                    else:
                        theirs = {"1": "A", "True": "A", "0": "B", "False": "B"}.get(theirs, theirs.upper())
                    if isinstance(record["completion"], str):
                        yield kind, question.is_right(theirs), question.right(record["completion"])


def evouna(path: str) -> Labelled:
    """Answers of five systems to TriviaQA's or Natural Questions' questions, judged by people (wangcunxiang/QA-Eval)."""
    for record in json.loads(Path(path).read_text()):
        for name in [] if record["improper"] else EVOUNA:
            if record.get(f"answer_{name}"):
                references = [text.strip() for text in record["golden_answer"].split("/") if text.strip()]
                for equality in ("normalised", "contains"):
                    right = Question(references, equality).right(record[f"answer_{name}"])
                    yield f"{name}, {equality}", bool(record[f"judge_{name}"]), right


def samples(path: str) -> Labelled:
    """The replies of a run, as it read and graded them (results/DATASET/MODEL/samples.jsonl)."""
    for record in lines(path):
        replies = [*zip(record["read_by"], record["correct"], strict=True)]
        if greedy := record.get("greedy"):
            replies.append((greedy["read_by"], greedy["correct"]))
        for rule, right in replies:
            Question.count(rule, right)
            yield Path(path).parent.parent.name, right, right


SETS = {
    "gsm8k": gsm8k, "openai": openai, "abel": abel, "reread": reread, "plan-and-solve": plan_and_solve,
    "faithful": faithful, "math": mathematics, "exams": exams, "evouna": evouna, "samples": samples,
}  # fmt: skip


def reading(name: str, path: str) -> Iterator[list[str]]:
    """Rows of the table: replies, labelled right, read right, both, agreement."""
    counts: dict[str, Counter] = {}
    for replies, label, ours in SETS[name](path):
        counts.setdefault(replies, Counter())[bool(label), ours] += 1
    for replies, count in counts.items():
        n, both = count.total(), count[True, True]
        sizes = n, both + count[True, False], both + count[False, True], both
        yield [replies, *map(str, sizes), f"{(both + count[False, False]) / n:.4f}"]


def add_rules(path: Path, name: str) -> None:
    """Put into a CSV file, in place of what it has of this set, how often each rule read an answer, and how often right."""
    rows = [*csv.DictReader(path.read_text().splitlines())] if path.exists() else []
    rows = [row for row in rows if row["set"] != name]
    for rule, (read, right) in sorted(Question.rules.items(), key=lambda item: -item[1][0]):
        mark, _, form = (rule or "unread").partition(": ")
        rows.append({"set": name, "mark": mark, "form": form, "read": read, "right": right})
    with open(path, "w", newline="") as file:
        table = csv.DictWriter(file, ["set", "mark", "form", "read", "right"], lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python evidence/published.py", description=__doc__)
    parser.add_argument("set", choices=["rlcr", *SETS])
    parser.add_argument("paths", nargs="+", metavar="PATH")
    parser.add_argument(
        "--rules", type=Path, metavar="CSV", help="a table of how often each rule read an answer, and how often right"
    )
    options = parser.parse_args(argv)
    Question.rules.clear()
    for path in options.paths:
        try:
            rows = [*(rlcr(path) if options.set == "rlcr" else reading(options.set, path))]
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            print(f"published: {path}: not as {options.set} has it ({error!r})", file=sys.stderr)
            return 2
        if Path(path).is_file():
            print(f"{path}: sha256 {hashlib.sha256(Path(path).read_bytes()).hexdigest()}")
        print("\n".join(f"| {' | '.join(row)} |" for row in rows))
    if options.rules:
        add_rules(options.rules, options.set)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
