"""Each stage that loads a model, beside plain forward passes and plain optimizer steps of transformers, peft and torch.

Prompts, losses, schedules and distributions are written out here; nothing of the library computes an expected value.
"""

import base64
import json
import math
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import cases, on_cpu, random_model, with_peak
from plain_models import Plain, losses_of, optimized
from safetensors.torch import load_file
from stages_by_hand import JUDGE, WORDS, asked, greedy, lines, sampled, stage, write
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from orce.llm import language_model, reading
from orce.training import tokenized_brier

pytestmark = pytest.mark.usefixtures("folder")

NAMED = {"task": WORDS, "label": "x"}
SPEED = {  # chunks and batches of a few, so that their borders are crossed
    "answers": {"chunk": 2, "batch_tokens": 200},
    "confidence": {"chunk": 2, "batch_tokens": 200},
    "training": {"micro_batch_tokens": 130},
}


@pytest.fixture(scope="module")
def deep(small, tmp_path_factory) -> str:
    """Folder of a three-layer model with the small model's tokenizer."""
    folder, tokenizer = tmp_path_factory.mktemp("deep"), AutoTokenizer.from_pretrained(small)
    more = {"num_hidden_layers": 3, "max_position_embeddings": 512}
    model = random_model(LlamaConfig, LlamaForCausalLM, tokenizer, seed=5, **more)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(autouse=True)
def speed(monkeypatch):
    monkeypatch.setenv("ORCE_SPEED", json.dumps(SPEED))


def content_of(question: dict) -> str:
    return f"Task: {question['question']}"


@pytest.mark.parametrize("top_p", [1.0, 0.4])
def test_samples_are_drawn_from_the_nucleus_at_the_temperature_and_greedy_is_the_likeliest(deep, top_p):
    """The record of a question with its answers: test_stage_files.py."""
    questions = [asked("q0", "ant"), asked("q1", "ant"), asked("q2", "bee")]
    tested = {"test": write("test.jsonl", questions)}
    settings = NAMED | {"model": on_cpu(path=deep), "engine": "transformers", "shots": None, "seed": 1}
    drawing = settings | {"temperature": 0.8, "top_p": top_p}
    stage("sample", drawing | {"samples": 3000, "max_tokens": 1}, prompts=tested, out="samples.jsonl")
    stage("sample", drawing | {"samples": 1, "max_tokens": 3}, prompts=tested, out="longer.jsonl")
    rows, plain = lines("samples.jsonl"), Plain(deep)
    for row, longer, question in zip(rows, lines("longer.jsonl"), questions, strict=True):
        weights = (plain.next_scores(content_of(question)) / 0.8).softmax(-1)
        order = weights.argsort(descending=True)
        nucleus = order[: int((weights[order].cumsum(0) < top_p).sum()) + 1]
        share = Counter()
        for token in nucleus.tolist():
            text = plain.tokenizer.decode([token], skip_special_tokens=True)
            share[text] += (weights[token] / weights[nucleus].sum()).item()
        drawn = Counter(row["raw"])
        assert sum(drawn.values()) == 3000
        assert top_p == 1 or drawn.keys() == share.keys(), "the fewest tokens that hold the share"
        likely = [text for text, probability in share.items() if probability > 0.02]
        assert len(likely) > 3
        for text in likely:
            assert drawn[text] / 3000 == pytest.approx(share[text], abs=4 * math.sqrt(share[text] / 3000))
        assert longer["greedy"]["raw"] == plain.written(content_of(question), 3)
    assert rows[0]["raw"] != rows[1]["raw"], "each question has draws of its own"


THOUGHTS = "<think>so</think>"  # before an answer: no part of its likelihood
TESTED = [
    sampled("q0", "test", ["ant", "bee", "bee", None], [True, False, False, False], greedy("ant", True, "It is ant")),
    sampled("q1", "test", ["cat", "dog", "Cat", "cat"], [False, True, False, False], greedy("dog", True, f"{THOUGHTS}dog")),
    sampled("q2", "test", [None, None, "elk", "fox"], [False] * 4, greedy(None, False, "")),
]  # fmt: skip
QUESTIONS = [asked("q0", "ant"), asked("q1", "dog"), asked("q2", "gnu")]
TRUE_OR_FALSE = (
    "Question: {question}\n\nHere are some brainstormed ideas:\n{ideas}\n\nPossible answer: {answer}\n\n"
    "Is the possible answer:\nA. True\nB. False\n\nReply with only the letter."
)


@pytest.mark.parametrize("at_once", [reading.TOKENS, 3])
def test_likelihoods_are_of_each_reply_and_p_true_of_the_letter_a_after_the_samples_as_ideas(
    deep, at_once, monkeypatch
):
    """All tokens computed together, and in parts that are shorter than a text."""
    monkeypatch.setattr(reading, "TOKENS", at_once)
    settings = NAMED | {"model": on_cpu(path=deep), "shots": None}
    read = {"prompts": write("test.jsonl", QUESTIONS), "samples": write("samples.jsonl", TESTED)}
    for scored in ("greedy", "samples"):
        stage("likelihoods", settings | {"scored": scored}, **read, out=f"{scored}.jsonl")
    plain = Plain(deep)
    ideas = ["<bee>\n<ant>", "<cat>\n<dog>\n<Cat>", "<elk>\n<fox>"]  # each once, the frequent ones first
    given = zip(lines("greedy.jsonl"), lines("samples.jsonl"), TESTED, QUESTIONS, ideas, strict=True)
    for row, samples, record, question, listed in given:
        best = record["greedy"]
        texts = [plain.ids(text) for text in (best["raw"], *record["raw"])]
        own, *others = (tokens.tolist() for tokens in plain.logprobs(content_of(question), texts))
        thoughts = plain.ids(THOUGHTS) if THOUGHTS in best["raw"] else []
        shown = f"<{best['answer']}>" if best["answer"] else "(none)"
        content = TRUE_OR_FALSE.format(question=question["question"], ideas=listed, answer=shown)
        letters = plain.logprobs(content, [plain.ids("A"), plain.ids("B")])
        true, false = (tokens.double().sum().exp().item() for tokens in letters)
        assert row == {
            "id": record["id"], "logprobs": pytest.approx(own[len(thoughts):], abs=1e-4),
            "p_true": pytest.approx(true / (true + false), abs=1e-5), "p_true_mass": pytest.approx(true + false, rel=1e-3),
        }  # fmt: skip
        assert abs(row["p_true"] - 0.5) > 0.01, "told from its opposite"
        assert samples == {"id": record["id"], "sample_logprobs": [pytest.approx(one, abs=1e-4) for one in others]}


def test_long_replies_take_the_memory_of_a_batch_and_not_of_all(deep):
    scorer = reading.Scorer(language_model.load(on_cpu(path=deep)))
    prompt, replies = [{"role": "user", "content": "?"}], ["one " * 200]
    few, many = (with_peak(scorer.logprobs, [prompt] * n, [replies] * n)[1] for n in (8, 40))
    assert many < 2 * few


SURROGATE = (
    "id,split,n_correct,n_samples,kappa,answer,answer_correct\n"
    "n0,sft,23,40,0.575,bee,0\n"
    "n1,sft,3,4,0.75,cat,1\n"
    "n2,rl,2,4,0.5,dog,1\n"
    "n3,rl,0,4,0.0,,0\n"
    "n4,rl,4,4,1.0,elk,1\n"
    "n0,rl,4,4,1.0,wrong row,1\n"
    "q0,test,1,4,0.25,ant,1\n"
)
TRAINING = {
    "sft": [asked("n0", "ant"), asked("n1", "cat")],
    "rl": [asked("n2", "dog"), asked("n3", "newt"), asked("n4", "elk")],
}
SHOWN = [  # what the confidence LLM reads: the realised answers, in the files' order, with kappa and whether they are right
    (JUDGE.format(question=f"Say {word}.", answer=answer), kappa, right)
    for word, answer, kappa, right in (
        ("ant", "<bee>", 0.575, False), ("cat", "<cat>", 0.75, True), ("dog", "<dog>", 0.5, True),
        ("newt", "(none)", 0.0, False), ("elk", "<elk>", 1.0, True),
    )
]  # fmt: skip


def training_files(*splits: str) -> dict:
    Path("surrogate.csv").write_text(SURROGATE)
    return {"surrogate": "surrogate.csv", "prompts": {name: write(f"{name}.jsonl", TRAINING[name]) for name in splits}}


def test_states_are_at_the_ends_of_prompt_and_reply_of_the_judged_answer(deep):
    """Depth .3 and .7 of three layers are the first and the second, whose outputs are the inputs of the next."""
    records = [
        sampled("n0", "sft", ["ant", "bee", "bee", None], [True, False, False, False]),
        sampled("n1", "sft", ["ant", "ant", "ant", "cat"], [False, False, False, True]),
        *TESTED,
    ]
    rows = "".join(f"{name},test,1,4,0.25,x,1\n" for name in ("q1", "q2"))
    Path("surrogate.csv").write_text(SURROGATE + rows)
    files = {"sft": write("sft.jsonl", TRAINING["sft"]), "test": write("test.jsonl", QUESTIONS)}
    settings = NAMED | {"model": on_cpu(path=deep), "shots": None, "depths": [0.3, 0.7]}
    given = {"prompts": files, "samples": write("samples.jsonl", records), "surrogate": "surrogate.csv"}
    for of in ("answers", "judge"):
        stage("states", settings | {"model_read": of}, **given, out=f"{of}.jsonl")
    plain = Plain(deep)

    def near(state: list[str], content: str, reply: str = "") -> bool:
        found = np.stack([np.frombuffer(base64.b64decode(layer), "<f2") for layer in state]).astype(float)
        with torch.no_grad():
            ids = torch.tensor([plain.prompt(content) + plain.ids(reply)])
            hidden = plain.model(ids, output_hidden_states=True).hidden_states
        own = np.stack([hidden[layer][0, -1].numpy() for layer in (1, 2)])
        return np.abs(found - own).max() < 2e-3 * np.abs(own).max()

    found = lines("answers.jsonl")
    read = [("sft", "n0"), ("sft", "n1"), ("test", "q0"), ("test", "q1"), ("test", "q2")]
    assert [(row["split"], row["id"]) for row in found] == read
    replies = ["bee 1", "cat 3", "It is ant", f"{THOUGHTS}dog", ""]  # of a realised answer the first reply that has it
    answers = ["<bee>", "<cat>", "<ant>", "<dog>", "(none)"]
    questions = TRAINING["sft"] + QUESTIONS
    for row, judged, *said in zip(found, lines("judge.jsonl"), questions, replies, answers, strict=True):
        question, reply, answer = said
        assert near(row["question"], content_of(question)) and near(row["answer"], content_of(question), reply)
        assert near(judged["judge"], JUDGE.format(question=question["question"], answer=answer))


STAGE = {"learning_rate": 0.01, "warmup_ratio": 0.0, "scheduler": "constant", "weight_decay": 0.0}
LORA = {"r": 4, "alpha": 12, "dropout": 0.0, "target_modules": ["q_proj", "down_proj"], "last_layers": 2}


def training(deep, method: str = "lora", **stage_settings) -> dict:
    how = {"method": method, "lora": LORA, "checkpointing": False, "save_steps": 100}
    return NAMED | {"model": on_cpu(path=deep), "training": how, "stage": STAGE | stage_settings, "seed": 11}


def pair_of_models(deep, method: str = "lora") -> tuple[Plain, Plain]:
    """A plain model to train and one that stays as it is, both with LORA's random start."""
    from peft import LoraConfig, get_peft_model

    plain, before = Plain(deep), Plain(deep)
    how = {"r": 4, "lora_alpha": 12, "target_modules": ["q_proj", "down_proj"], "layers_to_transform": [1, 2]}
    for one in (plain, before) if method == "lora" else ():
        torch.manual_seed(11)
        one.model = get_peft_model(one.model, LoraConfig(task_type="CAUSAL_LM", **how))
    return plain, before


def warm_start(deep, out: str = "sft", method: str = "lora", **stage_settings) -> None:
    settings = training(deep, method, **{"target": "kappa", "batch_size": 5} | stage_settings)
    stage("sft", settings, **training_files("sft", "rl"), out=out)


def same_weights(folder, plain: Plain, before: Plain) -> None:
    """Assert that a folder has the weights of the plain loop, to a fiftieth of what that moved them from `before`."""
    saved = load_file(next(Path(folder).glob("*.safetensors")))
    found, start = dict(plain.model.named_parameters()), dict(before.model.named_parameters())
    moved = apart = 0.0
    for name, weight in saved.items():
        own = name if name in found else re.sub(r"(lora_[AB])", r"\1.default", name)
        apart += (found[own].detach() - weight).square().sum().item()
        moved += (found[own].detach() - start[own].detach()).square().sum().item()
    assert apart < moved / 2500 and moved > 0
    assert len(saved) == sum(weight.requires_grad for weight in found.values())


@pytest.mark.parametrize(("method", "tokens", "target", "percents"), cases("warm_start_steps"))
def test_the_warm_start_is_adamw_on_the_statements_of_kappa_with_warm_up_schedule_and_decay(
    deep, method, tokens, target, percents, monkeypatch
):
    """Six steps of all five pairs, the first three of them warm-up; `tokens` of a micro-batch.

    It has one statement, or four and then one: the loss is a mean over the tokens of all five.
    """
    monkeypatch.setenv("ORCE_SPEED", json.dumps(SPEED | {"training": {"micro_batch_tokens": tokens}}))
    schedule = {"warmup_ratio": 0.5, "scheduler": "cosine", "weight_decay": 0.3}
    warm_start(deep, method=method, epochs=6, target=target, **schedule)
    plain, before = pair_of_models(deep, method)

    def loss():
        stated = [plain.turns(shown[0], [percent])[0] for shown, percent in zip(SHOWN, percents, strict=True)]
        assert sorted(map(len, stated)) == [4, 4, 6, 6, 6]
        return -torch.cat(stated).mean()

    factors = [0, 1 / 3, 2 / 3, 1, 0.75, 0.25]  # of the highest rate
    expected = optimized(plain, loss, 6, lambda step: 0.01 * factors[step], decay=0.3)
    assert losses_of("sft") == pytest.approx(expected, abs=1e-5)
    same_weights("sft", plain, before)
    facts = json.loads(Path("sft/manifest.json").read_text())
    assert (facts["steps"], facts["examples"]) == (6, 5)


def test_an_epoch_has_each_example_once_in_steps_of_the_batch_size(deep):
    warm_start(deep, epochs=2, batch_size=2)
    log = json.loads(Path("sft/training_log.json").read_text())
    assert [entry["epoch"] for entry in log] == pytest.approx([1 / 3, 2 / 3, 1, 4 / 3, 5 / 3, 2])


@pytest.fixture(scope="module")
def trained(deep, tmp_path_factory) -> dict[str, Path]:
    """A warm start, a training in the place of an earlier round of DPO, and one of whole weights."""
    root = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        warm_start(deep, "sft", epochs=2)
        warm_start(deep, "round", epochs=6, learning_rate=0.05)
        warm_start(deep, "whole", "full", epochs=60)
    return {name: root / name for name in ("sft", "round", "whole")}


@pytest.mark.parametrize("start", ["sft", "round"])
def test_dpo_goes_on_from_its_start_and_its_reference_is_the_warm_start(deep, trained, start):
    compared = [(SHOWN[i][0], *both) for i, both in enumerate([(20, 85), (70, 5), (50, 100), (1, 60)])]
    pairs = []
    for content, *both in compared:
        chosen, rejected = ([{"role": "assistant", "content": f"Confidence: {percent}"}] for percent in both)
        asking = [{"role": "user", "content": content}]
        pairs.append({"id": "p", "prompt": asking, "chosen": chosen, "rejected": rejected})
    settings = training(deep, epochs=3, batch_size=4, beta=0.7)
    later = {} if start == "sft" else {"start": trained[start]}
    stage("dpo", settings, pairs=write("pairs.jsonl", pairs), sft=trained["sft"], **later, out="dpo")
    plain, before = Plain(deep, trained[start], trained=True), Plain(deep, trained[start])
    reference = Plain(deep, trained["sft"])

    def loss():
        margins = []
        for content, *both in compared:
            with torch.no_grad():
                better_before, worse_before = (tokens.sum() for tokens in reference.turns(content, both))
            better_now, worse_now = (tokens.sum() for tokens in plain.turns(content, both))
            margins.append(better_now - worse_now - better_before + worse_before)
        return -torch.nn.functional.logsigmoid(0.7 * torch.stack(margins)).mean()

    expected = optimized(plain, loss, 3)
    assert losses_of("dpo") == pytest.approx(expected, abs=1e-4)
    same_weights("dpo", plain, before)
    first, *_ = json.loads(Path("dpo/training_log.json").read_text())
    for apart in (expected[0] - math.log(2), first["rewards/margins"]):
        assert abs(apart) < 1e-6 if start == "sft" else abs(apart) > 1e-3, "the policy starts at the reference or not"


@pytest.mark.parametrize(("dtype", "near", "other"), [("float32", 1e-4, 0.01), ("bfloat16", 1e-3, 2.0)])
def test_the_reference_of_the_pairs_is_the_live_one_or_refused(deep, trained, capfd, dtype, near, other):
    """In bfloat16 a reader's reference differs from training's: a training computes it anew for such pairs."""
    model, read = {"model": on_cpu(path=deep) | {"dtype": dtype}}, training_files("rl")
    drawing = NAMED | model | {"candidates": 9, "temperature": 4.0, "seed": 1}
    keeping = {} if dtype == "float32" else {"keep_reference": True}
    stage("candidates", drawing, **read, **keeping, weights=trained["sft"], out="candidates.jsonl")
    how = {"reward": "sayself", "module": "sayself", "reference": "stated", "leave_one_out": False, "seed": 1}
    read |= {"candidates": "candidates.jsonl", "manifest": "pairs.manifest.json"}
    stage("pairs", NAMED | how, **read, out="kept.jsonl", from_reference=True)
    kept, losses = lines("kept.jsonl"), {}
    write("live.jsonl", [{key: value for key, value in pair.items() if key[:4] != "ref_"} for pair in kept])
    for name, off in (("read", 0.1), ("other", other)):
        write(f"{name}.jsonl", [pair | {"ref_chosen_logps": pair["ref_chosen_logps"] + off} for pair in kept])
    settings = training(deep, epochs=3, batch_size=4, beta=0.7) | model
    for name in ("kept", "live", "read") if dtype == "bfloat16" else ("kept", "live"):
        stage("dpo", settings, pairs=f"{name}.jsonl", sft=trained["sft"], out=name)
        said, losses[name] = capfd.readouterr().err, losses_of(name)
        assert ("x reference] 3/3" in said) == (name != "kept")
        assert ("x check of the reference] 3/3" in said) == (name != "live")
    assert losses["kept"][0] == pytest.approx(math.log(2), abs=5e-5), "it starts at the reference"
    assert losses["kept"] == pytest.approx(losses["live"], abs=near)
    assert losses.get("read", losses["live"]) == losses["live"]
    with pytest.raises(AssertionError):
        stage("dpo", settings, pairs="other.jsonl", sft=trained["sft"], out="other")
    assert re.search("ref_chosen_logps .* were sampled from other weights", capfd.readouterr().err)


def test_conftuner_is_taught_the_brier_score_of_its_values_and_their_form(deep):
    weights = {"format_weight": 0.3, "spread": 0.2}
    settings = training(deep, epochs=2, batch_size=5, **weights) | {"method": "conftuner", "module": "conftuner"}
    stage("train", settings, **training_files("sft", "rl"), out="conftuner")
    plain, before = pair_of_models(deep)
    endings = np.random.default_rng(11).integers(0, 101, 5).tolist()
    longer = plain.following()

    def loss():
        brier, spread, form = [], [], []
        for (content, _, right), ending in zip(SHOWN, endings, strict=True):
            turns = plain.turns(content, range(101))
            # The end counts where a digit could follow.
            counted = [tokens if more else tokens[:-1] for tokens, more in zip(turns, longer, strict=True)]
            values = torch.stack([tokens.sum() for tokens in counted])
            q = values.softmax(0)
            brier.append((q * (float(right) - torch.arange(101) / 100) ** 2).sum())
            spread.append(values.log_softmax(0).mean())
            form.append(values.logsumexp(0) + (0 if longer[ending] else turns[ending][-1]))
        return torch.stack(brier).mean() - 0.2 * torch.stack(spread).mean() - 0.3 * torch.stack(form).mean()

    expected = optimized(plain, loss, 2)
    assert losses_of("conftuner") == pytest.approx(expected, abs=1e-3)
    same_weights("conftuner", plain, before)


def test_the_brier_score_of_a_uniform_distribution_is_the_mean_square():
    """The models here are nearly sure of 0 or 1, where an absolute error is the same."""
    squares = sum((1 - percent / 100) ** 2 for percent in range(101)) / 101
    assert tokenized_brier.tokenized_brier(torch.zeros(1, 101), torch.ones(1)).item() == pytest.approx(squares)


def test_a_method_of_ones_own_gets_the_realised_pairs_and_its_settings(deep):
    Path("mine.py").write_text("""
import json, pathlib
LABEL, KIND = "Mine", "stated"
def train(pairs, settings, out):
    pathlib.Path(out).mkdir()
    pathlib.Path(out, "manifest.json").write_text(json.dumps({"pairs": pairs, "settings": settings}))
""")
    settings = training(deep, epochs=1, strength=5) | {"method": "mine", "module": "mine.py"}
    stage("train", settings, **training_files("rl"), out="mine")
    got = json.loads(Path("mine/manifest.json").read_text())
    assert got["pairs"] == [
        {"id": name, "prompt": [{"role": "user", "content": content}], "kappa": kappa, "correct": correct}
        for name, (content, kappa, correct) in zip(("n2", "n3", "n4"), SHOWN[2:], strict=True)
    ]
    assert got["settings"]["stage"] == STAGE | {"epochs": 1, "strength": 5} and got["settings"]["seed"] == 11


def constrained(plain: Plain, content: str) -> int:
    """The value that greedy decoding states where only the tokens of a value, or its end, may follow."""
    end = plain.tokenizer.eos_token_id
    values = [[*plain.ids(f"Confidence: {percent}"), end] for percent in range(101)]
    done: list[int] = []
    while done not in values:
        following = {ids[len(done)] for ids in values if ids[: len(done)] == done}
        scores = plain.next_scores(content, done).softmax(-1)
        share = {token: scores[token].item() for token in following - {end}}
        if end in following:  # whatever is not a digit that goes on ends the value
            share[end] = 1 - sum(share.values())
        done.append(max(share, key=share.__getitem__))
    return values.index(done)


@pytest.mark.parametrize("which", ["untrained", "trained"])
def test_a_stated_confidence_is_of_the_greedy_text_and_mean_and_mass_of_the_distribution(deep, trained, which):
    questions = [*QUESTIONS, asked("q3", "elk"), asked("q4", "dog")]
    samples = [*TESTED, sampled("q3", "test", ["elk"], [True], greedy("elk", True))]
    samples.append(sampled("q4", "test", ["cat"], [False], greedy("cat", False)))
    settings = NAMED | {"model": on_cpu(path=deep), "mode": True}
    weights = {"weights": trained["whole"]} if which == "trained" else {}
    # Records of another split, with the same ids: the test reads the greedy answers of the test split.
    others = [record | {"split": "validation", "greedy": greedy("yak", False)} for record in samples]
    files = {"prompts": write("test.jsonl", questions), "samples": write("samples.jsonl", samples[::-1] + others)}
    stage("state", settings, **files, **weights, readout="mean", out="stated.jsonl")
    stage("state", settings, **files, **weights, split="validation", out="validation.jsonl")
    assert {row["answer"] for row in lines("validation.jsonl")} == {"yak"}
    plain = Plain(weights.get("weights", deep))
    rows = lines("stated.jsonl")
    assert [row["id"] for row in rows] == ["q0", "q1", "q2", "q3", "q4"]
    for row, question, record in zip(rows, questions, samples, strict=True):
        answer, correct = record["greedy"]["answer"], record["greedy"]["correct"]
        content = JUDGE.format(question=question["question"], answer=f"<{answer}>" if answer else "(none)")
        logprobs = plain.distribution(content)
        share = np.exp(logprobs - np.logaddexp.reduce(logprobs))
        text = plain.written(content, 12)
        said = re.fullmatch(r"Confidence: (\d{1,2}|100)", text)
        percent = int(said[1]) if said else constrained(plain, content)
        assert row == {
            "id": question["id"], "answer": answer, "correct": correct, "f1": None, "stated": percent / 100,
            "mean": pytest.approx(float(share @ np.arange(101) / 100), abs=5e-3), "mass": pytest.approx(np.exp(logprobs).sum(), abs=1e-2),
            "raw": text if said else [text, f"Confidence: {percent}"], "retried": said is None,
            "mode": int(logprobs.argmax()) / 100, "confidence": row["mean"],
        }  # fmt: skip
    retried = {row["retried"] for row in rows}
    assert retried == {True} if which == "untrained" else False in retried


@pytest.mark.parametrize("which", ["adapter", "whole"])
def test_candidates_are_drawn_at_the_temperature_with_a_seed_of_each_prompt(deep, trained, which):
    weights = trained["sft" if which == "adapter" else "whole"]
    twice = TRAINING["rl"] + [asked("n5", "dog")]  # the first prompt once more
    Path("surrogate.csv").write_text(SURROGATE + "n5,rl,2,4,0.5,dog,1\n")
    prompts = {"rl": write("rl.jsonl", twice)}
    settings = NAMED | {"model": on_cpu(path=deep), "candidates": 3000, "temperature": 4.0, "seed": 1}
    read = {"surrogate": "surrogate.csv", "prompts": prompts, "weights": weights}
    kept = {"keep_reference": True} if which == "adapter" else {}
    stage("candidates", settings, **read, **kept, out="candidates.jsonl")
    rows = lines("candidates.jsonl")
    plain = Plain(weights) if which == "whole" else Plain(deep, weights)
    shown = [("n2", 0.5, True), ("n3", 0.0, False), ("n4", 1.0, True), ("n5", 0.5, True)]
    assert [(row["id"], row["kappa"], row["correct"]) for row in rows] == shown
    for row, (content, *_) in zip(rows, [*SHOWN[2:], SHOWN[2]], strict=True):
        logprobs, drawn = plain.distribution(content), Counter(round(100 * value) for value in row["confidences"])
        assert row["stated"] == constrained(plain, content) / 100
        likely = np.flatnonzero(logprobs > logprobs.max() - math.log(500)).tolist()
        assert [row["logprobs"][percent] for percent in likely] == pytest.approx(logprobs[likely].tolist(), abs=2e-3)
        assert row["raw"] == [f"Confidence: {round(100 * value)}" for value in row["confidences"]]
        own = [logprobs[round(100 * value)] for value in row["confidences"]]
        assert row["completion_logprobs"] == pytest.approx(own, abs=2e-3)
        assert row.get("reference") == (pytest.approx(logprobs.tolist(), abs=2e-3) if which == "adapter" else None)
        heated = np.exp(plain.before_ends(content) / 4)
        share = heated / heated.sum()
        assert sum(drawn.values()) == 3000 and share.max() < 0.9
        for percent in np.flatnonzero(share > 0.01).tolist():
            assert drawn[percent] / 3000 == pytest.approx(share[percent], abs=4 * math.sqrt(share[percent] / 3000))
    assert rows[0]["confidences"] != rows[3]["confidences"], "the same prompt under another id"
    modes = [int(np.argmax(row["logprobs"])) / 100 for row in rows]
    if which == "adapter":
        assert modes != [row["stated"] for row in rows], "the stated value is told from the likeliest one"
