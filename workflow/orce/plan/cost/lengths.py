"""Numbers of prompts and their lengths in tokens: counted in the frozen prompts if they exist, else from dataset cards."""

import math
import os
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from orce import tasks
from orce.config.schema import Config
from orce.errors import BadInput
from orce.judging.statements import judge_prompt
from orce.tasks.parts import splits
from orce.tasks.parts.prompt_files import read_prompts

SAMPLE = 200  # prompts of a split that are measured
CHARACTERS = 4.2  # of English text in a token, where no tokenizer is at hand
TURN = 5  # tokens that a chat template puts around a turn


@dataclass(frozen=True)
class Lengths:
    """Mean tokens of a prompt to the answer LLM, of one to the confidence LLM, and of an answer; and of the prefixes that
    all prompts to each LLM share. passages: distinct passages that the split's source asks about, of `passage` tokens
    each; 0 where every question stands alone."""

    answer_prompt: float
    confidence_prompt: float
    answer: float
    answer_shared: float = 0.0
    confidence_shared: float = 0.0
    passage: float = 0.0
    passages: float = 0.0

    def answering(self, n: float, tokens: float) -> float:
        """Tokens computed for n prompts to the answer LLM, in batches of `tokens` with the shared prefix once."""
        return _computed(n, self.answer_prompt, self.answer_shared, tokens)

    def judging(self, n: float, tokens: float, together: bool = False) -> float:
        """The same for prompts to the confidence LLM; together: the questions about a passage are in one batch."""
        computed = _computed(n, self.confidence_prompt, self.confidence_shared, tokens)
        if together and self.passages:
            seen = self.passages * (
                1 - math.exp(-n / self.passages)
            )  # distinct passages of n questions drawn at random
            computed -= (n - seen) * self.passage
        return computed


def _computed(n: float, length: float, shared: float, tokens: float) -> float:
    own = length - shared
    batch = max(1.0, (tokens - shared) / own)
    return n * own + max(1.0, n / batch) * shared


GENERATED = {  # SmolLM2's tokens, measured
    "config/demo/arithmetic.py": Lengths(158, 89, 8, 140, 62),
    "config/demo/worldfacts.py": Lengths(146, 89, 10, 125, 62),
}
WORKED = {
    "config/demo/arithmetic.py": 29,
    "config/demo/worldfacts.py": 26,
}  # tokens of one of their worked examples, measured with SmolLM2's tokenizer
# Bytes of an example by its dataset card, num_bytes / num_examples: question, choices, passage, answers, subject.
CARDS = {
    ("mmlu", "auxiliary_train"): 161_000_625 / 99_842,
    ("mmlu", "test"): 6_967_453 / 14_042,
    ("drop", "train"): 100_026_971 / 77_400,
    ("drop", "validation"): 100_026_971 / 77_400,  # no card gives its own
    ("logiqa", "train"): 13_374_480 / 12_567,
    ("logiqa", "test"): 1_656_534 / 1_572,
    ("reclor", "validation"): 518_604 / 500,
}
# Characters that the templates add for the answer LLM and for the confidence LLM, which also sees an answer.
MARKUP = {"drop": (213, 223)}
MARKUP_OF_CHOICES = (102, 230)
DROP_QUESTION = 60  # characters of a question of DROP; the rest is its passage
PASSAGES = {("drop", "train"): 5_565, ("drop", "validation"): 582}  # Dua et al. (2019), table 2
ANSWER = 5  # tokens of a letter, a number or a few words
OTHER = Lengths(200, 265, 10)


def assumed(task: str, source: str) -> Lengths:
    """Lengths of a task's split `source`, before any prompt is there."""
    if task in GENERATED:
        return GENERATED[task]
    known = {split: size for (name, split), size in CARDS.items() if name == task}
    if not known:
        return OTHER
    size = known.get(source, max(known.values()))
    answer, judge = (TURN + (size + more) / CHARACTERS for more in MARKUP.get(task, MARKUP_OF_CHOICES))
    passages = PASSAGES.get((task, source), 0)
    return Lengths(
        answer, judge, ANSWER, passage=(size - DROP_QUESTION) / CHARACTERS if passages else 0, passages=passages
    )


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

    def count(self, config: Config, dataset: str, split: str) -> int:
        """Prompts of a split: as given, or from the frozen file, the config, or the published size.

        Raises BadInput if none of these has it.
        """
        if (dataset, split) in self.items:
            return self.items[dataset, split]
        if self._file(dataset, split).exists():
            with open(self._file(dataset, split), "rb") as handle:
                return sum(1 for _ in handle)
        every, task = config.datasets[dataset].splits, config.datasets[dataset].task
        spec = every[split]
        if isinstance(size := spec.size, int):
            return size
        total = PUBLISHED.get((task, spec.origin))
        if total is None:
            raise BadInput(
                f"config: datasets.{dataset}.splits.{split}: how many examples has {spec.origin!r}? Say so with "
                f"--items {dataset}.{split}=N"
            )
        place = splits.cut(every, spec.origin, total)[split]
        return place.stop - place.start

    def lengths(self, config: Config, dataset: str, model: str, split: str, tokenizer: Path | None) -> Lengths:
        """Tokens of a split's prompts as `model` reads them; `tokenizer`: its tokenizer.json, if it exists."""
        task = config.datasets[dataset].task
        if task in self.given:
            return self.given[task]
        expected = assumed(task, config.datasets[dataset].splits[split].origin)
        if not self._file(dataset, split).exists():
            more = self._worked(config, dataset, model, expected)
            return replace(
                expected,
                answer_prompt=expected.answer_prompt + more,
                answer_shared=expected.answer_shared + more,
            )
        shots = config.models[model].shots
        found = _measured(str(self._file(dataset, split)), task, shots, str(tokenizer) if tokenizer else None)
        return replace(found, answer=expected.answer, passage=expected.passage, passages=expected.passages)

    def _worked(self, config: Config, dataset: str, model: str, expected: Lengths) -> float:
        """Tokens of the worked examples before every question beyond the expected ones, a negative number for fewer."""
        spec, shots = config.datasets[dataset], config.models[model].shots
        task = tasks.get(spec.task)
        if splits.SHOWN in spec.splits:
            there, usual = self.count(config, dataset, splits.SHOWN), 0
            each: float = expected.answer_prompt + expected.answer + TURN  # as long as the question, with its answer
        elif spec.task in WORKED and isinstance(task, tasks.WithExamples):
            there = usual = len(task.worked())
            each = WORKED[spec.task]
        else:
            return 0
        return ((there if shots is None else min(shots, there)) - usual) * each

    def measured(self, dataset: str) -> bool:
        return any((self.results / dataset / "prompts").glob("*.jsonl"))

    def _file(self, dataset: str, split: str) -> Path:
        return self.results / dataset / "prompts" / f"{split}.jsonl"


@cache
def _measured(path: str, task: str, shots: int | None, tokenizer: str | None) -> Lengths:
    module, examples = tasks.get(task), read_prompts(path)
    examples = examples[:: -(-len(examples) // SAMPLE)]
    answering, answering_shared = _tokens([module.prompt(example, shots) for example in examples], tokenizer)
    judging, judging_shared = _tokens([judge_prompt(module, example, None) for example in examples], tokenizer)
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
