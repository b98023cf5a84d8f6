"""The files of the configuration, through Snakemake and `orce plan`: what is broken, missing, or in the wrong order."""

import contextlib
from pathlib import Path

import dry_run
import pytest
import yaml
from conftest import ROOT

from orce.__main__ import main

BROKEN = "seed: 7\ndpo: {beta: 0.3\nsft: {epochs: 2}\n"
# The reason is PyYAML's; the file and the line are ours.
SAID = "line 3: not valid YAML: expected ',' or '}', but got ':' (while parsing a flow mapping that begins in line 2)"


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "config.yaml").write_text((ROOT / "config.yaml").read_text())
    return tmp_path


def snakemake(folder, *arguments) -> tuple[int, str]:
    return dry_run.snakemake(
        folder, "--snakefile", ROOT / "Snakefile", "--cores", "1", *arguments, "--", "paper_tables"
    )


def plan(folder, *files) -> tuple[int, str]:
    with contextlib.chdir(folder):
        return dry_run.called(main, ["plan", "--configfile", *files])


def test_a_broken_config_yaml_is_told_with_its_line(folder):
    (folder / "config.yaml").write_text(BROKEN)
    status, text = snakemake(folder)
    assert status != 0 and f"config.yaml, {SAID}" in text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (BROKEN, f"mine.yaml, {SAID}"),
        ("seed: 7\n\tsft: {epochs: 2}\n", "mine.yaml, line 2: not valid YAML: found character '\\t'"),
        ("- a\n- b\n", "mine.yaml: expected keys and values, found list"),
        ("", "mine.yaml: expected keys and values, found nothing"),
        (None, "mine.yaml: not a readable YAML file (No such file or directory)"),
    ],
)
def test_plan_tells_which_file_of_configfile_is_broken_and_where(folder, content, message):
    """Snakemake reads --configfile before the Snakefile and names neither; docs/troubleshooting.md sends users here."""
    if content is not None:
        (folder / "mine.yaml").write_text(content)
    status, text = plan(folder, str(ROOT / "config" / "demo.yaml"), "mine.yaml")
    assert status == 2
    assert text.startswith(f"orce plan: {message}") and text.count("\n") == 1


@pytest.mark.slow
def test_a_folder_without_config_yaml_is_told_and_needs_none_if_it_is_named(folder):
    (folder / "mine.yaml").write_text("dpo: {beta: 0.3}")
    (folder / "other").mkdir()
    status, text = snakemake(folder, "--directory", "other", "--configfile", "mine.yaml")
    assert status != 0
    assert (
        f"no config.yaml in {folder}/other, and no other file sets seed, datasets, models, ...; copy it there" in text
    )
    assert snakemake(folder, "--directory", "other", "--configfile", "config.yaml", "mine.yaml")[0] == 0


@pytest.mark.slow
def test_a_preset_that_takes_away_what_was_set_before_it_is_noted(folder):
    (folder / "mine.yaml").write_text(yaml.safe_dump({"paper_tables": ["transfer"], "seed": 7}))
    preset = str(ROOT / "config" / "demo.yaml")
    text = snakemake(folder, "--configfile", "mine.yaml", preset)[1]
    note = "config: demo.yaml comes after mine.yaml and overrides its paper_tables; the last file wins"
    assert text.count(note) == 1
    assert "--configfile config/demo.yaml mine.yaml to keep yours" in text
    assert "the last file wins" not in snakemake(folder, "--configfile", preset, "mine.yaml")[1]
