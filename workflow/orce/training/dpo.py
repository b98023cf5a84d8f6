"""Alignment (section 3.3): DPO on pairs of statements, z+ that the reward prefers and z- that it
rejects, both about the same question and answer x.

z+ and z- are a few tokens after the same long prompt, which is computed once for both, as a token
trie. The log-probabilities of the reference pi_ref, the model before alignment, come with the
pairs: in float32 those that the candidates were sampled with, otherwise those of all 101 turns,
computed once for the rounds and rewards of a cell in the arithmetic of training, as the policy
starts there. Where pairs have others, or none, they are computed before the first step.
"""

from collections.abc import Sequence

import numpy as np
import torch
from msgspec import UNSET
from msgspec.structs import replace
from torch.nn.functional import logsigmoid

from orce.artefacts import store
from orce.artefacts.records import Pair
from orce.errors import BadInput
from orce.llm.chat import Messages, completion_ids, prompts_ids, statement
from orce.llm.trie import TokenTrie, node_logprobs, path_logprobs
from orce.runtime.process import Progress, speed
from orce.settings.stage import TrainingSettings, parse_training_job
from orce.training import common
from orce.training.steps import Batch, PackedTrainer, PreferenceRow, Row

CHECKED = 32  # pairs whose reference is computed again
# How much rounding may change a log-probability. Measured: 1e-5 in float32, 0.2 in bfloat16; other
# weights differ more.
ROUNDING = {"float32": 1e-3, "bfloat16": 1.0, "float16": 1.0}
# The same between two passes in the arithmetic of training. Measured: 6e-4 in bfloat16, where a
# reader's passes differ by .06 to .2.
ROUNDING_IN_TRAINING = {"float32": 1e-3, "bfloat16": 1e-2, "float16": 1e-2}


# The pairs (x, z+, z-) as token ids


def rows(lm, pairs: Sequence[Pair]) -> list[PreferenceRow]:
    """Token ids of pairs, without the reference."""
    prompts = prompts_ids(lm.tokenizer, [pair.prompt for pair in pairs], lm.template_kwargs)
    preferences = []
    for pair, prompt in zip(pairs, prompts, strict=True):
        chosen = completion_ids(lm.tokenizer, pair.chosen[0]["content"])
        rejected = completion_ids(lm.tokenizer, pair.rejected[0]["content"])
        trie = TokenTrie.of([chosen, rejected])
        tokens = len(chosen) + len(rejected)
        preferences.append(PreferenceRow(prompt_ids=prompt, trie=trie, trie_tokens=tokens))
    return preferences


# The reference, log pi_ref(z | x)


def turn_logprobs(lm, prompts: Sequence[Messages], tokens: int, dtype: str) -> list[list[float]]:
    """log P of the 101 turns that state a confidence after each prompt, [prompts, 101], in the
    arithmetic of training in `dtype`: the reference of whichever pair. tokens: of a forward pass.
    """
    trie = TokenTrie.of([completion_ids(lm.tokenizer, statement(i)) for i in range(101)])
    rows = [
        Row(prompt_ids=ids, trie=trie, trie_tokens=len(trie.inner))
        for ids in prompts_ids(lm.tokenizer, prompts, lm.template_kwargs)
    ]
    return common.logprobs(lm, rows, tokens, dtype).tolist()


def with_reference(
    lm, data: Sequence[PreferenceRow], pairs: Sequence[Pair], tokens: int, label: str, dtype: str
) -> list[PreferenceRow]:
    """The rows with the reference's log-probabilities in the arithmetic of training in `dtype`:
    those in `pairs`, if they are, else computed by `lm`. tokens: of a forward pass. Raises BadInput
    if those in `pairs` were computed with other weights than `lm`.
    """
    recorded = [(pair.ref_chosen_logps, pair.ref_rejected_logps) for pair in pairs]
    if not any(UNSET in both for both in recorded):
        check = f"{label} check of the reference"
        computed = reference_logprobs(lm, data[:CHECKED], tokens, check, dtype)
        now = np.array([row.reference for row in computed])
        difference = np.abs(np.array(recorded[:CHECKED]) - now).max()
        if not difference < ROUNDING[dtype]:
            raise BadInput(
                f"the pairs' ref_chosen_logps and ref_rejected_logps differ by up to {difference:.3g} from the reference's: the "
                "candidates were sampled from other weights; sample candidates and select pairs again"
            )
        if difference < ROUNDING_IN_TRAINING[dtype]:
            return [replace(row, reference=both) for row, both in zip(data, recorded, strict=True)]
        # A reader computed them, and the policy would not start at them.
    return reference_logprobs(lm, data, tokens, f"{label} reference", dtype)


def reference_logprobs(
    lm, data: Sequence[PreferenceRow], tokens: int, label: str, dtype="float32"
) -> list[PreferenceRow]:
    """The rows with their log-probabilities under `lm`, in the arithmetic of training in `dtype`.
    tokens: of a forward pass; label: of the progress.
    """
    progress = Progress(label, len(data))
    logprobs = common.logprobs(lm, data, tokens, dtype, progress.update).tolist()
    return [replace(row, reference=tuple(both)) for row, both in zip(data, logprobs, strict=True)]


# The loss, and a step of it


def dpo_loss(policy: torch.Tensor, reference: torch.Tensor, beta: float) -> torch.Tensor:
    """L_DPO (section 3.3; Rafailov et al., 2023, equation 7), a mean over pairs; TRL's `loss_type`
    sigmoid:

    -log sig(beta [log pi(z+ | x) - log pi(z- | x) - log pi_ref(z+ | x) + log pi_ref(z- | x)])

    policy, reference: log-probabilities [B, 2] of (z+, z-), sums over the tokens of a statement and
    its end. beta > 0, usually .1 to .5: the strength of the pull to the reference. The loss is ln 2
    where policy and reference agree.
    """
    log_ratio = policy - reference  # log pi(z | x) / pi_ref(z | x)
    return -logsigmoid(beta * (log_ratio[:, 0] - log_ratio[:, 1])).mean()


class DpoTrainer(PackedTrainer[PreferenceRow]):
    """Trains on `dpo_loss`."""

    def __init__(self, rows: Sequence[PreferenceRow], beta: float, **options):
        super().__init__(rows, **options)
        self.beta = beta
        self.outcomes: list[torch.Tensor] = []  # `outcome` of each micro-batch of the step

    def collate(self, rows: Sequence[PreferenceRow]) -> Batch:
        reference = torch.tensor([row.reference for row in rows])
        return super().collate(rows) | {"reference": reference}

    def step(self, model, parts: list[Batch], terms: int) -> torch.Tensor:
        self.outcomes = []
        return super().step(model, parts, terms)

    def part_loss(self, model, inputs: Batch) -> torch.Tensor:
        """The loss of a micro-batch: one forward pass of its prompts, each with both statements
        after it.
        """
        policy = path_logprobs(node_logprobs(model, inputs), inputs)  # log pi(z | x), [B, 2]
        reference = inputs["reference"].to(policy)
        if inputs.get("share") != 0:  # 0: repeated, as other processes have more of them
            self.outcomes.append(outcome(self.beta * (policy.detach() - reference)))
        return dpo_loss(policy, reference, self.beta)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds TRL's `rewards/accuracies` and `rewards/margins`: means over the pairs of a step, in
        all processes.
        """
        if "loss" in logs:  # of a step, not the summary at the end
            own = torch.stack(self.outcomes).sum(0)
            pairs, right, margins = self.accelerator.reduce(own, "sum").tolist()
            logs = logs | {"rewards/accuracies": right / pairs, "rewards/margins": margins / pairs}
        super().log(logs, start_time)


def outcome(rewards: torch.Tensor) -> torch.Tensor:
    """The number of pairs, how many of them have a positive margin, and the sum of the margins:
    [3]. rewards [B, 2]: beta log pi(z | x) / pi_ref(z | x) of (z+, z-).
    """
    margin = rewards[:, 0] - rewards[:, 1]
    pair = torch.ones_like(margin)
    right = (margin > 0).to(margin)
    return torch.stack([pair, right, margin]).sum(1)


# The training


def train(pairs: Sequence[Pair], settings: TrainingSettings, sft, start, out) -> None:
    """Align the confidence LLM in the folder `start`; the aligned one is left in the folder `out`.
    sft: folder of the reference.
    """
    job = parse_training_job(settings)

    def build(lm, arguments):
        data = rows(lm, pairs)
        common.check_lengths(lm, data)
        reference = lm if str(start) == str(sft) else common.trainable(job, str(sft))
        tokens = 2 * speed("training")["micro_batch_tokens"]  # nothing is kept for a backward pass
        data = with_reference(reference, data, pairs, tokens, job.label, job.model.dtype)
        # Without dropout: the policy starts at the reference, which had none.
        for module in lm.model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        beta = settings["stage"]["beta"]
        if job.training.trainer == "trl":
            from orce.training import stock

            return stock.Dpo(lm.model, arguments["args"], data, lm.tokenizer, beta)
        return DpoTrainer(data, beta, **arguments)

    judges = (store.weights_digest(sft), store.weights_digest(start))
    common.train(build, pairs, settings, out, str(start), judges, stage="dpo", pairs=len(pairs))
