"""One DPO step, forward and backward: the prompt of a pair computed once, against TRL's own loss on padded rows."""

from trl import DPOConfig

from benchmarks.comparisons import _training as shared
from benchmarks.timing import Row
from orce.llm.chat import completion_ids, statement
from orce.training import dpo

TITLE = (
    f"a DPO step on {shared.MICRO_BATCH} pairs with prompts of {shared.PROMPT_TOKENS} tokens (SmolLM2, LoRA, float32)"
)


def run(options) -> list[Row]:
    lm, model = shared.adapted(options)
    for title, common_tokens in (("prompts share nothing", 0), ("prompts share 60 tokens", shared.SHARED_TOKENS)):
        data = [
            {
                "prompt_ids": prompt,
                "chosen_ids": completion_ids(lm.tokenizer, statement(70 + i)),
                "rejected_ids": completion_ids(lm.tokenizer, statement(12 * i)),
                "ref_chosen_logps": -20.0 - i,
                "ref_rejected_logps": -21.5 + i,
            }
            for i, prompt in enumerate(shared.prompts(common_tokens))
        ]
        sides = [(dpo.SharedPrefixTrainer, dpo.collate), (dpo.PairTrainer, None)]
        both = shared.trainers(
            model, lm.tokenizer, sides, DPOConfig, data, options,
            beta=0.1, loss_type=["sigmoid"], precompute_ref_log_probs=True, max_length=None,
        )  # fmt: skip
        yield shared.side_by_side(title, *(shared.step(one, data) for one in both), options.repeats, 1.75)
