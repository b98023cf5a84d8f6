"""The answer LLM gives answer and confidence in its own words (prompted methods: Top-k, CoT)."""

from orce import methods, tasks
from orce.runtime.seeds import seed_of

RETRY_TEMPERATURE = 0.7  # greedy decoding would only repeat the text that could not be read


def messages(examples: list[dict], options: dict) -> list:
    """The conversation of every example, as the answer LLM reads it."""
    method, task = methods.load(options["module"]), tasks.get(options["task"])
    return [method.prompt(example, task, options["options"]) for example in examples]


def records(examples: list[dict], engine, options: dict) -> list[dict]:
    """Records {id, answer, correct, f1, confidence, raw, retried}; one retry where the confidence was unreadable."""
    found = generate(examples, engine, options, 0.0)
    again = [i for i, record in enumerate(found) if record["confidence"] is None]
    if again:
        second = generate([examples[i] for i in again], engine, options, RETRY_TEMPERATURE)
        for i, record in zip(again, second, strict=True):
            texts = [found[i]["raw"], record["raw"]]
            better = record if record["confidence"] is not None else found[i]
            found[i] = better | {"raw": texts, "retried": True}
    return found


def generate(examples: list[dict], engine, options: dict, temperature: float) -> list[dict]:
    method, task = methods.load(options["module"]), tasks.get(options["task"])
    seeds = [seed_of(options["seed"], "ask", f"orce.methods.{options['method']}", one["id"]) for one in examples]
    limit = options["options"]["max_tokens"]
    texts = engine.generate(messages(examples, options), 1, temperature, limit, seeds)
    made = []
    for example, (text,) in zip(examples, texts, strict=True):
        answer, confidence = method.read(text, example, task, options["options"])
        made.append(
            {"id": example["id"], "answer": answer}
            | task.score(answer, example)
            | {"confidence": confidence, "raw": text, "retried": False}
        )
    return made
