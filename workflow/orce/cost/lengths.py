"""Numbers of prompts and their lengths in tokens: counted in the frozen prompts if they exist, else assumed."""

import os
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from orce import tasks
from orce.answers import realised
from orce.runtime import contents, files
from orce.tasks.parts import splits

SAMPLE = 200  # prompts of a split that are measured
CHARACTERS = 4.2  # of English text in a token, where no tokenizer is at hand
TURN = 5  # tokens that a chat template puts around a turn


@dataclass(frozen=True)
class Lengths:
    """Mean tokens of a prompt to the answer LLM, of one to the confidence LLM, and of an answer; and of the prefixes that
    all prompts to each LLM share."""

    answer_prompt: float
    confidence_prompt: float
    answer: float
    answer_shared: float = 0.0
    confidence_shared: float = 0.0

    def answering(self, n: float, batch: float) -> float:
        """Tokens computed for n prompts to the answer LLM, the shared prefix once per batch."""
        return _computed(n, self.answer_prompt, self.answer_shared, batch)

    def judging(self, n: float, batch: float) -> float:
        """The same for prompts to the confidence LLM."""
        return _computed(n, self.confidence_prompt, self.confidence_shared, batch)


def _computed(n: float, length: float, shared: float, batch: float) -> float:
    return n * (length - shared) + n / min(batch, max(n, 1)) * shared


ASSUMED = {  # the generated tasks' are SmolLM2's, measured; the benchmarks' are guesses of instruction and question
    "mmlu": Lengths(150, 215, 5),
    "drop": Lengths(350, 415, 5),
    "logiqa": Lengths(230, 295, 5),
    "reclor": Lengths(230, 295, 5),
    "arithmetic": Lengths(158, 89, 8, 140, 62),
    "worldfacts": Lengths(146, 89, 10, 125, 62),
}
OTHER = Lengths(200, 265, 10)
PUBLISHED = {
    ("mmlu", "test"): 14042,
    ("drop", "validation"): 9536,
    ("logiqa", "train"): 12567,
    ("logiqa", "test"): 1572,
    ("reclor", "validation"): 500,
}


@dataclass(frozen=True)
class Prompts:
    """The frozen prompts under `results`; `given` {task: Lengths} and `items` {(dataset, split): n} override them."""

    results: Path
    given: dict
    items: dict

    def count(self, config: dict, dataset: str, split: str) -> int:
        """Prompts of a split: as given, or from the frozen file, the config, or the published size.

        Raises BadInput if none of these has it.
        """
        if (dataset, split) in self.items:
            return self.items[dataset, split]
        if self._file(dataset, split).exists():
            with open(self._file(dataset, split), "rb") as handle:
                return sum(1 for _ in handle)
        every, task = config["datasets"][dataset]["splits"], config["datasets"][dataset]["task"]
        spec = every[split]
        if isinstance(spec.get("size"), int):
            return spec["size"]
        total = PUBLISHED.get((task, spec["from"]))
        if total is None:
            raise files.BadInput(
                f"config: datasets.{dataset}.splits.{split}: how many examples has {spec['from']!r}? Say so with "
                f"--items {dataset}.{split}=N"
            )
        place = splits.cut(every, spec["from"], total)[split]
        return place.stop - place.start

    def lengths(self, config: dict, dataset: str, model: str, split: str, tokenizer: Path | None) -> Lengths:
        """Tokens of a split's prompts as `model` reads them; `tokenizer`: its tokenizer.json, if it exists."""
        task = config["datasets"][dataset]["task"]
        if task in self.given:
            return self.given[task]
        assumed = ASSUMED.get(task, OTHER)
        if not self._file(dataset, split).exists():
            return assumed
        shots = config["models"][model].get("shots")
        found = _measured(str(self._file(dataset, split)), task, shots, str(tokenizer) if tokenizer else None)
        return replace(found, answer=assumed.answer)

    def measured(self, dataset: str) -> bool:
        return any((self.results / dataset / "prompts").glob("*.jsonl"))

    def _file(self, dataset: str, split: str) -> Path:
        return self.results / dataset / "prompts" / f"{split}.jsonl"


@cache
def _measured(path: str, task: str, shots: int | None, tokenizer: str | None) -> Lengths:
    module, examples = tasks.get(task), files.read_jsonl(contents.verified(path))
    examples = examples[:: -(-len(examples) // SAMPLE)]
    answering, answering_shared = _tokens([module.prompt(example, shots) for example in examples], tokenizer)
    judging, judging_shared = _tokens([realised.messages(module, example, None) for example in examples], tokenizer)
    return Lengths(answering, judging, 0, answering_shared, judging_shared)


def _tokens(conversations: list, tokenizer: str | None) -> tuple[float, float]:
    """Mean tokens of the conversations, and tokens of their common prefix."""
    texts = ["\n".join(turn["content"] for turn in turns) for turns in conversations]
    markup = TURN * sum(map(len, conversations)) / len(conversations)
    if tokenizer is None:
        units, size = texts, CHARACTERS
    else:
        units, size = _encode(texts, tokenizer), 1.0
    shared = len(os.path.commonprefix(units)) / size if len(units) > 1 else 0.0
    mean = sum(map(len, units)) / len(units) / size
    return mean + markup, shared + markup if shared else 0.0


def _encode(texts: list[str], tokenizer: str) -> list[list[int]]:
    from tokenizers import Tokenizer

    return [one.ids for one in Tokenizer.from_file(tokenizer).encode_batch(texts, add_special_tokens=False)]
