"""Token tries: packed scoring equals scoring each continuation by itself, in value and in gradient."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from orce.llm.trie import TokenTrie, common_prefix, node_logprobs, pack, path_logprobs

PROMPTS = [[5, 6, 7, 8, 9, 10], [5, 6, 7, 20], [5, 6, 7, 8, 30, 31, 32, 33, 34]]
CONTINUATIONS = [[[40, 41, 42], [40, 41, 43, 44], [50]], [[40], [40, 60], [40, 60, 61]], [[1, 2], [1, 3], [4, 2]]]


@pytest.fixture
def model(tiny):
    return AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32)


def packed_logprobs(model, prompts=PROMPTS, continuations=CONTINUATIONS):
    packed = pack(prompts, [TokenTrie.of(one) for one in continuations])
    return path_logprobs(node_logprobs(model, packed), packed)


def separate_logprobs(model):
    return torch.stack(
        [torch.stack([alone(model, p, c) for c in cs]) for p, cs in zip(PROMPTS, CONTINUATIONS, strict=True)]
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
