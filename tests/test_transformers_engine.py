"""The transformers engine: shared prefixes change the work, not the distribution."""

from collections import Counter

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from orce.llm import batches, engines
from orce.llm.chat import prompt_ids
from orce.llm.engines import transformers
from orce.llm.engines.transformers import TokenSampler, draw, sample_continuations
from orce.llm.kv_cache import KVCache


@pytest.fixture(scope="module")
def engine(smollm2):
    settings = {"source": {"path": smollm2}, "dtype": "float32", "device": "cpu", "batch_tokens": 512}
    return engines.get("transformers").load(settings)


@pytest.fixture
def tiny_engine(model_settings):
    return engines.get("transformers").load(model_settings | {"batch_tokens": 1024})


def ask(*questions):
    return [[{"role": "user", "content": question}] for question in questions]


QUESTIONS = ask(
    "What is 2 + 3?", "Name a colour.", "What is the capital of France?", "Say yes.", "Count to three, please."
)


@pytest.mark.slow
def test_greedy_text_is_that_of_generate(engine):
    texts = engine.generate(QUESTIONS, 1, 0.0, 8, [0] * len(QUESTIONS))
    tokenizer = engine.lm.tokenizer
    for messages, (text,) in zip(QUESTIONS, texts, strict=True):
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt")["input_ids"]
        out = engine.lm.model.generate(ids, max_new_tokens=8, do_sample=False)
        assert text == tokenizer.decode(out[0, ids.size(1) :], skip_special_tokens=True)


def test_a_batch_holds_prompts_of_similar_length_after_their_shared_prefix():
    lengths = [500, 40, 41, 90, 40, 700, 450, 2000]
    alone = batches.padded([[i + 2] * length for i, length in enumerate(lengths)], 1100, more=50)
    assert [[lengths[i] for i in batch] for batch in alone] == [[40, 40, 41, 90], [450, 500], [700], [2000]]
    shared = batches.padded([[1] * 1000 + [i + 2] * length for i, length in enumerate(lengths)], 3300, more=50)
    assert [[lengths[i] for i in batch] for batch in shared] == [[40, 40, 41, 90], [450, 500, 700], [2000]]
    assert batches.padded([[1, 2]], 8) == [[0]] and batches.padded([], 8) == []


@pytest.mark.slow
def test_a_seed_fixes_a_prompts_samples_whatever_its_neighbours(engine):
    seeds = [11, 12, 13, 14, 15]
    together = engine.generate(QUESTIONS, 4, 0.9, 5, seeds)
    backwards = engine.generate(QUESTIONS[::-1], 4, 0.9, 5, seeds[::-1])
    assert backwards[::-1] == together
    assert engine.generate(QUESTIONS[1:2], 4, 0.9, 5, [12]) == together[1:2]


@pytest.mark.slow
def test_the_greedy_text_comes_with_the_samples_and_changes_none_of_them(engine):
    seeds = [11, 12, 13, 14, 15]
    # Not hotter: in a flat tail the last digits of a float, which the batch shapes, choose the token.
    samples = engine.generate(QUESTIONS, 6, 0.4, 8, seeds)
    greedy = [text for (text,) in engine.generate(QUESTIONS, 1, 0.0, 8, seeds)]
    both = engine.generate_with_greedy(QUESTIONS, 6, 0.4, 8, seeds, greedy=frozenset({0, 3}))
    assert [texts for texts, _ in both] == samples
    assert [text for _, text in both] == [greedy[0], None, None, greedy[3], None]


@pytest.mark.slow
def test_an_engine_without_it_is_asked_twice(engine):
    class Plain:
        generate = staticmethod(engine.generate)

    asked = (QUESTIONS, 3, 0.4, 8, [1, 2, 3, 4, 5], 1.0, frozenset({1, 4}))
    assert engines.generate_with_greedy(Plain(), *asked) == engines.generate_with_greedy(engine, *asked)


def test_samples_are_drawn_from_the_models_distribution(tiny_engine):
    """One-token answers of a tiny model against the enumerated probabilities of its most likely tokens."""
    (messages,) = ask("x")
    n = 4000
    (texts,) = tiny_engine.generate([messages], n, 1.0, 1, [3])
    lm = tiny_engine.lm
    ids = lm.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        p = lm.model(input_ids=ids).logits[0, -1].double().softmax(-1).numpy()
    by_text = Counter()
    for token, weight in enumerate(p):
        by_text[lm.tokenizer.decode([token], skip_special_tokens=True)] += weight
    common = [text for text, weight in by_text.most_common(40) if weight * n > 5]
    assert len(common) >= 5
    seen = Counter(texts)
    observed = [seen[text] for text in common] + [n - sum(seen[text] for text in common)]
    expected = [n * by_text[text] for text in common]
    assert chisquare(observed, [*expected, n - sum(expected)]).pvalue > 1e-3


def enumerated(lm, prompt, temperature, length, least):
    """Probability of every continuation of `length` tokens, or fewer if it ends, that is at least `least`."""
    found, going = {}, [((), 1.0)]
    while going:
        tokens, so_far = going.pop()
        if len(tokens) == length:
            found[tokens] = so_far
            continue
        with torch.inference_mode():
            logits = lm.model(input_ids=torch.tensor([[*prompt, *tokens]])).logits[0, -1]
        p = so_far * (logits.double() / temperature).softmax(-1)
        for token in (p >= least).nonzero()[:, 0].tolist():
            if token in lm.ends:
                found[tokens] = p[token].item()
            else:
                going.append(((*tokens, token), p[token].item()))
    return found


@pytest.mark.slow
def test_whole_answers_are_drawn_with_the_product_of_their_tokens_probabilities(tiny_engine):
    """Three-token answers, for which samples share prefixes: a chi-square and the largest deviation of any answer."""
    lm, n, temperature = tiny_engine.lm, 4000, 0.4
    prompts = [prompt_ids(lm.tokenizer, messages) for messages in ask("x", "Name a colour.", "x y z")]
    cache = KVCache(lm.model, prompts)
    for prompt, branches in zip(
        prompts,
        sample_continuations(cache, [TokenSampler(seed, temperature, 1.0) for seed in (5, 6, 7)], n, 3, lm.ends),
        strict=True,
    ):
        expected = enumerated(lm, prompt, temperature, 3, 5 / n)
        seen = Counter({tuple(branch.tokens): branch.count for branch in branches})
        assert sum(seen.values()) == n and len(expected) >= 10
        p = np.array([*expected.values(), 1 - sum(expected.values())])
        observed = np.array([seen[tokens] for tokens in expected])
        observed = np.append(observed, n - observed.sum())
        assert chisquare(observed, n * p).pvalue > 1e-3
        assert (np.abs(observed - n * p) / np.sqrt(n * p * (1 - p))).max() < 4.5


@pytest.mark.slow
def test_longer_samples_of_one_prompt_are_independent(tiny_engine):
    """Second tokens do not depend on how many samples share a first token: pairs match n single draws."""
    (messages,) = ask("x")
    together = tiny_engine.generate([messages], 3000, 0.5, 2, [5])[0]
    single = [t for row in tiny_engine.generate([messages] * 60, 50, 0.5, 2, list(range(60))) for t in row]
    common = [text for text, count in Counter(together + single).most_common() if count >= 60]
    assert len(common) >= 3
    a, b = (np.array([Counter(texts)[text] for text in common]) for texts in (together, single))
    z = (a - b) / np.sqrt(a + b)
    assert np.abs(z).max() < 4


def test_the_order_of_samples_says_nothing_about_the_draw():
    firsts = []
    for seed in range(200):
        sampler = TokenSampler(seed, 1.0, 1.0)
        drawn = sorted(*draw(torch.zeros(1, 2), [sampler], [6]))
        firsts.append(drawn[sampler.rng.permutation(6)[0]])
    assert 70 < sum(firsts) < 130


def plain_draw(row, stream, count, temperature, top_p):
    """`count` tokens of one row, in numpy."""
    weights = torch.softmax(row.double() / temperature, -1).numpy()
    tokens = np.argsort(-weights, kind="stable") if top_p < 1 else np.arange(len(weights))
    cumulative = np.cumsum(weights[tokens])
    kept = np.searchsorted(cumulative, top_p) + 1 if top_p < 1 else len(tokens)
    mass = cumulative[:kept][-1]
    return tokens[np.searchsorted(cumulative[:kept], stream.random(count) * mass, side="right")].tolist()


@pytest.mark.parametrize("temperature", [0.4, 1.0, 2.5])
@pytest.mark.parametrize("top_p", [0.1, 0.9, 0.999, 1.0])
@pytest.mark.parametrize("rows_at_once", [1, 64], ids=["as on a CPU", "as on a GPU"])
def test_a_rows_tokens_are_those_of_a_plain_draw(rows_at_once, temperature, top_p, monkeypatch):
    """Three streams, several rows of each as where branches have forked, and equal logits among them."""
    monkeypatch.setitem(transformers.AT_ONCE, "cpu", rows_at_once)
    logits = (4 * torch.randn(150, 777, generator=torch.Generator().manual_seed(1))).round()
    rows, counts = [i % 3 for i in range(150)], [i % 5 for i in range(150)]
    samplers = [TokenSampler(seed, temperature, top_p) for seed in range(3)]
    streams = [np.random.default_rng(seed) for seed in range(3)]
    plain = [plain_draw(logits[i], streams[r], counts[i], temperature, top_p) for i, r in enumerate(rows)]
    assert draw(logits, [samplers[r] for r in rows], counts) == plain


def test_the_nucleus_is_the_smallest_set_that_holds_the_mass():
    logits = torch.tensor([[0.1, 0.5, 0.15, 0.25]]).log()
    drawn = Counter(*draw(logits, [TokenSampler(0, 1.0, 0.7)], [3000]))
    assert drawn.keys() == {1, 3}
    assert abs(drawn[1] - 2000) < 100


def test_no_distribution_leaves_the_device(tiny_engine, monkeypatch):
    """On a GPU each copy of one stops the device; of a step only the drawn tokens are fetched."""
    fetched = []
    for name in ("cpu", "numpy", "tolist", "item"):
        plain = getattr(torch.Tensor, name)
        monkeypatch.setattr(torch.Tensor, name, lambda one, plain=plain: fetched.append(one.numel()) or plain(one))
    tiny_engine.generate_with_greedy(ask("x", "Name a colour."), 4, 0.7, 6, [1, 2], 0.9, greedy={1})
    assert 0 < max(fetched) <= 2 * 5  # samples and the greedy text of both prompts


def test_an_unknown_engine_is_refused_by_name():
    with pytest.raises(ValueError, match="unknown engine 'vlm'; engines are .*transformers.*vllm"):
        engines.get("vlm")
