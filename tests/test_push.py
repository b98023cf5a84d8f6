"""A folder for the hub: it loads and judges as the trained one, its card parses, nothing of this machine is in it."""

import json
import os
import shutil
import subprocess
import sys

import finished_run
import pytest
import torch
from conftest import ROOT
from huggingface_hub import ModelCard

from orce import score
from orce.__main__ import main
from orce.runtime import files

CELL = finished_run.CELL / "sft"
ADAPTER = ("--base-model", "someone/small@0123abc")


def push(folder, out, *arguments):
    return main(["push", str(folder), "--out", str(out), "--license", "apache-2.0", *arguments])


@pytest.fixture(scope="module")
def adapter(finished, tmp_path_factory):
    out = tmp_path_factory.mktemp("pushed") / "adapter"
    assert push(finished / CELL, out, *ADAPTER) == 0
    return out


@pytest.fixture(scope="module")
def merged(finished, tmp_path_factory):
    out = tmp_path_factory.mktemp("pushed") / "merged"
    assert push(finished / CELL, out, "--merge") == 0
    return out


def confidences(judge, finished):
    return [record["mean"] for record in judge(finished_run.pairs(finished))]


@pytest.mark.parametrize("kind", ["adapter", "merged"])
def test_a_pushed_folder_gives_the_same_confidences(finished, small, kind, request, tmp_path):
    moved = shutil.copytree(request.getfixturevalue(kind), tmp_path / "elsewhere")
    trained, pushed = score.load(finished / CELL), score.load(moved, base=small if kind == "adapter" else None)
    weights = pushed.reader.lm.model.state_dict()
    assert all(torch.equal(weights[name], known) for name, known in trained.reader.lm.model.state_dict().items())
    expected, found = confidences(trained, finished), confidences(pushed, finished)
    assert found == pytest.approx(expected, rel=1e-4)  # where weights lie in memory moves a sum's last bits
    assert expected != pytest.approx(confidences(score.load(base=small), finished), rel=1e-4)


def test_a_model_on_the_hub_is_scored_by_its_id(merged, finished, tmp_path):
    """As the hub's client leaves it in its cache."""
    snapshot = tmp_path / "hub" / "models--someone--judge" / "snapshots" / "abc"
    shutil.copytree(merged, snapshot)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("abc")
    files.write_jsonl(tmp_path / "pairs.jsonl", finished_run.pairs(finished))
    command = [sys.executable, "-m", "orce", "score", "--model", "someone/judge", "--in", str(tmp_path / "pairs.jsonl")]
    environment = {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT / "workflow")}
    subprocess.run([*command, "--out", str(tmp_path / "out.jsonl")], env=os.environ | environment, check=True)
    found = [record["mean"] for record in files.read_jsonl(tmp_path / "out.jsonl")]
    assert found == pytest.approx(confidences(score.load(merged), finished), rel=1e-4)


def test_the_cards_front_matter_is_as_the_hub_wants_it(adapter, merged, finished):
    data = ModelCard.load(adapter / "README.md").data
    assert (data.license, data.base_model, data.library_name) == ("apache-2.0", "someone/small", "peft")
    assert {"orce", "confidence", "sft"} <= set(data.tags)
    measured = json.loads((finished / CELL / "metrics.json").read_text())
    results = {result.metric_type: result for result in data.eval_results}
    assert results["accuracy"].dataset_name == "arithmetic" and results["accuracy"].dataset_split == "test"
    assert results["accuracy"].metric_value == pytest.approx(measured["accuracy"], abs=1e-4)
    whole = ModelCard.load(merged / "README.md").data
    assert whole.library_name == "transformers" and whole.base_model is None


def test_the_card_says_what_it_was_trained_on_and_how_to_use_it(adapter):
    text = (adapter / "README.md").read_text()
    assert "| sft | 16 | arithmetic, split train, SHA-256 " in text and "| test | 20 | arithmetic, split test" in text
    assert "| learning_rate | 0.02 |" in text and "40 steps on 16 examples" in text
    assert 'judge = score.load("PATH/TO/THIS/FOLDER")' in text
    assert "## Intended use and limits" in text


def test_nothing_of_this_machine_is_in_the_folder(adapter, merged, finished):
    for folder in (adapter, merged):
        names = {path.name for path in folder.iterdir()}
        assert {"README.md", "manifest.json", "tokenizer.json", "generation_config.json"} <= names
        assert any(name.endswith(".safetensors") for name in names)
        for path in folder.iterdir():
            content = path.read_bytes()
            for private in (str(finished), str(ROOT), "results/models", "pytest-of"):
                assert private.encode() not in content, (path, private)


def test_an_adapter_over_a_local_folder_must_name_its_base_on_the_hub(finished, tmp_path, capsys):
    assert push(finished / CELL, tmp_path / "out") == 2
    assert "name it on the hub by --base-model, or use --merge" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_licence_is_named_and_never_guessed(finished, tmp_path, capsys):
    assert main(["push", str(finished / CELL), "--out", str(tmp_path / "out"), "--merge"]) == 2
    assert "licence is not known; name it by --license" in capsys.readouterr().err


def test_an_existing_folder_is_left_alone(finished, tmp_path, capsys):
    (tmp_path / "mine").write_text("kept")
    assert push(finished / CELL, tmp_path, "--merge") == 2
    assert "exists; name a new folder" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["mine"]


def test_a_folder_that_no_training_left_is_refused(small, tmp_path, capsys):
    assert push(small, tmp_path / "out") == 2
    assert "no manifest.json of a training step" in capsys.readouterr().err


def test_without_a_network_the_folder_is_made_and_the_upload_said_to_be_missing(finished, tmp_path, capsys):
    assert push(finished / CELL, tmp_path / "out", *ADAPTER, "--repo", "someone/judge") == 2
    assert "someone/judge: not uploaded" in capsys.readouterr().err
    assert 'score.load("someone/judge")' in (tmp_path / "out" / "README.md").read_text()
