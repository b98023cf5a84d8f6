"""What a trial runs on: a model folder, and questions of a given length."""

from pathlib import Path
from typing import Any, cast

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from orce import tasks
from orce.judging.statements import judge_prompt
from orce.plan.cost.flops import Sizes
from orce.records import Example, Realised

TASK = str(Path(__file__).parents[4] / "config/demo/arithmetic.py")
MOST = 700  # different sums in its training split
FILLER = "The following note has no bearing on the question. "


def random_folder(sizes: Sizes, layers: int, tokenizer: str, dtype: str, device: str, folder: Path) -> str:
    """A model of a known shape with random weights and `layers` layers, with the tokenizer of another folder."""
    vocabulary: Any = AutoTokenizer.from_pretrained(tokenizer, trust_remote_code=False)
    config = AutoConfig.for_model(
        **sizes.config(layers),
        max_position_embeddings=8192,
        eos_token_id=vocabulary.eos_token_id,
        bos_token_id=vocabulary.bos_token_id,
        pad_token_id=vocabulary.pad_token_id,
    )
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    model.save_pretrained(folder)
    vocabulary.save_pretrained(folder)
    return str(folder)


def first_layers(source: str, layers: int, folder: Path) -> str:
    """A copy of a model without its layers after the first `layers`."""
    model = AutoModelForCausalLM.from_pretrained(source, num_hidden_layers=layers, trust_remote_code=False)
    model.save_pretrained(folder)
    vocabulary: Any = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    vocabulary.save_pretrained(folder)
    return str(folder)


def questions(count: int, tokens: int, tokenizer) -> list[Example]:
    """`count` examples of sums, each filled up to about `tokens` tokens; no two begin alike."""
    task = tasks.get(TASK)
    drawn = task.load({"size": min(count, MOST)}, "train", 0)
    examples = [drawn[i % len(drawn)] for i in range(count)]
    short = len(tokenizer(judge_prompt(task, examples[0], "0")[0]["content"])["input_ids"])
    more = max(0, tokens - short) // len(tokenizer(FILLER)["input_ids"])
    filled = ({**one, "question": f"{number}. {FILLER * more}{one['question']}"} for number, one in enumerate(examples))
    return cast(list[Example], [*filled])


def pairs(examples: list[Example]) -> list[Realised]:
    """Realised pairs: every other answer is right."""
    task, records = tasks.get(TASK), list[Realised]()
    for number, example in enumerate(examples):
        correct = number % 2 == 0
        answer = example["reference"] if correct else "-1"
        prompt = judge_prompt(task, example, answer)
        records.append(Realised(id=example["id"], prompt=prompt, kappa=(number % 11) / 10, correct=correct))
    return records
