"""What LLMs share: prefixes packed in a trie or kept in a cache, prompts tokenized once, adapters merged in turn on one model."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from orce.errors import BadInput
from orce.llm.chat import prompt_ids, prompts_ids
from orce.llm.kv_cache import KVCache
from orce.llm.trie import (
    TokenTrie,
    common_prefix,
    node_logprobs,
    pack,
    packed_batches,
    padded_batches,
    path_logprobs,
    use_blocks,
)

PROMPTS = [[5, 6, 7, 8, 9, 10], [5, 6, 7, 20], [5, 6, 7, 8, 30, 31, 32, 33, 34]]
CONTINUATIONS = [[[40, 41, 42], [40, 41, 43, 44], [50]], [[40], [40, 60], [40, 60, 61]], [[1, 2], [1, 3], [4, 2]]]


@pytest.fixture
def model(tiny):
    made = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32)
    with pytest.raises(BadInput, match=": has its own implementation of attention; take another model"):
        packed_logprobs(made)
    use_blocks(made)
    return made


def packed_logprobs(model, prompts=PROMPTS, continuations=CONTINUATIONS):
    packed = pack(prompts, [TokenTrie.of(one) for one in continuations])
    return path_logprobs(node_logprobs(model, packed), packed)


def separate_logprobs(model, prompts=PROMPTS, continuations=CONTINUATIONS):
    both = zip(prompts, continuations, strict=True)
    return torch.stack([torch.stack([alone(model, p, c) for c in cs]) for p, cs in both])


def alone(model, prompt, continuation):
    logits = model(input_ids=torch.tensor([prompt + continuation])).logits[0].log_softmax(-1)
    return sum(logits[len(prompt) - 1 + i, token] for i, token in enumerate(continuation))


def gradients(model, weights, *rows) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Scores and the gradient of their weighted sum, packed and of each continuation alone."""
    found = []
    for scores in (packed_logprobs(model, *rows), separate_logprobs(model, *rows)):
        model.zero_grad()
        (scores * weights).sum().backward()
        found.append((scores.detach(), torch.cat([p.grad.flatten() for p in model.parameters()])))
    return found


def test_packed_scores_and_their_gradients_are_those_of_each_continuation_alone(model):
    weights = torch.tensor([[1.0, -2.0, 0.5], [0.3, 1.0, -1.0], [2.0, 0.1, -0.4]])
    (ours, gradient), (plain, plain_gradient) = gradients(model, weights)
    assert torch.allclose(ours, plain, atol=1e-5)
    assert (gradient - plain_gradient).norm() < 1e-4 * plain_gradient.norm()
    by_itself = packed_logprobs(model, PROMPTS[1:2], CONTINUATIONS[1:2])[0]
    assert torch.allclose(ours[1], by_itself, atol=1e-5), "whatever a prompt's neighbours"


PASSAGES = [[5, 6, *range(100, 150), 7], [5, 6, *range(100, 150), 8, 9], [5, 6, *range(100, 150), 8, 10, 11, 12]]


def test_questions_about_one_passage_are_scored_with_the_passage_computed_once(model):
    """Two families and a prompt of its own in one row: values and gradients are those of each by itself."""
    other = [[5, 6, *range(200, 240), token] for token in (7, 8)]
    prompts, continuations = [*PASSAGES, *other, [5, 6, 40, 41]], [*CONTINUATIONS, *CONTINUATIONS]
    packed = pack(prompts, [TokenTrie.of(one) for one in continuations])
    blocks, width, seen = packed["visible"].shape
    assert seen - width == 2 and blocks == 3
    inner = sum(len(TokenTrie.of(one).inner) for one in continuations)
    assert packed["input_ids"].shape[1] == 2 + 50 + (1 + 2 + 4) + 40 + 2 * 1 + 2 + inner
    weights = torch.arange(1.0, 19).view(6, 3)
    (ours, gradient), (plain, plain_gradient) = gradients(model, weights, prompts, continuations)
    assert torch.allclose(ours, plain, atol=1e-5)
    assert (gradient - plain_gradient).norm() < 1e-4 * plain_gradient.norm()


@pytest.mark.parametrize("budget", [1, 60, 90, 10_000])
def test_batches_keep_to_their_tokens(budget):
    """Every prompt once; a batch exceeds its budget only if it is a single prompt."""
    prompts = [*PROMPTS, *PASSAGES, [3, 4], [5, 6, *range(300, 380)]]
    more = [len(TokenTrie.of(CONTINUATIONS[i % 3]).inner) for i in range(len(prompts))]
    cut = packed_batches(prompts, more, budget)
    assert sorted(i for batch in cut for i in batch) == list(range(len(prompts)))
    for batch in cut:
        row = pack([prompts[i] for i in batch], [TokenTrie.of(CONTINUATIONS[i % 3]) for i in batch])
        assert row["input_ids"].shape[1] <= budget or len(batch) == 1
    cut = padded_batches(prompts, budget, more=5)
    assert sorted(i for batch in cut for i in batch) == list(range(len(prompts)))
    for batch in cut:
        own = [prompts[i] for i in batch]
        shared = common_prefix(own) if len(own) > 1 else 0
        assert shared + len(own) * (max(map(len, own)) - shared + 5) <= budget or len(own) == 1


def test_questions_about_one_passage_are_read_together():
    questions = [[5, 6, *range(100, 150), 60 + i] for i in range(6)]
    others = [[5, 6, *range(200 + 60 * i, 250 + 60 * i)] for i in range(6)]
    mixed = [one for pair in zip(questions, others, strict=True) for one in pair]
    assert sorted(padded_batches(mixed, 1000)) == [list(range(0, 12, 2)), list(range(1, 12, 2))]


def test_shared_prefixes_are_stored_and_fed_once_and_leave_every_prompt_a_token():
    trie = TokenTrie.of([[1, 2, 3], [1, 2, 4], [1, 5]])
    assert trie.tokens == [1, 2, 3, 4, 5]
    assert trie.paths == [[0, 1, 2], [0, 1, 3], [0, 4]]
    assert trie.inner == [0, 1]  # only nodes with children
    packed = pack([[7, 8], [7, 9]], [trie, trie])
    assert packed["input_ids"].shape == (1, 1 + 2 * (1 + 2))
    assert common_prefix([[1, 2, 3], [1, 2, 3]]) == 2
    assert common_prefix([[1, 2], [1, 2, 3], [1, 9]]) == 1
    assert common_prefix([[3], [4]]) == 0


FIRST = [(0, 40), (0, 41), (2, 50)]  # (row, token): two branches, none, one
SECOND = [(0, 42, 0), (0, 43, 0), (0, 44, 1), (2, 51, 2)]  # (row, token, which of FIRST it continues)


@pytest.fixture
def cached_model(family):
    return AutoModelForCausalLM.from_pretrained(family, dtype=torch.float32).eval()


def next_logits(cached_model, tokens):
    with torch.inference_mode():
        return cached_model(input_ids=torch.tensor([tokens])).logits[0, -1]


def branched(cached_model, prompts):
    """Logits after FIRST and after SECOND, from one cache."""
    cache = KVCache(cached_model, prompts)
    first = cache.extend([[(40, []), (41, [])], [], [(50, [])]])
    second = cache.extend([[(42, [0]), (43, [0]), (44, [1])], [], [(51, [0])]])
    return cache, first, second


@pytest.mark.parametrize("prompts", [PROMPTS, [[1, *PROMPTS[0]], *PROMPTS[1:]]], ids=["shared prefix", "none"])
def test_what_follows_a_token_is_what_follows_it_without_neighbours(cached_model, prompts):
    cache, first, second = branched(cached_model, prompts)
    for row, prompt in enumerate(prompts):
        assert torch.allclose(cache.logits[row], next_logits(cached_model, prompt), atol=1e-5)
    for logits, (row, token) in zip(first, FIRST, strict=True):
        assert torch.allclose(logits, next_logits(cached_model, [*prompts[row], token]), atol=1e-5)
    for logits, (row, token, before) in zip(second, SECOND, strict=True):
        assert torch.allclose(logits, next_logits(cached_model, [*prompts[row], FIRST[before][1], token]), atol=1e-5)


def test_branches_are_dropped_and_the_models_own_attention_stays(cached_model):
    cache, first, _ = branched(cached_model, PROMPTS)
    cache.drop_appended()
    cache.keep_rows([0, 2])
    again = cache.extend([[(40, [])], [(50, [])]])
    assert torch.allclose(again, first[[0, 2]], atol=1e-5)
    before = cached_model.config._attn_implementation
    branched(cached_model, PROMPTS)
    assert cached_model.config._attn_implementation == before
    cached_model._supports_attention_backend = False
    with pytest.raises(BadInput, match="ForCausalLM has its own implementation of attention; .* set engine.name"):
        KVCache(cached_model, PROMPTS)


CONVERSATIONS = [[{"role": "user", "content": f"What is {i} + {i * i}?"}] for i in range(5)]


def test_prompts_tokenized_together_are_those_tokenized_one_by_one_and_kept_for_the_next_call(tiny):
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    assert prompts_ids(tokenizer, CONVERSATIONS) == [prompt_ids(tokenizer, one) for one in CONVERSATIONS]
    assert prompts_ids(tokenizer, []) == []
    sized, generating = (AutoTokenizer.from_pretrained(tiny) for _ in range(2))  # the engine's own is another object
    expected = prompts_ids(sized, CONVERSATIONS, keep=True)
    rendered = []
    apply = generating.apply_chat_template
    generating.apply_chat_template = lambda messages, **more: rendered.append(messages) or apply(messages, **more)
    assert prompts_ids(generating, CONVERSATIONS[:3]) == expected[:3] and rendered == []
    assert prompts_ids(generating, CONVERSATIONS) == expected and rendered == CONVERSATIONS[:3]
