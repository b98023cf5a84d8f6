"""What a run keeps was made with the settings of this run, whatever Snakemake's records say; what a run replaces is said before."""

import json
import shutil

import dry_run
import pytest
import small_matrix
import yaml
from conftest import ROOT
from test_workflow import job_counts

from orce.artefacts import store

CELL = "results/mmlu/small"
BETA = {"dpo": {"beta": 0.3}}
SAMPLES = f"{CELL}/samples"
OTHER_TABLE = {
    "tables": {"other": {"kind": "main", "dataset": "mmlu", "models": ["small"], "methods": ["vanilla"]}},
    "paper_tables": ["other"],
}


def snakemake(folder, change: dict, *words: str, dry: bool = True) -> tuple[int, str]:
    (folder / "change.yaml").write_text(yaml.safe_dump(change))
    configured = ("--configfile", "small.yaml", "change.yaml", "--cores", "2")
    dry_run_or_not = ("-n",) if dry else ()
    return dry_run.refused(folder, "--snakefile", ROOT / "Snakefile", *dry_run_or_not, *configured, *words)


def planned(folder, change: dict, *words: str) -> str:
    code, said = snakemake(folder, change, *words)
    assert code == 0, said[-2000:]
    return said


def refused(folder, change: dict, *words: str) -> str:
    code, said = snakemake(folder, change, *words)
    assert code == 1, said[-2000:]
    last_line = said.rstrip().splitlines()[-1]
    assert "Snakemake would keep them" in last_line
    return last_line


def finished(straight, folder, *parts):
    small_matrix.write(folder, yaml.safe_load((straight / "config.yaml").read_text()), {})
    shutil.copy(straight / "small.yaml", folder)
    for name in parts:
        shutil.copytree(straight / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def recorded(straight, tmp_path_factory):
    """A finished run with Snakemake's records."""
    return finished(straight, tmp_path_factory.mktemp("recorded"), "results", "paper_tables", ".snakemake")


@pytest.fixture(scope="module")
def former(recorded, tmp_path_factory):
    """The finished run with the seals and the records of an earlier version, whose settings had some keys of one value alone."""
    folder = tmp_path_factory.mktemp("former") / "run"
    shutil.copytree(recorded, folder)
    for manifest in folder.glob("results/**/*manifest.json"):
        facts = store.read_manifest(manifest)
        settings = facts.get("settings", {})
        if "training" in settings:
            settings["training"]["shared_prefix"] = True
        elif "model" in settings and "engine" not in settings and "method" not in settings:
            settings["reader"] = "transformers"
        store.write_manifest(manifest, facts)
    for record in folder.glob(".snakemake/metadata/*"):
        facts = json.loads(record.read_text())
        trained = [words.replace('"save_steps"', '"shared_prefix": true, "save_steps"') for words in facts["params"]]
        read = [words.replace('"task"', '"reader": "transformers", "task"') for words in trained]
        facts["params"] = read if facts["rule"] in ("state", "candidates") else trained
        record.write_text(json.dumps(facts))
    return folder


@pytest.fixture(scope="module")
def unpacked(straight, tmp_path_factory):
    """A finished run without Snakemake's records, as an archive has it."""
    return finished(straight, tmp_path_factory.mktemp("unpacked"), "results", "paper_tables")


pytestmark = pytest.mark.slow


def test_a_finished_run_has_nothing_to_do_with_records_or_without(recorded, unpacked):
    assert "Nothing to be done" in planned(recorded, {})
    assert "Nothing to be done" in planned(unpacked, {})


@pytest.mark.parametrize(("change", "said"), [
    (BETA, f"{CELL}/dpo/manifest.json: made with other settings than now (stage.beta: 1.0, now 0.3)"),
    ({"models": {"small": {"label": "Another"}}}, "models.small.label: 'small', now 'Another'"),
    ({"tables": {"main": {"caption": "Mine"}}}, "paper_tables/main.tex and"),
    ({"evaluation": {"bootstrap": 9}}, "bootstrap: 200, now 9"),
])  # fmt: skip
def test_changed_settings_are_refused_where_snakemake_looks_at_times_alone(recorded, change, said):
    assert said in refused(recorded, change, "--rerun-triggers", "mtime")


def test_snakemake_makes_again_what_has_changed_parameters_and_nothing_is_refused(recorded):
    assert job_counts(planned(recorded, BETA))["dpo"] == 1
    assert set(job_counts(planned(recorded, {"models": {"small": {"label": "Another"}}}))) == {
        "table",
        "tables",
        "paper_tables",
    }


def test_results_of_another_run_under_the_records_of_this_one_are_refused(recorded, tmp_path):
    put_back = tmp_path / "put_back"
    shutil.copytree(recorded, put_back)
    manifest = put_back / CELL / "dpo" / "manifest.json"
    facts = store.read_manifest(manifest)
    facts["settings"]["stage"]["beta"] = 0.3
    store.write_manifest(manifest, facts)
    assert "dpo/manifest.json: made with other settings than now (stage.beta: 0.3, now 1.0)" in refused(put_back, {})


def test_a_table_of_other_metrics_is_refused(recorded, tmp_path):
    mixed = tmp_path / "mixed"
    shutil.copytree(recorded, mixed)
    manifest = mixed / CELL / "orce" / "metrics.manifest.json"
    facts = store.read_manifest(manifest)
    store.write_manifest(manifest, facts | {"sha256": "0" * 64})
    assert f"made from another {CELL}/orce/metrics.json than there is now" in refused(mixed, {})


def test_a_table_without_a_seal_is_made_again_by_the_command_that_the_message_names(recorded, tmp_path):
    unsealed = tmp_path / "unsealed"
    shutil.copytree(recorded, unsealed)
    (unsealed / "paper_tables" / "main.manifest.json").unlink()
    assert "paper_tables/main.tex and 1 more files: made with other settings than now (no seal)" in refused(
        unsealed, {}
    )
    named = (unsealed / ".snakemake" / "other_settings").read_text().split()
    assert job_counts(planned(unsealed, {}, "-R", *named)) == {"table": 1, "tables": 1, "paper_tables": 1}


def test_a_target_is_refused_only_for_what_it_needs(unpacked):
    assert "Nothing to be done" in planned(unpacked, BETA, "--", "results/mmlu/prompts/test.jsonl")
    assert "Nothing to be done" in planned(unpacked, BETA, "--", f"{CELL}/sft/metrics.json")
    assert "dpo/manifest.json" in refused(unpacked, BETA, "--", f"{CELL}/orce/metrics.json")
    assert "dpo/manifest.json" in refused(unpacked, BETA, "--", "paper_tables/main.tex")


def test_what_a_forced_rule_would_make_again_is_not_refused(unpacked):
    assert job_counts(planned(unpacked, BETA, "-R", "sft"))["dpo"] == 1
    assert job_counts(planned(unpacked, BETA, "-R", "dpo"))["dpo"] == 1


def test_a_table_that_no_list_names_is_checked_too(unpacked):
    change = {"paper_tables": ["other"], "tables": {**OTHER_TABLE["tables"]}, "dpo": {"beta": 0.3}}
    assert "dpo/manifest.json" in refused(unpacked, change, "--", "paper_tables/main.tex")


def test_files_that_the_allowed_rules_do_not_make_are_checked_too(unpacked):
    words = ("--allowed-rules", "table", "tables", "paper_tables")
    assert "dpo/manifest.json" in refused(unpacked, BETA, *words)


def test_a_touch_under_other_settings_writes_no_record(unpacked, tmp_path):
    touched = tmp_path / "touched"
    shutil.copytree(unpacked, touched)
    for change in (BETA, {"models": {"small": {"label": "Another"}}}):
        code, said = snakemake(touched, change, "--touch", "-F", dry=False)
        assert code == 1 and "made with other settings than now" in said
        assert not [*touched.glob(".snakemake/metadata/*")]


def test_results_of_an_earlier_version_are_kept_by_the_one_command_that_the_plan_names(former, tmp_path):
    folder = tmp_path / "migrated"
    shutil.copytree(former, folder)
    said = planned(folder, {})
    counts = job_counts(said)
    assert counts["sft"] == counts["dpo"] == 1
    assert f"{counts.total() - 1} of {counts.total()} jobs would make again what is there" in said
    assert "to keep it, once and with the same configuration: snakemake --touch -F -- all" in said
    code, said = snakemake(folder, BETA, "--touch", "-F", dry=False)
    assert code == 1 and "stage.beta: 1.0, now 0.3" in said
    assert "to make them again: --rerun-triggers mtime -f -- $(cat .snakemake/other_settings), and then" in said
    code, said = snakemake(folder, {}, "--touch", "-F", dry=False)
    assert code == 0, said[-2000:]
    assert "Nothing to be done" in planned(folder, {})
    assert job_counts(planned(folder, BETA))["dpo"] == 1


def test_a_touch_says_which_files_have_no_seal(unpacked, tmp_path):
    folder = tmp_path / "unsealed"
    shutil.copytree(unpacked, folder)
    (folder / "paper_tables" / "main.manifest.json").unlink()
    code, said = snakemake(folder, {}, "--touch", "-F", dry=False)
    assert code == 0, said[-2000:]
    assert (
        "paper_tables/main.tex and 1 more files: no seal; the next run names the command that makes them again" in said
    )
    assert "paper_tables/main.tex and 1 more files" in refused(folder, {})


def test_a_file_from_more_or_fewer_inputs_than_its_rule_reads_now_is_refused(unpacked, tmp_path):
    tested_alone = {"models": {"small": {"trains": False}}, "tables": {"main": {"methods": ["vanilla"]}}}
    samples = f"{SAMPLES}.jsonl"
    assert "made from results/mmlu/prompts/rl.jsonl too" in refused(unpacked, tested_alone, "--", samples)
    tested = tmp_path / "tested"
    shutil.copytree(unpacked, tested)
    seal = tested / f"{SAMPLES}.manifest.json"
    facts = store.read_manifest(seal)
    facts["inputs"] = {name: digest for name, digest in facts["inputs"].items() if "/prompts/test" in name}
    store.write_manifest(seal, facts)
    assert "Nothing to be done" in planned(tested, tested_alone, "--", samples)
    assert "made without results/mmlu/prompts/rl.jsonl" in refused(tested, {}, "--", samples)


def test_in_how_many_jobs_a_stage_runs_changes_nothing_in_its_file(recorded, unpacked, tmp_path):
    split = {"answers": {"shards": 2}, "confidence": {"shards": 2}}
    for words in ((), ("--rerun-triggers", "mtime")):
        assert "Nothing to be done" in planned(unpacked, split, *words)
        more = {"answers": {"shards": 2, "samples": 5}}
        line = refused(unpacked, more, *words)
        assert f"{SAMPLES}.jsonl: made with other settings than now (samples: 4, now 5)" in line
    assert "jobs would make again what is there and was made with these settings" in planned(recorded, split)
    folder = tmp_path / "split"
    shutil.copytree(recorded, folder)
    code, said = snakemake(folder, split, "--touch", "-F", dry=False)
    assert code == 0, said[-2000:]
    assert "Nothing to be done" in planned(folder, split)


def test_a_table_is_not_made_again_for_a_model_and_a_data_set_that_it_does_not_show(recorded):
    splits = {"test": {"from": "test", "size": 5}}
    other = {"task": "mmlu", "source": {"path": str(ROOT / "tests" / "data" / "mmlu")}, "splits": splits}
    further = {"label": "Further", "source": {"model": "small"}}
    change = {"datasets": {"other": other}, "models": {"further": further}}
    assert "Nothing to be done" in planned(recorded, change)


# A deleted file of each kind, the jobs that make it and what is made from it, and how many rows are evaluated again.
ALIGNED = {"dpo": 1, "state": 1}
JUDGED = {"sft": 1, "candidates": 1, "pairs": 1, "dpo": 1}
LABELLED = {"surrogate": 1, "train": 1} | JUDGED
DELETED = {
    "results/mmlu/prompts/test.jsonl": (LABELLED | {"prompts": 1, "overlap": 1, "sample": 1, "derive": 1, "elicit": 2, "state": 4}, 7),
    f"{SAMPLES}.jsonl": (LABELLED | {"sample": 1, "derive": 1, "state": 4}, 7),
    f"{CELL}/surrogate.csv": (LABELLED | {"state": 3}, 7),
    f"{CELL}/sft/manifest.json": (JUDGED | {"state": 2}, 2),
    f"{CELL}/dpo/manifest.json": (ALIGNED, 1),
    f"{CELL}/candidates.jsonl": (ALIGNED | {"candidates": 1, "pairs": 1}, 1),
    f"{CELL}/pairs/sc.jsonl": (ALIGNED | {"pairs": 1}, 1),
    f"{CELL}/orce/confidences.jsonl": ({"state": 1}, 1),
    f"{CELL}/orce/metrics.json": ({}, 1),
    "paper_tables/main.tex": ({"table": 1}, 0),
    "paper_tables/comparison.csv": ({}, 0),
}  # fmt: skip


@pytest.mark.parametrize("deleted", DELETED)
def test_what_was_deleted_is_made_again_with_what_follows_and_no_more(recorded, tmp_path, deleted):
    folder = tmp_path / "run"
    shutil.copytree(recorded, folder)
    (folder / deleted).unlink()
    jobs, rows = DELETED[deleted]
    following = {"evaluate": rows, "table": 1} if rows else {}
    assert job_counts(planned(folder, {})) == jobs | following | {"tables": 1, "paper_tables": 1}


def test_weights_of_another_package_or_file_are_refused(project):
    """A folder of weights as the rule convert_model leaves it, without Snakemake's records."""
    folder = project / "results" / "models" / "smollm2"
    demo = yaml.safe_load((ROOT / "config" / "demo.yaml").read_text())["models"]["smollm2"]["source"]
    folder.mkdir(parents=True)
    sealed = {"sha256": {}} | store.origin(folder, demo)
    store.write_manifest(folder / "manifest.json", sealed)
    target = (
        "--configfile",
        ROOT / "config" / "demo.yaml",
        "change.yaml",
        "--cores",
        "1",
        "--",
        "results/models/smollm2/manifest.json",
    )
    for change, said in (
        ({}, None),
        ({"package": "other-package"}, f"package: {demo['package']!r}, now 'other-package'"),
        ({"file": "other.gguf"}, f"file: {demo['file']!r}, now 'other.gguf'"),
    ):
        (project / "change.yaml").write_text(
            yaml.safe_dump({"models": {"smollm2": {"source": change}}} if change else {})
        )
        code, output = dry_run.snakemake(project, "--snakefile", ROOT / "Snakefile", *target)
        assert (code, said is None or said in output) == (int(said is not None), True), output[-2000:]
    # as an earlier version sealed them
    facts = {"package": demo["package"], "version": "1", "sha256": {}, "file": sealed["file"]}
    store.write_manifest(folder / "manifest.json", facts)
    (project / "change.yaml").write_text("{}")
    code, output = dry_run.snakemake(project, "--snakefile", ROOT / "Snakefile", *target)
    assert code == 1 and f"(file: None, now {demo['file']!r})" in output


def test_the_plan_says_whose_tables_it_replaces_and_the_report_shows_no_others(recorded, tmp_path):
    folder = tmp_path / "another"
    shutil.copytree(recorded, folder)
    replaced = "paper_tables/tables.* and comparison.* are replaced: they show main, now other"
    assert replaced in planned(folder, OTHER_TABLE)
    code, said = snakemake(folder, OTHER_TABLE, "--report", "report.html", dry=False)
    assert code == 1 and "paper_tables/tables.tex" in said and not (folder / "report.html").exists()


def test_a_configuration_of_the_checkout_works_from_any_folder(tmp_path):
    """The demo's own tasks are modules of the checkout; a user's own relative path belongs to the folder of the run."""
    demo = (
        "--snakefile",
        ROOT / "Snakefile",
        "--cores",
        "1",
        "--configfile",
        ROOT / "config.yaml",
        ROOT / "config" / "demo.yaml",
    )
    code, said = dry_run.snakemake(tmp_path, *demo, "--", "all")
    assert code == 0, said[-2000:]
    assert job_counts(said)["dpo"] > 0
    (tmp_path / "mine.yaml").write_text(json.dumps({"datasets": {"arithmetic": {"task": "my/arithmetic.py"}}}))
    code, said = dry_run.snakemake(tmp_path, *demo, "mine.yaml", "--", "all")
    assert code == 1 and f"my/arithmetic.py: no such file; expected a Python module, from {tmp_path}" in said


@pytest.mark.parametrize(("target", "meant"), [
    ("paper_table", "did you mean 'paper_tables'?"),
    ("paper_tables/mmul.tex", "did you mean 'paper_tables/mmlu.tex'?"),
    ("tabels", "did you mean 'tables'?"),
    ("results/metric.csv", "did you mean 'results/metrics.csv'?"),
    ("results/mmlu/llama3-8b/orc/metrics.json", "did you mean 'orce'?"),
])  # fmt: skip
def test_a_misspelt_target_is_one_line_with_what_was_meant(project, target, meant):
    code, said = dry_run.snakemake(project, "--snakefile", ROOT / "Snakefile", "--cores", "1", "--", target)
    assert code == 1 and said.rstrip().splitlines()[-1].endswith(meant), said[-500:]
