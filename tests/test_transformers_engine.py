"""The transformers engine: shared prefixes change the work, not the distribution, whatever a model family brings along."""

import importlib.util
import shutil
from collections import Counter
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf
from conftest import on_cpu, random_model, training_settings
from scipy.stats import chisquare
from transformers import AutoModelForCausalLM, AutoTokenizer

import orce
from orce.__main__ import main
from orce.artefacts import files
from orce.artefacts.records import Pair
from orce.errors import BadInput
from orce.judge.reader import TransformersReader
from orce.llm import engines, language_model, trie
from orce.llm.chat import prompt_ids, prompts_ids, statement
from orce.llm.engines import transformers
from orce.llm.engines.transformers import TokenSampler, draw, sample_continuations
from orce.llm.kv_cache import KVCache
from orce.llm.trie import TokenTrie, pack, packed_batches, padded_batches
from orce.training import common, dpo, sft, tokenized_brier


@pytest.fixture
def engine(tiny):
    return engines.get("transformers").load(on_cpu(path=tiny) | {"batch_tokens": 1024})


def ask(*questions):
    return [[{"role": "user", "content": question}] for question in questions]


QUESTIONS = ask(
    "What is 2 + 3?", "Name a colour.", "What is the capital of France?", "Say yes.", "Count to three, please."
)


def test_a_batch_holds_prompts_of_similar_length_after_their_shared_prefix():
    lengths = [500, 40, 41, 90, 40, 700, 450, 2000]
    alone = padded_batches([[i + 2] * length for i, length in enumerate(lengths)], 1100, more=50)
    assert [[lengths[i] for i in batch] for batch in alone] == [[40, 40, 41, 90], [450, 500], [700], [2000]]
    shared = padded_batches([[1] * 1000 + [i + 2] * length for i, length in enumerate(lengths)], 3300, more=50)
    assert [[lengths[i] for i in batch] for batch in shared] == [[40, 40, 41, 90], [450, 500, 700], [2000]]
    assert padded_batches([[1, 2]], 8) == [[0]] and padded_batches([], 8) == []
    of_one = [[5, 6, *range(100, 150), 60 + i] for i in range(6)]
    of_others = [[5, 6, *range(200 + 60 * i, 250 + 60 * i)] for i in range(6)]
    mixed = [one for pair in zip(of_one, of_others, strict=True) for one in pair]
    together = sorted(padded_batches(mixed, 1000))
    assert together == [list(range(0, 12, 2)), list(range(1, 12, 2))], "about one passage"


def test_a_seed_fixes_a_prompts_samples_whatever_is_drawn_beside_them(engine):
    seeds = [11, 12, 13, 14, 15]
    # Not hotter: in a flat tail the last digits of a float, which the batch shapes, choose the token.
    samples = engine.generate(QUESTIONS, 6, 0.4, 8, seeds)
    assert engine.generate(QUESTIONS[::-1], 6, 0.4, 8, seeds[::-1])[::-1] == samples
    assert engine.generate(QUESTIONS[1:2], 6, 0.4, 8, [12]) == samples[1:2]
    assert any(len([*groupby(texts)]) > len({*texts}) for texts in samples), "not in the order of the draw"
    greedy = [text for (text,) in engine.generate(QUESTIONS, 1, 0.0, 8, seeds)]
    both = engine.generate_with_greedy(QUESTIONS, 6, 0.4, 8, seeds, greedy=frozenset({0, 3}))
    assert [texts for texts, _ in both] == samples
    assert [text for _, text in both] == [greedy[0], None, None, greedy[3], None]


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
def test_whole_answers_are_drawn_with_the_product_of_their_tokens_probabilities(engine):
    """Three-token answers, for which samples share prefixes: a chi-square and the largest deviation of any answer."""
    lm, n, temperature = engine.lm, 4000, 0.4
    prompts = [prompt_ids(lm.tokenizer, messages) for messages in ask("x", "Name a colour.", "x y z")]
    cache = KVCache(lm.model, prompts)
    samplers = [TokenSampler(seed, temperature, 1.0) for seed in (5, 6, 7)]
    for prompt, branches in zip(prompts, sample_continuations(cache, samplers, n, 3, lm.ends), strict=True):
        expected = enumerated(lm, prompt, temperature, 3, 5 / n)
        seen = Counter({tuple(branch.tokens): branch.count for branch in branches})
        assert sum(seen.values()) == n and len(expected) >= 10
        p = np.array([*expected.values(), 1 - sum(expected.values())])
        observed = np.array([seen[tokens] for tokens in expected])
        observed = np.append(observed, n - observed.sum())
        assert chisquare(observed, n * p).pvalue > 1e-3
        assert (np.abs(observed - n * p) / np.sqrt(n * p * (1 - p))).max() < 4.5


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


def test_no_distribution_leaves_the_device(engine, monkeypatch):
    """On a GPU each copy of one stops the device; of a step only the drawn tokens are fetched."""
    fetched = []
    for name in ("cpu", "numpy", "tolist", "item"):
        plain = getattr(torch.Tensor, name)
        monkeypatch.setattr(torch.Tensor, name, lambda one, plain=plain: fetched.append(one.numel()) or plain(one))
    engine.generate_with_greedy(ask("x", "Name a colour."), 4, 0.7, 6, [1, 2], 0.9, greedy={1})
    assert 0 < max(fetched) <= 2 * 5  # samples and the greedy text of both prompts


TEMPLATES = Path(importlib.util.find_spec("trl").origin).parent / "chat_templates"
WINDOW = 24
# Mistral's layers all have the window; every second of Gemma 3's here; Qwen3's from the first if it is switched on.
WINDOWED = {
    "Mistral": {"sliding_window": WINDOW},
    "Gemma3": {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]},
    "Qwen3": {"sliding_window": WINDOW, "use_sliding_window": True, "max_window_layers": 0},
    "Llama": {"max_position_embeddings": WINDOW},  # its whole context
}
LONG = ask("How sure are you of this? " * 5)
TOO_LONG = f"its (layers attend to a sliding window of|context is) {WINDOW} tokens, and prompt and completion take "


@pytest.fixture(params=[pytest.param(name, marks=() if name == "Gemma3" else pytest.mark.slow) for name in WINDOWED])
def windowed(request, tiny, shared) -> str:
    """Folder of a two-layer model with a window, or a context, of WINDOW tokens, to read only."""

    def make(folder: Path) -> None:
        config = getattr(hf, request.param + ("TextConfig" if request.param == "Gemma3" else "Config"))
        tokenizer, model = AutoTokenizer.from_pretrained(tiny), getattr(hf, request.param + "ForCausalLM")
        more = {"num_hidden_layers": 2, "head_dim": 8} | WINDOWED[request.param]
        random_model(config, model, tokenizer, seed=2, **more).save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    return str(shared(f"windowed-{request.param}", make))


def training_of(folder) -> dict:
    lora = {"target_modules": ["q_proj"]}
    return training_settings(on_cpu(path=folder), lora, epochs=1, batch_size=1, target="kappa")


def test_a_prompt_as_long_as_the_window_is_computed_as_the_model_does(windowed):
    model = loaded(windowed)
    prompts = [list(range(5, 5 + WINDOW - 1)), [5, 6, 7, 50]]
    cache = KVCache(model, prompts)
    (following, _) = cache.extend([[(40, [])], [(41, [])]])
    with torch.inference_mode():
        expected = model(input_ids=torch.tensor([[*prompts[0], 40]])).logits[0]
    assert torch.allclose(cache.logits[0], expected[-2], atol=1e-4)
    assert torch.allclose(following, expected[-1], atol=1e-4)
    with pytest.raises(BadInput, match=TOO_LONG + str(WINDOW + 1)):
        cache.extend([[(42, [0])], [(43, [0])]])


@pytest.mark.slow
def test_prompts_longer_than_the_window_are_refused_before_any_is_computed(windowed):
    settings = on_cpu(path=windowed)
    with pytest.raises(BadInput, match=f"{TOO_LONG}.* (set engine.name to vllm|with a longer context)"):
        engines.longest(settings | {"name": "transformers"}, LONG, 12)  # what the steps ask before they load a model
    assert engines.longest(settings | {"name": "transformers"}, [], 12) is None
    lm = language_model.load(settings)
    lm.model.forward = None  # whoever computes fails otherwise
    reader, engine = TransformersReader(lm), engines.get("transformers").Engine(lm)
    prompts = [*ask("?"), *LONG]
    for refused in (reader.read, lambda prompts: engine.generate(prompts, 1, 0.0, 9, [0, 0])):
        with pytest.raises(BadInput, match=TOO_LONG):
            refused(prompts)
    with pytest.raises(BadInput, match=rf"record 1: takes \d+ tokens; the model reads at most {WINDOW}"):
        list(orce.load_judge(base=windowed)([{"question": "What is 1 + 1?", "answer": "2"}]))


@pytest.mark.slow
def test_training_refuses_what_its_packed_rows_would_compute_without_the_window(windowed, tmp_path):
    settings, prompt = training_of(windowed), LONG[0]
    pair = Pair(id="", prompt=prompt, chosen=[{"content": statement(90)}], rejected=[{"content": statement(10)}])
    plain = settings | {"stage": settings["stage"] | {"epochs": 0}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(common, "check_lengths", lambda *_: None)
        sft.train([{"prompt": prompt, "percent": 9}], plain, tmp_path / "start")
    for train in (
        lambda: sft.train([{"prompt": prompt, "percent": 70}], settings, tmp_path / "sft"),
        lambda: tokenized_brier.train([{"prompt": prompt, "correct": True}], settings, tmp_path / "conftuner"),
        lambda: dpo.train([pair], settings, tmp_path / "start", tmp_path / "start", tmp_path / "dpo"),
    ):
        with pytest.raises(BadInput, match=f"{TOO_LONG}.*; (training computes whole attention|leave out the longest)"):
            train()
    assert not any((tmp_path / name).exists() for name in ("sft", "conftuner", "dpo"))


def test_a_model_whose_chat_template_is_missing_or_fails_is_refused_in_one_line(tiny, folder, capsys):
    model = Path(shutil.copytree(tiny, folder / "model"))
    template = model / "chat_template.jinja"
    template.write_text("{{ raise_exception('needs a mood') }}")
    with pytest.raises(BadInput, match="its chat template fails with template_kwargs .*needs a mood"):
        language_model.load(on_cpu(path=model))
    template.unlink()
    files.write_jsonl("pairs.jsonl", [{"question": "What is 1 + 1?", "answer": "2"}])
    asked = ["measure", "pairs.jsonl", "--model", str(model), "--methods", "vanilla", "--out", "out.jsonl"]
    assert main(asked) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert f"{model}: its tokenizer has no chat template; take the instruction-tuned version" in line
    with pytest.raises(BadInput, match="no chat template"):  # vllm, before it is started
        engines.longest(on_cpu(path=model) | {"name": "vllm"}, LONG, 12)


@pytest.mark.slow
def test_a_model_whose_turns_do_not_end_with_its_eos_is_refused_and_todays_llama3_is_taken(tiny, tmp_path):
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]

    def like_llama3(eos: str, ends: list[str]) -> Path:
        """The model with LLaMA-3's template and tokens, an eos, and the ends of a generation config."""
        tokenizer, model = AutoTokenizer.from_pretrained(tiny), AutoModelForCausalLM.from_pretrained(tiny)
        tokenizer.add_special_tokens({"additional_special_tokens": names})
        tokenizer.bos_token, tokenizer.eos_token = "<|begin_of_text|>", eos
        tokenizer.chat_template = (TEMPLATES / "llama3.jinja").read_text()
        model.resize_token_embeddings(len(tokenizer))
        model.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids(ends)
        folder = tmp_path / f"{len(ends)}-{eos.strip('<|>')}"
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    wrong = r"ends a turn with <\|eot_id\|>, but its end-of-sequence token is <\|end_of_text\|>; take a newer snapshot"
    with pytest.raises(BadInput, match=wrong):  # a snapshot from before May 2024
        language_model.load(on_cpu(path=like_llama3("<|end_of_text|>", ["<|end_of_text|>"])))
    half = like_llama3("<|end_of_text|>", ["<|end_of_text|>", "<|eot_id|>"])  # which generation alone corrects
    assert len(language_model.load(on_cpu(path=half)).ends) == 2
    with pytest.raises(BadInput, match=wrong):
        sft.train([{"prompt": LONG[0], "percent": 70}], training_of(half), tmp_path / "sft")
    today = like_llama3("<|eot_id|>", ["<|end_of_text|>", "<|eot_id|>"])
    assert language_model.load(on_cpu(path=today), trainable=True).tokenizer.eos_token == "<|eot_id|>"


@pytest.mark.parametrize("name", ["qwen3", "llama3_1", "gemma3"])
def test_templates_of_other_families_can_be_read(name, tiny, tmp_path):
    """Templates whose ends are not in this tokenizer say nothing against it."""
    folder = Path(shutil.copytree(tiny, tmp_path / "model"))
    shutil.copy(TEMPLATES / f"{name}.jinja", folder / "chat_template.jinja")
    language_model.vocabulary({"path": str(folder)}, {"enable_thinking": False} if name == "qwen3" else {})


# Prefixes packed in a trie or kept in a cache, and prompts tokenized once.

PROMPTS = [[5, 6, 7, 8, 9, 10], [5, 6, 7, 20], [5, 6, 7, 8, 30, 31, 32, 33, 34]]
CONTINUATIONS = [[[40, 41, 42], [40, 41, 43, 44], [50]], [[40], [40, 60], [40, 60, 61]], [[1, 2], [1, 3], [4, 2]]]
PASSAGES = [[5, 6, *range(100, 150), 7], [5, 6, *range(100, 150), 8, 9], [5, 6, *range(100, 150), 8, 10, 11, 12]]
# Two families of questions about one passage each, and a prompt of its own.
FAMILIES = [*PASSAGES, *([5, 6, *range(200, 240), token] for token in (7, 8)), [5, 6, 40, 41]]


def loaded(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def packed_logprobs(model, prompts, continuations):
    packed = pack(prompts, [TokenTrie.of(one) for one in continuations])
    return trie.path_logprobs(trie.node_logprobs(model, packed), packed)


def separate_logprobs(model, prompts, continuations):
    def alone(prompt, continuation):
        logits = model(input_ids=torch.tensor([prompt + continuation])).logits[0].log_softmax(-1)
        return sum(logits[len(prompt) - 1 + i, token] for i, token in enumerate(continuation))

    both = zip(prompts, continuations, strict=True)
    return torch.stack([torch.stack([alone(prompt, one) for one in some]) for prompt, some in both])


@pytest.mark.parametrize("prompts", [PROMPTS, FAMILIES], ids=["prompts", "families"])
def test_packed_scores_and_their_gradients_are_those_of_each_continuation_alone(tiny, prompts):
    model, continuations = loaded(tiny), CONTINUATIONS * (len(prompts) // 3)
    with pytest.raises(BadInput, match=": has its own implementation of attention; set training.trainer: trl"):
        packed_logprobs(model, prompts, continuations)
    trie.use_blocks(model)
    weights = torch.linspace(-1, 2, 3 * len(prompts)).view(-1, 3)
    scores, gradients = [], []
    for computed in (packed_logprobs, separate_logprobs):
        model.zero_grad()
        scores.append(computed(model, prompts, continuations))
        (scores[-1] * weights).sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert torch.allclose(*scores, atol=1e-5)
    assert (gradients[0] - gradients[1]).norm() < 1e-4 * gradients[1].norm()


def test_a_passage_is_computed_once_for_all_questions_about_it():
    tries = [TokenTrie.of(one) for one in CONTINUATIONS * 2]
    packed = pack(FAMILIES, tries)
    blocks, width, seen = packed["visible"].shape
    assert seen - width == 2 and blocks == 3
    inner = sum(len(one.inner) for one in tries)
    assert packed["input_ids"].shape[1] == 2 + 50 + (1 + 2 + 4) + 40 + 2 * 1 + 2 + inner


@pytest.mark.parametrize("budget", [1, 60, 90, 10_000])
def test_batches_keep_to_their_tokens(budget):
    """Every prompt once; a batch exceeds its budget only if it is a single prompt."""
    prompts = [*PROMPTS, *PASSAGES, [3, 4], [5, 6, *range(300, 380)]]
    tries = [TokenTrie.of(CONTINUATIONS[i % 3]) for i in range(len(prompts))]

    def padded(batch):
        own = [prompts[i] for i in batch]
        shared = trie.common_prefix(own)
        return shared + len(own) * (max(map(len, own)) - shared + 5)

    def packed(batch):
        return pack([prompts[i] for i in batch], [tries[i] for i in batch])["input_ids"].shape[1]

    more = [len(one.inner) for one in tries]
    for cut, size in ((packed_batches(prompts, more, budget), packed), (padded_batches(prompts, budget, 5), padded)):
        assert sorted(i for batch in cut for i in batch) == list(range(len(prompts)))
        assert all(len(batch) == 1 or size(batch) <= budget for batch in cut)


@pytest.mark.parametrize("prompts", [PROMPTS, [[1, *PROMPTS[0]], *PROMPTS[1:]]], ids=["shared prefix", "none"])
def test_what_follows_a_token_does_not_depend_on_neighbours_or_dropped_branches(family, prompts):
    model = loaded(family)
    before = model.config._attn_implementation
    cache = KVCache(model, prompts)
    first = cache.extend([[(40, []), (41, [])], [], [(50, [])]])
    second = cache.extend([[(42, [0]), (43, [0]), (44, [1])], [], [(51, [0])]])
    assert model.config._attn_implementation == before, "the model's own attention stays"
    one, _, three = prompts
    after_first = [[*one, 40], [*one, 41], [*three, 50]]
    after_second = [[*one, 40, 42], [*one, 40, 43], [*one, 41, 44], [*three, 50, 51]]
    for found, sequences in ((cache.logits, prompts), (first, after_first), (second, after_second)):
        for logits, tokens in zip(found, sequences, strict=True):
            with torch.inference_mode():
                expected = model(input_ids=torch.tensor([tokens])).logits[0, -1]
            assert torch.allclose(logits, expected, atol=1e-5)
    cache.drop_appended()
    cache.keep_rows([0, 2])
    again = cache.extend([[(40, [])], [(50, [])]])
    assert torch.allclose(again, first[[0, 2]], atol=1e-5)
    model._supports_attention_backend = False
    with pytest.raises(BadInput, match="ForCausalLM has its own implementation of attention; .* set engine.name"):
        KVCache(model, prompts)


def test_prompts_tokenized_together_are_those_tokenized_one_by_one_and_kept_for_the_next_call(tiny):
    conversations = ask(*(f"What is {i} + {i * i}?" for i in range(5)))
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    assert prompts_ids(tokenizer, conversations) == [prompt_ids(tokenizer, one) for one in conversations]
    assert prompts_ids(tokenizer, []) == []
    sized, generating = (AutoTokenizer.from_pretrained(tiny) for _ in range(2))  # the engine's own is another object
    expected = prompts_ids(sized, conversations, keep=True)
    rendered = []
    apply = generating.apply_chat_template
    generating.apply_chat_template = lambda messages, **more: rendered.append(messages) or apply(messages, **more)
    assert prompts_ids(generating, conversations[:3]) == expected[:3] and rendered == []
    assert prompts_ids(generating, conversations) == expected and rendered == conversations[:3]
