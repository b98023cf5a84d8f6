"""Token tries: packed scoring equals scoring each continuation by itself, in value and in gradient."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from orce.llm import batches
from orce.llm.attention import use_blocks
from orce.llm.trie import TokenTrie, common_prefix, node_logprobs, pack, path_logprobs

PROMPTS = [[5, 6, 7, 8, 9, 10], [5, 6, 7, 20], [5, 6, 7, 8, 30, 31, 32, 33, 34]]
CONTINUATIONS = [[[40, 41, 42], [40, 41, 43, 44], [50]], [[40], [40, 60], [40, 60, 61]], [[1, 2], [1, 3], [4, 2]]]


@pytest.fixture(params=["by blocks", "dense mask"])
def model(tiny, request):
    made = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32)
    if request.param == "by blocks":
        use_blocks(made)
    return made


def packed_logprobs(model, prompts=PROMPTS, continuations=CONTINUATIONS):
    packed = pack(prompts, [TokenTrie.of(one) for one in continuations])
    return path_logprobs(node_logprobs(model, packed), packed)


def separate_logprobs(model, prompts=PROMPTS, continuations=CONTINUATIONS):
    return torch.stack(
        [torch.stack([alone(model, p, c) for c in cs]) for p, cs in zip(prompts, continuations, strict=True)]
    )


def alone(model, prompt, continuation):
    logits = model(input_ids=torch.tensor([prompt + continuation])).logits[0].log_softmax(-1)
    return sum(logits[len(prompt) - 1 + i, token] for i, token in enumerate(continuation))


def test_packed_scores_are_those_of_each_continuation_alone(model):
    assert torch.allclose(packed_logprobs(model), separate_logprobs(model), atol=1e-5)


def test_gradients_flow_through_what_is_shared(model):
    weights = torch.tensor([[1.0, -2.0, 0.5], [0.3, 1.0, -1.0], [2.0, 0.1, -0.4]])
    gradients = []
    for scores in (packed_logprobs(model), separate_logprobs(model)):
        model.zero_grad()
        (scores * weights).sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert (gradients[0] - gradients[1]).norm() < 1e-4 * gradients[1].norm()


PASSAGES = [[5, 6, *range(100, 150), 7], [5, 6, *range(100, 150), 8, 9], [5, 6, *range(100, 150), 8, 10, 11, 12]]


def test_questions_about_one_passage_are_scored_with_the_passage_computed_once(model):
    """Two families and a prompt of its own in one row: values and gradients are those of each by itself."""
    other = [[5, 6, *range(200, 240), token] for token in (7, 8)]
    prompts, continuations = [*PASSAGES, *other, [5, 6, 40, 41]], [*CONTINUATIONS, *CONTINUATIONS]
    packed = pack(prompts, [TokenTrie.of(one) for one in continuations])
    assert packed.starts[0] == 2 and len(packed.visible) == 3
    inner = sum(len(TokenTrie.of(one).inner) for one in continuations)
    assert packed.input_ids.shape[1] == 2 + 50 + (1 + 2 + 4) + 40 + 2 * 1 + 2 + inner
    gradients = []
    for scores in (packed_logprobs(model, prompts, continuations), separate_logprobs(model, prompts, continuations)):
        model.zero_grad()
        (scores * torch.arange(1.0, 19).view(6, 3)).sum().backward()
        gradients.append((scores.detach(), torch.cat([p.grad.flatten() for p in model.parameters()])))
    (ours, gradient), (plain, plain_gradient) = gradients
    assert torch.allclose(ours, plain, atol=1e-5)
    assert (gradient - plain_gradient).norm() < 1e-4 * plain_gradient.norm()


def test_each_prompts_columns_hold_its_tokens_in_order():
    tries = [TokenTrie.of(one) for one in CONTINUATIONS]
    packed = pack(PASSAGES, tries)
    for prompt, trie, columns in zip(PASSAGES, tries, packed.columns, strict=True):
        ids = [*prompt, *(trie.tokens[node] for node in trie.inner)]
        assert packed.input_ids[0, columns].tolist() == ids
        assert packed.position_ids[0, columns[: len(prompt)]].tolist() == list(range(len(prompt)))


@pytest.mark.parametrize("budget", [1, 60, 90, 10_000])
def test_batches_keep_to_their_tokens(budget):
    """Every prompt once; a batch exceeds its budget only if it is a single prompt."""
    prompts = [*PROMPTS, *PASSAGES, [3, 4], [5, 6, *range(300, 380)]]
    more = [len(TokenTrie.of(CONTINUATIONS[i % 3]).inner) for i in range(len(prompts))]
    cut = batches.packed(prompts, more, budget)
    assert sorted(i for batch in cut for i in batch) == list(range(len(prompts)))
    for batch in cut:
        row = pack([prompts[i] for i in batch], [TokenTrie.of(CONTINUATIONS[i % 3]) for i in batch])
        assert row.input_ids.shape[1] <= budget or len(batch) == 1
    cut = batches.padded(prompts, budget, more=5)
    assert sorted(i for batch in cut for i in batch) == list(range(len(prompts)))
    for batch in cut:
        own = [prompts[i] for i in batch]
        shared = common_prefix(own) if len(own) > 1 else 0
        assert shared + len(own) * (max(map(len, own)) - shared + 5) <= budget or len(own) == 1


def test_questions_about_one_passage_are_read_together():
    questions = [[5, 6, *range(100, 150), 60 + i] for i in range(6)]
    others = [[5, 6, *range(200 + 60 * i, 250 + 60 * i)] for i in range(6)]
    mixed = [one for pair in zip(questions, others, strict=True) for one in pair]
    assert sorted(batches.padded(mixed, 1000)) == [list(range(0, 12, 2)), list(range(1, 12, 2))]


def test_a_prompt_scores_the_same_whatever_its_neighbours(model):
    together = packed_logprobs(model)[1]
    by_itself = packed_logprobs(model, PROMPTS[1:2], CONTINUATIONS[1:2])[0]
    assert torch.allclose(together, by_itself, atol=1e-5)


def test_shared_prefixes_are_stored_and_fed_once():
    trie = TokenTrie.of([[1, 2, 3], [1, 2, 4], [1, 5]])
    assert trie.tokens == [1, 2, 3, 4, 5]
    assert trie.paths == [[0, 1, 2], [0, 1, 3], [0, 4]]
    assert trie.inner == [0, 1]  # only nodes with children
    packed = pack([[7, 8], [7, 9]], [trie, trie])
    assert packed.input_ids.shape == (1, 1 + 2 * (1 + 2))


def test_the_shared_prefix_leaves_every_prompt_a_token():
    assert common_prefix([[1, 2, 3], [1, 2, 3]]) == 2
    assert common_prefix([[1, 2], [1, 2, 3], [1, 9]]) == 1
    assert common_prefix([[3], [4]]) == 0
