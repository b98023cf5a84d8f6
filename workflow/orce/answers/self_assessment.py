"""The answer LLM is asked about its own greedy answer (asked methods: linguistic confidence).

Decoding is greedy. A reply that cannot be read is answered once with a request to keep to the form.
"""

from orce import tasks
from orce.answers.prompted import Asked
from orce.llm.chat import Messages
from orce.records import Example, Sample
from orce.runtime.seeds import seed_of
from orce.stage_settings import Elicit

AGAIN = "That is not in the form that I asked for. Reply with only what I asked for, and nothing else."
AGAIN_TOKENS = 64  # length of that request with its chat markup


def messages(items: list[tuple[Example, Sample]], method: Asked, options: Elicit) -> list[Messages]:
    """The conversation of every (example, record of samples.jsonl), as the answer LLM reads it."""
    task = tasks.get(options.task)
    return [method.ask(example, record["greedy"]["answer"], task, options.options) for example, record in items]


def tried(item: tuple[Example, Sample], method: Asked, options: Elicit) -> None:
    """Let the method read an empty text: a mistake in a user's method shows before anything is generated."""
    method.read("", options.options)


def longest_reply(options: Elicit) -> int:
    """Tokens by which a conversation may grow: the reply, the request and the reply to it."""
    return 2 * options.options["max_tokens"] + AGAIN_TOKENS


def records(items: list[tuple[Example, Sample]], engine, method: Asked, options: Elicit) -> list[dict]:
    """Records {id, answer, correct, f1, confidence, raw, retried}; `raw` is a list of both replies after a second try."""
    prompts = messages(items, method, options)
    texts = _greedy(engine, prompts, items, options)
    found = [_record(text, *item, method, options) for text, item in zip(texts, items, strict=True)]
    unread = [i for i, record in enumerate(found) if record["confidence"] is None]
    if unread:
        said = [[{"role": "assistant", "content": texts[i]}, {"role": "user", "content": AGAIN}] for i in unread]
        again = [prompts[i] + turns for i, turns in zip(unread, said, strict=True)]
        for i, reply in zip(unread, _greedy(engine, again, [items[i] for i in unread], options), strict=True):
            confidence = method.read(reply, options.options)
            found[i] |= {"confidence": confidence, "raw": [texts[i], reply], "retried": True}
    return found


def _record(text: str, example: Example, record: Sample, method: Asked, options: Elicit) -> dict:
    greedy = {key: record["greedy"][key] for key in ("answer", "correct", "f1")}
    confidence = method.read(text, options.options)
    return {"id": example["id"]} | greedy | {"confidence": confidence, "raw": text, "retried": False}


def _greedy(engine, conversations: list[Messages], items: list[tuple[Example, Sample]], options: Elicit) -> list[str]:
    seeds = [seed_of(options.seed, "ask", f"orce.methods.{options.method}", example["id"]) for example, _ in items]
    limit = options.options["max_tokens"]
    return [text for (text,) in engine.generate(conversations, 1, 0.0, limit, seeds)]
