"""Each stage that loads no model, on a few lines whose result is written down here, or worked out by numpy, scipy and scikit-learn.

The stages that load one: test_stage_models.py. Rounds of DPO and who reads what: test_rounds.py.
"""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy import optimize, stats
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from stages_by_hand import WORDS, area, asked, calibration, greedy, lines, sampled, stage, stated, write
from test_apis import Api, choice

pytestmark = pytest.mark.usefixtures("folder", "direct")

NAMED = {"task": WORDS, "label": "x"}


# Questions, answers and kappa


def drawn(split: str, splits: dict, **more) -> list[str]:
    """The ids that the stage prompts freezes."""
    settings = {"dataset": "words", "task": WORDS, "source": {}, "splits": splits, "seed": 3, "tests": [], **more}
    stage("prompts", settings, split=split, out=f"{split}.jsonl", manifest=f"{split}.manifest.json")
    return [example["id"] for example in lines(f"{split}.jsonl")]


def test_splits_are_cut_from_one_shuffled_order_and_keep_the_order_of_their_source():
    splits = {"sft": {"from": "train", "size": 5}, "rl": {"from": "train", "size": "1/2"}, "test": {"from": "test"}}
    # numpy.random.default_rng(3).permutation(16) is 11 15 9 1 12 2 14 10 | 0 4 7 6 13 | 5 3 8: rl is cut before sft.
    assert drawn("rl", splits) == ["n01", "n02", "n09", "n10", "n11", "n12", "n14", "n15"]
    assert drawn("sft", splits) == ["n00", "n04", "n06", "n07", "n13"]
    assert drawn("test", splits) == ["t0", "t1", "t2", "t3", "t4", "t5"]
    assert lines("sft.jsonl")[0] == asked("n00", "ant")


def test_overlapping_questions_are_told_by_kind_and_removed_from_the_training_splits_alone():
    train = [asked("same", "ant"), asked("twin", "bee and cat"), asked("other", "dog")]
    test = [asked("a", "ant"), asked("b", "cat and bee")]
    stage("overlap", train=[write("rl.jsonl", train)], test=write("test.jsonl", test), task=WORDS, out="overlap.json")
    assert json.loads(Path("overlap.json").read_text()) == {
        "rl.jsonl": {
            "n_train": 3, "n_test": 2, "exact": 1, "twin": 1, "near": 0,
            "matches": [
                {"train": "same", "test": "a", "kind": "exact", "containment": 1.0},
                {"train": "twin", "test": "b", "kind": "twin", "containment": 1.0},
            ],
        }
    }  # fmt: skip


def test_kappa_is_the_share_of_right_samples_and_the_realised_answer_is_of_the_majority():
    records = [
        sampled("half", "sft", ["ant", "ant", "bee", None], [True, True, False, False]),
        sampled("quarter", "rl", ["cat", "dog", "cat", "cat"], [False, True, False, False]),
        sampled("unread", "rl", [None, None], [False, False]),
        sampled("tested", "test", ["elk", "fox", "fox", "fox"], [False, True, True, True], greedy("elk", False)),
        sampled("tuned", "validation", ["gnu", "hen"], [False, False], greedy("gnu", True)),
    ]
    write("samples.jsonl", records)
    stage("surrogate", samples="samples.jsonl", seed=1, out="surrogate.csv")
    assert Path("surrogate.csv").read_text() == (
        "id,split,n_correct,n_samples,kappa,answer,answer_correct\n"
        "half,sft,2,4,0.5,ant,1\n"
        "quarter,rl,1,4,0.25,cat,0\n"
        "unread,rl,0,2,0.0,,0\n"
        "tested,test,3,4,0.75,elk,0\n"
        "tuned,validation,0,2,0.0,gnu,1\n"
    )
    stage("surrogate", samples="samples.jsonl", seed=1, out="whole.csv", reasoning=True)
    whole = Path("whole.csv").read_text().splitlines()
    assert whole[0].endswith(",answer_correct,raw") and whole[4] == "tested,test,3,4,0.75,elk,0,elk"
    assert whole[1] in ("half,sft,2,4,0.5,ant,1,ant 0", "half,sft,2,4,0.5,ant,1,ant 1"), "a reply with that answer"


def replying(body, headers):
    """A server that answers bee and, one choice in three, elk with its question's word; and to a greedy request always."""
    word = body["messages"][-1]["content"].removeprefix("Task: Say ").removesuffix(".")
    if body["temperature"] == 0:
        return 200, {"choices": [choice(f" {word} ")]}
    texts = [f"{word}", "", "elk"]
    return 200, {"choices": [choice(texts[i % 3], i) for i in range(body.get("n", 1))]}


def test_a_question_has_k_samples_each_scored_and_a_tested_one_its_greedy_answer():
    files = {
        split: write(f"{split}.jsonl", [asked(f"{split}1", "bee"), asked(f"{split}2", "elk")])
        for split in ("sft", "test")
    }
    with Api(replying) as server:
        model = {"source": {"server": server.address, "model": "m"}, "dtype": "float32", "device": "cpu"}
        settings = {
            "model": model,
            "engine": "openai",
            "samples": 5,
            "temperature": 0.7,
            "top_p": 0.9,
            "max_tokens": 4,
            "shots": None,
            "seed": 1,
        }
        stage("sample", NAMED | settings, prompts=files, out="samples.jsonl")
    bee = {
        "answers": ["bee", None, "elk", "bee", None],
        "raw": ["bee", "", "elk", "bee", ""],
        "correct": [True, False, False, True, False],
        "read_by": ["task", None, "task", "task", None],
    }
    elk = {
        "answers": ["elk", None, "elk", "elk", None],
        "raw": ["elk", "", "elk", "elk", ""],
        "correct": [True, False, True, True, False],
        "read_by": ["task", None, "task", "task", None],
    }
    assert lines("samples.jsonl") == [
        {"id": "sft1", "split": "sft", "spent": {"requests": 6, "empty": 8}} | bee,
        {"id": "sft2", "split": "sft"} | elk,
        {"id": "test1", "split": "test"} | bee | {"greedy": greedy("bee", True, " bee ") | {"read_by": "task"}},
        {"id": "test2", "split": "test"} | elk | {"greedy": greedy("elk", True, " elk ") | {"read_by": "task"}},
    ]
    asked_for = {
        (body["temperature"], body.get("n", 1), body.get("top_p"), body["max_tokens"]) for body in server.bodies
    }
    assert asked_for == {(0.7, 5, 0.9, 4), (0.0, 1, None, 4)}


# The confidences of others than a confidence LLM


def talking(body, headers):
    """A server that is sure of ant, forgets the confidence in bee until it is asked for, and never says how sure it is of cat."""
    turns = body["messages"]
    word = turns[0]["content"].rsplit("Say ", 1)[1].removesuffix(".")
    first = f"Explanation: so.\nAnswer: {word}" + ("\nConfidence: 80%" if word == "ant" else "")
    again = "Confidence: 30" if word == "bee" else "Who knows?"
    return 200, {"choices": [choice(first if len(turns) == 1 else again)]}


def test_an_elicited_confidence_is_of_the_reply_that_has_the_answer_or_of_the_second_one():
    questions = [asked("a", "ant"), asked("b", "bee"), asked("c", "cat") | {"reference": ["none"]}]
    with Api(talking) as server:
        model = {"source": {"server": server.address, "model": "m"}, "dtype": "float32", "device": "cpu"}
        settings = {
            "model": model,
            "engine": "openai",
            "method": "cot",
            "module": "cot",
            "options": {"max_tokens": 20, "shots": None},
            "seed": 1,
        }
        stage("elicit", NAMED | settings, prompts=write("test.jsonl", questions), out="cot.jsonl")
    said = [f"Explanation: so.\nAnswer: {word}" for word in ("bee", "cat")]
    first, *others = lines("cot.jsonl")
    assert first.pop("spent") == {"requests": 5}
    whole = "Explanation: so.\nAnswer: ant\nConfidence: 80%"
    assert first == stated("a", True, 0.8, "ant", raw=whole, retried=False)
    assert others == [
        stated("b", True, 0.3, "bee", raw=[said[0], "Confidence: 30"], retried=True),
        stated("c", False, None, "cat", raw=[said[1], "Who knows?"], retried=True),
    ]


SAMPLES = [
    sampled("a", "test", ["ant", "Ant", "bee", None, None], [True, False, False, False, False], greedy("bee", False)),
    sampled("b", "test", ["cat", "dog", "dog", "cat", "elk"], [False, True, True, False, False], greedy("dog", True)),
    sampled("c", "test", [None] * 5, [False] * 5, greedy(None, False, "?")),
    sampled("d", "test", ["fox"] * 5, [True] * 5, greedy("fox", True)),
]
QUESTIONS = [asked("a", "ant"), asked("b", "dog"), asked("c", "gnu"), asked("d", "fox")]
LIKELIHOODS = [
    {"id": "d", "logprobs": [-0.1, -0.2], "p_true": 0.9, "p_true_mass": 1.0},  # not in the order of the questions
    {"id": "a", "logprobs": [-1.0, -3.0], "p_true": 0.2, "p_true_mass": 1.0},
    {"id": "b", "logprobs": [-0.5, -0.7], "p_true": 0.6, "p_true_mass": 1.0},
    {"id": "c", "logprobs": [], "p_true": 0.4, "p_true_mass": 1.0},
]


def derived(method: str, **more) -> list[dict]:
    write("test.jsonl", QUESTIONS)
    write("samples.jsonl", SAMPLES)
    stage(
        "derive",
        task=WORDS,
        method=method,
        prompts="test.jsonl",
        samples="samples.jsonl",
        out=f"{method}.jsonl",
        **more,
    )
    return lines(f"{method}.jsonl")


def test_consistency_is_the_share_of_the_most_frequent_answer_among_all_samples_unread_ones_too():
    answers = [
        ("ant", True, 0.4),
        ("cat", False, 0.4),
        (None, False, 0.0),
        ("fox", True, 1.0),
    ]  # the first of two as frequent
    assert derived("consistency") == [
        {
            "id": record["id"],
            "answer": answer,
            "correct": correct,
            "f1": None,
            "confidence": share,
            "raw": record["answers"],
        }
        for record, (answer, correct, share) in zip(SAMPLES, answers, strict=True)
    ]


@pytest.mark.parametrize(("method", "confidences"), [
    ("agreement", [0.2, 0.4, 0.0, 1.0]),
    # Of five samples: two alike and three apart; two, two and one; all apart, as none could be read; all alike.
    ("num_sets", [(5 - 4) / 4, (5 - 3) / 4, 0.0, 1.0]),
    ("semantic_entropy", [2 * math.log(2) / 5 / math.log(5), 4 * math.log(2) / 5 / math.log(5), 0.0, 1.0]),
])  # fmt: skip
def test_measures_of_the_samples_are_of_the_greedy_answer(method, confidences):
    assert derived(method) == [
        {"id": record["id"], "answer": record["greedy"]["answer"], "correct": record["greedy"]["correct"], "f1": None,
         "confidence": pytest.approx(confidence), "raw": record["greedy"]["raw"]}
        for record, confidence in zip(SAMPLES, confidences, strict=True)
    ]  # fmt: skip


@pytest.mark.parametrize(("method", "confidences"), [
    ("likelihood", [math.exp(-2), math.exp(-0.6), None, math.exp(-0.15)]),
    ("sequence_probability", [math.exp(-4), math.exp(-1.2), None, math.exp(-0.3)]),
    ("min_likelihood", [math.exp(-3), math.exp(-0.7), None, math.exp(-0.2)]),
    ("p_true", [0.2, 0.6, 0.4, 0.9]),
])  # fmt: skip
def test_measures_of_likelihoods_are_those_of_the_same_question(method, confidences):
    found = derived(method, likelihoods=write("likelihoods.jsonl", LIKELIHOODS))
    assert [(record["id"], record["confidence"]) for record in found] == [
        (name, None if confidence is None else pytest.approx(confidence))
        for name, confidence in zip("abcd", confidences, strict=True)
    ]


def test_weighted_semantic_entropy_weighs_each_sample_by_the_mean_of_its_tokens():
    own = [{"id": name, "sample_logprobs": [[-1.0], [-2.0], [-1.5, -0.5], [-3.0], [-1.0]]} for name in "dcba"]
    found = derived("weighted_semantic_entropy", sample_likelihoods=write("sample.jsonl", own))
    # Means -1 -2 -1 -3 -1; of b, cat has the first and the fourth sample, dog the next two, elk the last.
    weight = np.exp([-1.0, -2.0, -1.0, -3.0, -1.0])
    share = np.array([weight[0] + weight[3], weight[1] + weight[2], weight[4]]) / weight.sum()
    assert found[1]["confidence"] == pytest.approx(1 + (share * np.log(share)).sum() / math.log(5), abs=1e-8)
    assert found[3]["confidence"] == 1


def test_given_answers_and_confidences_keep_their_own_judgements_and_their_questions():
    write("given.jsonl", [
        {"id": "d", "answers": ["fox", "hen"], "greedy": "hen", "confidence": 0.3},
        {"id": "left out", "answers": ["x"], "confidence": 0.1},
        {"id": "a", "answers": ["ant", ""], "correct": [0, 1], "confidence": None},
    ])  # fmt: skip
    write("test.jsonl", [asked("a", "ant"), asked("d", "fox")])
    settings = NAMED | {"source": {"path": "given.jsonl"}}
    stage(
        "import-answers",
        settings,
        prompts={"test": "test.jsonl"},
        out="samples.jsonl",
        manifest="samples.manifest.json",
    )
    assert lines("samples.jsonl") == [
        {"id": "a", "split": "test", "answers": ["ant", None], "raw": ["ant", ""], "correct": [False, True],
         "read_by": ["task", None], "greedy": greedy("ant", False) | {"read_by": "task"}, "judged": True},
        {"id": "d", "split": "test", "answers": ["fox", "hen"], "raw": ["fox", "hen"], "correct": [True, False],
         "read_by": ["task", "task"], "greedy": greedy("hen", False) | {"read_by": "task"}},
    ]  # fmt: skip
    stage("import-confidences", settings, prompts="test.jsonl", samples="samples.jsonl", out="theirs.jsonl")
    assert lines("theirs.jsonl") == [
        {"id": "a", "answer": "ant", "correct": False, "f1": None, "confidence": None, "raw": "ant"},
        {"id": "d", "answer": "hen", "correct": False, "f1": None, "confidence": 0.3, "raw": "hen"},
    ]


def grading(body, headers):
    """A grader that calls the reference right, and the reference with an exclamation mark too; a hen is a fox to it."""
    text = body["messages"][-1]["content"]
    answer, reference = text.split("\nAnswer: ")[1].split("\n")[0], text.split("Accepted answer: ")[1].split("\n")[0]
    says = "no idea" if answer == "<newt>" else "yes" if answer.strip("<>!") in (reference.strip("<>"), "hen") else "no"
    return 200, {"choices": [choice(says)]}


def test_a_grader_grades_each_distinct_answer_and_what_it_does_not_say_stays_as_it_was():
    records = [
        sampled(
            "a",
            "test",
            ["ant", "ant!", "ant!", "newt", None],
            [True, False, False, False, False],
            greedy("ant!", False),
        ),
        sampled("d", "sft", ["hen", "fox", "newt"], [False, True, True]),
    ]
    settings = {"model": {}, "engine": "openai", "max_tokens": 5, "seed": 1, "group": "none"}
    files = {"test": write("test.jsonl", [asked("a", "ant")]), "sft": write("sft.jsonl", [asked("d", "fox")])}
    with Api(grading) as server:
        settings["model"] = {"source": {"server": server.address, "model": "m"}, "dtype": "float32", "device": "cpu"}
        stage(
            "grade", NAMED | settings, prompts=files, samples=write("ungraded.jsonl", records), out="samples.jsonl",
            verdicts="verdicts.jsonl", disagreements="disagreements.jsonl", manifest="samples.manifest.json",
        )  # fmt: skip
    assert len(server.bodies) == 6
    graded = lines("samples.jsonl")
    assert graded == [
        records[0]
        | {"correct": [True, True, True, False, False], "greedy": greedy("ant!", True, "ant!"), "graded": True},
        records[1] | {"correct": [True, True, True], "graded": True},
    ]
    differ = [
        (row["id"], row["answer"], row["exact"], row["right"], row["texts"]) for row in lines("disagreements.jsonl")
    ]
    assert differ == [("a", "<ant!>", False, True, 3), ("d", "<hen>", False, True, 1)]


# Preference pairs


def candidate(name: str, kappa: float, correct: bool, stated: float, other: float, confidences: list[float]) -> dict:
    """A line of candidates.jsonl; `other` is a value that is as probable as the stated one, so that the mean is between both."""
    logprobs = [-30.0] * 101
    logprobs[round(100 * stated)] = logprobs[round(100 * other)] = math.log(0.5)
    raw = [f"Confidence: {round(100 * value)}" for value in confidences]
    return {"id": name, "kappa": kappa, "correct": correct, "confidences": confidences, "raw": raw, "stated": stated,
            "completion_logprobs": [-round(1 + value, 3) for value in confidences], "logprobs": logprobs}  # fmt: skip


CANDIDATES = [
    candidate("p0", 0.1, False, 0.31, 0.9, [0.05, 0.62, 0.97]),
    candidate("p1", 0.3, False, 0.12, 0.5, [0.22, 0.41, 0.88]),
    candidate("p2", 0.5, True, 0.45, 0.2, [0.03, 0.47, 0.71]),
    candidate("p3", 0.7, True, 0.83, 0.3, [0.15, 0.35, 0.55]),
    candidate("p4", 0.9, True, 0.64, 0.8, [0.36, 0.21, 0.05]),  # each of them lowers the correlation
    candidate("p5", 0.6, True, 0.52, 0.14, [0.44, 0.44, 0.44]),
]
STATED, KAPPA = (np.array([row[key] for row in CANDIDATES]) for key in ("stated", "kappa"))


def rank_of(values, value) -> float:
    return stats.rankdata([*values, value])[-1]


def gain(c, k, confidence, kappa) -> float:
    return stats.spearmanr([*c, confidence], [*k, kappa])[0] - stats.spearmanr(c, k)[0]


REWARDS = {  # section 3.2, and the rows of Table 4
    "sc": lambda c, k, value, row: gain(c, k, value, row["kappa"]),
    "sc-surrogate": lambda c, k, value, row: gain(k, k, value, row["kappa"]),
    "nrd": lambda c, k, value, row: -abs(rank_of(c, value) - rank_of(k, row["kappa"])),
    "numeric": lambda c, k, value, row: -abs(value - row["kappa"]),
    "sayself": lambda c, k, value, row: value if row["correct"] else -value,
}


def by_hand(reward: str, c, leave_one_out: bool, accept: str) -> dict[str, tuple]:
    """{id: (chosen, rejected, their rewards)} by the formulas, a candidate at a time."""
    found = {}
    for i, row in enumerate(CANDIDATES):
        rest = np.arange(len(c)) != i if leave_one_out else np.full(len(c), True)
        rewards = [REWARDS[reward](c[rest], KAPPA[rest], value, row) for value in row["confidences"]]
        best, worst = (row["confidences"][int(pick(rewards))] for pick in (np.argmax, np.argmin))
        improves = reward != "sc" or max(rewards) > 0  # the others are no rise of a correlation
        if len({*row["confidences"]}) > 1 and len({*rewards}) > 1 and (accept == "all" or improves):
            found[row["id"]] = (
                best,
                worst,
                pytest.approx(max(rewards), abs=1e-12),
                pytest.approx(min(rewards), abs=1e-12),
            )
    return found


def selected(
    reward="sc", reference="stated", leave_one_out=False, accept="all", drawn=CANDIDATES, **more
) -> list[dict]:
    how = {"reward": reward, "module": reward, "reference": reference, "leave_one_out": leave_one_out, "accept": accept}
    rows = [f"{row['id']},rl,1,2,{row['kappa']},ant,{int(row['correct'])}\n" for row in CANDIDATES]
    Path("surrogate.csv").write_text("id,split,n_correct,n_samples,kappa,answer,answer_correct\n" + "".join(rows))
    stage(
        "pairs", NAMED | how | {"seed": 1}, surrogate="surrogate.csv", out="pairs.jsonl", manifest="pairs.manifest.json",
        prompts={"rl": write("rl.jsonl", [asked(row["id"], "ant") for row in CANDIDATES])},
        candidates=write("candidates.jsonl", drawn), **more,
    )  # fmt: skip
    return lines("pairs.jsonl")


def said(pair: dict, side: str) -> float:
    (turn,) = pair[side]
    assert turn["role"] == "assistant"
    return int(turn["content"].removeprefix("Confidence: ")) / 100


@pytest.mark.parametrize("reward", REWARDS)
@pytest.mark.parametrize("leave_one_out", [False, True])
@pytest.mark.parametrize("accept", ["all", "improving"])
def test_a_pair_is_the_candidate_of_the_highest_reward_and_that_of_the_lowest(reward, leave_one_out, accept):
    pairs = selected(reward, leave_one_out=leave_one_out, accept=accept)
    found = {
        row["id"]: (said(row, "chosen"), said(row, "rejected"), row["reward_chosen"], row["reward_rejected"])
        for row in pairs
    }
    assert found == by_hand(reward, STATED, leave_one_out, accept) and 2 < len(found) < 6
    assert pairs[0].keys() == {"id", "prompt", "chosen", "rejected", "reward_chosen", "reward_rejected"}


def test_leaving_a_prompts_own_pair_out_chooses_others():
    """What the test above would not tell where both ways gave the same. And one prompt's candidates improve nothing."""
    assert by_hand("sc", STATED, False, "all").keys() - by_hand("sc", STATED, False, "improving").keys() == {"p4"}
    assert by_hand("sc", STATED, True, "improving") != by_hand("sc", STATED, False, "improving")
    assert by_hand("nrd", STATED, True, "all").keys() == by_hand("nrd", STATED, False, "all").keys()


def test_the_reference_set_is_what_the_model_states_or_the_mean_of_its_distribution():
    middle = np.array([0.605, 0.31, 0.325, 0.565, 0.72, 0.33])
    for reference, c in (("stated", STATED), ("mean", middle)):
        pairs = selected(reference=reference)
        assert {row["id"]: row["reward_chosen"] for row in pairs} == {
            name: row[2] for name, row in by_hand("sc", c, False, "all").items()
        }
        facts = json.loads(Path("pairs.manifest.json").read_text())
        assert facts["reference_spearman"] == pytest.approx(stats.spearmanr(c, KAPPA)[0], abs=1e-12)
        assert facts["skipped"] == {"one value": 1, "equal rewards": 5 - len(pairs)}


def test_pairs_of_the_references_own_candidates_have_the_log_probabilities_of_their_statements():
    for pair in selected(from_reference=True):
        assert pair["ref_chosen_logps"] == -round(1 + said(pair, "chosen"), 3)
        assert pair["ref_rejected_logps"] == -round(1 + said(pair, "rejected"), 3)


def test_of_candidates_with_all_101_turns_in_trainings_arithmetic_the_pairs_take_those():
    turns = [-2 - percent / 100 for percent in range(101)]
    for pair in selected(from_reference=True, drawn=[row | {"reference": turns} for row in CANDIDATES]):
        assert pair["ref_chosen_logps"] == pytest.approx(-2 - said(pair, "chosen"))
        assert pair["ref_rejected_logps"] == pytest.approx(-2 - said(pair, "rejected"))


# What is fitted


FIT = [(0.1, False), (0.2, False), (0.35, True), (0.4, False), (0.6, True), (0.7, False), (0.8, True), (0.95, True)]
HELD_OUT = [stated(f"h{i}", right, confidence) for i, (confidence, right) in enumerate(FIT)]
# Two lines that no fit may see: the question is in the test set, or there is no confidence.
HELD_OUT += [stated("shared", False, 0.99), stated("unread", True, None)]
HELD_OUT_QUESTIONS = [asked(row["id"], "ant" if row["id"] == "shared" else f"x{i}") for i, row in enumerate(HELD_OUT)]


def fitted(settings: dict, confidences: list[list[dict]], held_out: list[list[dict]]) -> tuple[list[dict], dict]:
    stage(
        "fit", NAMED | settings, prompts=write("test.jsonl", QUESTIONS), out="out.jsonl", fit="fit.json",
        fit_on={"test": write("held_out.jsonl", HELD_OUT_QUESTIONS)},
        confidences=[write(f"own{i}.jsonl", column) for i, column in enumerate(confidences)],
        fit_confidences=[write(f"fit{i}.jsonl", column) for i, column in enumerate(held_out)],
    )  # fmt: skip
    return lines("out.jsonl"), json.loads(Path("fit.json").read_text())


def test_platts_map_is_the_likeliest_one_on_the_held_out_answers_and_is_applied_to_the_test_answers():
    own = [
        stated("a", True, 0.2, retried=True),
        stated("b", False, 0.9),
        stated("c", False, None),
        stated("d", True, 0.5),
    ]
    records, facts = fitted({"method": "sft+platt", "module": "platt", "below": ["sft"]}, [own], [HELD_OUT])
    confidence, right = np.array(FIT).T
    target = np.where(
        right == 1, 5 / 6, 1 / 6
    )  # Platt's: (4 + 1) / (4 + 2) of four right ones, 1 / (4 + 2) of four wrong ones

    def loss(parameters):
        score = parameters[0] * confidence + parameters[1]
        return (np.logaddexp(0, -score) * target + np.logaddexp(0, score) * (1 - target)).sum()

    slope, intercept = optimize.minimize(loss, [1.0, 0.0], tol=1e-12).x
    assert facts["parameters"] == {
        "slope": pytest.approx(slope, abs=1e-4),
        "intercept": pytest.approx(intercept, abs=1e-4),
    }
    assert slope > 1
    told = {key: facts[key] for key in ("n", "n_in_test_set", "n_unparsed", "fitted_on", "of", "method")}
    assert told == {
        "n": 8,
        "n_in_test_set": 1,
        "n_unparsed": {"sft": 1},
        "fitted_on": ["fit0.jsonl"],
        "of": ["sft"],
        "method": "sft+platt",
    }
    for before, after in zip(own, records, strict=True):
        mapped = None if before["confidence"] is None else 1 / (1 + math.exp(-slope * before["confidence"] - intercept))
        assert after == before | {"raw": before["confidence"], "confidence": mapped and pytest.approx(mapped, abs=1e-4)}


def test_a_combination_reads_its_rows_by_id_and_an_unread_confidence_is_the_configurations():
    first = [stated("a", True, 0.2), stated("b", False, 0.9), stated("c", False, None), stated("d", True, None)]
    second = [
        stated("d", True, 0.8),
        stated("c", False, None),
        stated("b", False, 0.5),
        stated("a", True, 0.4, retried=True),
    ]
    settings = {"method": "mix", "below": ["first", "second"], "unparsed_confidence": 0.6}
    for how, values in (("mean", [0.3, 0.7, None, 0.7]), ("product", [0.08, 0.45, None, 0.48])):
        records, _ = fitted(settings | {"combination": how}, [first, second], [HELD_OUT, HELD_OUT])
        assert [row["confidence"] for row in records] == [value and pytest.approx(value) for value in values]
        assert [row["raw"] for row in records] == [[0.2, 0.4], [0.9, 0.5], [None, None], [None, 0.8]]
        assert [row.get("retried") for row in records] == [True, None, None, None]


def packed(values) -> str:
    import base64

    return base64.b64encode(np.asarray(values, "<f2").tobytes()).decode()


def test_a_probe_is_fitted_on_training_questions_alone_without_those_of_the_test_set_and_their_twins():
    """Of two layers the second one tells right from wrong; the twin and the equal question have states that would turn the fit round."""
    rng = np.random.default_rng(0)
    training = [asked(f"n{i:02}", f"x{i}") for i in range(20)] + [asked("equal", "ant"), asked("twin", "hen and dog")]
    test = [*QUESTIONS, asked("e", "dog and hen")]
    right = [i % 2 == 0 for i in range(20)] + [True, True]
    state = {row["id"]: rng.normal(size=(2, 3)) for row in [*training, *test]}
    for row, correct in zip(training, right, strict=True):
        state[row["id"]][1, 0] += 3 * correct if row["id"][0] == "n" else -50
    write("states/answers.jsonl", [
        {"id": row["id"], "split": split, "answer": [packed(layer) for layer in state[row["id"]]]}
        for split, rows in (("test", test), ("sft", training)) for row in rows
    ])  # fmt: skip
    csv = [
        f"{row['id']},sft,1,2,{0.75 if correct else 0.25},ant,{int(correct)}\n"
        for row, correct in zip(training, right, strict=True)
    ]
    Path("surrogate.csv").write_text("id,split,n_correct,n_samples,kappa,answer,answer_correct\n" + "".join(csv))
    samples = [*SAMPLES, sampled("e", "test", ["hen"], [False], greedy("hen", False))]
    stage(
        "fit", NAMED | {"method": "probe", "module": "probe", "depths": [0.5, 1.0]}, out="probe.jsonl", fit="fit.json",
        prompts=write("test.jsonl", test), fit_on={"sft": write("sft.jsonl", training)}, surrogate="surrogate.csv",
        samples=write("samples.jsonl", samples), states=["states/answers.jsonl"], fit_states=["states/answers.jsonl"],
    )  # fmt: skip
    facts = json.loads(Path("fit.json").read_text())
    assert (facts["n"], facts["n_in_test_set"], facts["parameters"]["layer"]) == (20, {"exact": 1, "twin": 1}, 1)
    kept = np.array([state[f"n{i:02}"][1] for i in range(20)]).astype("<f2").astype(float)
    center, scale = kept.mean(0), kept.std(0)
    plain = LogisticRegression(C=facts["parameters"]["C"], max_iter=10_000).fit((kept - center) / scale, right[:20])
    own = np.array([state[row["id"]][1] for row in test]).astype("<f2").astype(float)
    expected = plain.predict_proba((own - center) / scale)[:, 1]
    assert lines("probe.jsonl") == [
        {"id": row["id"], "answer": row["greedy"]["answer"], "correct": row["greedy"]["correct"], "f1": None,
         "confidence": pytest.approx(value, abs=1e-3), "raw": row["greedy"]["raw"]}
        for row, value in zip(samples, expected, strict=True)
    ]  # fmt: skip


def test_one_setting_is_tuned_by_its_mean_over_the_cells_and_an_undefined_trial_is_the_worst_of_its_cell():
    trials = {"low": {"beta": 0.1}, "middle": {"beta": 0.3}, "high": {"beta": 1.0}}
    right = [True, False, True, False]
    # Brier scores by the readout, mean: in the first cell .04, .01 and .25, in the second .09, .25 and .04; means .065, .13, .145.
    by_cell = {"one": {"low": 0.2, "middle": 0.1, "high": 0.5}, "two": {"low": 0.3, "middle": 0.5, "high": 0.2}}
    paths = [
        write(f"{cell}/{trial}.jsonl", [
            {"id": f"{i}", "correct": correct, "stated": 0.5, "mean": 1 - off if correct else off} for i, correct in enumerate(right)
        ])
        for cell, offs in by_cell.items() for trial, off in offs.items()
    ]  # fmt: skip
    stage("tune", {"metric": "brier", "readout": "mean", "trials": trials}, confidences=paths, out="tuned.yaml")
    text = Path("tuned.yaml").read_text()
    assert yaml.safe_load(text) == {"dpo": {"beta": 0.1}}
    assert text.splitlines()[:3] == [
        "# Chosen on validation splits: mean brier 0.0650 of 2 cell(s).",
        "# one: low 0.0400, middle 0.0100, high 0.2500",
        "# two: low 0.0900, middle 0.2500, high 0.0400",
    ]


# Shards, metrics, tables, pictures


def test_shards_are_joined_in_the_order_of_their_items_and_read_out():
    records = [{"id": f"q{i}", "correct": i % 2 == 0, "stated": i / 10, "mean": i / 20, "mode": 0.0} for i in range(7)]
    shards = [write(f"shards/{number}.jsonl", records[number::3]) for number in range(3)]
    stage("gather", shards=shards, out="whole.jsonl")
    assert lines("whole.jsonl") == records
    for readout in ("stated", "mean", "mode"):
        stage("gather", shards=shards, readout=readout, out="whole.jsonl")
        assert lines("whole.jsonl") == [row | {"confidence": row[readout]} for row in records]


ITEMS = [  # confidence, right, kappa; of the second item no confidence could be read, of the fourth no answer
    ("m0", 0.9, True, 0.75), ("m1", None, True, 0.5), ("m2", 0.9, False, 1.0), ("m3", 0.1, False, 0.0),
    ("m4", 0.8, True, 0.5), ("m5", 0.3, False, 0.25), ("m6", 0.9, True, 1.0), ("m7", 0.3, True, 0.25), ("m8", 0.7, False, 0.75),
]  # fmt: skip
MEANS = [0.81, 0.4, 0.6, 0.2, 0.9, 0.35, 0.7, 0.25, 0.65]


def evaluated(**more) -> tuple[dict, dict]:
    """(metrics.json, extra.json) of the items; surrogate.csv has them in another order, and a training row with the same id."""
    rows = [
        stated(
            name,
            right,
            confidence,
            answer=None if name == "m3" else "ant",
            mean=mean,
            mass=mean,
            retried=name in ("m1", "m4"),
        )
        for (name, confidence, right, _), mean in zip(ITEMS, MEANS, strict=True)
    ]
    kappas = "".join(f"{name},test,1,4,{kappa},ant,1\n" for name, *_, kappa in ITEMS[::-1])
    head = "id,split,n_correct,n_samples,kappa,answer,answer_correct\n"
    Path("surrogate.csv").write_text(f"{head}{kappas}m0,rl,1,4,0.0,ant,1\n")
    settings = {
        "dataset": "words",
        "model": "m",
        "method": "sft",
        "unparsed_confidence": 0.6,
        "bootstrap": 200,
        "seed": 1,
    }
    stage(
        "evaluate", settings, confidences=write("confidences.jsonl", rows), surrogate="surrogate.csv", out="metrics.json",
        extra="extra.json", **more,
    )  # fmt: skip
    return tuple(json.loads(Path(name).read_text()) for name in ("metrics.json", "extra.json"))


def test_metrics_are_those_of_scipy_scikit_learn_and_a_loop_and_kappa_is_that_of_the_same_id():
    found, extra = evaluated()
    confidence = np.array([0.6 if value is None else value for _, value, *_ in ITEMS])
    correct = np.array([right for *_, right, _ in ITEMS])
    kappa = np.array([kappa for *_, kappa in ITEMS])
    best = area(correct.astype(float), correct)
    error = 1 - correct.mean()
    simple = {
        "ece": calibration(confidence, correct, 10), "ece_15": calibration(confidence, correct, 15),
        "aurc": area(confidence, correct), "e_aurc": area(confidence, correct) - best,
        "e_aurc_analytic": area(confidence, correct) - error - (1 - error) * math.log(1 - error),
        "accuracy": 5 / 9, "auroc": roc_auc_score(correct, confidence), "aupr": average_precision_score(correct, confidence),
        "brier": float(np.mean((confidence - correct) ** 2)), "f1": None,
    }  # fmt: skip
    assert {name: found[name] for name in simple} == {
        name: value and pytest.approx(value) for name, value in simple.items()
    }
    for name, target in (("spearman", correct), ("spearman_surrogate", kappa)):
        rho, p = stats.spearmanr(confidence, target)
        assert found[name] == {
            "rho": pytest.approx(rho),
            "p": pytest.approx(p),
            "log10_p": pytest.approx(math.log10(p)),
        }
    assert found["spearman"]["rho"] < found["spearman_surrogate"]["rho"] - 0.1, "told apart"
    counted = {
        "n": 9,
        "n_unparsed": {"answer": 1, "confidence": 1},
        "n_retried": 2,
        "dataset": "words",
        "model": "m",
        "method": "sft",
    }
    assert {name: found[name] for name in counted} == counted
    assert found["mean"]["aurc"] == pytest.approx(area(np.array(MEANS), correct))
    assert found["mean"]["mass"] == pytest.approx(np.mean(MEANS))
    assert found["mean"]["ece"] == pytest.approx(calibration(np.array(MEANS), correct, 10))
    assert found["mean"]["spearman"]["rho"] == pytest.approx(stats.spearmanr(MEANS, correct)[0])
    low, high = found["intervals"]["aurc"]
    assert low < found["aurc"] < high
    assert extra["n"] == 9 and extra["nll"] == pytest.approx(
        -np.log(np.where(correct, confidence, 1 - confidence)).mean()
    )
    assert {"augrc", "prr"} <= extra.keys()


def test_a_question_without_kappa_is_no_question_of_the_evaluation(capfd):
    """The rows of the test split alone count, each once."""
    evaluated()
    text = Path("surrogate.csv").read_text().replace("m4,test", "m4,rl")
    Path("surrogate.csv").write_text(text)
    with pytest.raises(AssertionError):
        stage(
            "evaluate", {"dataset": "words", "model": "m", "method": "sft", "unparsed_confidence": 0.6, "bootstrap": 9, "seed": 1},
            confidences="confidences.jsonl", surrogate="surrogate.csv", out="metrics.json", extra="extra.json",
        )  # fmt: skip
    assert "confidences.jsonl, line 5: id 'm4' has no test row" in capfd.readouterr().err
