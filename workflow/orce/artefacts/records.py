"""The records that travel between the stages, one a line of a file: `store.records` reads them,
`store.write` writes them.

What a user's module sees is a mapping (docs/extending.md), the rest are structs. A key that is
UNSET is not in the line.
"""

from typing import Any, NotRequired, Self, TypedDict, cast

import msgspec
from msgspec import UNSET, UnsetType

from orce.settings.schema import Number

Messages = list[dict[str, str]]  # a conversation: [{role, content}]


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
    answer_marks: NotRequired[list[str]]
    # [question, answer] of each worked example; None for its own question
    worked: NotRequired[list[list[str] | None]]


PROMPT_KEYS = ("id", "question", "context", "choices", "reference")  # of every example


class Score(TypedDict):
    """A task's judgement of an answer."""

    correct: bool
    f1: float | None


class Reply(msgspec.Struct, frozen=True):
    """An answer; raw: the text that it was read from."""

    answer: str | None
    raw: str


class Scored(Reply, frozen=True, kw_only=True):
    """A reply with the task's judgement of its answer."""

    correct: bool | int
    f1: Number | None

    @classmethod
    def of(cls, answer: str | None, raw: str, score: Score) -> Self:
        return cls(answer=answer, raw=raw, correct=score["correct"], f1=score["f1"])


class Greedy(Scored, frozen=True, kw_only=True):
    """The greedy answer to a question that is tested. read_by: the name of the rule that read it,
    null for an unread one.
    """

    read_by: str | None | UnsetType = UNSET
    logprobs: list[Number] | UnsetType = UNSET
    meaning: int | None | UnsetType = UNSET  # its group among the samples that mean the same


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A line of samples.jsonl: K answers to a prompt.

    read_by: the name of the rule that read each answer, null for an unread one; not in files of
    earlier versions. greedy: where the split is tested. judged: whether the labels came with the
    answers; graded: whether a grader has graded them. spent: what a server counted for the chunk
    that begins here. meanings: for each answer the group of those that mean the same.
    """

    id: str
    split: str
    answers: list[str | None]
    raw: list[str]
    correct: list[bool]
    read_by: list[str | None] | UnsetType = UNSET
    greedy: Greedy | UnsetType = UNSET
    judged: bool | UnsetType = UNSET
    spent: dict[str, Any] | UnsetType = UNSET
    graded: bool | UnsetType = UNSET
    meanings: list[int | None] | UnsetType = UNSET

    @property
    def key(self) -> tuple[str, str]:
        return self.split, self.id

    def seen(self) -> "Seen":
        """The answers to a tested question as a measured method sees them, without judgements."""
        assert isinstance(self.greedy, Greedy)
        greedy = {"answer": self.greedy.answer, "raw": self.greedy.raw}
        return cast(
            Seen, {"id": self.id, "answers": self.answers, "raw": self.raw, "greedy": greedy}
        )


class Tested(Sample, frozen=True, kw_only=True):
    """The sample of a tested question."""

    greedy: Greedy  # pyrefly: ignore (a sample may lack it, and this one never does)


class Seen(TypedDict):
    """What a measured method sees: a question's answers as a mapping, and what its READS names of
    the likelihoods.
    """

    id: str
    answers: list[str | None]
    raw: list[str]
    greedy: dict[str, str | None]
    logprobs: list[float]
    sample_logprobs: list[list[float]]
    p_true: float
    p_true_mass: float


class Realised(msgspec.Struct, kw_only=True):
    """A training question with its realised answer, as a mapping in a method's own `train`."""

    id: str
    prompt: Messages
    kappa: float
    correct: bool


class Candidate(msgspec.Struct):
    """A line of candidates.jsonl: M confidences of the confidence LLM in a realised answer.

    completion_logprobs [M]: log-probability of each candidate's whole turn, end token included, to
    float32's seven digits; it is DPO's reference if this model is the reference. raw [M]: the
    turns. logprobs [101]: of the values 0, 1, .., 100 percent, whatever follows the number; stated:
    the most probable one. reference [101]: log-probabilities of the turns in the arithmetic of
    training, where DPO takes its reference from there.
    """

    id: str
    kappa: Number
    correct: bool
    confidences: list[Number]
    completion_logprobs: list[Number]
    raw: list[str]
    stated: Number
    logprobs: list[Number]
    reference: list[Number] | UnsetType = UNSET


class Pair(msgspec.Struct, kw_only=True):
    """A line of pairs.jsonl, in TRL's conversational preference format: the statement that the
    reward prefers, and one that it rejects. ref_*_logps: their log-probabilities under the model
    that sampled them, under TRL's names.
    """

    id: str
    prompt: Messages
    chosen: Messages
    rejected: Messages
    reward_chosen: Number | UnsetType = UNSET
    reward_rejected: Number | UnsetType = UNSET
    ref_chosen_logps: Number | UnsetType = UNSET
    ref_rejected_logps: Number | UnsetType = UNSET


class Confidence(msgspec.Struct, kw_only=True):
    """A line of confidences.jsonl: a confidence in an answer, None for one that could not be read.

    raw: what it was read from; a list of both replies after a second question (`retried`). Of a
    confidence LLM, stated: its greedy statement; mean, mode: of its distribution; mass: its
    probability of the 101 values. spent: what a server counted for the chunk that begins here.
    """

    id: str
    answer: str | Number | None
    correct: bool | int
    f1: Number | None = None
    confidence: Number | None
    raw: Any = None
    retried: bool | UnsetType = UNSET
    stated: Number | UnsetType | None = UNSET
    mean: Number | UnsetType = UNSET
    mode: Number | UnsetType = UNSET
    mass: Number | UnsetType = UNSET
    spent: dict[str, Any] | UnsetType = UNSET

    @classmethod
    def of(
        cls, example: Example, scored: Scored, confidence: Number | None, raw: Any
    ) -> "Confidence":
        """A confidence in an answer."""
        return cls(
            id=example["id"],
            answer=scored.answer,
            correct=scored.correct,
            f1=scored.f1,
            confidence=confidence,
            raw=raw,
        )

    def mapped(self, confidence: Number | None, raw: Any, retried: bool) -> "Confidence":
        """Another confidence in the same answer, made from `raw`; retried: whether one below was
        read at a second try.
        """
        kept = {"id": self.id, "answer": self.answer, "correct": self.correct, "f1": self.f1}
        return Confidence(**kept, confidence=confidence, raw=raw, retried=retried or UNSET)
