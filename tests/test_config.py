"""The configuration: every mistake ends in one line that names the key, before any job."""

import contextlib
import re
import shutil
from pathlib import Path
from typing import Annotated

import dry_run
import msgspec
import pytest
import yaml
from conftest import ROOT, cases, program, typed
from msgspec.structs import replace
from small_matrix import SNAKEMAKE

from orce import stages
from orce.__main__ import main
from orce.config import check as configuration
from orce.config import picking
from orce.errors import BadInput
from orce.settings import load
from orce.settings.load import merge as deep_merge
from orce.settings.stage import to_mapping

PAPER = load.read_mapping(ROOT / "config.yaml")
DEMO = deep_merge(PAPER, load.read_mapping(ROOT / "config" / "demo.yaml"))


def changed(path, value) -> dict:
    """The paper's configuration with another value at a path of keys."""
    section, key = path.split("/")
    return PAPER | {section: PAPER[section] | {key: value}}


def test_a_limit_that_the_type_of_a_new_key_cannot_have_is_told_in_one_line_with_the_key():
    keys = msgspec.defstruct("Keys", [("added", Annotated[str, msgspec.Meta(ge=1)])])
    with pytest.raises(BadInput) as raised:
        load.convert({"added": 1}, keys, "dpo")
    told = "cannot have such a limit (Can only set `ge` on a numeric type"
    assert str(raised.value).startswith(f"config: dpo.added: its type in orce/settings/schema.py {told}")
    assert "\n" not in str(raised.value)


def test_readings_keep_the_mode_only_where_it_is_the_readout():
    for stage in (("state", "orce"), ("tune_state",)):
        name, *method = stage
        configs = (typed(changed("evaluation/readout", readout)) for readout in ("stated", "mean", "mode"))
        stated, mean, mode = (stages.pick_settings(name, one, "mmlu", "llama3-8b", *method) for one in configs)
        assert stated == mean and mode == replace(stated, mode=True)


def test_a_model_behind_a_server_answers_and_another_one_judges():
    source = {"server": "http://localhost:8000/v1", "model": "m"}
    box = {"label": "Black box", "source": source, "confidence": "qwen3-8b"}
    checked = configuration.check(changed("models/box", box))
    sample = stages.pick_settings("sample", checked, "mmlu", "box")
    assert sample.engine == "openai" and to_mapping(sample.model.source) == source
    qwen = picking.model_settings(checked, "qwen3-8b")
    assert stages.pick_settings("sft", checked, "mmlu", "box").model == qwen
    assert stages.pick_settings("state", checked, "mmlu", "box", "vanilla").model == qwen


@pytest.mark.parametrize(("section", "name", "over", "expected"), cases("replaced_sources"))
def test_a_folder_or_server_replaces_the_hub_or_package_of_another_file(section, name, over, expected):
    """smollm2: the demo's packaged weights."""
    config = DEMO if name == "smollm2" else PAPER
    more = {} if section == "datasets" or name == "smollm2" else {"confidence": "llama3-8b"}
    checked = configuration.check(deep_merge(config, {section: {name: {"source": over} | more}}))
    if section == "datasets":
        assert stages.pick_settings("prompts", checked, name).source == expected
    else:
        assert to_mapping(picking.model_settings(checked, name).source) == expected


def snakemake(folder, *arguments, to="paper_tables") -> tuple[int, str]:
    return dry_run.snakemake(folder, *SNAKEMAKE[1:], "--cores", "1", *arguments, "--", to)


@pytest.mark.slow
def test_one_key_of_another_file_replaces_the_hub_by_a_folder_for_data_sets_and_models(project):
    """config.yaml's own comment, word for word; then a step reads the folder."""
    (project / "data").symlink_to(ROOT / "tests" / "data" / "mmlu")
    (project / "model").mkdir()
    text = (ROOT / "config.yaml").read_text()
    lines = re.findall(r"^#     (datasets: .*?)     (models: .*)$", text, re.MULTILINE)[0]
    over = yaml.safe_load("\n".join(lines).replace("FOLDER", "data", 1).replace("FOLDER", "model"))
    over["datasets"]["mmlu"]["splits"] = {"test": {"size": 5}}
    (project / "over.yaml").write_text(yaml.safe_dump(over))
    _, said = snakemake(project, "--configfile", "over.yaml", "-p", to="results/mmlu/qwen3-8b/sft/manifest.json")
    assert '"source": {"path": "data"}' in said and '"source": {"path": "model"}' in said
    assert "cais/mmlu" not in said and "Qwen/Qwen3-8B" not in said
    frozen = "results/mmlu/prompts/test.jsonl"
    done = program(*SNAKEMAKE, "--cores", "1", "--configfile", "over.yaml", "--", frozen, cwd=project)
    assert done.returncode == 0, done.stderr
    assert len((project / frozen).read_text().splitlines()) == 5


BROKEN = "seed: 7\ndpo: {beta: 0.3\nsft: {epochs: 2}\n"
# The reason is PyYAML's; the file and the line are ours.
SAID = "line 3: not valid YAML: expected ',' or '}', but got ':' (while parsing a flow mapping that begins in line 2)"


@pytest.mark.parametrize(("content", "message"), [
    (BROKEN, f"mine.yaml, {SAID}"),
    ("seed: 7\n\tsft: {epochs: 2}\n", "mine.yaml, line 2: not valid YAML: found character '\\t'"),
    ("- a\n- b\n", "mine.yaml: expected keys and values, found list"),
    ("", "mine.yaml: expected keys and values, found nothing"),
    (None, "mine.yaml: not a readable YAML file (No such file or directory)"),
])  # fmt: skip
def test_plan_tells_which_file_of_configfile_is_broken_and_where(project, content, message):
    """Snakemake reads --configfile before the Snakefile and names neither; docs/troubleshooting.md sends users here."""
    if content == BROKEN:
        (project / "config.yaml").write_text(BROKEN)
        assert f"config.yaml, {SAID}" in snakemake(project)[1]
        shutil.copy(ROOT / "config.yaml", project)
    if content is not None:
        (project / "mine.yaml").write_text(content)
    with contextlib.chdir(project):
        status, text = dry_run.called(main, ["plan", "--configfile", str(ROOT / "config" / "demo.yaml"), "mine.yaml"])
    assert status == 2
    assert text.startswith(f"orce plan: {message}") and text.count("\n") == 1


@pytest.mark.slow
def test_config_on_the_command_line_plans_the_jobs_that_the_same_in_a_file_does(project):
    """Snakemake leaves what stands inside a mapping as text: "0.3", "true", "null"."""
    keys = {
        "seed": "7", "python": "null", "dpo": "{beta: 0.3, learning_rate: 1e-5, rounds: 2}",
        "training": "{checkpointing: true}", "answers": "{max_tokens: null, samples: 5}",
        "models": "{qwen3-8b: {label: yes it is, template_kwargs: {enable_thinking: true}}}",
    }  # fmt: skip
    (project / "mine.yaml").write_text("".join(f"{key}: {value}\n" for key, value in keys.items()))
    words = ["--config", *(f"{key}={value}" for key, value in keys.items())]
    plans = [snakemake(project, "-p", *more) for more in (words, ["--configfile", "mine.yaml"], [])]
    typed, filed, usual = ([line for line in said.split("\n") if "orce" in line] for _, said in plans)
    assert sorted(typed) == sorted(filed) != sorted(usual) and len(typed) > 100
    code, said = snakemake(project, "--config", "dpo={rounds: 010}")
    assert code and "--config: dpo.rounds: '010'; expected integer ≥ 1" in said


def test_a_message_names_the_last_file_that_sets_its_key(folder):
    Path("first.yaml").write_text("dpo: {bta: 1}\nmodels: {qwen2.5: {label: a}}")
    Path("last.yaml").write_text("dpo: {beta: 1}\nmodels: {qwen2.5: {source: {path: b}}}")
    files = ["first.yaml", str(folder / "last.yaml")]
    for more, named in (({}, "first.yaml"), ({"dpo": {"beta": 2}}, "first.yaml"), ({"dpo": {"bta": 1}}, "--config")):
        said = load.name_file("config: dpo: unknown key 'bta'; and so on", files, more)
        assert said == f"{named}: dpo: unknown key 'bta'; and so on"
    said = load.name_file("config: models.qwen2.5.source.path: b does not exist", files)
    assert said == "last.yaml: models.qwen2.5.source.path: b does not exist"
    for other in ("config: no `tune`; give the grid", "first.yaml, line 1: not valid YAML"):
        assert load.name_file(other, files) == other


@pytest.mark.slow
def test_a_missing_config_yaml_and_a_preset_that_takes_away_what_was_set_before_it_are_told(project):
    (project / "mine.yaml").write_text(yaml.safe_dump({"paper_tables": ["transfer"], "seed": 7}))
    (project / "other").mkdir()
    status, text = snakemake(project, "--directory", "other", "--configfile", "mine.yaml")
    said = f"no config.yaml in {project}/other, and no other file sets datasets, models, device, ...; copy it there"
    assert status != 0 and said in text
    assert snakemake(project, "--directory", "other", "--configfile", "config.yaml", "mine.yaml")[0] == 0
    preset = str(ROOT / "config" / "demo.yaml")
    text = snakemake(project, "--configfile", "mine.yaml", preset)[1]
    note = "config: demo.yaml comes after mine.yaml and overrides its paper_tables; the last file wins"
    assert text.count(note) == 1
    assert "--configfile config/demo.yaml mine.yaml to keep yours" in text
    for files in ([preset, "mine.yaml"], [ROOT / "config.yaml", preset]):
        assert "the last file wins" not in snakemake(project, "--configfile", *files)[1]
