"""One DPO step, forward and backward: the prompt of a pair computed once, against TRL's own loss on padded rows."""

import msgspec
from trl import DPOConfig, DPOTrainer

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
    lm, _ = shared.adapted(options)
    for title, pairs, tokens, common_tokens in SIZES:
        if "layers" in title:
            del lm.model.get_base_model().model.layers[3:]
        data = [
            dpo.Row(
                prompt_ids=prompt,
                chosen_ids=completion_ids(lm.tokenizer, statement(80 + i)),
                rejected_ids=completion_ids(lm.tokenizer, statement(6 * i)),
                reference=(-20.0 - i, -21.5 + i),
            )
            for i, prompt in enumerate(shared.prompts(common_tokens, pairs, tokens))
        ]
        names = "ref_chosen_logps", "ref_rejected_logps"
        rows = [msgspec.to_builtins(row) | dict(zip(names, row.reference, strict=True)) for row in data]
        trls = shared.trls(PairTrainer, DPOConfig, lm, rows, beta=0.1, precompute_ref_log_probs=True)
        yield shared.side_by_side(
            title, shared.ours(dpo.DpoTrainer, lm, data, options, 0.1), trls, options.repeats, None
        )


class PairTrainer(DPOTrainer):
    """TRL's trainer for pairs that have token ids and the reference's log-probabilities already."""

    def _prepare_dataset(self, dataset, *args, **kwargs):
        return dataset

    def _precompute_ref_logps(self, dataset, *args, **kwargs):
        return dataset
