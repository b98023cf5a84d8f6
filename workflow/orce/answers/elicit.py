"""The answer LLM gives answer and confidence in one text (prompted methods: Top-k, CoT)."""

from orce import methods, tasks
from orce.runtime.seeds import seed_of
from orce.tasks.parts.prompts import read_prompts

RETRY_TEMPERATURE = 0.7  # greedy decoding would only repeat the text that could not be read


def items(request: dict) -> list[dict]:
    return read_prompts(request["prompts"]["test"])


def weights(request: dict) -> None:
    return None


def prompts(chunk, request: dict) -> list:
    """The messages that the answer LLM reads."""
    method, task = methods.get(request["what"]), tasks.get(request["task"])
    return [method.prompt(example, task, request) for example in chunk]


def max_tokens(request: dict) -> int:
    return request["max_tokens"]


def serve(chunk, engine, request: dict) -> list[dict]:
    """Records {id, answer, correct, f1, confidence, raw, retried}; one retry where the confidence was unreadable."""
    records = generate(chunk, engine, request, 0.0)
    again = [i for i, record in enumerate(records) if record["confidence"] is None]
    if again:
        second = generate([chunk[i] for i in again], engine, request, RETRY_TEMPERATURE)
        for i, record in zip(again, second, strict=True):
            texts = [records[i]["raw"], record["raw"]]
            better = record if record["confidence"] is not None else records[i]
            records[i] = better | {"raw": texts, "retried": True}
    return records


def generate(examples: list[dict], engine, request: dict, temperature: float) -> list[dict]:
    method, task = methods.get(request["what"]), tasks.get(request["task"])
    seeds = [seed_of(request["seed"], "ask", method.__name__, example["id"]) for example in examples]
    texts = engine.generate(prompts(examples, request), 1, temperature, max_tokens(request), seeds)
    records = []
    for example, (text,) in zip(examples, texts, strict=True):
        read, confidence = method.read(text, example, task, request)
        records.append(
            {"id": example["id"], "answer": read}
            | task.score(read, example)
            | {"confidence": confidence, "raw": text, "retried": False}
        )
    return records
