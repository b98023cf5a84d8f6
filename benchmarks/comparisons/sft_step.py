"""One SFT step, forward and backward: prompts packed in one row, against TRL's own loss on padded rows."""

import msgspec
from trl import SFTConfig, SFTTrainer

from benchmarks.comparisons import _training as shared
from benchmarks.timing import Row
from orce.llm.chat import completion_ids, statement
from orce.training import sft

TITLE = f"an SFT step on {shared.MICRO_BATCH} examples of {shared.PROMPT_TOKENS} tokens (SmolLM2, LoRA, float32)"


def run(options) -> list[Row]:
    lm, _ = shared.adapted(options)
    for title, common_tokens in (("prompts share nothing", 0), ("prompts share 60 tokens", shared.SHARED_TOKENS)):
        data = []
        for i, prompt in enumerate(shared.prompts(common_tokens)):
            completion = completion_ids(lm.tokenizer, statement(25 * i))
            data.append(sft.Row(prompt + completion, [-100] * len(prompt) + completion))
        trls = shared.trls(SFTTrainer, SFTConfig, lm, msgspec.to_builtins(data))
        yield shared.side_by_side(title, shared.ours(sft.SftTrainer, lm, data, options), trls, options.repeats, 1)
