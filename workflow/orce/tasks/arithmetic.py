"""Mental arithmetic of graded difficulty for small models; generated, so nothing is downloaded.

Six kinds of question: sums of one digit, of tens, and of two digits plus one; differences under 20; products of one
digit; two digits times 2 to 5. The model writes the whole equation: small models are far better at that than at
the bare number (SmolLM2-135M: 0.4 against 0.1).
"""

import re
from collections.abc import Mapping
from typing import Any

from orce.records import Example, Score
from orce.tasks.parts import generated as _generated
from orce.text import extract as reading

ANSWER_KIND = "number"
MAX_TOKENS = 12
METRIC = "accuracy"
EXPRESSION = re.compile(r"What is (\d+) ([-+*]) (\d+)\?")
WORKED = (("5 + 4", 9), ("16 - 7", 9), ("6 * 3", 18), ("24 + 8", 32))


def space() -> dict[str, int]:
    """Every possible expression and its result, without the worked examples."""
    sums = {f"{a} + {b}": a + b for a in range(10) for b in range(10)}
    tens = {f"{a} + {b}": a + b for a in range(10, 100, 10) for b in range(10, 100, 10)}
    longer = {f"{a} + {b}": a + b for a in range(11, 100) for b in range(2 - a % 2, 10, 2)}
    differences = {f"{a} - {b}": a - b for a in range(20) for b in range(a + 1)}
    products = {f"{a} * {b}": a * b for a in range(10) for b in range(10)}
    multiples = {f"{a} * {b}": a * b for a in range(11, 100) for b in range(2, 6)}
    every = sums | tens | longer | differences | products | multiples
    return {expression: result for expression, result in every.items() if expression not in dict(WORKED)}


def load(source: Mapping[str, Any], split: str, seed: int = 0) -> list[Example]:
    """Examples of a generated split: train (725), validation (208), test (311) or all (1,244). `source` is {size} or {}."""
    return _generated.draw([_example(*pair) for pair in space().items()], source, split, seed)


def _example(expression: str, result: int) -> Example:
    return {
        "id": expression.replace(" ", ""),
        "question": f"What is {expression}?",
        "context": None,
        "choices": None,
        "reference": str(result),
    }


def question(example: Example) -> str:
    return example["question"]


def twin(example: Example) -> str:
    """The numbers of the equation that a question asks about, in order: 3 + 5, 5 + 3, 8 - 3 and 8 - 5 are one fact.

    A question of another task, on which a confidence LLM may be trained, has no twin here.
    """
    found = EXPRESSION.fullmatch(example["question"])
    if found is None:
        return example["question"]
    a, sign, b = found.groups()
    parts = (int(b), int(a) - int(b)) if sign == "-" else (int(a), int(b))
    return f"{'*' if sign == '*' else '+'} {min(parts)} {max(parts)}"


def prompt(example: Example, shots: int | None = None) -> list[dict]:
    """Four worked examples unless `shots` says fewer, then the question."""
    return _generated.prompt("arithmetic", question(example), [shot[:2] for shot in worked()], shots)


def worked() -> list[tuple[str, str, str]]:
    """(question, reply, answer) of the worked examples."""
    return [(f"What is {expression}?", f"{expression} = {result}", str(result)) for expression, result in WORKED]


def extract(text: str, example: Example) -> str | None:
    """The number given as the result, as canonical decimal text ('17', '-5', '0.5')."""
    return reading.number(text)


def score(answer: str | None, example: Example) -> Score:
    return {"correct": answer is not None and key(answer, example) == key(example["reference"], example), "f1": None}


def key(answer: str, example: Example) -> str:
    return reading.to_number(answer) or answer


def display(answer: str | None, example: Example) -> str:
    return "(no answer)" if answer is None else answer
