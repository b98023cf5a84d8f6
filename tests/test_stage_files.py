"""Each stage that loads no model, on a few lines whose result is written down here, or worked out by numpy, scipy and scikit-learn.

The stages that load one: test_stage_models.py. Rounds of DPO and who reads what: test_rounds.py.
"""

import base64
import json
import math
from pathlib import Path

import numpy as np
import pytest
import yaml
from conftest import cases, on_cpu
from scipy import stats
from sklearn.calibration import _sigmoid_calibration
from sklearn.linear_model import LogisticRegression
from stages_by_hand import WORDS, area, asked, calibration, greedy, lines, sampled, stage, stated, write
from test_apis import Api, choice

pytestmark = pytest.mark.usefixtures("folder", "direct")

NAMED = {"task": WORDS, "label": "x"}
HEAD = "id,split,n_correct,n_samples,kappa,answer,answer_correct\n"  # of surrogate.csv


def test_splits_are_cut_from_one_shuffled_order_and_keep_the_order_of_their_source():
    splits = {"sft": {"from": "train", "size": 5}, "rl": {"from": "train", "size": "1/2"}, "test": {"from": "test"}}
    settings = {"dataset": "words", "task": WORDS, "source": {}, "splits": splits, "seed": 3, "tests": []}
    for split, ids in (
        # numpy.random.default_rng(3).permutation(16) is 11 15 9 1 12 2 14 10 | 0 4 7 6 13 | 5 3 8: rl is cut before sft.
        ("rl", ["n01", "n02", "n09", "n10", "n11", "n12", "n14", "n15"]),
        ("sft", ["n00", "n04", "n06", "n07", "n13"]),
        ("test", ["t0", "t1", "t2", "t3", "t4", "t5"]),
    ):
        stage("prompts", settings, split=split, out=f"{split}.jsonl", manifest=f"{split}.manifest.json")
        assert [example["id"] for example in lines(f"{split}.jsonl")] == ids
    assert lines("sft.jsonl")[0] == asked("n00", "ant")


def test_overlapping_questions_are_told_by_kind():
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
    rows = [
        "half,sft,2,4,0.5,ant,1", "quarter,rl,1,4,0.25,cat,0", "unread,rl,0,2,0.0,,0", "tested,test,3,4,0.75,elk,0",
        "tuned,validation,0,2,0.0,gnu,1",
    ]  # fmt: skip
    samples = write("samples.jsonl", records)
    stage("surrogate", samples=samples, seed=1, out="surrogate.csv")
    assert Path("surrogate.csv").read_text() == HEAD + "".join(f"{row}\n" for row in rows)
    stage("surrogate", samples=samples, seed=1, out="whole.csv", reasoning=True)
    head, first, *_, tested, _ = Path("whole.csv").read_text().splitlines()
    assert head == f"{HEAD.strip()},raw" and tested == f"{rows[3]},elk"
    assert first in (f"{rows[0]},ant 0", f"{rows[0]},ant 1"), "a reply with that answer"


def replying(body, headers):
    """A server that answers bee and, one choice in three, elk with its question's word; and to a greedy request always."""
    word = body["messages"][-1]["content"].removeprefix("Task: Say ").removesuffix(".")
    if body["temperature"] == 0:
        return 200, {"choices": [choice(f" {word} ")]}
    texts = [f"{word}", "", "elk"]
    return 200, {"choices": [choice(texts[i % 3], i) for i in range(body.get("n", 1))]}


def test_a_question_has_k_samples_each_scored_and_a_tested_one_its_greedy_answer():
    files = {
        split: write(f"{split}.jsonl", [asked(f"{split}{number}", word) for number, word in ((1, "bee"), (2, "elk"))])
        for split in ("sft", "test")
    }
    sampling = {"samples": 5, "temperature": 0.7, "top_p": 0.9, "max_tokens": 4, "shots": None, "seed": 1}
    with Api(replying) as server:
        asking = {"model": on_cpu(server=server.address, model="m"), "engine": "openai"}
        stage("sample", NAMED | asking | sampling, prompts=files, out="samples.jsonl")
    said, best = {}, {}
    for word in ("bee", "elk"):
        said[word] = {
            "answers": [word, None, "elk", word, None], "raw": [word, "", "elk", word, ""],
            "correct": [True, False, word == "elk", True, False], "read_by": ["task", None, "task", "task", None],
        }  # fmt: skip
        best[word] = {"greedy": greedy(word, True, f" {word} ") | {"read_by": "task"}}
    assert lines("samples.jsonl") == [
        {"id": "sft1", "split": "sft", "spent": {"requests": 6, "unanswered": 8}} | said["bee"],
        {"id": "sft2", "split": "sft"} | said["elk"],
        {"id": "test1", "split": "test"} | said["bee"] | best["bee"],
        {"id": "test2", "split": "test"} | said["elk"] | best["elk"],
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
OF_SAMPLES = [{"id": name, "sample_logprobs": [[-1.0], [-2.0], [-1.5, -0.5], [-3.0], [-1.0]]} for name in "dcba"]


def derived(method: str, **more) -> list[dict]:
    files = {"prompts": write("test.jsonl", QUESTIONS), "samples": write("samples.jsonl", SAMPLES)}
    stage("derive", task=WORDS, method=method, out="out.jsonl", **files, **more)
    return lines("out.jsonl")


def test_consistency_counts_the_most_frequent_answer_among_all_samples():
    # cat is the first of two as frequent
    answers = [("ant", True, 0.4), ("cat", False, 0.4), (None, False, 0.0), ("fox", True, 1.0)]
    assert derived("consistency") == [
        stated(record["id"], correct, share, answer, raw=record["answers"])
        for record, (answer, correct, share) in zip(SAMPLES, answers, strict=True)
    ]


def entropy(*groups: list[int]) -> float:
    """1 - H / ln 5 of samples that mean the same, each with the mean of its tokens: -1 -2 -1 -3 -1."""
    weight = np.exp([-1.0, -2.0, -1.0, -3.0, -1.0])
    share = np.array([weight[group].sum() for group in groups]) / weight.sum()
    return 1 + (share * np.log(share)).sum() / math.log(5)


APART = [[0], [1], [2], [3], [4]]


@pytest.mark.parametrize(("method", "confidences"), [
    ("agreement", [0.2, 0.4, 0.0, 1.0]),
    # Of five samples: two alike and three apart; two, two and one; all apart, as none could be read; all alike.
    ("num_sets", [(5 - 4) / 4, (5 - 3) / 4, 0.0, 1.0]),
    ("semantic_entropy", [2 * math.log(2) / 5 / math.log(5), 4 * math.log(2) / 5 / math.log(5), 0.0, 1.0]),
    ("weighted_semantic_entropy", [entropy([0, 1], *APART[2:]), entropy([0, 3], [1, 2], [4]), entropy(*APART), 1.0]),
    ("likelihood", [math.exp(-2), math.exp(-0.6), None, math.exp(-0.15)]),
    ("sequence_probability", [math.exp(-4), math.exp(-1.2), None, math.exp(-0.3)]),
    ("min_likelihood", [math.exp(-3), math.exp(-0.7), None, math.exp(-0.2)]),
    ("p_true", [0.2, 0.6, 0.4, 0.9]),
])  # fmt: skip
def test_a_measure_is_of_the_greedy_answer_and_reads_the_likelihoods_of_its_question(method, confidences):
    read = {"likelihoods": write("greedy.jsonl", LIKELIHOODS), "sample_likelihoods": write("drawn.jsonl", OF_SAMPLES)}
    assert derived(method, **read) == [
        {"id": record["id"], "confidence": value and pytest.approx(value, abs=1e-8)} | record["greedy"]
        for record, value in zip(SAMPLES, confidences, strict=True)
    ]


def candidate(name: str, kappa: float, correct: bool, stated: float, other: float, confidences: list[float]) -> dict:
    """A line of candidates.jsonl; `other` is a value that is as probable as the stated one, so that the mean is between both."""
    logprobs = [-30.0] * 101
    logprobs[round(100 * stated)] = logprobs[round(100 * other)] = math.log(0.5)
    raw = [f"Confidence: {round(100 * value)}" for value in confidences]
    return {"id": name, "kappa": kappa, "correct": correct, "confidences": confidences, "raw": raw, "stated": stated,
            "completion_logprobs": [-round(1 + value, 3) for value in confidences], "logprobs": logprobs}  # fmt: skip


CANDIDATES = [
    candidate("p0", 0.1, False, 0.31, 0.9, [0.05, 0.62, 0.97]),
    candidate("p1", 0.3, False, 0.12, 0.04, [0.22, 0.41, 0.88]),
    candidate("p2", 0.5, True, 0.45, 0.2, [0.03, 0.47, 0.71]),
    candidate("p3", 0.7, True, 0.83, 0.3, [0.15, 0.35, 0.55]),
    candidate("p4", 0.9, True, 0.64, 0.8, [0.36, 0.21, 0.05]),  # each of them lowers the correlation
    candidate("p5", 0.6, True, 0.52, 0.32, [0.44, 0.44, 0.44]),
]
STATED, KAPPA = (np.array([row[key] for row in CANDIDATES]) for key in ("stated", "kappa"))
REFERENCES = {"stated": STATED, "mean": np.array([0.605, 0.08, 0.325, 0.565, 0.72, 0.42])}


def gain(c, k, confidence, kappa) -> float:
    return stats.spearmanr([*c, confidence], [*k, kappa])[0] - stats.spearmanr(c, k)[0]


REWARDS = {  # section 3.2, and rows of Table 4; each of them: test_rewards.py
    "sc": lambda c, k, value, row: gain(c, k, value, row["kappa"]),
    "sc-surrogate": lambda c, k, value, row: gain(k, k, value, row["kappa"]),
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
            ends = (pytest.approx(end(rewards), abs=1e-12) for end in (max, min))
            found[row["id"]] = (best, worst, *ends)
    return found


def selected(
    reward="sc", reference="stated", leave_one_out=False, accept="all", drawn=CANDIDATES, **more
) -> list[dict]:
    how = {"reward": reward, "module": reward, "reference": reference, "leave_one_out": leave_one_out, "accept": accept}
    rows = [f"{row['id']},rl,1,2,{row['kappa']},ant,{int(row['correct'])}\n" for row in CANDIDATES]
    Path("surrogate.csv").write_text(HEAD + "".join(rows))
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
@pytest.mark.parametrize(("reference", "leave_one_out", "accept"), [
    ("stated", False, "all"), ("stated", True, "improving"), ("mean", True, "all"), ("mean", False, "improving"),
])  # fmt: skip
def test_a_pair_is_the_candidate_of_the_highest_reward_and_that_of_the_lowest(reward, reference, leave_one_out, accept):
    """Beside a reference set of what the model states, or of the mean of its distribution."""
    pairs, c = selected(reward, reference, leave_one_out, accept), REFERENCES[reference]
    found = {
        row["id"]: (said(row, "chosen"), said(row, "rejected"), row["reward_chosen"], row["reward_rejected"])
        for row in pairs
    }
    assert found == by_hand(reward, c, leave_one_out, accept) and 2 < len(found) < 6
    assert pairs[0].keys() == {"id", "prompt", "chosen", "rejected", "reward_chosen", "reward_rejected"}
    facts = json.loads(Path("pairs.manifest.json").read_text())
    assert facts["reference_spearman"] == pytest.approx(stats.spearmanr(c, KAPPA)[0], abs=1e-12)
    assert facts["skipped"]["one value"] == 1 and sum(facts["skipped"].values()) == 6 - len(pairs)


@pytest.mark.parametrize(("kappa", "low", "high", "said"), cases("no_pairs"))
def test_without_any_pair_the_step_ends_with_what_helps(kappa, low, high, said, capsys):
    drawn = [candidate(f"p{i}", k, True, STATED[i], 0.3, high if k > 0.5 else low) for i, k in enumerate(kappa)]
    with pytest.raises(AssertionError):
        selected(accept="improving", drawn=drawn)
    assert capsys.readouterr().err.endswith(f"{said}\n")


def test_pairs_of_the_references_own_candidates_have_the_log_probabilities_of_their_statements():
    """Those of all 101 turns in training's arithmetic where the candidates have them."""
    turns = [-2 - percent / 100 for percent in range(101)]
    for least, drawn in ((1, CANDIDATES), (2, [row | {"reference": turns} for row in CANDIDATES])):
        for pair in selected(from_reference=True, drawn=drawn):
            for side in ("chosen", "rejected"):
                assert pair[f"ref_{side}_logps"] == pytest.approx(-least - said(pair, side))


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


def test_platts_map_is_fitted_on_held_out_answers_and_applied_to_the_test():
    own = [stated(name, name != "b", value) for name, value in zip("abcd", (0.2, 0.9, None, 0.5), strict=True)]
    own[0]["retried"] = True
    records, facts = fitted({"method": "sft+platt", "module": "platt", "below": ["sft"]}, [own], [HELD_OUT])
    slope, intercept = (-parameter for parameter in _sigmoid_calibration(*np.array(FIT).T))
    assert facts["parameters"] == pytest.approx({"slope": slope, "intercept": intercept}, abs=1e-4)
    assert slope > 1
    told = {"n": 8, "n_in_test_set": 1, "n_unparsed": {"sft": 1}, "fitted_on": ["fit0.jsonl"], "of": ["sft"]}
    assert facts.items() >= (told | {"method": "sft+platt"}).items()
    for before, after in zip(own, records, strict=True):
        value = before["confidence"]
        mapped = value and pytest.approx(1 / (1 + math.exp(-slope * value - intercept)), abs=1e-4)
        assert after == before | {"raw": value, "confidence": mapped}


def test_a_combination_reads_its_rows_by_id_and_an_unread_confidence_is_the_configurations():
    first = [stated(name, name != "b", value) for name, value in zip("abcd", (0.2, 0.9, None, None), strict=True)]
    second = [stated(name, name != "b", value) for name, value in zip("dcb", (0.8, None, 0.5), strict=True)]
    second.append(stated("a", True, 0.4, retried=True))
    settings = {"method": "mix", "below": ["first", "second"], "unparsed_confidence": 0.6}
    for how, values in (("mean", [0.3, 0.7, None, 0.7]), ("product", [0.08, 0.45, None, 0.48])):
        records, _ = fitted(settings | {"combination": how}, [first, second], [HELD_OUT, HELD_OUT])
        assert [row["confidence"] for row in records] == [value and pytest.approx(value) for value in values]
        assert [row["raw"] for row in records] == [[0.2, 0.4], [0.9, 0.5], [None, None], [None, 0.8]]
        assert [row.get("retried") for row in records] == [True, None, None, None]


def test_a_probe_is_fitted_without_the_test_questions_and_their_twins():
    """Of two layers the second one tells right from wrong; the twin and the equal question have states that would turn the fit round."""
    rng = np.random.default_rng(0)
    training = [("sft", asked(f"n{i:02}", f"x{i}")) for i in range(20)]
    training += [("rl", asked("n00", "ant")), ("rl", asked("n01", "hen and dog"))]  # other questions than those of sft
    test = [("test", row) for row in (*QUESTIONS, asked("e", "dog and hen"))]
    right = [i % 2 == 0 for i in range(20)] + [True, True]
    state = {(split, row["id"]): rng.normal(size=(2, 3)) for split, row in [*training, *test]}
    for (split, row), correct in zip(training, right, strict=True):
        state[split, row["id"]][1, 0] += 3 * correct if split == "sft" else -50
    state = {key: layers.astype("<f2") for key, layers in state.items()}
    states = write("states/answers.jsonl", [
        {"id": name, "split": split, "answer": [base64.b64encode(layer.tobytes()).decode() for layer in layers]}
        for (split, name), layers in state.items()
    ])  # fmt: skip
    csv = [f"{row['id']},{of},1,2,{int(one)},ant,{int(one)}\n" for (of, row), one in zip(training, right, strict=True)]
    Path("surrogate.csv").write_text(HEAD + "".join(csv))
    samples = [*SAMPLES, sampled("e", "test", ["hen"], [False], greedy("hen", False))]
    stage(
        "fit", NAMED | {"method": "probe", "module": "probe", "depths": [0.5, 1.0]}, out="probe.jsonl", fit="fit.json",
        fit_on={of: write(f"{of}.jsonl", [row for split, row in training if split == of]) for of in ("sft", "rl")},
        prompts=write("test.jsonl", [row for _, row in test]), surrogate="surrogate.csv",
        samples=write("samples.jsonl", samples), states=[states], fit_states=[states],
    )  # fmt: skip
    facts = json.loads(Path("fit.json").read_text())
    assert (facts["n"], facts["n_in_test_set"], facts["parameters"]["layer"]) == (20, {"exact": 1, "twin": 1}, 1)
    kept, own = (np.array([state[of, row["id"]][1] for of, row in some], float) for some in (training[:20], test))
    center, scale = kept.mean(0), kept.std(0)
    plain = LogisticRegression(C=facts["parameters"]["C"], max_iter=10_000).fit((kept - center) / scale, right[:20])
    expected = plain.predict_proba((own - center) / scale)[:, 1]
    assert lines("probe.jsonl") == [
        {"id": row["id"], "confidence": pytest.approx(value, abs=1e-3)} | row["greedy"]
        for row, value in zip(samples, expected, strict=True)
    ]


def test_one_setting_is_tuned_by_its_mean_over_the_cells():
    # Brier scores by the readout, mean: in the first cell .04, .01 and .25, in the second .09, .25 and .04; means .065, .13, .145.
    by_cell = {"one": {"low": 0.2, "middle": 0.1, "high": 0.5}, "two": {"low": 0.3, "middle": 0.5, "high": 0.2}}
    paths = []
    for cell, offs in by_cell.items():
        for trial, off in offs.items():
            rows = [{"id": "right", "correct": True, "stated": 0.5, "mean": 1 - off}]
            rows.append({"id": "wrong", "correct": False, "stated": 0.5, "mean": off})
            paths.append(write(f"{cell}/{trial}.jsonl", rows))
    trials = {"low": {"beta": 0.1}, "middle": {"beta": 0.3}, "high": {"beta": 1.0}}
    stage("tune", {"metric": "brier", "readout": "mean", "trials": trials}, confidences=paths, out="tuned.yaml")
    text = Path("tuned.yaml").read_text()
    assert yaml.safe_load(text) == {"dpo": {"beta": 0.1}}
    assert text.splitlines()[:3] == [
        "# Chosen on validation splits: mean brier 0.0650 of 2 cell(s).",
        "# one: low 0.0400, middle 0.0100, high 0.2500",
        "# two: low 0.0900, middle 0.2500, high 0.0400",
    ]


def test_shards_are_joined_in_the_order_of_their_items_and_read_out():
    records = [{"id": f"q{i}", "correct": i % 2 == 0, "stated": i / 10, "mean": i / 20, "mode": 0.0} for i in range(7)]
    shards = [write(f"shards/{number}.jsonl", records[number::3]) for number in range(3)]
    stage("gather", shards=shards, out="whole.jsonl")
    assert lines("whole.jsonl") == records
    for readout in ("stated", "mean", "mode"):
        stage("gather", shards=shards, readout=readout, out="whole.jsonl")
        assert lines("whole.jsonl") == [row | {"confidence": row[readout]} for row in records]


ITEMS = [  # confidence, right, kappa, mean; of the second item no confidence could be read, of the fourth no answer
    ("m0", 0.9, True, 0.75, 0.81), ("m1", None, True, 0.5, 0.4), ("m2", 0.9, False, 1.0, 0.6),
    ("m3", 0.1, False, 0.0, 0.2), ("m4", 0.8, True, 0.5, 0.9), ("m5", 0.3, False, 0.25, 0.35),
    ("m6", 0.9, True, 1.0, 0.7), ("m7", 0.3, True, 0.25, 0.25), ("m8", 0.7, False, 0.75, 0.65),
]  # fmt: skip


def test_metrics_are_those_of_scipy_and_a_loop_and_kappa_is_that_of_the_same_id():
    """surrogate.csv has the items in another order, and a training row with the same id.

    What is in the tables: test_stage_reports.py; every metric beside published implementations: test_reference_values.py.
    """
    rows = []
    for name, value, right, _, mean in ITEMS:
        more = {"mean": mean, "mass": mean, "retried": name in ("m1", "m4")}
        rows.append(stated(name, right, value, None if name == "m3" else "ant", **more))
    kappas = [f"{name},test,1,4,{kappa},ant,1\n" for name, *_, kappa, _ in ITEMS[::-1]]
    Path("surrogate.csv").write_text(HEAD + "".join(kappas) + "m0,rl,1,4,0.0,ant,1\n")
    names = {"dataset": "words", "model": "m", "method": "sft"}
    settings = names | {"unparsed_confidence": 0.6, "bootstrap": 200, "seed": 1}
    files = {"confidences": write("confidences.jsonl", rows), "surrogate": "surrogate.csv"}
    stage("evaluate", settings, **files, out="metrics.json", extra="extra.json")
    found, extra = (json.loads(Path(name).read_text()) for name in ("metrics.json", "extra.json"))
    values, correct, kappa, mean = (np.array(column) for column in list(zip(*ITEMS, strict=True))[1:])
    confidence = np.array([0.6 if value is None else value for value in values])
    for name, target in (("spearman", correct), ("spearman_surrogate", kappa)):
        rho, p = stats.spearmanr(confidence, target)
        assert found[name] == pytest.approx({"rho": rho, "p": p, "log10_p": math.log10(p)})
    assert found["spearman"]["rho"] < found["spearman_surrogate"]["rho"] - 0.1, "told apart"
    counted = {"n": 9, "n_retried": 2, "n_unparsed": {"answer": 1, "confidence": 1}, "f1": None}
    assert {name: found[name] for name in names | counted} == names | counted
    of_mean = {"aurc": area(mean, correct), "ece": calibration(mean, correct), "mass": np.mean(mean)}
    assert {name: found["mean"][name] for name in of_mean} == pytest.approx(of_mean)
    assert found["mean"]["spearman"]["rho"] == pytest.approx(stats.spearmanr(mean, correct)[0])
    assert extra["nll"] == pytest.approx(-np.log(np.where(correct, confidence, 1 - confidence)).mean())
