"""The answer LLM is asked about its own greedy answer (asked methods: linguistic confidence).

Decoding is greedy. A reply that cannot be read is answered once with a request to keep to the form.
"""

from orce import tasks
from orce.answers.prompted import Asked
from orce.records import Confidence, Example, Messages, Tested
from orce.runtime.seeds import seed_of
from orce.stage_settings import Elicit

AGAIN = "That is not in the form that I asked for. Reply with only what I asked for, and nothing else."
AGAIN_TOKENS = 64  # length of that request with its chat markup


def messages(items: list[tuple[Example, Tested]], method: Asked, options: Elicit) -> list[Messages]:
    """The conversation of every (example, record of samples.jsonl), as the answer LLM reads it."""
    task = tasks.get(options.task)
    return [method.ask(example, record.greedy.answer, task, options.options) for example, record in items]


def tried(item: tuple[Example, Tested], method: Asked, options: Elicit) -> None:
    """Let the method read an empty text: a mistake in a user's method shows before anything is generated."""
    method.read("", options.options)


def longest_reply(options: Elicit) -> int:
    """Tokens by which a conversation may grow: the reply, the request and the reply to it."""
    return 2 * options.options["max_tokens"] + AGAIN_TOKENS


def records(items: list[tuple[Example, Tested]], engine, method: Asked, options: Elicit) -> list[Confidence]:
    """The confidences; `raw` is a list of both replies after a second try."""
    prompts = messages(items, method, options)
    texts = _greedy(engine, prompts, items, options)
    found = [_record(text, *item, method, options) for text, item in zip(texts, items, strict=True)]
    unread = [i for i, record in enumerate(found) if record.confidence is None]
    if unread:
        said = [[{"role": "assistant", "content": texts[i]}, {"role": "user", "content": AGAIN}] for i in unread]
        again = [prompts[i] + turns for i, turns in zip(unread, said, strict=True)]
        for i, reply in zip(unread, _greedy(engine, again, [items[i] for i in unread], options), strict=True):
            found[i].confidence = method.read(reply, options.options)
            found[i].raw, found[i].retried = [texts[i], reply], True
    return found


def _record(text: str, example: Example, record: Tested, method: Asked, options: Elicit) -> Confidence:
    made = Confidence.of(example, record.greedy, method.read(text, options.options), text)
    made.retried = False
    return made


def _greedy(engine, conversations: list[Messages], items: list[tuple[Example, Tested]], options: Elicit) -> list[str]:
    seeds = [seed_of(options.seed, "ask", f"orce.methods.{options.method}", example["id"]) for example, _ in items]
    limit = options.options["max_tokens"]
    return [text for (text,) in engine.generate(conversations, 1, 0.0, limit, seeds)]
