"""The workflow as its users meet it: the paper's matrix and a tuning as dry runs, and a small matrix for real, end to end."""

import os
import re
import shutil
from collections import Counter

import dry_run
import pytest
import small_matrix
from conftest import ARITHMETIC, ROOT, program

from orce.artefacts import files


def snakemake(*arguments, folder):
    done = program(*small_matrix.SNAKEMAKE, *arguments, cwd=folder)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout + done.stderr


def plan(*arguments, folder):
    code, said = dry_run.snakemake(folder, "--snakefile", ROOT / "Snakefile", *arguments)
    assert code == 0, said[-6000:]
    return said


def job_counts(text) -> Counter:
    table = text.rsplit("Job stats:", 1)[1].split("Reasons:")[0]
    counts = re.findall(r"^(\w+) +(\d+)$", table, re.MULTILINE)
    return Counter({name: int(count) for name, count in counts if name != "total"})


@pytest.mark.slow
def test_every_form_of_the_command_plans_the_cells_of_the_six_tables_once(project):
    """What the jobs are: test_frozen_commands.py."""
    four = "--cores all --resources gpu=4"
    forms = "--cores all", f"paper_tables {four}", f"{four} -- paper_tables"
    first, *others = (job_counts(plan(*form.split(), folder=project)) for form in forms)
    assert others == [first, first]
    assert (first["table"], first["sample"], first["evaluate"]) == (6, 12, 7 * 3 * 4 + 4 + 2 * 3)


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


TABLES = ["--configfile", "small.yaml", "--cores", "2", "--", "paper_tables"]


@pytest.fixture(scope="module")
def small(straight, letters, tmp_path_factory):
    """The finished small matrix and then a larger one in its folder: the ablation, a dataset out of domain, a transfer."""
    folder = shutil.copytree(straight, tmp_path_factory.mktemp("run") / "project", symlinks=True)
    config, over = small_matrix.configuration(letters)
    test, methods = {"test": {"from": "test", "size": 12}}, ["vanilla", "consistency", "sft", "orce"]
    config["datasets"]["arithmetic"] = {"task": ARITHMETIC, "source": {}, "splits": test, "confidence_from": "mmlu"}
    config["models"]["other"] = {"label": "small, zero-shot", "source": {"model": "small"}, "shots": 0, "trains": False}
    config["tables"] |= {
        "arithmetic": {"kind": "main", "dataset": "arithmetic", "models": ["small"], "methods": methods},
        "ablation": {"kind": "ablation", "dataset": "mmlu", "models": ["small"], "methods": ["orce-nrd", "orce"]},
        "transfer": {"kind": "transfer", "dataset": "mmlu", "source": "small", "models": ["other"], "methods": ["sft", "orce"]},
    }  # fmt: skip
    small_matrix.write(folder, config, over | {"paper_tables": list(config["tables"])})
    kept = sorted((folder / "results").glob("*/small/*/manifest.json"))
    before = [path.stat().st_mtime_ns for path in kept]
    snakemake(*TABLES, folder=folder)
    assert kept and [path.stat().st_mtime_ns for path in kept] == before, "what was trained is not trained again"
    return folder


@pytest.mark.slow
def test_the_tables_are_of_what_was_computed_answers_come_first_and_metrics_say_where_from(small):
    for name in ("main", "arithmetic", "ablation", "transfer", "tables"):
        assert (small / "paper_tables" / f"{name}.tex").stat().st_size > 200
    assert (small / "paper_tables" / "tables.pdf").read_bytes().startswith(b"%PDF")
    accuracy = files.read_json(small / "results/mmlu/small/sft/metrics.json")["accuracy"]
    assert 0 < accuracy < 1
    assert f"{accuracy:.3f}" in (small / "paper_tables" / "main.tex").read_text()
    for dataset in ("arithmetic", "mmlu"):
        cell = small / "results" / dataset / "small"
        of_methods = (files.read_jsonl(cell / method / "confidences.jsonl") for method in ("vanilla", "sft", "orce"))
        vanilla, *others = ([(one["id"], one["answer"], one["correct"]) for one in records] for records in of_methods)
        assert others == [vanilla, vanilla]
        sampled = (cell / "samples.jsonl").stat().st_mtime
        assert all(sampled < path.stat().st_mtime for path in (cell / "sft").iterdir())
        assert files.read_json(cell / "samples.manifest.json")["sha256"] == files.file_digest(cell / "samples.jsonl")
    found = sorted((small / "results").glob("*/*/*/metrics.json"))
    assert len(found) == 7 + 4 + 1 + 2
    for metrics in map(files.read_json, found):
        where_from = {"settings", "config_digest", "packages", "processor", "git_commit", "inputs"}
        assert metrics["provenance"].keys() >= where_from
        assert metrics["n"] == 12
        assert set(metrics["n_unparsed"]) == {"answer", "confidence"}
        for key in ("ece", "aurc", "e_aurc", "accuracy", "auroc", "aupr", "brier"):
            assert metrics[key] is not None or metrics["reasons"][key]


@pytest.mark.slow
def test_a_second_run_or_a_cell_of_a_finished_one_has_nothing_to_do_nor_has_a_touched_source(small):
    assert "Nothing to be done" in snakemake(*TABLES, folder=small)
    assert "Nothing to be done" in plan(*TABLES[:-1], "results/mmlu/small/orce/metrics.json", folder=small)
    for path in ("workflow/orce/training/sft.py", "workflow/orce/stages/sample.py"):
        os.utime(ROOT / path)
    assert "Nothing to be done" in plan(*TABLES, folder=small)


def tuning(project, without: str | None = None) -> tuple[int, str]:
    """The dry run of the target tune over grid.yaml, whole or without the line of a key."""
    text = (ROOT / "tests" / "data" / "grid.yaml").read_text().replace("ARITHMETIC", ARITHMETIC)
    kept = [line for line in text.splitlines() if line.split(":")[0].strip() != without]
    (project / "grid.yaml").write_text("\n".join(kept))
    configured = ("--snakefile", ROOT / "Snakefile", "--configfile", "grid.yaml")
    return dry_run.snakemake(project, *configured, "--cores", "1", "--", "tune")


def test_the_target_tune_tries_every_point_of_the_grid_on_the_validation_split(project):
    """What it reads and is given, and what it chooses: test_rounds.py and test_stage_files.py."""
    code, said = tuning(project)
    assert code == 0, said
    counts = job_counts(said)
    assert (counts["tune_dpo"], counts["tune_state"], counts["tune"]) == (8, 8, 1)
    assert counts["dpo"] == counts["state"] == counts["evaluate"] == 0


@pytest.mark.parametrize(("without", "said"), [
    ("tune", "config: no `tune`; give the grid"),
    ("validation", "config: datasets.sums.splits: no validation; tune chooses on it"),
    ("- orce", "config: paper_tables: no row of these tables has the paper's reward; tune chooses its settings: add orce"),
])  # fmt: skip
def test_what_tuning_needs_is_named(project, without, said):
    code, text = tuning(project, without)
    assert code != 0 and said in text
