"""What a step has cost: passes over a question, tokens and seconds.

passes are texts that the model wrote or read for a question. prompt_tokens are counted once for all samples of a prompt, and
without the second question to a model whose statement could not be read; a server's own counts are taken as they are.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from orce import stages, tasks
from orce.artefacts import store
from orce.llm import template
from orce.records import Example, Tested
from orce.stage_settings import Model
from orce.stages import elicit, likelihoods, state

Record = dict[str, Any]  # a line of a step's output


class Cost(NamedTuple):
    """None for what a server does not say."""

    passes: int | None = 0
    prompt_tokens: int | None = 0
    generated_tokens: int | None = 0
    seconds: float | None = 0.0


def total(costs: Iterable[Cost]) -> Cost:
    """The sum of several steps' costs; None where one of them is not known."""
    columns = zip(Cost(), *costs, strict=True)
    return Cost(*(None if None in column else sum(column) for column in columns))


def of(step: str, chosen: Any, examples: list[Example], sampled: list[Tested], out: Path, seconds: float) -> Cost:
    """The cost of a finished step. chosen: its settings; sampled: the answers it read."""
    if step == "import_answers":
        return Cost(seconds=seconds)
    of_samples = getattr(chosen, "scored", "greedy") == "samples"
    passes = {"sample": getattr(chosen, "samples", 0) + 1, "likelihoods": 1 if of_samples else 2}.get(step, 1)
    if chosen.model.source.server:
        spent = store.facts(out).get("spent", {})
        return Cost(passes, spent.get("prompt_tokens"), spent.get("completion_tokens"), seconds)
    asked, written = _texts(step, chosen, list(zip(examples, sampled, strict=False)), examples, store.read(out))
    count = _counter(chosen.model)
    return Cost(passes, count(asked), count(written), seconds)


def _texts(step: str, chosen: Any, items: list[tuple[Example, Tested]], examples: list[Example], records: list[Record]):
    """(conversations and texts that the model read, texts that it wrote)."""
    task = tasks.get(chosen.task)
    if step in ("sample", "likelihoods"):
        asked = [stages.answer_prompt(task, example, chosen) for example in examples]
        if step == "sample":
            return asked, [text for one in records for text in [*one["raw"], one["greedy"]["raw"]]]
        if chosen.scored == "samples":
            return [*asked, *(text for _, record in items for text in record.raw)], []
        replies = [record.greedy.raw for _, record in items]
        return [*asked, *replies, *(likelihoods.p_true_prompt(task, *item) for item in items)], []
    written = [text for one in records for text in _all(one["raw"])]
    greedy = [(example, one.greedy) for example, one in items]
    if step == "state":
        return state.asked(greedy, chosen), written
    way = elicit.way(chosen)
    return [way.prompt(*item) for item in greedy or [(example, None) for example in examples]], written


def _all(raw) -> list[str]:
    return raw if isinstance(raw, list) else [raw]


def _counter(model: Model):
    """A function from conversations and texts to the number of their tokens."""
    from orce.llm import language_model

    tokenizer, _ = language_model.vocabulary(model.source, model.template_kwargs or None)

    def count(texts: Sequence) -> int:
        written = [
            one if isinstance(one, str) else template.render(tokenizer, one, model.template_kwargs or {})
            for one in texts
        ]
        return sum(map(len, tokenizer(written, add_special_tokens=False)["input_ids"])) if written else 0

    return count
