"""The workflow as its users meet it: the paper's matrix and a tuning as dry runs, and a small matrix for real, end to end."""

import json
import os
import re
import shutil
import sys
from collections import Counter

import dry_run
import pytest
import small_matrix
import yaml
from conftest import ARITHMETIC, ROOT, program

from orce.__main__ import main
from orce.artefacts import files, store
from orce.config import picking
from orce.config.check import read_config
from orce.settings.stage import to_argument
from orce.stages import tune


def snakemake(*arguments, folder):
    done = program(*small_matrix.SNAKEMAKE, *arguments, cwd=folder)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout + done.stderr


def plan(*arguments, folder, check=True):
    code, said = dry_run.snakemake(folder, "--snakefile", ROOT / "Snakefile", *arguments)
    assert code == 0 or not check, said[-6000:]
    return said


def job_counts(text) -> Counter:
    table = text.rsplit("Job stats:", 1)[1].split("Reasons:")[0]
    counts = re.findall(r"^(\w+) +(\d+)$", table, re.MULTILINE)
    return Counter({name: int(count) for name, count in counts if name != "total"})


PLANNED = {
    "prompts": 10, "overlap": 4, "fetch": 3, "sample": 12, "surrogate": 12, "elicit": 2 * 12, "sft": 9, "train": 9,
    "candidates": 9 + 2 * 13, "pairs": 3 * 13, "dpo": 3 * 13, "state": 4 * 12 + 4 + 2 * 3, "derive": 12, "evaluate": 7 * 3 * 4 + 4 + 2 * 3, "table": 6,
    "tables": 1, "paper_tables": 1,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [
    ["--cores", "all"],
    ["paper_tables", "--cores", "all", "--resources", "gpu=4"],
    ["--cores", "all", "--resources", "gpu=4", "--", "paper_tables"],
], ids=" ".join)  # fmt: skip
def test_every_form_of_the_command_plans_the_cells_of_the_six_tables_once(project, arguments):
    assert job_counts(plan(*arguments, folder=project)) == PLANNED


@pytest.mark.slow
def test_one_cell_or_table_plans_only_what_it_needs(project):
    text = plan("--cores", "all", "--", "results/mmlu/llama3-8b/orce/metrics.json", folder=project)
    assert job_counts(text) == {
        "prompts": 3, "fetch": 1, "sample": 1, "surrogate": 1, "sft": 1, "candidates": 3,
        "pairs": 3, "dpo": 3, "state": 1, "evaluate": 1,
    }  # fmt: skip
    counts = job_counts(plan("--cores", "all", "--", "paper_tables/ablation.tex", folder=project))
    assert (counts["evaluate"], counts["dpo"], counts["table"], counts["sample"]) == (6, 3 * 5, 1, 1)
    for target, trained in (
        ("results/reclor/qwen3-8b/orce/metrics.json", "results/logiqa/qwen3-8b/dpo/manifest.json"),
        ("results/mmlu/qwen3-8b/sft-from-llama3-8b/metrics.json", "results/mmlu/llama3-8b/sft/manifest.json"),
    ):
        text = plan("--cores", "all", "--", target, folder=project)
        assert trained in text and job_counts(text)["sample"] == 2


@pytest.mark.slow
def test_more_rounds_sample_candidates_again_from_the_model_before(project):
    target = "results/mmlu/llama3-8b/orce/metrics.json"
    text = plan("-p", "--cores", "all", "--", target, folder=project)
    counts = job_counts(text)
    assert [counts[rule] for rule in ("candidates", "pairs", "dpo")] == [3, 3, 3]
    # Only the first round's candidates come from DPO's reference, the warm start.
    assert [line.count("--from-reference") for line in text.splitlines() if "orce pairs" in line].count(1) == 1
    starts = re.findall(r"--start (\S+)/manifest.json", text)
    cell = "results/mmlu/llama3-8b"
    assert sorted(starts) == sorted([f"{cell}/sft", f"{cell}/round2/sc/start", f"{cell}/round3/sc/start"])


ELSEWHERE = ["vanilla", "consistency", "sft", "orce"]


@pytest.fixture(scope="module")
def small(straight, letters, tmp_path_factory):
    """The finished small matrix and then a larger one in its folder: the ablation, a dataset out of domain, a transfer."""
    folder = shutil.copytree(straight, tmp_path_factory.mktemp("run") / "project", symlinks=True)
    config, over = small_matrix.configuration(letters)
    test = {"test": {"from": "test", "size": 12}}
    config["datasets"]["arithmetic"] = {"task": ARITHMETIC, "source": {}, "splits": test, "confidence_from": "mmlu"}
    config["models"]["other"] = {"label": "small, zero-shot", "source": {"model": "small"}, "shots": 0, "trains": False}
    config["tables"] |= {
        "arithmetic": {"kind": "main", "dataset": "arithmetic", "models": ["small"], "methods": ELSEWHERE},
        "ablation": {"kind": "ablation", "dataset": "mmlu", "models": ["small"], "methods": ["orce-nrd", "orce"]},
        "transfer": {"kind": "transfer", "dataset": "mmlu", "source": "small", "models": ["other"], "methods": ["sft", "orce"]},
    }  # fmt: skip
    small_matrix.write(folder, config, over | {"paper_tables": list(config["tables"])})
    kept = sorted((folder / "results").glob("*/small/*/manifest.json"))
    before = [path.stat().st_mtime_ns for path in kept]
    run(folder)
    assert kept and [path.stat().st_mtime_ns for path in kept] == before, "what was trained is not trained again"
    return folder


def run(folder, runner=snakemake, over=None):
    configs = ["small.yaml"]
    if over is not None:
        (folder / "over.yaml").write_text(yaml.safe_dump(over))
        configs.append("over.yaml")
    return runner("--configfile", *configs, "--cores", "2", "--", "paper_tables", folder=folder)


@pytest.mark.slow
def test_the_tables_are_of_what_was_computed_answers_come_first_and_metrics_say_where_from(small):
    for name in ("main", "arithmetic", "ablation", "transfer", "tables"):
        assert (small / "paper_tables" / f"{name}.tex").stat().st_size > 200
    assert (small / "paper_tables" / "tables.pdf").read_bytes().startswith(b"%PDF")
    accuracy = json.loads((small / "results/mmlu/small/sft/metrics.json").read_text())["accuracy"]
    assert 0 < accuracy < 1
    assert f"{accuracy:.3f}" in (small / "paper_tables" / "main.tex").read_text()
    for dataset in ("arithmetic", "mmlu"):
        cell = small / "results" / dataset / "small"
        by_method = {}
        for method in ("vanilla", "sft", "orce"):
            records = files.read_jsonl(cell / method / "confidences.jsonl")
            by_method[method] = [(one["id"], one["answer"], one["correct"]) for one in records]
        assert all(answers == by_method["vanilla"] for answers in by_method.values())
        sampled = (cell / "samples.jsonl").stat().st_mtime
        assert all(sampled < path.stat().st_mtime for path in (cell / "sft").iterdir())
        manifest = json.loads((cell / "samples.manifest.json").read_text())
        assert manifest["sha256"] == files.file_digest(cell / "samples.jsonl")
    found = sorted((small / "results").glob("*/*/*/metrics.json"))
    assert len(found) == 7 + len(ELSEWHERE) + 1 + 2
    for path in found:
        metrics = json.loads(path.read_text())
        record = metrics["provenance"]
        assert record.keys() >= {
            "settings", "config_digest", "packages", "processor", "git_commit", "inputs",
        }  # fmt: skip
        assert metrics["n"] == 12
        assert set(metrics["n_unparsed"]) == {"answer", "confidence"}
        for key in ("ece", "aurc", "e_aurc", "accuracy", "auroc", "aupr", "brier"):
            assert metrics[key] is not None or metrics["reasons"][key]


@pytest.mark.slow
@pytest.mark.parametrize(("over", "again"), [
    ({"methods": {"cot": {"max_tokens": 9}}}, dict.fromkeys(("elicit", "evaluate", "table", "tables", "paper_tables"), 1)),
    ({"dpo": {"beta": 0.3}}, {"dpo": 2, "state": 4, "evaluate": 4, "table": 4, "tables": 1, "paper_tables": 1}),
])  # fmt: skip
def test_a_changed_setting_reruns_what_depends_on_it(small, over, again):
    """More of them: test_docs.py."""
    assert job_counts(run(small, plan, over)) == again


@pytest.mark.slow
@pytest.mark.parametrize("path, remade", [
    ("results/mmlu/prompts/rl.jsonl", "prompts"),
    ("results/mmlu/small/samples.jsonl", "sample"),
    ("results/mmlu/small/surrogate.csv", "surrogate"),
    ("results/mmlu/small/sft/manifest.json", "sft"),
    ("results/mmlu/small/conftuner/manifest.json", "train"),
    ("results/mmlu/small/candidates.jsonl", "candidates"),
    ("results/mmlu/small/candidates.manifest.json", "candidates"),
    ("results/mmlu/small/pairs/nrd.jsonl", "pairs"),
    ("results/mmlu/small/dpo-nrd/manifest.json", "dpo"),
    ("results/mmlu/small/orce/confidences.jsonl", "state"),
    ("results/mmlu/small/cot/confidences.jsonl", "elicit"),
    ("results/mmlu/overlap.json", "overlap"),
    ("paper_tables/ablation.tex", "table"),
])  # fmt: skip
def test_any_deleted_file_and_what_depends_on_it_is_made_again(small, path, remade):
    hidden = (small / path).rename(small / "hidden")
    try:
        counts = job_counts(run(small, plan))
        assert counts[remade] == 1 and counts["paper_tables"] == 1
    finally:
        hidden.rename(small / path)


@pytest.mark.slow
def test_a_deleted_metrics_file_costs_that_evaluation_and_the_tables(small):
    target = small / "results/mmlu/small/sft/metrics.json"
    before = json.loads(target.read_text())
    tables = (small / "paper_tables" / "tables.pdf").read_bytes()
    target.unlink()
    assert job_counts(run(small, plan)) == {"evaluate": 1, "table": 1, "tables": 1, "paper_tables": 1}
    run(small)
    after = json.loads(target.read_text())
    for record in (before, after):
        del record["provenance"]  # it names the commit, "-dirty" once a file is edited
    assert after == before
    assert (small / "paper_tables" / "tables.pdf").read_bytes() == tables


@pytest.mark.slow
def test_snakemakes_linter_finds_nothing_but_what_is_accepted():
    done = program(sys.executable, ROOT / ".ci" / "lint.py", *small_matrix.SNAKEMAKE, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_a_second_run_or_a_cell_of_a_finished_one_has_nothing_to_do_nor_has_a_touched_source(small):
    assert "Nothing to be done" in run(small)
    target = "results/mmlu/small/orce/metrics.json"
    assert "Nothing to be done" in plan("--configfile", "small.yaml", "--cores", "2", "--", target, folder=small)
    for path in ("workflow/orce/training/sft.py", "workflow/orce/stages/sample.py"):
        os.utime(ROOT / path)
    assert "Nothing to be done" in run(small, plan)


OTHERWISE = [json.loads(line) for line in (ROOT / "tests/data/other_settings.jsonl").open()]


@pytest.fixture(scope="module")
def copied(straight, letters, tmp_path_factory):
    """A finished run without Snakemake's records: unpacked, or copied by results/ alone."""
    folder = tmp_path_factory.mktemp("copied")
    small_matrix.write(folder, *small_matrix.configuration(letters))
    for name in ("results", "paper_tables"):
        shutil.copytree(straight / name, folder / name)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("case", OTHERWISE, ids=lambda case: json.dumps(case["change"]))
def test_results_without_records_are_refused_under_other_settings(copied, case):
    (copied / "change.yaml").write_text(yaml.safe_dump(case["change"]))
    said = plan("--configfile", "small.yaml", "change.yaml", "--cores", "2", folder=copied, check=False)
    if case["said"] is None:
        assert "Nothing to be done" in said
        return
    assert re.search(rf"^results/mmlu/.*{case['said']}.*, and Snakemake would keep them", said, re.MULTILINE), said[
        -900:
    ]


@pytest.mark.slow
def test_refused_results_are_made_again_or_kept(copied):
    """Where Snakemake has records of them it makes them again by itself; a touch writes none under other settings."""
    (copied / "change.yaml").write_text("dpo: {beta: 0.3}")
    changed = ("--configfile", "small.yaml", "change.yaml", "--cores", "2")
    cell, again = "results/mmlu/small", Counter(dpo=1, state=1, evaluate=1, table=1, tables=1, paper_tables=1)

    def touched(environment):
        arguments = ("--snakefile", ROOT / "Snakefile", *changed, "--touch", "-F")
        return dry_run.refused(copied, *arguments, environment=environment)

    assert "made with other settings" in touched({})[1] and not [*copied.glob(".snakemake/metadata/*")]
    named = (copied / ".snakemake/other_settings").read_text().split()
    assert named == [f"{cell}/dpo/manifest.json"]
    assert job_counts(plan(*changed, "-R", *named, folder=copied)) == again
    assert "Nothing to be done" in plan(*changed, "--", f"{cell}/sft/metrics.json", folder=copied)
    assert "made with" in plan(*changed, "--", f"{cell}/orce/metrics.json", folder=copied, check=False)
    keep = {"ORCE_KEEP": "1"}
    code, said = touched(keep)
    assert code == 0, said[-900:]
    assert "made with" in plan(*changed, folder=copied, check=False), "a touch changes no seal"
    code, said = dry_run.snakemake(copied, "--snakefile", ROOT / "Snakefile", *changed, environment=keep)
    assert code == 0 and "Nothing to be done" in said, said[-900:]
    assert job_counts(plan("--configfile", "small.yaml", "--cores", "2", folder=copied)) == again


GRID = (ROOT / "tests" / "data" / "grid.yaml").read_text().replace("ARITHMETIC", ARITHMETIC)


@pytest.fixture
def tuned(project, monkeypatch):
    (project / "grid.yaml").write_text(GRID)
    monkeypatch.chdir(project)
    return project


def planned(tuned, *configfiles):
    wanted = ["--cores", "1", "--configfile", *configfiles, "--", "tune"]
    return dry_run.snakemake(tuned, "--snakefile", ROOT / "Snakefile", *wanted)


def test_the_target_tries_every_point_of_the_grid_on_the_validation_split(tuned):
    code, said = planned(tuned, "grid.yaml")
    assert code == 0, said
    counts = job_counts(said)
    assert (counts["tune_dpo"], counts["tune_state"], counts["tune"]) == (8, 8, 1)
    assert counts["dpo"] == counts["state"] == counts["evaluate"] == 0


@pytest.mark.parametrize(("over", "said"), [
    ({"tune": None}, "config: no `tune`; give the grid"),
    ({"datasets": {"sums": {"splits": {"validation": None}}}}, "validation"),
    ({"tune": {"beta": []}}, "mine.yaml: tune.beta"),
])  # fmt: skip
def test_what_tuning_needs_is_named(tuned, over, said):
    (tuned / "mine.yaml").write_text(yaml.safe_dump(over))
    code, text = planned(tuned, "grid.yaml", "mine.yaml")
    assert code != 0 and said in text


def trial(path, right, wrong):
    """A trial's file: five right answers stated at `right`, five wrong ones at `wrong`."""
    asked = {"mean": 0.5, "retried": False}
    rows = [{"id": str(i), "correct": i < 5, "stated": right if i < 5 else wrong} | asked for i in range(10)]
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_jsonl(path, rows)
    store.seal(str(path))
    return str(path)


def test_the_lowest_trial_is_chosen_and_written_as_a_configuration(tuned):
    config = read_config(["config.yaml", "grid.yaml"])
    names = list(picking.trials(config))
    assert names[0] == "beta0.1-learning_rate0.0003-epochs3"
    paths = [
        trial(tuned / cell / f"{name}.jsonl", *((0.9, 0.1) if i == 2 else (0.1, 0.9)))
        for cell in ("a", "b")
        for i, name in enumerate(names)
    ]
    options = to_argument(tune.TuneSettings.of(config))
    assert main(["tune", "--settings", options, "--confidences", *paths, "--out", "tuned.yaml"]) == 0
    assert yaml.safe_load((tuned / "tuned.yaml").read_text()) == {"dpo": picking.trials(config)[names[2]]}
    again = read_config(["config.yaml", "grid.yaml", "tuned.yaml"])
    assert again.dpo.beta == 0.3 and again.dpo.scheduler == "cosine"
