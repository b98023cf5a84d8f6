"""A confidence LLM states its confidence in the greedy answer to every test prompt (stated methods)."""

from orce import files, pairs, tasks
from orce.steps import read_prompts


def items(request: dict) -> list[tuple[dict, dict]]:
    """(example, greedy record) of every test example."""
    samples, examples = request["samples"], read_prompts(request["prompts"]["test"])
    found = {record["id"]: record for record in files.read_jsonl(samples, ("id", "split")) if record["split"] == "test"}
    missing = [example["id"] for example in examples if "greedy" not in found.get(example["id"], {})]
    if missing:
        raise files.BadInput(f"{samples}: no greedy answer for test id {missing[0]!r}; sample it again")
    return [(example, found[example["id"]]["greedy"]) for example in examples]


def weights(request: dict) -> str | None:
    return request["weights"]


def prompts(chunk, request: dict) -> list:
    """The messages that the confidence LLM reads."""
    task = tasks.get(request["task"])
    return [pairs.messages(task, example, greedy["answer"]) for example, greedy in chunk]


def serve(chunk, reader, request: dict) -> list[dict]:
    """Records {id, answer, correct, f1, confidence, raw} and, beside them, the mean of the distribution."""
    from orce import confidence

    readings = confidence.state(reader, prompts(chunk, request), request["weights"])
    records = []
    for (example, greedy), read in zip(chunk, readings, strict=True):
        base = {key: greedy[key] for key in ("answer", "correct", "f1")}
        stated = read.pop("confidence")
        records.append({"id": example["id"], **base, "stated": stated, **read})
    return records
