"""Hidden states of a model at the end of a question, of an answer, and of the confidence LLM's prompt: what probes read.

Three places: `question`, the last token of the prompt that asked for the answer; `answer`, the last token of the reply under
that prompt (of an empty reply, the prompt's); `judge`, the last token of the prompt that the untrained confidence LLM reads. In
the training splits the reply is the realised answer, in a test split the greedy one.
"""

import base64

import numpy as np
from msgspec import UnsetType

from orce import tasks
from orce.answers import asking, realised
from orce.artefacts import store
from orce.errors import BadInput
from orce.records import Example, Reply, Row, Sample
from orce.stage_settings import States

NUMBERS = np.dtype("<f2")  # of a stored state
LARGEST = float(np.finfo(NUMBERS).max)


def items(prompts: dict[str, list[Example]], samples: str, surrogate: list[Row]) -> list[tuple[str, Example, Reply]]:
    """(split, example, reply) of the examples of some splits {split: examples}.

    A test question has its greedy reply, a training question its realised answer as it was first written.
    """
    sampled = {one.key: one for one in store.records(samples, Sample)}
    chosen = {row.key: row.answer or None for row in surrogate}
    found = []
    for split, examples in prompts.items():
        for example in examples:
            key = (split, example["id"])
            reply = _reply(split, sampled[key], chosen.get(key)) if key in sampled else None
            if reply is None:
                raise BadInput(f"{samples}: no answer for {split} id {example['id']!r}; sample it again")
            found.append((split, example, reply))
    return found


def _reply(split: str, record: Sample, answer: str | None) -> Reply | None:
    """None if the record does not have it."""
    if split == "test":
        greedy = record.greedy
        return None if isinstance(greedy, UnsetType) else Reply(greedy.answer, greedy.raw)
    replies = (raw for raw, one in zip(record.raw, record.answers, strict=True) if one == answer)
    return next((Reply(answer, raw) for raw in replies), None)


def records(chunk: list[tuple[str, Example, Reply]], encoder, options: States) -> list[dict]:
    """Records {id, split, and of each place [base64 of a layer's state, in float16, for each depth]}."""
    task = tasks.get(options.task)
    if options.of == "judge":
        given = [realised.messages(task, example, reply.answer) for _, example, reply in chunk]
        read = encoder.states(given, [""] * len(chunk))
        places = [{"judge": one.prompt} for one in read]
    else:
        given = [asking.prompt(task, example, options) for _, example, _ in chunk]
        read = encoder.states(given, [reply.raw for _, _, reply in chunk])
        places = [{"question": one.prompt, "answer": one.reply} for one in read]
    return [
        {"id": example["id"], "split": split} | {place: list(map(packed, layers)) for place, layers in one.items()}
        for (split, example, _), one in zip(chunk, places, strict=True)
    ]


def packed(state: np.ndarray) -> str:
    """A state as text: float16, little-endian, in base64."""
    return base64.b64encode(np.clip(state, -LARGEST, LARGEST).astype(NUMBERS).tobytes()).decode()


def unpacked(layers: list[str]) -> np.ndarray:
    """The states of an item at a place, [layers, size], in float32."""
    return np.stack([np.frombuffer(base64.b64decode(one), NUMBERS) for one in layers]).astype(np.float32)
