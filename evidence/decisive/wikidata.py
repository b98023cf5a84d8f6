"""BIG-bench qa_wikidata, asked with eight worked completions: a task by its path (orce.tasks). Else it is task qa."""

from orce.records import Example
from orce.tasks import qa
from orce.tasks.qa import ANSWER_KIND, FIELDS, METRIC, OPTIONS, display, extract, key, load, question, score

__all__ = [
    "ANSWER_KIND", "FIELDS", "MAX_TOKENS", "METRIC", "OPTIONS", "display", "extract", "key", "load", "prompt",
    "question", "score",
]  # fmt: skip
MAX_TOKENS = 12
WORKED = (
    ("The capital of France is", "Paris"),
    ("The native language of Albert Einstein is", "German"),
    ("The country of Lake Baikal is", "Russia"),
    ("The religion of Desmond Tutu is", "Anglicanism"),
    ("The instrument of Miles Davis is", "trumpet"),
    ("The continent of Kenya is", "Africa"),
    ("The country of citizenship of Frida Kahlo is", "Mexico"),
    ("The official language of Brazil is", "Portuguese"),
)


def prompt(example: Example, shots: int | None = None) -> list[dict]:
    """Eight worked completions as turns of a conversation, then the one to complete."""
    turns = []
    for said, answer in WORKED[: len(WORKED) if shots is None else shots]:
        turns += [{"role": "user", "content": said}, {"role": "assistant", "content": answer}]
    return [*turns, {"role": "user", "content": qa.question(example)}]
