"""P(True) (Kadavath et al., 2022): the answer LLM's own probability that its greedy answer is true.

It sees its samples as brainstormed ideas, as in their section 4.2, but each distinct one once, so how often it came is
lost. orce.answers.answer_likelihoods has the prompt; the
confidence is p("A") / (p("A") + p("B")), A for True and B for False, zero-shot.
"""

from orce.records import Example, Seen
from orce.tasks import Task

LABEL, KIND, READS = "P(True)", "measured", ("likelihoods",)


def measure(seen: Seen, example: Example, task: Task) -> float | None:
    return seen["p_true"]
