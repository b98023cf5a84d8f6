"""Who reads what: the commands that Snakemake plans, each a line of tests/data/reads.txt and reads_rounds.txt: stage, what it makes |
its options, with all paths below results/."""

import json
import re
from pathlib import Path

import dry_run
import pytest
import yaml
from conftest import ROOT, own_config
from stages_by_hand import WORDS, lines

from orce.__main__ import main
from orce.apps.planned import Command, commands

DATA = ROOT / "tests" / "data"
REPORTS = ("table", "tables", "figures", "metrics-csv")
FLAGS = ("--from-reference", "--keep-reference")
UNSAID = ("--settings", "--out", "--manifest", "--extra", "--fit")


def planned(folder: Path, *targets: str) -> list[Command]:
    """The commands of a dry run for some targets."""
    words = ("-p", "--cores", "1", "--snakefile", ROOT / "Snakefile", "--", *targets)
    code, said = dry_run.snakemake(folder, *words)
    assert code == 0, said[-3000:]
    return commands(said)


def line(command: Command) -> str:
    """A command as in reads.txt. An option that a job leaves blank has its default; weights may be named by their manifest."""
    told = [f"{command.stage} {command.out.removesuffix('/manifest.json')} |"]
    for option, words in sorted(command.options.items()):
        if option in UNSAID or not words and option not in FLAGS:
            continue
        if option != "--manifests":
            words = [word.removesuffix("/manifest.json") for word in words]
        told.append(" ".join([option.removeprefix("--"), *words]))
    shown = "; ".join(told).replace("|;", "|")
    return shown.replace("results/", "").replace(WORDS, "TASK")


def settings_of(command: Command) -> dict:
    return json.loads(command.options.get("--settings", ["{}"])[0])


ALIGNED = [f"results/words/m/{method}/metrics.json" for method in ("orce", "orce-sayself")]
JUDGING = ("sft", "candidates", "pairs", "dpo", "state")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_each_reward_goes_on_from_its_own_round_before_and_the_reference_stays_the_warm_start(folder, dtype):
    """But in float32 the first candidates keep what the reference says, which later pairs read."""
    splits = {"sft": {"from": "train", "size": 5}, "rl": {"from": "train", "size": 6}}
    spec = {"task": WORDS, "source": {}, "splits": splits | {"test": {"from": "test"}}}
    models = {"m": {"label": "M", "source": {"path": "."}}}
    config = own_config("words", spec, models, ["sft", "orce", "orce-sayself"]) | {"dtype": dtype}
    assert config["dpo"]["rounds"] == 3, "as shipped"
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    expected = (DATA / "reads_rounds.txt").read_text()
    if dtype == "float32":
        expected = re.sub(r"(keep-reference|reference \S+); ", "", expected)
    made = [line(command) for command in planned(folder, *ALIGNED) if command.stage in JUDGING]
    assert sorted(made) == sorted(expected.splitlines())


@pytest.fixture(scope="module")
def wide(tmp_path_factory) -> tuple[Path, dict, list[Command]]:
    """(folder, configuration, plan) of a cell with most kinds of methods, a data set to fit on, one out of domain, a transfer, a grid."""
    root = tmp_path_factory.mktemp("wide")
    text = (DATA / "wide.yaml").read_text().replace("TASK", WORDS).replace("FOLDER", str(root))
    wide = yaml.safe_load(text)
    sections = {name: wide.pop(name) for name in ("methods", "dpo")}
    config = own_config("words", {}, {}, [], **sections) | wide
    (root / "config.yaml").write_text(yaml.safe_dump(config))
    tuning = [command for command in planned(root, "tune") if "tune" in command.out]
    return root, config, planned(root, "all") + tuning


def test_each_stage_reads_what_the_method_needs_and_nothing_else(wide):
    expected = (DATA / "reads.txt").read_text().splitlines()
    assert sorted(line(command) for command in wide[2] if command.stage not in REPORTS) == sorted(expected)


def test_splits_that_are_trained_on_share_no_question_with_one_that_is_tested_on(wide, monkeypatch):
    root, _, plan = wide
    monkeypatch.chdir(root)
    ids = {}
    for command in plan:
        if command.stage == "prompts":
            assert main(command.words) == 0
            split = command.out.removeprefix("results/").replace("/prompts/", " ").removesuffix(".jsonl")
            ids[split] = {row["id"] for row in lines(command.out)}
    trained = {"words sft": 5, "words rl": 6, "words validation": 2}
    sizes = trained | {"words test": 6, "held test": 2, "far test": 4}
    assert {name: len(some) for name, some in ids.items()} == sizes
    # The set to fit on is cut from the source split that the judges are trained and tuned on.
    apart = set.union(*(ids[name] for name in (*trained, "held test")))
    assert len(apart) == 5 + 6 + 2 + 2 and apart < {f"n{i:02}" for i in range(16)}
    assert ids["far test"] < ids["words test"] == {f"t{i}" for i in range(6)}


def test_each_stage_is_given_the_keys_of_the_configuration_that_are_its_own(wide):
    """Those of a run without a grid, all of them: test_frozen_commands.py."""
    _, config, plan = wide
    given = {line(command).split(" | ")[0]: settings_of(command) for command in plan}
    optimisation, point = given["dpo words/m/dpo"]["stage"], {"beta": 0.3, "learning_rate": 0.001, "epochs": 2}
    assert optimisation.items() <= config["dpo"].items()
    assert given["dpo words/m/tune/sc/beta0.3-learning_rate0.001-epochs2"]["stage"] == optimisation | point
    assert given["tune tuned.yaml"] == {
        "metric": "brier", "readout": config["evaluation"]["readout"],
        "trials": {f"beta{beta:g}-learning_rate0.001-epochs2": point | {"beta": beta} for beta in (0.1, 0.3)},
    }  # fmt: skip
    # A method's own training has its own optimisation, which differs from the warm start's.
    own = given["sft words/m/sft"]["stage"], given["train words/m/conftuner"]["stage"]
    assert own == (config["sft"], config["methods"]["conftuner"])
    assert all(own[0][key] != own[1][key] for key in ("epochs", "batch_size", "scheduler"))
    # The prompt of training and evaluation is one: the model's chat template is among its settings.
    judging = re.compile(r"(sft|train|dpo|candidates|state) (words/m|held|far)/")
    judges = [settings["model"] for name, settings in given.items() if judging.match(name)]
    source = {key: config["models"]["m"][key] for key in ("source", "template_kwargs")}
    assert len(judges) == 6 + 2 + 9
    assert all(model == judges[0] and model.items() >= source.items() for model in judges)
    assert [given[f"pairs words/m/pairs/{reward}.jsonl"]["reward"] for reward in ("sc", "nrd")] == ["sc", "nrd"]
    assert given["fit words/m/sft+platt/confidences.jsonl"]["module"] == "platt"
    assert given["fit words/m/mix/confidences.jsonl"]["combination"] == "logistic"


def test_reports_have_the_rows_of_their_tables_and_metrics_csv_the_label_of_the_first(wide):
    """The row sft stands in two tables under different labels."""
    reports = {command.stage: command for command in wide[2] if command.stage in REPORTS}
    labels = settings_of(reports["metrics-csv"])["labels"]
    assert labels["results/words/m/sft/metrics.json"] == "SFT" and len(labels) == 20
    assert reports["metrics-csv"].options["--metrics"] == reports["tables"].options["--metrics"] == [*dict.fromkeys(
        f"results/{cell}/{method}/metrics.json" for cell, methods in (
            ("words/m", ["vanilla", "consistency", "cot", "conftuner", "sft", "orce-nrd", "sft+platt", "mix", "probe", "p_ik",
                         "probe_judge", "p_true", "weighted_semantic_entropy", "linguistic"]),
            ("far/m", ["orce", "probe", "dpo2"]), ("words/n", ["vanilla", "sft-from-m", "orce-from-m"]),
        ) for method in methods
    )]  # fmt: skip
    cells = settings_of(reports["figures"])["cells"]
    pictured = {f"{cell['dataset']}/{cell['model']}": len(dict(cell["methods"])) for cell in cells}
    assert pictured == {"words/m": 14, "far/m": 3, "words/n": 3}
