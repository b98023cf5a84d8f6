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


def test_weights_of_another_package_or_file_are_refused(project):
    """A folder of weights as the rule convert_model leaves it, without Snakemake's records."""
    folder = project / "results" / "models" / "smollm2"
    demo = yaml.safe_load((ROOT / "config" / "demo.yaml").read_text())["models"]["smollm2"]["source"]
    folder.mkdir(parents=True)
    store.write_manifest(folder / "manifest.json", {"sha256": {}} | store.origin(folder, demo))
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
