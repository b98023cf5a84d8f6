"""Frozen examples: prompts/{split}.jsonl."""

from orce.runtime.files import BadInput, read_jsonl

PROMPT_KEYS = ("id", "question", "context", "choices", "reference")


def read_prompts(path) -> list[dict]:
    """Frozen examples of one split, ids unique."""
    examples = read_jsonl(path, PROMPT_KEYS)
    seen: dict = {}
    for line, example in enumerate(examples, 1):
        if example["id"] in seen:
            raise BadInput(f"{path}, line {line}: id {example['id']!r} stands in line {seen[example['id']]} already")
        seen[example["id"]] = line
    return examples
