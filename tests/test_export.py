"""Samples and confidences as a data set: `datasets` loads it, its card parses, nothing of this machine is in it."""

import json

import finished_run
import numpy as np
import pytest
from huggingface_hub import DatasetCard

from orce import metrics
from orce.__main__ import main
from orce.artefacts import files


@pytest.fixture(scope="module")
def exported(finished, tmp_path_factory):
    out = tmp_path_factory.mktemp("exported") / "data"
    assert main(["export", str(finished / finished_run.CELL), "--out", str(out), "--questions"]) == 0
    return out


def load(folder, name, tmp_path):
    import datasets

    return datasets.load_dataset(str(folder), name, split="test", cache_dir=str(tmp_path))


@pytest.mark.slow
def test_datasets_loads_the_samples_and_each_method(exported, finished, tmp_path):
    samples = load(exported, "samples", tmp_path)
    known = [one for one in files.read_jsonl(finished / finished_run.CELL / "samples.jsonl") if one["split"] == "test"]
    assert samples["id"][:] == [one["id"] for one in known] and len(samples) == 20
    assert samples["answers"][:] == [one["answers"] for one in known]
    assert samples["greedy_answer"][:] == [one["greedy"]["answer"] for one in known]
    assert samples["kappa"][:] == pytest.approx([np.mean(one["correct"]) for one in known])
    assert samples[0]["question"].startswith("What is") and json.loads(samples[0]["choices"]) is None
    stated = load(exported, "sft", tmp_path)
    found = json.loads((finished / finished_run.CELL / "sft" / "metrics.json").read_text())
    assert metrics.aurc(stated["confidence"][:], stated["correct"][:]) == pytest.approx(found["aurc"])


def test_the_card_parses_and_says_where_the_questions_are_from(exported, finished):
    card = DatasetCard.load(exported / "README.md")
    assert [one["config_name"] for one in card.data.to_dict()["configs"]] == ["samples", "sft"]
    assert "| test | 20 | arithmetic, split test, SHA-256" in card.text and "| sft | " in card.text
    assert str(finished) not in (exported / "README.md").read_text()


def test_without_questions_there_are_ids_alone(finished, tmp_path, capfd):
    out = tmp_path / "data"
    arguments = ["export", str(finished / finished_run.CELL), "--out", str(out)]
    assert main(arguments) == 0
    assert "question" not in load(out, "samples", tmp_path / "cache").column_names
    assert "The questions themselves are not in it" in (out / "README.md").read_text()
    assert main(arguments) == 2 and "data exists; name a new folder" in capfd.readouterr().err
    assert main(["export", str(tmp_path), "--out", str(tmp_path / "x")]) == 2
    assert "no samples.jsonl; expected results/DATASET/MODEL" in capfd.readouterr().err
