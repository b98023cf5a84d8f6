"""Who reads what: the commands of a plan, and three rounds of DPO that are run from them and looked at.

The plan is Snakemake's; what each command is to read is written down here and in tests/data/reads.txt, a line each: stage, what it
makes | its options, all paths below results/. The configuration that is shipped has three rounds.
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
FLAGS = ("from-reference", "keep-reference")


class Command(NamedTuple):
    """A command of a plan; settings: of its JSON object; options: the others, {name: words}."""

    stage: str
    settings: dict[str, Any]
    options: dict[str, list[str]]
    words: list[str]


def planned(folder: Path, *targets: str) -> list[Command]:
    """The commands of a dry run for some targets, in its order. An option that a job leaves blank has its default, and a folder of weights may
    be named by its manifest."""
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
        options = {name: own for name, own in options.items() if own or name in FLAGS}
        for name in options.keys() - {"manifests"}:
            options[name] = [word.removesuffix("/manifest.json") for word in options[name]]
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


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_each_reward_goes_on_from_its_own_round_before_and_the_reference_stays_the_warm_start(folder, dtype):
    config = configured(folder, str(folder))
    (folder / "config.yaml").write_text(yaml.safe_dump(config | {"dtype": dtype}))
    kept = {"keep-reference": []} if dtype == "bfloat16" else {}
    made = {command.options["out"][0]: command for command in planned(folder, *ALIGNED)}
    frozen, kappa = ["results/words/prompts/rl.jsonl"], [f"{CELL}/surrogate.csv"]
    for reward, number, place, start, out in ROUNDS:
        candidates = made[f"{CELL}/{place}candidates.jsonl"]
        assert candidates.stage == "candidates"
        assert candidates.options == {
            "surrogate": kappa, "prompts": frozen, "weights": [f"{CELL}/{start}"],
            "out": [f"{CELL}/{place}candidates.jsonl"],
        } | (kept if number == 1 else {})  # fmt: skip
        pairs = made[f"{CELL}/{place}pairs/{reward}.jsonl"]
        assert (pairs.stage, pairs.settings["reward"], pairs.settings["module"]) == ("pairs", reward, reward)
        assert (
            pairs.options["candidates"] == [f"{CELL}/{place}candidates.jsonl"] and pairs.options["surrogate"] == kappa
        )
        assert pairs.options["prompts"] == frozen
        assert ("from-reference" in pairs.options) == (number == 1), (
            "the later ones come from another model than the reference"
        )
        first = [f"{CELL}/candidates.jsonl"] if kept and number > 1 else None
        assert pairs.options.get("reference") == first, "which the first ones keep, in other arithmetic than float32"
        dpo = made[f"{CELL}/{out}"]
        assert dpo.stage == "dpo"
        assert dpo.options == {
            "pairs": [f"{CELL}/{place}pairs/{reward}.jsonl"], "sft": [f"{CELL}/sft"],
            "start": [f"{CELL}/{start}"], "out": [f"{CELL}/{out}"],
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


# Other data sets, models and methods


@pytest.fixture(scope="module")
def wide(tmp_path_factory) -> tuple[Path, dict, list[Command]]:
    """(folder, configuration, plan) of a cell with most kinds of methods, a data set to fit on, one out of domain, a transfer, a grid."""
    root = tmp_path_factory.mktemp("wide")
    splits = {name: {"from": "train", "size": size} for name, size in (("sft", 5), ("rl", 6), ("validation", 2))}
    judged = {"task": WORDS, "source": {}, "confidence_from": "words"}
    rows = ["vanilla", "consistency", "cot", "conftuner", "sft", "orce-nrd", "sft+platt", "mix", "probe", "p_ik", "probe_judge",
            "p_true", "weighted_semantic_entropy", "linguistic"]  # fmt: skip
    spec = {"task": WORDS, "source": {}, "splits": splits | {"test": {"from": "test"}}, "calibrate_on": "held"}
    models = {
        "m": {"label": "M", "source": {"path": str(root)}},
        "n": {"label": "N", "source": {"model": "m"}, "trains": False},
    }
    mix = {"of": ["likelihood", "agreement"], "fit": "logistic"}
    config = own_config("words", spec, models, rows, methods={"mix": mix}, dpo={"rounds": 1})
    config["seed"] = 5
    config["datasets"] |= {
        "held": judged | {"splits": {"test": {"from": "train", "size": 2}}},
        "far": judged | {"splits": {"test": {"from": "test", "size": 4}}},
    }
    far = {"kind": "main", "dataset": "far", "models": ["m"], "methods": ["orce", "probe", "conftuner"]}
    moved = {
        "kind": "transfer",
        "dataset": "words",
        "source": "m",
        "models": ["n"],
        "methods": ["vanilla", "sft", "orce"],
    }
    config["tables"] |= {
        "far": far,
        "moved": moved,
        "short": {"kind": "main", "dataset": "words", "models": ["m"], "methods": {"sft": "Short"}},
    }
    config["paper_tables"] = ["words", "far", "moved", "short"]
    config["tune"] = {"beta": [0.1, 0.3], "learning_rate": [0.001], "epochs": [2], "metric": "brier"}
    (root / "config.yaml").write_text(yaml.safe_dump(config))
    return (
        root,
        config,
        [
            *planned(root, "all"),
            *(command for command in planned(root, "tune") if "tune" in str(command.options["out"])),
        ],
    )


REPORTS = ("table", "tables", "figures", "metrics-csv")


def line(command: Command) -> str:
    """A command as in reads.txt."""
    options = sorted(
        (name, words) for name, words in command.options.items() if name not in ("out", "manifest", "extra", "fit")
    )
    told = "; ".join(" ".join([name, *words]) for name, words in options)
    return f"{command.stage} {command.options['out'][0]} | {told}".replace("results/", "").replace(WORDS, "TASK")


def test_each_stage_reads_what_the_method_needs_and_nothing_else(wide):
    expected = (ROOT / "tests" / "data" / "reads.txt").read_text().splitlines()
    assert sorted(line(command) for command in wide[2] if command.stage not in REPORTS) == sorted(expected)


def test_splits_that_are_trained_on_share_no_question_with_one_that_is_tested_on(wide, monkeypatch):
    root, _, plan = wide
    monkeypatch.chdir(root)
    ids = {}
    for command in plan:
        if command.stage == "prompts":
            assert main(command.words) == 0
            (path,) = command.options["out"]
            ids[path.removeprefix("results/").replace("/prompts/", " ").removesuffix(".jsonl")] = {
                row["id"] for row in lines(path)
            }
    sizes = {name: len(some) for name, some in ids.items()}
    assert sizes == {
        "words sft": 5,
        "words rl": 6,
        "words validation": 2,
        "words test": 6,
        "held test": 2,
        "far test": 4,
    }
    train = [ids["words sft"], ids["words rl"], ids["words validation"]]
    assert len(set.union(*train)) == 13
    # The set to fit on is cut from the source split that the judges are trained on.
    assert len(set.union(ids["words sft"], ids["words rl"], ids["held test"])) == 13 and ids["held test"] <= {
        f"n{i:02}" for i in range(16)
    }
    assert ids["far test"] < ids["words test"] == {f"t{i}" for i in range(6)}


def test_each_stage_is_given_the_keys_of_the_configuration_that_are_its_own(wide):
    _, config, plan = wide
    given = {line(command).split(" | ")[0]: command.settings for command in plan}

    def same(stage: str, section: dict, *keys: str) -> None:
        assert {key: given[stage][key] for key in keys} == {key: section[key] for key in keys}, stage

    optimisation = ("epochs", "learning_rate", "batch_size", "warmup_ratio", "scheduler", "weight_decay")
    point = {"beta": 0.3, "learning_rate": 0.001, "epochs": 2}
    tuned = "dpo words/m/tune/sc/beta0.3-learning_rate0.001-epochs2"
    assert given["sft words/m/sft"]["stage"] == config["sft"]
    assert given["dpo words/m/dpo"]["stage"] == {key: config["dpo"][key] for key in (*optimisation, "beta")}
    assert given[tuned]["stage"] == given["dpo words/m/dpo"]["stage"] | point
    # A method's own training has its own optimisation, which differs from the warm start's.
    assert given["train words/m/conftuner"]["stage"] == config["methods"]["conftuner"]
    assert all(
        config["sft"][key] != config["methods"]["conftuner"][key] for key in ("epochs", "batch_size", "scheduler")
    )
    trainings = [settings for name, settings in given.items() if name.split()[0] in ("sft", "train", "dpo")]
    assert len(trainings) == 6
    for settings in trainings:
        assert settings["seed"] == 5 and settings["model"]["source"] == config["models"]["m"]["source"]
        assert settings["training"]["lora"] == config["training"]["lora"]
        assert settings["training"]["method"] == config["training"]["method"]
    for cell in ("words/m", "words/n", "held/m", "far/m"):
        same(f"sample {cell}/samples.jsonl", config["answers"], "samples", "temperature", "top_p", "max_tokens")
        assert given[f"sample {cell}/samples.jsonl"]["seed"] == 5
    same("candidates words/m/candidates.jsonl", config["confidence"], "candidates", "temperature")
    for reward in ("sc", "nrd"):
        same(
            f"pairs words/m/pairs/{reward}.jsonl",
            config["dpo"] | {"reward": reward},
            "reference",
            "leave_one_out",
            "accept",
            "reward",
        )
    assert given["elicit words/m/cot/confidences.jsonl"]["options"] == config["methods"]["cot"] | {"shots": None}
    for name, settings in given.items():
        if name.startswith("evaluate"):
            same(name, config["evaluation"] | {"seed": 5}, "unparsed_confidence", "bootstrap", "seed")
            dataset, model, method, _ = name.split()[1].split("/")
            assert (settings["dataset"], settings["model"], settings["method"]) == (dataset, model, method)
    assert given["tune tuned.yaml"] == {
        "metric": "brier", "readout": config["evaluation"]["readout"],
        "trials": {f"beta{beta:g}-learning_rate0.001-epochs2": point | {"beta": beta} for beta in (0.1, 0.3)},
    }  # fmt: skip
    assert given["fit words/m/sft+platt/confidences.jsonl"]["module"] == "platt"
    assert given["fit words/m/mix/confidences.jsonl"]["combination"] == "logistic"
    scored = {
        name: given[f"likelihoods words/m/{name}.jsonl"].get("scored", "greedy")
        for name in ("likelihoods", "sample_likelihoods")
    }
    assert scored == {"likelihoods": "greedy", "sample_likelihoods": "samples"}
    assert [given[f"states words/m/states/{of}.jsonl"]["model_read"] for of in ("answers", "judge")] == [
        "answers",
        "judge",
    ]


def test_reports_have_the_rows_of_their_tables_and_metrics_csv_the_label_of_the_first(wide):
    """The row sft stands in two tables under different labels."""
    reports = {command.stage: command for command in wide[2] if command.stage in REPORTS}
    labels = reports["metrics-csv"].settings["labels"]
    assert labels["results/words/m/sft/metrics.json"] == "SFT" and len(labels) == 20
    assert reports["metrics-csv"].options["metrics"] == reports["tables"].options["metrics"] == [*dict.fromkeys(
        f"results/{cell}/{method}/metrics.json" for cell, methods in (
            ("words/m", ["vanilla", "consistency", "cot", "conftuner", "sft", "orce-nrd", "sft+platt", "mix", "probe", "p_ik",
                         "probe_judge", "p_true", "weighted_semantic_entropy", "linguistic"]),
            ("far/m", ["orce", "probe", "conftuner"]), ("words/n", ["vanilla", "sft-from-m", "orce-from-m"]),
        ) for method in methods
    )]  # fmt: skip
    pictured = {
        cell["dataset"] + "/" + cell["model"]: dict(cell["methods"]) for cell in reports["figures"].settings["cells"]
    }
    assert {cell: len(rows) for cell, rows in pictured.items()} == {"words/m": 14, "far/m": 3, "words/n": 3}
    assert reports["figures"].settings["reward"]["dataset"] == "words"
