"""What a run keeps was made with the settings of this run, whatever Snakemake's records say; and what
a run replaces is said before."""

import json
import re
import shutil
from collections import Counter

import dry_run
import pytest
import yaml
from conftest import ROOT, cases
from test_workflow import job_counts

from orce.artefacts import store

CELL = "results/mmlu/small"
BETA = {"dpo": {"beta": 0.3}}
TOUCH = ("--touch", "-F")
TIMES_ALONE = ("--rerun-triggers", "mtime")


def snakemake(folder, change: dict, *words: str, dry=True, **environment) -> tuple[int, str]:
    (folder / "change.yaml").write_text(yaml.safe_dump(change))
    configured = ("--configfile", "small.yaml", "change.yaml", "--cores", "2")
    words = ("--snakefile", ROOT / "Snakefile", *(["-n"] if dry else []), *configured, *words)
    return dry_run.refused(folder, *words, environment=environment)


def planned(folder, change: dict, *words: str, **more) -> str:
    code, said = snakemake(folder, change, *words, **more)
    assert code == 0, said[-2000:]
    return said


def plans_nothing(folder, change: dict, *words: str, **environment) -> bool:
    return "Nothing to be done" in planned(folder, change, *words, **environment)


def refused(folder, change: dict, *words: str) -> str:
    code, said = snakemake(folder, change, *words)
    assert code == 1, said[-2000:]
    last_line = said.rstrip().splitlines()[-1]
    assert "Snakemake would keep them" in last_line
    return last_line


@pytest.fixture(scope="module")
def recorded(straight, tmp_path_factory):
    """A finished run with Snakemake's records."""
    return shutil.copytree(straight, tmp_path_factory.mktemp("run") / "recorded")


@pytest.fixture(scope="module")
def unpacked(straight, tmp_path_factory):
    """A finished run without Snakemake's records, as an archive has it."""
    place = tmp_path_factory.mktemp("run") / "unpacked"
    return shutil.copytree(straight, place, ignore=shutil.ignore_patterns(".snakemake"))


pytestmark = pytest.mark.slow


@pytest.mark.parametrize("case", cases("other_settings"), ids=json.dumps)
def test_results_without_records_are_refused_under_other_settings(unpacked, recorded, case):
    if case["said"] is None:
        assert plans_nothing(unpacked, case["change"]) and plans_nothing(recorded, case["change"])
    else:
        line = refused(unpacked, case["change"])
        assert re.match(rf"(results/mmlu|paper_tables)/.*{case['said']}", line), line


def test_changed_settings_are_refused_where_snakemake_looks_at_times_alone(recorded):
    said = f"{CELL}/dpo/manifest.json: made with other settings than now (stage.beta: 1.0, now 0.3)"
    assert said in refused(recorded, BETA, *TIMES_ALONE)


TABLES = {"table": 1, "tables": 1, "paper_tables": 1}


@pytest.mark.parametrize(("name", "change", "said"), [
    (f"{CELL}/dpo/", lambda facts: facts["settings"]["stage"].update(beta=0.3),
     "dpo/manifest.json: made with other settings than now (stage.beta: 0.3, now 1.0)"),
    (f"{CELL}/orce/metrics.", lambda facts: facts.update(sha256="0" * 64),
     f"made from another {CELL}/orce/metrics.json than there is now"),
])  # fmt: skip
def test_what_another_run_made_is_refused(recorded, tmp_path, name, change, said):
    folder = shutil.copytree(recorded, tmp_path / "mixed")
    manifest = folder / f"{name}manifest.json"
    facts = store.read_manifest(manifest)
    change(facts)
    store.write_manifest(manifest, facts)
    assert said in refused(folder, {})


def test_a_table_without_a_seal_is_refused_and_made_by_what_is_named(recorded, unpacked, tmp_path):
    unsealed = "paper_tables/main.tex and 1 more files"
    for kept in (recorded, unpacked):
        folder = shutil.copytree(kept, tmp_path / kept.name)
        (folder / "paper_tables" / "main.manifest.json").unlink()
        if kept is unpacked:
            named = "the next run names the command that makes them again"
            assert f"{unsealed}: no seal; {named}" in planned(folder, {}, *TOUCH, dry=False)
        assert f"{unsealed}: made with other settings than now (no seal)" in refused(folder, {})
        named = (folder / ".snakemake" / "other_settings").read_text().split()
        assert job_counts(planned(folder, {}, "-R", *named)) == TABLES


def test_a_target_is_refused_for_what_it_needs_alone_and_not_for_what_is_forced(unpacked):
    assert plans_nothing(unpacked, BETA, "--", "results/mmlu/prompts/test.jsonl")
    assert plans_nothing(unpacked, BETA, "--", f"{CELL}/sft/metrics.json")
    other = {"kind": "main", "dataset": "mmlu", "models": ["small"], "methods": ["vanilla"]}
    unlisted = BETA | {"paper_tables": ["other"], "tables": {"other": other}}
    for change, words in (
        (BETA, ("--", f"{CELL}/orce/metrics.json")),
        (BETA, ("--", "paper_tables/main.tex")),
        (unlisted, ("--", "paper_tables/main.tex")),
        (BETA, ("--allowed-rules", "table", "tables", "paper_tables")),
    ):
        assert "dpo/manifest.json" in refused(unpacked, change, *words)
    for rule in ("sft", "dpo"):
        assert job_counts(planned(unpacked, BETA, "-R", rule))["dpo"] == 1


def test_refused_results_are_made_again_by_the_command_that_is_named_or_kept(unpacked, tmp_path):
    """A touch under other settings writes no record but with ORCE_KEEP, and changes no seal."""
    folder = shutil.copytree(unpacked, tmp_path / "kept")
    again = Counter(dpo=1, state=1, evaluate=1, **TABLES)
    for change in ({"models": {"small": {"label": "Another"}}}, BETA):
        code, said = snakemake(folder, change, *TOUCH, dry=False)
        assert code == 1 and "made with other settings than now" in said
        assert not [*folder.glob(".snakemake/metadata/*")]
    named = (folder / ".snakemake/other_settings").read_text().split()
    assert named == [f"{CELL}/dpo/manifest.json"]
    assert job_counts(planned(folder, BETA, "-R", *named)) == again
    planned(folder, BETA, *TOUCH, dry=False, ORCE_KEEP="1")
    assert refused(folder, BETA)
    assert plans_nothing(folder, BETA, ORCE_KEEP="1")
    assert job_counts(planned(folder, {})) == again


def test_results_of_an_earlier_version_are_kept_by_the_one_command_that_the_plan_names(recorded, tmp_path):
    """Its seals and records have settings of keys that had one value alone."""
    former = shutil.copytree(recorded, tmp_path / "run")
    for manifest in former.glob("results/**/*manifest.json"):
        facts = store.read_manifest(manifest)
        settings = facts.get("settings", {})
        if "training" in settings:
            settings["training"]["shared_prefix"] = True
        elif "model" in settings and "engine" not in settings and "method" not in settings:
            settings["reader"] = "transformers"
        store.write_manifest(manifest, facts)
    for record in former.glob(".snakemake/metadata/*"):
        facts = json.loads(record.read_text())
        trained = [words.replace('"save_steps"', '"shared_prefix": true, "save_steps"') for words in facts["params"]]
        read = [words.replace('"task"', '"reader": "transformers", "task"') for words in trained]
        facts["params"] = read if facts["rule"] in ("state", "candidates") else trained
        record.write_text(json.dumps(facts))
    said = planned(former, {})
    counts = job_counts(said)
    assert counts["sft"] == counts["dpo"] == 1
    assert f"{counts.total() - 1} of {counts.total()} jobs would make again what is there" in said
    assert "to keep it, once and with the same configuration: snakemake --touch -F -- all" in said
    code, said = snakemake(former, BETA, *TOUCH, dry=False)
    assert code == 1 and "stage.beta: 1.0, now 0.3" in said
    assert "to make them again: --rerun-triggers mtime -f -- $(cat .snakemake/other_settings), and then" in said
    planned(former, {}, *TOUCH, dry=False)
    assert plans_nothing(former, {})
    assert job_counts(planned(former, BETA))["dpo"] == 1


def test_in_how_many_jobs_a_stage_runs_changes_nothing_in_its_file(recorded, unpacked, tmp_path):
    split = {"answers": {"shards": 2}, "confidence": {"shards": 2}}
    for words in ((), TIMES_ALONE):
        assert plans_nothing(unpacked, split, *words)
        line = refused(unpacked, {"answers": {"shards": 2, "samples": 5}}, *words)
        assert f"{CELL}/samples.jsonl: made with other settings than now (samples: 4, now 5)" in line
    assert "jobs would make again what is there and was made with these settings" in planned(recorded, split)
    folder = shutil.copytree(recorded, tmp_path / "split")
    planned(folder, split, *TOUCH, dry=False)
    assert plans_nothing(folder, split)


@pytest.mark.parametrize(("deleted", "again"), cases("deleted"))
def test_what_was_deleted_is_made_again_with_what_follows_and_no_more(recorded, deleted, again):
    hidden = (recorded / deleted).rename(recorded / "hidden")
    try:
        counts = job_counts(planned(recorded, {}))
    finally:
        hidden.rename(recorded / deleted)
    assert counts == again


def test_weights_of_another_package_or_file_are_refused(project):
    """A folder of weights as the rule convert_model leaves it, without Snakemake's records."""
    folder, demo = project / "results" / "models" / "smollm2", ROOT / "config" / "demo.yaml"
    source = yaml.safe_load(demo.read_text())["models"]["smollm2"]["source"]
    folder.mkdir(parents=True)
    package, file = source["package"], source["file"]
    sealed = {"sha256": {}} | store.origin(folder, source)
    earlier = {"package": package, "version": "1", "sha256": {}, "file": sealed["file"]}
    configured = ("--snakefile", ROOT / "Snakefile", "--configfile", demo, "change.yaml", "--cores", "1")
    for facts, change, told in (
        (sealed, {}, None),
        (sealed, {"package": "other-package"}, f"package: {package!r}, now 'other-package'"),
        (sealed, {"file": "other.gguf"}, f"file: {file!r}, now 'other.gguf'"),
        (earlier, {}, f"(file: None, now {file!r})"),
    ):
        store.write_manifest(folder / "manifest.json", facts)
        (project / "change.yaml").write_text(yaml.safe_dump({"models": {"smollm2": {"source": change}}}))
        code, said = dry_run.snakemake(project, *configured, "--", "results/models/smollm2/manifest.json")
        assert code == int(told is not None) and (told or "") in said, said[-2000:]


def test_the_plan_says_whose_tables_it_replaces_and_the_report_shows_no_others(recorded, tmp_path):
    folder = shutil.copytree(recorded, tmp_path / "another")
    other = {"kind": "main", "dataset": "mmlu", "models": ["small"], "methods": ["vanilla"]}
    change = {"tables": {"other": other}, "paper_tables": ["other"]}
    said = planned(folder, change)
    assert "paper_tables/tables.* and comparison.* are replaced: they show main, now other" in said
    code, said = snakemake(folder, change, "--report", "report.html", dry=False)
    assert code == 1 and "paper_tables/tables.tex" in said and not (folder / "report.html").exists()


def test_a_configuration_of_the_checkout_works_from_any_folder(tmp_path):
    """The demo's own tasks are modules of the checkout; a user's own relative path belongs to the folder of the run."""
    configured = ("--configfile", ROOT / "config.yaml", ROOT / "config" / "demo.yaml")
    demo = ("--snakefile", ROOT / "Snakefile", "--cores", "1", *configured)
    code, said = dry_run.snakemake(tmp_path, *demo, "--", "all")
    assert code == 0, said[-2000:]
    assert job_counts(said)["dpo"] > 0
    (tmp_path / "mine.yaml").write_text(json.dumps({"datasets": {"arithmetic": {"task": "my/arithmetic.py"}}}))
    code, said = dry_run.snakemake(tmp_path, *demo, "mine.yaml", "--", "all")
    assert code == 1 and f"my/arithmetic.py: no such file; expected a Python module, from {tmp_path}" in said
