"""One DPO step, forward and backward: the prompt of a pair computed once, against TRL's own loss on padded rows."""

from trl import DPOConfig

from benchmarks.comparisons import _training as shared
from benchmarks.timing import Row
from orce.llm.chat import completion_ids, statement
from orce.training import dpo

TITLE = "a DPO step (SmolLM2, LoRA, float32) against TRL's on padded rows, which has no padding-free DPO"


SIZES = (  # title, pairs, tokens, tokens that prompts share; the last with the model's first layers only
    ("4 pairs, 200 tokens, nothing shared", 4, 200, 0),
    ("4 pairs, 200 tokens, 60 of them shared", 4, 200, 60),
    ("16 pairs, 400 tokens, nothing shared, three layers", 16, 400, 0),
)


def run(options) -> list[Row]:
    lm, model = shared.adapted(options)
    for title, pairs, tokens, common_tokens in SIZES:
        if "layers" in title:
            del lm.model.model.layers[3:]
        data = [
            {
                "prompt_ids": prompt,
                "chosen_ids": completion_ids(lm.tokenizer, statement(80 + i)),
                "rejected_ids": completion_ids(lm.tokenizer, statement(6 * i)),
                "ref_chosen_logps": -20.0 - i,
                "ref_rejected_logps": -21.5 + i,
            }
            for i, prompt in enumerate(shared.prompts(common_tokens, pairs, tokens))
        ]
        sides = [(dpo.SharedPrefixTrainer, dpo.collate), (dpo.PairTrainer, None)]
        both = shared.trainers(
            model, lm.tokenizer, sides, DPOConfig, data, options,
            beta=0.1, loss_type=["sigmoid"], precompute_ref_log_probs=True, max_length=None,
        )  # fmt: skip
        yield shared.side_by_side(title, *(shared.step(one, data) for one in both), options.repeats, None)
