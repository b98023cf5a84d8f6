"""Stage one: the answer LLM samples K answers to every prompt, and one greedy answer to every test prompt."""

from orce import tasks
from orce.llm import engines
from orce.runtime.seeds import seed_of
from orce.tasks.parts.prompts import read_prompts


def items(request: dict) -> list[tuple[str, dict]]:
    """(split, example) of every prompt."""
    return [(split, example) for split, path in request["prompts"].items() for example in read_prompts(path)]


def weights(request: dict) -> None:
    return None


def prompts(chunk, request: dict) -> list:
    """The messages that the answer LLM reads, and the tokens that an answer may take."""
    task = tasks.get(request["task"])
    return [task.prompt(example, request["shots"]) for _, example in chunk]


def max_tokens(request: dict) -> int:
    return request["max_tokens"] or tasks.get(request["task"]).MAX_TOKENS


def serve(chunk, engine, request: dict) -> list[dict]:
    """Records {id, split, answers, raw, correct} and, for test items, greedy {answer, raw, correct, f1}."""
    task, limit = tasks.get(request["task"]), max_tokens(request)
    messages = prompts(chunk, request)
    seeds = [seed_of(request["seed"], "answers", example["id"]) for _, example in chunk]
    tested = frozenset(i for i, (split, _) in enumerate(chunk) if split == "test")
    found = engines.generate_with_greedy(
        engine, messages, request["samples"], request["temperature"], limit, seeds, request["top_p"], tested
    )
    records = []
    for (split, example), (texts, greedy) in zip(chunk, found, strict=True):
        records.append(record(split, example, texts, task))
        if greedy is not None:
            records[-1]["greedy"] = judged(greedy, example, task)
    return records


def record(split: str, example: dict, texts: list[str], task) -> dict:
    read = [judged(text, example, task) for text in texts]
    return {
        "id": example["id"],
        "split": split,
        "answers": [one["answer"] for one in read],
        "raw": texts,
        "correct": [one["correct"] for one in read],
    }


def judged(text: str, example: dict, task) -> dict:
    read = task.extract(text, example)
    return {"answer": read, "raw": text} | task.score(read, example)
