"""Mental arithmetic of graded difficulty for small models; generated, so nothing is downloaded.

Six kinds of question: sums of one digit, of tens, and of two digits plus one; differences under 20; products of one
digit; two digits times 2 to 5. The model writes the whole equation: small models are far better at that than at
the bare number (SmolLM2-135M: 0.4 against 0.1).
"""

import random
import re

from orce.text import extract as reading

ANSWER_KIND = "number"
MAX_TOKENS = 12
METRIC = "accuracy"
INSTRUCTION = "Write the calculation with its result."
EXPRESSION = re.compile(r"What is (\d+) ([-+*]) (\d+)\?")
WORKED = (("5 + 4", 9), ("16 - 7", 9), ("6 * 3", 18), ("24 + 8", 32))
SPLITS = {"train": (0, 7), "validation": (7, 9), "test": (9, 12), "all": (0, 12)}  # twelfths of the questions


def space():
    """Every expression with its result, without the worked examples."""
    sums = {f"{a} + {b}": a + b for a in range(10) for b in range(10)}
    tens = {f"{a} + {b}": a + b for a in range(10, 100, 10) for b in range(10, 100, 10)}
    longer = {f"{a} + {b}": a + b for a in range(11, 100) for b in range(2 - a % 2, 10, 2)}
    differences = {f"{a} - {b}": a - b for a in range(20) for b in range(a + 1)}
    products = {f"{a} * {b}": a * b for a in range(10) for b in range(10)}
    multiples = {f"{a} * {b}": a * b for a in range(11, 100) for b in range(2, 6)}
    every = sums | tens | longer | differences | products | multiples
    return {expression: result for expression, result in every.items() if expression not in dict(WORKED)}


def load(source, split, seed=0):
    """`source["size"]` questions of a split, in an order set by `seed`; by default all: train 725, validation 208, test 311, all 1,244."""
    questions = [_example(*pair) for pair in space().items()]
    if split not in SPLITS or set(source) - {"size"}:
        raise ValueError(f"no split {split!r} of {source}; the splits are {', '.join(SPLITS)} of {{}} or {{size: N}}")
    if split != "all":  # cut without `seed`: train, validation and test share no question, whatever their seeds
        first, last = (len(questions) * part // 12 for part in SPLITS[split])
        questions = random.Random("splits").sample(questions, len(questions))[first:last]
    size = source.get("size", len(questions))
    if size not in range(1, len(questions) + 1):
        raise ValueError(f"size is {size!r}; expected a number from 1 to {len(questions)}, all of split {split!r}")
    return random.Random(seed).sample(questions, size)


def _example(expression, result):
    asked = {"id": expression.replace(" ", ""), "question": f"What is {expression}?", "context": None, "choices": None}
    return asked | {"reference": str(result)}


def question(example):
    return example["question"]


def twin(example):
    """The numbers of the equation that a question asks about, in order: 3 + 5, 5 + 3, 8 - 3 and 8 - 5 are one fact.

    A question of another task, on which a confidence LLM may be trained, has no twin here.
    """
    found = EXPRESSION.fullmatch(example["question"])
    if found is None:
        return example["question"]
    a, sign, b = found.groups()
    parts = (int(b), int(a) - int(b)) if sign == "-" else (int(a), int(b))
    return f"{'*' if sign == '*' else '+'} {min(parts)} {max(parts)}"


def prompt(example, shots=None):
    """The worked examples, or the first `shots`, as earlier turns that every prompt shares; then the question."""
    shots, turns = len(WORKED) if shots is None else shots, []
    if not 0 <= shots <= len(WORKED):
        raise ValueError(
            f"shots is {shots!r}; expected a number from 0 to {len(WORKED)}, the worked examples there are"
        )
    for text, reply, _ in [*worked()[:shots], (example["question"], "", "")]:
        turns.append({"role": "user", "content": text if turns else f"{INSTRUCTION}\n\n{text}"})
        turns.append({"role": "assistant", "content": reply})
    return turns[:-1]


def worked():
    """(question, reply, answer) of the worked examples."""
    return [(f"What is {expression}?", f"{expression} = {result}", str(result)) for expression, result in WORKED]


def extract(text, example):
    """The number given as the result, as canonical decimal text ('17', '-5', '0.5')."""
    return reading.number(text)


def score(answer, example):
    return {"correct": answer is not None and key(answer, example) == key(example["reference"], example), "f1": None}


def key(answer, example):
    return reading.to_number(answer) or answer


def display(answer, example):
    return "(no answer)" if answer is None else answer
