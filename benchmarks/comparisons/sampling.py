"""Short answers of SmolLM2 from this library's transformers engine, against thirty lines of transformers.

Both draw from the same distribution (tests/test_transformers_engine.py checks ours against enumerated probabilities).
"""

import torch
from transformers import DynamicCache

from benchmarks.timing import Row, compare
from orce import tasks
from orce.llm import engines
from orce.llm.chat import prompt_ids
from orce.llm.trie import common_prefix

TITLE = "8 sampled answers to each of 8 prompts, with transformers"
SAMPLES, PROMPTS, TEMPERATURE = 8, 8, 0.7


def questions(apart: bool) -> list[list[dict]]:
    """Arithmetic prompts after four worked examples; `apart`: a first turn of its own, so that nothing is shared."""
    task = tasks.get("config/demo/arithmetic.py")
    prompts = [task.prompt(example) for example in task.load({"size": PROMPTS}, "validation", 0)]
    if not apart:
        return prompts
    return [[{"role": "system", "content": f"{number} is this sheet."}, *p] for number, p in enumerate(prompts, 11)]


def run(options) -> list[Row]:
    torch.set_num_threads(options.threads)
    settings = {"source": {"path": options.model}, "dtype": "float32", "device": "cpu", "batch_tokens": 100_000}
    engine = engines.get("transformers").load(settings)
    limit = tasks.get("config/demo/arithmetic.py").MAX_TOKENS
    engine.generate(questions(apart=True)[:1], 1, 0.0, 2, [0])  # what the first run pays for once
    for title, apart in (("nothing shared between prompts", True), ("worked examples shared", False)):
        prompts = questions(apart)
        ids = [prompt_ids(engine.lm.tokenizer, messages) for messages in prompts]
        yield compare(
            title,
            lambda prompts=prompts: engine.generate(prompts, SAMPLES, TEMPERATURE, limit, range(len(prompts))),
            lambda ids=ids: repeated(engine.lm, ids, limit),
            options.repeats,
            warm=False,
            notes={"tokens of a prompt": f"{sum(map(len, ids)) / len(ids):.0f}"},
        )


@torch.inference_mode()
def repeated(
    lm, ids: list[list[int]], limit: int, samples: int = SAMPLES, temperature: float = TEMPERATURE
) -> list[str]:
    """The plain side: what a careful user of transformers writes. The prefix that all prompts share once, what follows
    it once a prompt, the cache `samples` times, then a loop; greedy at temperature 0."""
    shared = common_prefix(ids)
    width, cache = max(map(len, ids)) - shared, DynamicCache()
    lm.model(torch.tensor([ids[0][:shared]]), past_key_values=cache, logits_to_keep=1)
    cache.batch_repeat_interleave(len(ids))
    missing = [width + shared - len(prompt) for prompt in ids]
    rows = torch.tensor([[0] * gap + prompt[shared:] for gap, prompt in zip(missing, ids, strict=True)])
    mask = torch.tensor([[1] * shared + [0] * gap + [1] * (width - gap) for gap in missing])
    positions = mask.cumsum(1)[:, shared:] - 1
    logits = lm.model(rows, attention_mask=mask, position_ids=positions, past_key_values=cache, logits_to_keep=1).logits
    cache.batch_repeat_interleave(samples)
    logits, mask = logits[:, -1].repeat_interleave(samples, 0), mask.repeat_interleave(samples, 0)
    ends, tokens, going = torch.tensor(sorted(lm.ends)), [], torch.ones(len(mask), dtype=torch.bool)
    for _ in range(limit):
        drawn = torch.multinomial((logits / temperature).softmax(-1), 1)[:, 0] if temperature else logits.argmax(-1)
        going &= ~torch.isin(drawn, ends)
        tokens.append(torch.where(going, drawn, lm.tokenizer.pad_token_id))
        if not going.any():
            break
        mask = torch.cat([mask, torch.ones(len(mask), 1, dtype=mask.dtype)], dim=1)
        after = mask.sum(1, keepdim=True) - 1
        logits = lm.model(
            drawn[:, None], attention_mask=mask, position_ids=after, past_key_values=cache
        ).logits[:, -1]  # fmt: skip
    return lm.tokenizer.batch_decode(torch.stack(tokens, 1), skip_special_tokens=True)
