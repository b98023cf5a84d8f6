"""The records that travel between the stages, one a line of a file. A user's module gets them as mappings (docs/extending.md)."""

from typing import Any, NotRequired, TypedDict


class Example(TypedDict):
    """A question of prompts/SPLIT.jsonl; a task may add keys of its own."""

    id: str
    question: str
    context: str | None
    choices: Any  # a list of texts, or None
    reference: Any  # the right answer, or the accepted ones, as the task writes them
    kind: NotRequired[str]
    subject: NotRequired[str]
    equality: NotRequired[str]
    answer_pattern: NotRequired[str]
    worked: NotRequired[list[list[str]]]  # [question, answer] of each worked example in its prompt


class Score(TypedDict):
    """What a task says of an answer."""

    correct: bool
    f1: float | None


class Greedy(Score):
    """A greedy answer; raw: the text that it was read from."""

    answer: str | None
    raw: str
    logprobs: NotRequired[list[float]]
    meaning: NotRequired[int | None]  # its group among the samples that mean the same


class Sample(TypedDict):
    """A line of samples.jsonl: K answers to a prompt; greedy: of a split that is tested on."""

    id: str
    split: str
    answers: list[str | None]
    raw: list[str]
    correct: list[bool]
    greedy: Greedy  # where the split is tested on
    judged: NotRequired[bool]  # the labels came with the answers
    graded: NotRequired[bool]  # a judge has graded the answers
    meanings: NotRequired[list[int | None]]  # the group of each answer that means the same
    spent: NotRequired[dict[str, Any]]  # what a server counted for the chunk that begins here


class Seen(Sample):
    """What a measured method sees: the sample of a tested question, with what its READS names of the likelihoods."""

    logprobs: list[float]
    sample_logprobs: list[list[float]]
    similarity: list[list[float]]
    p_true: float
    p_true_mass: float
