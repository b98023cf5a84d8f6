"""Who reads what: the commands of a plan, and three rounds of DPO that are run from them and looked at.

The plan is Snakemake's; what each command is to read and write is written down here. The configuration that is shipped has three
rounds.
"""

import json
import math
import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import dry_run
import numpy as np
import pytest
import yaml
from conftest import ROOT, own_config
from plain_models import Plain, losses_of, optimized, preference
from stages_by_hand import WORDS, lines, write

from orce import tasks
from orce.__main__ import main

CELL = "results/words/m"


class Command(NamedTuple):
    """A command of a plan; settings: of its JSON object; options: the others, {name: words}."""

    stage: str
    settings: dict[str, Any]
    options: dict[str, list[str]]
    words: list[str]


def planned(folder: Path, *targets: str) -> list[Command]:
    """The commands of a dry run for some targets, in its order."""
    code, said = dry_run.snakemake(folder, "-p", "--cores", "1", "--snakefile", ROOT / "Snakefile", "--", *targets)
    assert code == 0, said[-3000:]
    found = []
    for line in re.findall(r"^Shell command: .*?-m orce (\w.*) 2>&1", said, re.MULTILINE):
        words = shlex.split(line)
        options: dict[str, list[str]] = {}
        for word in words[1:]:
            if word.startswith("--"):
                options[word[2:]] = own = []
            else:
                own.append(word)
        settings = json.loads(options.pop("settings", ["{}"])[0])
        found.append(Command(words[0], settings, options, words))
    return found


def configured(folder: Path, model: str, **sections) -> dict:
    """A configuration of one cell whose confidence LLMs are aligned in three rounds under two rewards."""
    splits = {"sft": {"from": "train", "size": 5}, "rl": {"from": "train", "size": 6}, "test": {"from": "test"}}
    config = own_config(
        "words", {"task": WORDS, "source": {}, "splits": splits}, {"m": {"label": "M", "source": {"path": model}}},
        ["sft", "orce", "orce-sayself"], **sections,
    )  # fmt: skip
    assert config["dpo"]["rounds"] == 3, "as shipped"
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return config


ROUNDS = [  # a round of a reward: its folder, what its candidates come from and its training starts at, and what it makes
    (reward, number, folder, start, out)
    for reward, last in (("sc", "dpo"), ("sayself", "dpo-sayself"))
    for number, folder, start, out in (
        (1, "", "sft", f"round2/{reward}/start"),
        (2, f"round2/{reward}/", f"round2/{reward}/start", f"round3/{reward}/start"),
        (3, f"round3/{reward}/", f"round3/{reward}/start", last),
    )
]
ALIGNED = [f"{CELL}/{method}/metrics.json" for method in ("orce", "orce-sayself")]


def test_each_reward_goes_on_from_its_own_round_before_and_the_reference_stays_the_warm_start(folder):
    configured(folder, str(folder))
    made = {command.options["out"][0]: command for command in planned(folder, *ALIGNED)}
    frozen, kappa = ["rl=results/words/prompts/rl.jsonl"], [f"{CELL}/surrogate.csv"]
    for reward, number, place, start, out in ROUNDS:
        candidates = made[f"{CELL}/{place}candidates.jsonl"]
        assert candidates.stage == "candidates"
        assert candidates.options == {
            "surrogate": kappa, "prompts": frozen, "weights": [f"{CELL}/{start}"], "out": [f"{CELL}/{place}candidates.jsonl"],
        }  # fmt: skip
        pairs = made[f"{CELL}/{place}pairs/{reward}.jsonl"]
        assert (pairs.stage, pairs.settings["reward"], pairs.settings["module"]) == ("pairs", reward, reward)
        assert (
            pairs.options["candidates"] == [f"{CELL}/{place}candidates.jsonl"] and pairs.options["surrogate"] == kappa
        )
        assert pairs.options["prompts"] == frozen
        assert ("from-reference" in pairs.options) == (number == 1), (
            "the later ones come from another model than the reference"
        )
        dpo = made[f"{CELL}/{out}"]
        assert dpo.stage == "dpo"
        assert dpo.options == {
            "pairs": [f"{CELL}/{place}pairs/{reward}.jsonl"], "sft": [f"{CELL}/sft"], "start": [f"{CELL}/{start}"],
            "out": [f"{CELL}/{out}"],
        }  # fmt: skip
    for method, weights in (("orce", "dpo"), ("orce-sayself", "dpo-sayself")):
        assert made[f"{CELL}/{method}/confidences.jsonl"].options["weights"] == [f"{CELL}/{weights}"]
    kinds = Counter(command.stage for command in made.values())
    assert (kinds["candidates"], kinds["pairs"], kinds["dpo"], kinds["sft"]) == (5, 6, 6, 1), (
        "round 1 is sampled once for both"
    )


SAMPLES = 4  # of each question; of question i the first i % 5 are right


@pytest.fixture(scope="module")
def aligned(small, tmp_path_factory) -> Path:
    """The folder of a run of both rewards, by the commands of its plan."""
    root, words = tmp_path_factory.mktemp("rounds"), tasks.get(WORDS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        questions = [*enumerate(words.load({}, "train")), *enumerate(words.load({}, "test"))]
        write("answers.jsonl", [
            {"id": question["id"], "answers": [question["reference"][0] if n < i % 5 else "yak" for n in range(SAMPLES)]}
            for i, question in questions
        ])  # fmt: skip
        configured(
            root, small, answers={"path": "answers.jsonl"}, confidence={"candidates": 8, "temperature": 3.0},
            sft={"learning_rate": 0.01, "epochs": 6, "batch_size": 5},
            dpo={"learning_rate": 0.02, "epochs": 4, "batch_size": 8, "beta": 0.5},
            training={"lora": {"r": 4, "alpha": 8, "dropout": 0.0, "target_modules": ["q_proj", "down_proj"], "last_layers": None}},
        )  # fmt: skip
        for command in planned(root, *ALIGNED):
            assert main(command.words) == 0, command
    return root


def percents(turns: list[dict]) -> int:
    return int(turns[0]["content"].removeprefix("Confidence: "))


@pytest.mark.parametrize(("reward", "number", "place", "start", "out"), ROUNDS)
def test_a_round_has_candidates_of_the_round_before_and_trains_on_from_it_beside_the_warm_start(
    aligned, small, monkeypatch, reward, number, place, start, out
):
    monkeypatch.chdir(aligned / CELL)
    assert lines("pairs/sc.jsonl") != lines("pairs/sayself.jsonl"), "or one reward could not be told from the other"
    candidates, pairs = lines(f"{place}candidates.jsonl"), lines(f"{place}pairs/{reward}.jsonl")
    policy, reference = Plain(small, start), Plain(small, "sft")
    prompts = {pair["id"]: pair["prompt"][0]["content"] for pair in pairs}
    for row in candidates:
        if row["id"] in prompts:
            logprobs = policy.distribution(prompts[row["id"]])
            likely = np.flatnonzero(logprobs > logprobs.max() - math.log(100))
            assert np.array(row["logprobs"])[likely] == pytest.approx(logprobs[likely], abs=2e-3)
            if number > 1:
                assert np.abs(reference.distribution(prompts[row["id"]]) - logprobs).max() > 0.02
    drawn = {row["id"]: {round(100 * value) for value in row["confidences"]} for row in candidates}
    compared = [(prompts[pair["id"]], percents(pair["chosen"]), percents(pair["rejected"])) for pair in pairs]
    assert 1 < len(pairs) <= 6 == len(candidates)
    for pair, (_, chosen, rejected) in zip(pairs, compared, strict=True):
        assert {chosen, rejected} <= drawn[pair["id"]] and ("ref_chosen_logps" in pair) == (number == 1)
    trained = Plain(small, start, trained=True)
    # Four steps on all pairs: one of warm-up, three of a cosine.
    rates = [0.0, 0.02, 0.015, 0.005]
    expected = optimized(trained, preference(trained, reference, compared, 0.5), 4, rates.__getitem__)
    assert losses_of(out) == pytest.approx(expected, abs=1e-4)
    assert (expected[0] == pytest.approx(math.log(2), abs=1e-5)) == (number == 1)
