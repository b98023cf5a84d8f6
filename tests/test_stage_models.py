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
from conftest import random_model
from plain_models import Plain, losses_of, optimized, preference
from safetensors.torch import load_file
from stages_by_hand import JUDGE, WORDS, asked, greedy, lines, sampled, stage, write
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

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
    more = {"num_hidden_layers": 3, "max_position_embeddings": 256}
    model = random_model(LlamaConfig, LlamaForCausalLM, tokenizer, seed=5, **more)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(autouse=True)
def speed(monkeypatch):
    monkeypatch.setenv("ORCE_SPEED", json.dumps(SPEED))


def source(folder) -> dict:
    return {"source": {"path": str(folder)}, "dtype": "float32", "device": "cpu", "template_kwargs": {}}


# Stage one


def sampling(deep, **more) -> dict:
    how = {
        "engine": "transformers",
        "samples": 4,
        "temperature": 0.8,
        "top_p": 1.0,
        "max_tokens": 3,
        "shots": None,
        "seed": 1,
    }
    return NAMED | {"model": source(deep)} | how | more


def test_samples_are_drawn_at_the_temperature_and_the_greedy_text_is_the_likeliest(deep):
    questions = [asked("q0", "ant"), asked("q1", "ant"), asked("q2", "bee")]
    stage(
        "sample",
        sampling(deep, samples=3000, max_tokens=1),
        prompts={"test": write("test.jsonl", questions)},
        out="samples.jsonl",
    )
    rows, plain = lines("samples.jsonl"), Plain(deep)
    for row, question in zip(rows, questions, strict=True):
        content = f"Task: {question['question']}"
        with torch.no_grad():
            logits = plain.model(torch.tensor([plain.prompt(content)])).logits[0, -1].double()
        share = Counter()
        for token, probability in enumerate(torch.softmax(logits / 0.8, -1).tolist()):
            share[plain.tokenizer.decode([token], skip_special_tokens=True)] += probability
        drawn = Counter(row["raw"])
        assert sum(drawn.values()) == 3000
        likely = [text for text, probability in share.items() if probability > 0.02]
        assert len(likely) > 3
        for text in likely:
            assert drawn[text] / 3000 == pytest.approx(share[text], abs=4 * math.sqrt(share[text] / 3000))
        assert row["greedy"]["raw"] == plain.written(content, 1)
    assert rows[0]["raw"] != rows[1]["raw"], "each question has draws of its own"


def test_a_nucleus_has_the_fewest_tokens_that_hold_its_share(deep):
    stage(
        "sample",
        sampling(deep, samples=1000, max_tokens=1, top_p=0.4),
        prompts={"sft": write("sft.jsonl", [asked("q", "ant")])},
        out="samples.jsonl",
    )
    plain = Plain(deep)
    with torch.no_grad():
        weights = torch.softmax(
            plain.model(torch.tensor([plain.prompt("Task: Say ant.")])).logits[0, -1].double() / 0.8, -1
        )
    order = weights.argsort(descending=True)
    kept = int((weights[order].cumsum(0) < 0.4).sum()) + 1
    nucleus = [plain.tokenizer.decode([token], skip_special_tokens=True) for token in order[:kept].tolist()]
    (row,) = lines("samples.jsonl")
    assert {*row["raw"]} == {*nucleus} and len(row["raw"]) == 1000 and kept > 3 and "greedy" not in row


def test_a_record_has_the_answers_in_its_texts_and_whether_they_are_right(deep):
    plain = Plain(deep)
    said = plain.written("Task: Say ant.", 3)
    questions = [asked("q0", "ant", said.strip()), asked("q1", "bee")]
    files = {"rl": write("rl.jsonl", questions), "test": write("test.jsonl", questions)}
    stage("sample", sampling(deep, samples=6), prompts=files, out="samples.jsonl")
    rows = lines("samples.jsonl")
    assert [(row["split"], row["id"]) for row in rows] == [("rl", "q0"), ("rl", "q1"), ("test", "q0"), ("test", "q1")]
    for row, question in zip(rows, [*questions, *questions], strict=True):
        answers = [text.strip() or None for text in row["raw"]]
        assert len(answers) == 6 and row["answers"] == answers
        assert row["read_by"] == [answer and "task" for answer in answers]
        assert row["correct"] == [answer in question["reference"] for answer in answers]
        if row["split"] == "test":
            text = plain.written(f"Task: {question['question']}", 3)
            best = greedy(text.strip() or None, text.strip() in question["reference"], text)
            assert row["greedy"] == best | {"read_by": "task"}
        else:
            assert "greedy" not in row
    assert [row["greedy"]["correct"] for row in rows[2:]] == [True, False]


# Likelihoods and states of the answer LLM

TESTED = [
    sampled("q0", "test", ["ant", "bee", "bee", None], [True, False, False, False], greedy("ant", True, "It is ant")),
    sampled("q1", "test", ["cat", "dog", "Cat", "cat"], [False, True, False, False], greedy("dog", True, "dog")),
    sampled("q2", "test", [None, None, "elk", "fox"], [False] * 4, greedy(None, False, "")),
]
QUESTIONS = [asked("q0", "ant"), asked("q1", "dog"), asked("q2", "gnu")]
TRUE_OR_FALSE = (
    "Question: {question}\n\nHere are some brainstormed ideas:\n{ideas}\n\nPossible answer: {answer}\n\n"
    "Is the possible answer:\nA. True\nB. False\n\nReply with only the letter."
)


def read_likelihoods(deep, of: str) -> list[dict]:
    files = {"prompts": write("test.jsonl", QUESTIONS), "samples": write("samples.jsonl", TESTED)}
    stage("likelihoods", NAMED | {"model": source(deep), "shots": None, "scored": of}, **files, out=f"{of}.jsonl")
    return lines(f"{of}.jsonl")


def test_likelihoods_are_of_the_greedy_reply_and_p_true_of_the_letter_a_after_the_samples_as_ideas(deep):
    plain = Plain(deep)
    ideas = ["<bee>\n<ant>", "<cat>\n<dog>\n<Cat>", "<elk>\n<fox>"]  # each once, the frequent ones first
    for row, record, question, listed in zip(read_likelihoods(deep, "greedy"), TESTED, QUESTIONS, ideas, strict=True):
        with torch.no_grad():
            (own,) = plain.logprobs(f"Task: {question['question']}", [plain.ids(record["greedy"]["raw"])])
            shown = f"<{record['greedy']['answer']}>" if record["greedy"]["answer"] else "(none)"
            content = TRUE_OR_FALSE.format(question=question["question"], ideas=listed, answer=shown)
            true, false = (
                tokens.double().sum().exp().item()
                for tokens in plain.logprobs(content, [plain.ids("A"), plain.ids("B")])
            )
        assert row == {
            "id": record["id"], "logprobs": pytest.approx(own.tolist(), abs=1e-4),
            "p_true": pytest.approx(true / (true + false), abs=1e-5), "p_true_mass": pytest.approx(true + false, rel=1e-3),
        }  # fmt: skip
        assert abs(row["p_true"] - 0.5) > 0.01, "told from its opposite"


def test_the_thoughts_before_an_answer_have_no_part_in_its_likelihood(deep):
    reply = greedy("ant", True, "<think>so</think>ant")
    samples = write("samples.jsonl", [sampled("q0", "test", ["ant"], [True], reply)])
    settings = NAMED | {"model": source(deep), "shots": None}
    stage("likelihoods", settings, prompts=write("test.jsonl", QUESTIONS[:1]), samples=samples, out="greedy.jsonl")
    plain = Plain(deep)
    with torch.no_grad():
        (whole,) = plain.logprobs("Task: Say ant.", [plain.ids(reply["raw"])])
    thoughts = len(plain.ids("<think>so</think>"))
    assert lines("greedy.jsonl")[0]["logprobs"] == pytest.approx(whole[thoughts:].tolist(), abs=1e-4)


def test_the_log_probabilities_of_samples_are_those_of_each_text_in_its_order(deep):
    plain = Plain(deep)
    for row, record, question in zip(read_likelihoods(deep, "samples"), TESTED, QUESTIONS, strict=True):
        with torch.no_grad():
            own = plain.logprobs(f"Task: {question['question']}", [plain.ids(text) for text in record["raw"]])
        assert row == {
            "id": record["id"],
            "sample_logprobs": [pytest.approx(tokens.tolist(), abs=1e-4) for tokens in own],
        }


SURROGATE = (
    "id,split,n_correct,n_samples,kappa,answer,answer_correct\n"
    "n0,sft,1,4,0.25,bee,0\n"
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
    (JUDGE.format(question="Say ant.", answer="<bee>"), 0.25, False),
    (JUDGE.format(question="Say cat.", answer="<cat>"), 0.75, True),
    (JUDGE.format(question="Say dog.", answer="<dog>"), 0.5, True),
    (JUDGE.format(question="Say newt.", answer="(none)"), 0.0, False),
    (JUDGE.format(question="Say elk.", answer="<elk>"), 1.0, True),
]


def training_files(*splits: str) -> dict:
    Path("surrogate.csv").write_text(SURROGATE)
    return {"surrogate": "surrogate.csv", "prompts": {name: write(f"{name}.jsonl", TRAINING[name]) for name in splits}}


def unpacked(layers: list[str]) -> np.ndarray:
    return np.stack([np.frombuffer(base64.b64decode(layer), "<f2") for layer in layers]).astype(float)


def test_states_are_those_at_the_ends_of_prompt_and_reply_of_the_realised_and_the_greedy_answer(deep):
    """Depth .3 and .7 of three layers are the first and the second, whose outputs are the inputs of the next."""
    records = [
        sampled("n0", "sft", ["ant", "bee", "bee", None], [True, False, False, False]),
        sampled("n1", "sft", ["ant", "ant", "ant", "cat"], [False, False, False, True]),
        *TESTED,
    ]
    rows = "".join(f"{name},test,1,4,0.25,x,1\n" for name in ("q1", "q2"))
    Path("surrogate.csv").write_text(SURROGATE + rows)
    files = {"sft": write("sft.jsonl", TRAINING["sft"]), "test": write("test.jsonl", QUESTIONS)}
    replies = ["bee 1", "cat 3", "It is ant", "dog", ""]  # of a realised answer the first reply that has it
    plain = Plain(deep)

    def expected(content: str, reply: str) -> np.ndarray:
        ids = plain.prompt(content) + plain.ids(reply)
        with torch.no_grad():
            hidden = plain.model(torch.tensor([ids]), output_hidden_states=True).hidden_states
        return np.stack([hidden[layer][0, -1].numpy() for layer in (1, 2)])

    def near(state, own) -> bool:
        return np.abs(unpacked(state) - own).max() < 2e-3 * np.abs(own).max()

    settings = NAMED | {"model": source(deep), "shots": None, "depths": [0.3, 0.7]}
    given = {"prompts": files, "samples": write("samples.jsonl", records), "surrogate": "surrogate.csv"}
    stage("states", settings | {"model_read": "answers"}, **given, out="answers.jsonl")
    found = lines("answers.jsonl")
    assert [(row["split"], row["id"]) for row in found] == [
        ("sft", "n0"),
        ("sft", "n1"),
        ("test", "q0"),
        ("test", "q1"),
        ("test", "q2"),
    ]
    for row, question, reply in zip(found, TRAINING["sft"] + QUESTIONS, replies, strict=True):
        content = f"Task: {question['question']}"
        assert near(row["question"], expected(content, "")) and near(row["answer"], expected(content, reply))
    stage("states", settings | {"model_read": "judge"}, **given, out="judge.jsonl")
    answers = ["<bee>", "<cat>", "<ant>", "<dog>", "(none)"]
    for row, question, answer in zip(lines("judge.jsonl"), TRAINING["sft"] + QUESTIONS, answers, strict=True):
        assert near(row["judge"], expected(JUDGE.format(question=question["question"], answer=answer), ""))


# The trainings, beside a plain loop


STAGE = {"learning_rate": 0.01, "warmup_ratio": 0.0, "scheduler": "constant", "weight_decay": 0.0}
LORA = {"r": 4, "alpha": 12, "dropout": 0.0, "target_modules": ["q_proj", "down_proj"], "last_layers": 2}


def training(deep, method: str = "lora", **stage_settings) -> dict:
    how = {"method": method, "lora": LORA, "checkpointing": False, "save_steps": 100}
    return NAMED | {"model": source(deep), "training": how, "stage": STAGE | stage_settings, "seed": 11}


def new_adapter(plain: Plain) -> None:
    """LORA over a plain model, with the random start of the seed."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(11)
    how = {"r": 4, "lora_alpha": 12, "target_modules": ["q_proj", "down_proj"], "layers_to_transform": [1, 2]}
    plain.model = get_peft_model(plain.model, LoraConfig(task_type="CAUSAL_LM", **how))


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


@pytest.mark.parametrize("method", ["lora", "full"])
def test_the_warm_start_is_adamw_on_the_statements_of_kappa_with_warm_up_schedule_and_decay(deep, method):
    """Six steps of all five pairs, half of them warm-up: the rates are 0, 1/3, 2/3, 1, 3/4 and 1/4 of the highest."""
    settings = training(
        deep, method, target="kappa", epochs=6, batch_size=5, warmup_ratio=0.5, scheduler="cosine", weight_decay=0.3
    )
    stage("sft", settings, **training_files("sft", "rl"), out="sft")
    plain, before = Plain(deep), Plain(deep)
    for one in (plain, before):
        if method == "lora":
            new_adapter(one)

    def loss():
        tokens = [plain.turns(content, [math.floor(100 * kappa + 0.5)])[0] for content, kappa, _ in SHOWN]
        return -torch.cat(tokens).mean()

    factors = [0, 1 / 3, 2 / 3, 1, 0.75, 0.25]
    expected = optimized(plain, loss, 6, lambda step: 0.01 * factors[step], decay=0.3)
    assert losses_of("sft") == pytest.approx(expected, abs=1e-3)
    same_weights("sft", plain, before)
    facts = json.loads(Path("sft/manifest.json").read_text())
    assert (facts["steps"], facts["examples"]) == (6, 5)


@pytest.mark.parametrize("tokens", [60, 130])
def test_a_step_in_micro_batches_is_that_of_all_its_examples_at_once(deep, monkeypatch, tokens):
    """Three statements of 6 tokens and two of 4, alone or four beside one: the loss is a mean over all 26 tokens."""
    monkeypatch.setenv("ORCE_SPEED", json.dumps(SPEED | {"training": {"micro_batch_tokens": tokens}}))
    stage("sft", training(deep, target="kappa", epochs=2, batch_size=5), **training_files("sft", "rl"), out="sft")
    plain, before = Plain(deep), Plain(deep)
    new_adapter(plain)
    new_adapter(before)

    def loss():
        stated = [plain.turns(content, [math.floor(100 * kappa + 0.5)])[0] for content, kappa, _ in SHOWN]
        assert [len(tokens) for tokens in stated] == [6, 6, 6, 4, 4]
        return -sum(tokens.sum() for tokens in stated) / 26

    assert losses_of("sft") == pytest.approx(optimized(plain, loss, 2), abs=1e-5)
    same_weights("sft", plain, before)


def test_an_epoch_has_each_example_once_in_steps_of_the_batch_size(deep):
    stage("sft", training(deep, target="kappa", epochs=2, batch_size=2), **training_files("sft", "rl"), out="sft")
    log = json.loads(Path("sft/training_log.json").read_text())
    assert [entry["step"] for entry in log] == [1, 2, 3, 4, 5, 6]
    assert [entry["epoch"] for entry in log] == pytest.approx([1 / 3, 2 / 3, 1, 4 / 3, 5 / 3, 2])


def pair(number: int, better: int, worse: int) -> dict:
    turns = {
        side: [{"role": "assistant", "content": f"Confidence: {percent}"}]
        for side, percent in (("chosen", better), ("rejected", worse))
    }
    return {"id": f"p{number}", "prompt": [{"role": "user", "content": SHOWN[number][0]}]} | turns


PAIRS = [(0, 20, 85), (1, 70, 5), (2, 50, 100), (3, 1, 60)]
COMPARED = [(SHOWN[number][0], better, worse) for number, better, worse in PAIRS]


@pytest.fixture(scope="module")
def trained(deep, tmp_path_factory) -> dict[str, Path]:
    """A warm start, and another training in the place of an earlier round of DPO."""
    root, made = tmp_path_factory.mktemp("trained"), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        for name, epochs, rate in (("sft", 2, 0.01), ("round", 6, 0.05)):
            stage(
                "sft",
                training(deep, target="kappa", epochs=epochs, batch_size=5, learning_rate=rate),
                **training_files("sft", "rl"),
                out=name,
            )
            made[name] = root / name
    return made


def test_the_first_round_of_dpo_starts_at_the_warm_start_which_is_its_reference(deep, trained):
    stage(
        "dpo",
        training(deep, epochs=3, batch_size=4, beta=0.7),
        pairs=write("pairs.jsonl", [pair(*one) for one in PAIRS]),
        sft=trained["sft"],
        out="dpo",
    )
    plain, before = Plain(deep, trained["sft"], trained=True), Plain(deep, trained["sft"])
    expected = optimized(plain, preference(plain, before, COMPARED, 0.7), 3)
    assert losses_of("dpo") == pytest.approx(expected, abs=1e-4) and expected[0] == pytest.approx(math.log(2))
    same_weights("dpo", plain, before)


def test_a_later_round_of_dpo_goes_on_from_the_round_before_and_its_reference_stays_the_warm_start(deep, trained):
    stage(
        "dpo", training(deep, epochs=3, batch_size=4, beta=0.7), pairs=write("pairs.jsonl", [pair(*one) for one in PAIRS]),
        sft=trained["sft"], start=trained["round"], out="dpo",
    )  # fmt: skip
    plain, before = Plain(deep, trained["round"], trained=True), Plain(deep, trained["round"])
    expected = optimized(plain, preference(plain, Plain(deep, trained["sft"]), COMPARED, 0.7), 3)
    assert losses_of("dpo") == pytest.approx(expected, abs=1e-4)
    assert abs(expected[0] - math.log(2)) > 1e-3, "the policy does not start at its reference"
    same_weights("dpo", plain, before)
    log = json.loads(Path("dpo/training_log.json").read_text())
    assert abs(log[0]["rewards/margins"]) > 1e-3


def test_conftuner_is_taught_the_brier_score_of_its_values_and_their_form(deep):
    weights = {"format_weight": 0.3, "spread": 0.2}
    settings = training(deep, epochs=2, batch_size=5, **weights) | {"method": "conftuner", "module": "conftuner"}
    stage("train", settings, **training_files("sft", "rl"), out="conftuner")
    plain, before = Plain(deep), Plain(deep)
    new_adapter(plain)
    new_adapter(before)
    endings = np.random.default_rng(11).integers(0, 101, 5).tolist()

    longer = plain.following()

    def loss():
        brier, spread, form = [], [], []
        for (content, _, right), ending in zip(SHOWN, endings, strict=True):
            turns = plain.turns(content, range(101))
            # The end counts where a digit could follow.
            values = torch.stack(
                [tokens.sum() if more else tokens[:-1].sum() for tokens, more in zip(turns, longer, strict=True)]
            )
            q = values.softmax(0)
            brier.append((q * (float(right) - torch.arange(101) / 100) ** 2).sum())
            spread.append(values.log_softmax(0).mean())
            form.append(values.logsumexp(0) + (0 if longer[ending] else turns[ending][-1]))
        return torch.stack(brier).mean() - 0.2 * torch.stack(spread).mean() - 0.3 * torch.stack(form).mean()

    expected = optimized(plain, loss, 2)
    assert losses_of("conftuner") == pytest.approx(expected, abs=1e-3)
    same_weights("conftuner", plain, before)


OWN = """
import json
LABEL, KIND, SETTINGS, TRAINED_ON = "Mine", "stated", {"strength": 2}, ("rl",)
def train(pairs, settings, out):
    out = __import__("pathlib").Path(out)
    out.mkdir()
    (out / "got.json").write_text(json.dumps({"pairs": pairs, "stage": settings["stage"], "seed": settings["seed"]}))
    (out / "manifest.json").write_text("{}")
"""


def test_a_method_of_ones_own_gets_the_realised_pairs_and_its_settings(deep):
    Path("mine.py").write_text(OWN)
    settings = training(deep, epochs=1, strength=5) | {"method": "mine", "module": "mine.py"}
    stage("train", settings, **training_files("rl"), out="mine")
    assert json.loads(Path("mine/got.json").read_text()) == {
        "pairs": [
            {"id": name, "prompt": [{"role": "user", "content": content}], "kappa": kappa, "correct": correct}
            for name, (content, kappa, correct) in zip(("n2", "n3", "n4"), SHOWN[2:], strict=True)
        ],
        "stage": STAGE | {"epochs": 1, "strength": 5},
        "seed": 11,
    }


# What the confidence LLM says


@pytest.fixture(scope="module")
def judge(deep, tmp_path_factory) -> Path:
    """A confidence LLM that has learnt to state confidences, and not yet the same for all."""
    root = tmp_path_factory.mktemp("judge")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        stage(
            "sft",
            training(deep, "full", target="kappa", epochs=60, batch_size=5),
            **training_files("sft", "rl"),
            out="sft",
        )
    return root / "sft"


def constrained(plain: Plain, content: str) -> int:
    """The value that greedy decoding states where only the tokens of a value, or its end, may follow."""
    end = plain.tokenizer.eos_token_id
    values = {percent: [*plain.ids(f"Confidence: {percent}"), end] for percent in range(101)}
    done: list[int] = []
    while True:
        following = sorted(
            {ids[len(done)] for ids in values.values() if ids[: len(done)] == done and len(ids) > len(done)}
        )
        if not following:
            return next(percent for percent, ids in values.items() if ids == done)
        with torch.no_grad():
            scores = plain.model(torch.tensor([plain.prompt(content) + done])).logits[0, -1].softmax(-1)
        digits = [token for token in following if token != end]
        # Whatever is no digit that goes on ends the value.
        share = {token: scores[token].item() for token in digits}
        if len(digits) < len(following):
            share[end] = 1 - sum(share.values())
        done.append(max(share, key=share.__getitem__))


@pytest.mark.parametrize("which", ["untrained", "trained"])
def test_a_stated_confidence_is_that_of_the_greedy_text_with_mean_and_mass_of_the_distribution(deep, judge, which):
    questions = [*QUESTIONS, asked("q3", "elk"), asked("q4", "dog")]
    samples = [
        *TESTED,
        sampled("q3", "test", ["elk"], [True], greedy("elk", True)),
        sampled("q4", "test", ["cat"], [False], greedy("cat", False)),
    ]
    settings = NAMED | {"model": source(deep), "mode": True}
    weights = {"weights": judge} if which == "trained" else {}
    # Records of another split, with the same ids: the test reads the greedy answers of the test split.
    others = [record | {"split": "validation", "greedy": greedy("yak", False)} for record in samples]
    files = {"prompts": write("test.jsonl", questions), "samples": write("samples.jsonl", samples[::-1] + others)}
    stage("state", settings, **files, **weights, readout="mean", out="stated.jsonl")
    stage("state", settings, **files, **weights, split="validation", out="validation.jsonl")
    assert {row["answer"] for row in lines("validation.jsonl")} == {"yak"}
    plain = Plain(judge if which == "trained" else deep)
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
def test_candidates_are_drawn_at_the_temperature_with_a_seed_of_each_prompt(deep, judge, trained, which):
    weights = judge if which == "whole" else trained["sft"]
    twice = TRAINING["rl"] + [asked("n5", "dog")]  # the first prompt once more
    surrogate = SURROGATE + "n5,rl,2,4,0.5,dog,1\n"
    Path("surrogate.csv").write_text(surrogate)
    settings = NAMED | {
        "model": source(deep),
        "candidates": 3000,
        "temperature": 4.0,
        "seed": 1,
    }
    stage(
        "candidates",
        settings,
        surrogate="surrogate.csv",
        prompts={"rl": write("rl.jsonl", twice)},
        weights=weights,
        out="candidates.jsonl",
        **({"keep_reference": True} if which == "adapter" else {}),
    )
    rows = lines("candidates.jsonl")
    plain = Plain(judge) if which == "whole" else Plain(deep, weights)
    assert [(row["id"], row["kappa"], row["correct"]) for row in rows] == [
        ("n2", 0.5, True), ("n3", 0.0, False), ("n4", 1.0, True), ("n5", 0.5, True)
    ]  # fmt: skip
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
