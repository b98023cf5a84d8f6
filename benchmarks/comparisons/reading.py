"""A confidence LLM's exact distribution over 101 values, against generating the statement once, or 8 times."""

import torch
from orce.answers.realised import messages

from benchmarks.comparisons.sampling import generate, repeated
from benchmarks.timing import Row, compare
from orce import tasks
from orce.judging.reader import TransformersReader
from orce.llm import language_model
from orce.llm.chat import prompt_ids, statement
from orce.text import extract

TITLE = "reading confidences: all 101 probabilities against generated statements (SmolLM2, float32)"
PROMPTS, LIMIT = 8, 6  # "Confidence: 100" is 6 tokens of SmolLM2's


def confidence_prompts() -> list[list[dict]]:
    """Arithmetic pairs to be judged, each after one judged pair of its own: untrained, SmolLM2 needs to be shown how."""
    task = tasks.get("config/demo/arithmetic.py")
    examples = task.load({"size": 2 * PROMPTS}, "validation", 0)
    found = []
    for i in range(PROMPTS):
        shown, asked = examples[i], examples[PROMPTS + i]
        example = messages(task, shown, shown["reference"]) + [{"role": "assistant", "content": statement(95 - 3 * i)}]
        answer = str(int(asked["reference"]) + i % 2)
        found.append(example + messages(task, asked, answer))
    return found


def run(options) -> list[Row]:
    torch.set_num_threads(options.threads)
    lm = language_model.load({"source": {"path": options.model}, "dtype": "float32", "device": "cpu"})
    reader, prompts = TransformersReader(lm), confidence_prompts()
    ids = [prompt_ids(lm.tokenizer, one) for one in prompts]
    notes = {
        "tokens of a prompt": f"{sum(map(len, ids)) / len(ids):.0f}",
        "stated values": agreement(reader, prompts, ids),
    }

    def ours():
        return reader.read(prompts, state_text=False)

    def once():
        return generate(lm, ids, LIMIT, 1, do_sample=False)

    yield compare(
        "distribution; one greedy statement, what is shared once",
        ours,
        lambda: repeated(lm, ids, LIMIT, samples=1, temperature=0),
        options.repeats,
        notes=notes,
        warm=False,
    )
    yield compare(
        "distribution; one greedy statement", ours, once, options.repeats, wanted=1.25, notes=notes, warm=False
    )
    yield compare(
        "distribution; 8 sampled statements", ours, lambda: generate(lm, ids, LIMIT, 8, do_sample=True, temperature=1.0, top_k=0),
        options.repeats, wanted=8, warm=False,
    )  # fmt: skip
    yield compare(
        "distribution and statement; one greedy statement",
        lambda: reader.read(prompts),
        once,
        options.repeats,
        warm=False,
    )


def agreement(reader: TransformersReader, prompts, ids) -> str:
    """How often the value read off the trie is the one that greedy generation states."""
    texts = generate(reader.lm, ids, LIMIT, 1, do_sample=False)
    read = [reading.greedy / 100 for reading in reader.read(prompts, state_text=False)]
    stated = [extract.confidence(text) for text in texts]
    known = [(a, b) for a, b in zip(read, stated, strict=True) if b is not None]
    return f"equal for {sum(a == b for a, b in known)} of the {len(known)} that generation states, of {len(stated)}"
