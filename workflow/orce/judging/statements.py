"""A confidence LLM states its confidence in the greedy answer to every test prompt (stated methods)."""

from orce import tasks
from orce.answers import realised, tested
from orce.llm.chat import Messages, statement
from orce.records import Example, Greedy
from orce.stage_settings import State
from orce.text import extract


def items(prompts: str, samples: str, split: str = "test") -> list[tuple[Example, Greedy]]:
    """(example, greedy record) of every example of a split; `prompts` and `samples` are the two files."""
    return [(example, record["greedy"]) for example, record in tested.items(prompts, samples, split)]


def messages(chunk: list[tuple[Example, Greedy]], options: State) -> list[Messages]:
    """The conversation of every item, as the confidence LLM reads it."""
    task, whole = tasks.get(options.task), options.reads == "reasoning"
    return [
        realised.messages(task, example, greedy["answer"], greedy["raw"] if whole else None)
        for example, greedy in chunk
    ]


def records(chunk: list[tuple[Example, Greedy]], reader, weights: str | None, options: State) -> list[dict]:
    """Records {id, answer, correct, f1, stated, mean, mass, raw, retried}; `weights`, and the options constrained and
    mode, as in `state`."""
    readings = state(reader, messages(chunk, options), weights, options.constrained, options.mode)
    made = []
    for (example, greedy), read in zip(chunk, readings, strict=True):
        base = {key: greedy[key] for key in ("answer", "correct", "f1")}
        stated = read.pop("confidence")
        made.append({"id": example["id"], **base, "stated": stated, **read})
    return made


def state(
    reader, prompts: list[Messages], adapter: str | None = None, constrained: bool = False, mode: bool = False
) -> list[dict]:
    """Stated confidences: records {confidence in [0, 1], mean, mass, raw, retried}.

    The model first states its confidence as free text. If no confidence can be read in it, greedy decoding constrained to
    the 101 valid statements replaces it; `raw` then holds both, and `retried` is true. With `constrained` there is no free
    text: every statement is decoded in this way, and counted so. `adapter`: the weights to use, for a reader that has
    several (orce.judging.reader.SwitchingReader). With `mode` a record also has the mode of its distribution.
    """
    chosen = {} if adapter is None else {"adapter": adapter}
    readings = reader.read(prompts, state_text=not constrained, **chosen)
    return [_record(reading) | ({"mode": reading.mode} if mode else {}) for reading in readings]


def _record(reading) -> dict:
    raw = reading.text
    confidence = None if raw is None else extract.confidence(raw)
    unread = confidence is None
    if unread:
        stated = statement(reading.greedy)
        confidence, raw = reading.greedy / 100, stated if raw is None else [raw, stated]
    return {"confidence": confidence, "mean": reading.mean, "mass": reading.mass, "raw": raw, "retried": unread}
