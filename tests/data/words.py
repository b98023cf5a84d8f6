"""Questions about words, whose right answers and whose twins are told at a glance: a task for tests that work results out by hand.

An answer is the reply itself, without spaces around it; it is right if it is in `reference`. `Say x and y.` and `Say y and x.`
are twins.
"""

ANSWER_KIND, MAX_TOKENS, METRIC = "word", 3, "accuracy"
WORDS = (
    "ant",
    "bee",
    "cat",
    "dog",
    "elk",
    "fox",
    "gnu",
    "hen",
    "ibis",
    "jay",
    "kiwi",
    "lark",
    "mole",
    "newt",
    "owl",
    "pig",
)


def load(source, split, seed=0):
    """Sixteen questions to train on, n00 to n15, six to test, t0 to t5."""
    asked = {
        "train": [(f"n{i:02}", word) for i, word in enumerate(WORDS)],
        "test": [(f"t{i}", f"{i}") for i in range(6)],
    }
    return [
        {"id": name, "question": f"Say {word}.", "context": None, "choices": None, "reference": [word]}
        for name, word in asked[split]
    ]


def question(example):
    return example["question"]


def prompt(example, shots=None):
    return [{"role": "user", "content": f"Task: {example['question']}"}]


def extract(text, example):
    return text.strip() or None


def score(answer, example):
    return {"correct": answer in example["reference"], "f1": None}


def key(answer, example):
    return answer.lower()


def display(answer, example):
    return "(none)" if answer is None else f"<{answer}>"


def twin(example):
    return " ".join(sorted(example["question"].removeprefix("Say ").removesuffix(".").split(" and ")))
