"""A confidence LLM's exact distribution over 101 values, against generating the statement greedily."""

import tempfile
from pathlib import Path

import torch

from benchmarks.comparisons.sampling import repeated
from benchmarks.comparisons.training import settings
from benchmarks.timing import Row, compare
from orce import tasks
from orce.judge.reader import TransformersReader
from orce.llm import language_model
from orce.llm.chat import prompt_ids, statement
from orce.tasks import judge_prompt
from orce.text import extract
from orce.training import sft

TITLE = "reading confidences: all 101 probabilities against generated statements (SmolLM2, float32)"
PROMPTS, LIMIT = 8, 6  # "Confidence: 100" is 6 tokens of SmolLM2's


def confidence_prompts() -> list[list[dict]]:
    """Arithmetic pairs to be judged, each after one judged pair of its own: untrained, SmolLM2 needs to be shown how."""
    task = tasks.get("config/demo/arithmetic.py")
    examples = task.load({"size": 2 * PROMPTS}, "validation", 0)
    prompts = []
    for i in range(PROMPTS):
        shown, asked = examples[i], examples[PROMPTS + i]
        example = judge_prompt(task, shown, shown["reference"]) + [
            {"role": "assistant", "content": statement(95 - 3 * i)}
        ]
        answer = str(int(asked["reference"]) + i % 2)
        prompts.append(example + judge_prompt(task, asked, answer))
    return prompts


def warm_started(options) -> str:
    """Folder of a confidence LLM that states 100 for right answers and 0 for wrong ones, after one epoch over 64 pairs."""
    task = tasks.get("config/demo/arithmetic.py")
    pairs = []
    for i, example in enumerate(task.load({"size": 64}, "train", 0)):
        answer = str(int(example["reference"]) + i % 2)
        pairs.append({"prompt": judge_prompt(task, example, answer), "percent": 100 - 100 * (i % 2)})
    how = settings(options)
    how["stage"] |= {"learning_rate": 3e-3}
    out = Path(tempfile.mkdtemp()) / "sft"
    sft.train(pairs, how, out)
    return str(out)


def run(options) -> list[Row]:
    torch.set_num_threads(options.threads)
    model = {"source": {"path": options.model}, "dtype": "float32", "device": "cpu"}
    prompts = confidence_prompts()
    for weights, whose in ((None, "untrained"), (warm_started(options), "after SFT")):
        lm = language_model.load(model, weights)
        reader = TransformersReader(lm)
        ids = [prompt_ids(lm.tokenizer, prompt) for prompt in prompts]
        stated = [extract.confidence(text) for text in repeated(lm, ids, LIMIT, samples=1, temperature=0)]
        read = [reading.greedy / 100 for reading in reader.read(prompts, state_text=False)]
        alike = sum(a == b for a, b in zip(read, stated, strict=True))
        notes = {"tokens of a prompt": f"{sum(map(len, ids)) / len(ids):.0f}", "same value": f"{alike} of {len(ids)}"}
        for title, text in (("distribution", False), ("distribution and statement", True)):
            yield compare(
                f"{title}, {whose}; one greedy statement",
                lambda text=text, reader=reader: reader.read(prompts, state_text=text),
                lambda lm=lm, ids=ids: repeated(lm, ids, LIMIT, samples=1, temperature=0),
                options.repeats,
                notes=notes,
                warm=False,
            )
