"""What a run wants, told from its targets."""

import pytest
import yaml
from conftest import ROOT

from orce import scope
from orce.config import settings
from orce.scope import Request


@pytest.fixture
def config() -> dict:
    return yaml.safe_load((ROOT / "config.yaml").read_text())


def test_the_tables_want_every_cell_of_the_matrix(config):
    everything = scope.wanted(config, ["paper_tables"])
    assert everything == scope.wanted(config, []) == scope.wanted(config, ["paper_tables/mmlu.tex"])
    by_stage = [scope.stage(one.what) for one in everything]
    assert {name: by_stage.count(name) for name in set(by_stage)} == {"answers": 12 + 24, "candidates": 9, "tests": 58}


def test_a_cell_wants_its_own_answers_candidates_and_reading(config):
    assert scope.wanted(config, ["results/mmlu/llama3-8b/orce/metrics.json"]) == [
        Request("mmlu", "llama3-8b", "candidates"),
        Request("mmlu", "llama3-8b", "orce"),
        Request("mmlu", "llama3-8b", "samples"),
    ]


def test_a_cell_out_of_domain_wants_the_answers_of_both_datasets(config):
    assert scope.wanted(config, ["results/reclor/qwen3-8b/sft/metrics.json"]) == [
        Request("logiqa", "qwen3-8b", "samples"),
        Request("reclor", "qwen3-8b", "samples"),
        Request("reclor", "qwen3-8b", "sft"),
    ]


def test_a_transfer_is_read_by_the_model_it_comes_from(config):
    target = "results/mmlu/qwen3-8b/orce-from-llama3-8b/metrics.json"
    served_by = {one: scope.weights(config, one) for one in scope.wanted(config, [target])}
    assert served_by == {
        Request("mmlu", "llama3-8b", "candidates"): "llama3-8b",
        Request("mmlu", "llama3-8b", "samples"): "llama3-8b",
        Request("mmlu", "qwen3-8b", "orce-from-llama3-8b"): "llama3-8b",
        Request("mmlu", "qwen3-8b", "samples"): "qwen3-8b",
    }


@pytest.mark.parametrize(
    "target, wants",
    [
        ("samples.jsonl", {"samples"}),
        ("surrogate.csv", {"samples"}),
        ("cot/confidences.jsonl", {"samples", "cot"}),
        ("consistency/metrics.json", {"samples"}),
        ("candidates.jsonl", {"samples", "candidates", "orce"}),
        ("pairs/nrd.jsonl", {"samples", "candidates", "orce"}),
        ("dpo-nrd/manifest.json", {"samples", "candidates", "orce-nrd"}),
    ],
)
def test_a_file_of_a_cell_wants_what_it_is_made_from(config, target, wants):
    found = scope.wanted(config, [f"results/mmlu/llama3-8b/{target}"])
    assert {one.what for one in found} == wants


def test_models_that_share_weights_are_served_by_one_job(config):
    config["models"]["short"] = {"label": "x", "source": {"model": "llama3-8b"}, "shots": 0}
    assert scope.weights(config, Request("mmlu", "short", "samples")) == "llama3-8b"
    assert scope.flags(config, Request("mmlu", "short", "cot")) == ["results/engines/llama3-8b/answers-0.done"]


def test_a_request_names_the_small_files_it_is_served_from(config):
    assert scope.inputs(config, Request("mmlu", "llama3-8b", "orce")) == [
        "results/mmlu/prompts/test.manifest.json",
        "results/mmlu/llama3-8b/samples.manifest.json",
        "results/mmlu/llama3-8b/dpo/manifest.json",
    ]


def test_jobs_on_other_machines_inherit_the_targets_of_the_run(monkeypatch):
    monkeypatch.setenv("ORCE_TARGETS", '["left over"]')
    assert scope.targets({"b", "a"}, main=True) == ["a", "b"]
    assert scope.targets(set(), main=False) == ["a", "b"]


@pytest.mark.parametrize(
    "key, change",
    [
        ("dpo", {"beta": 0.3}),
        ("sft", {"epochs": 1}),
        ("sft", {"target": "reversed"}),
        ("answers", {"samples": 4}),
        ("evaluation", {"readout": "mean"}),
    ],
)
def test_a_cells_lineage_changes_with_every_setting_upstream(config, key, change):
    before = settings.lineage(config, "mmlu", "llama3-8b", "orce")
    config[key] |= change
    assert settings.lineage(config, "mmlu", "llama3-8b", "orce") != before


def test_a_cells_lineage_ignores_what_it_does_not_depend_on(config):
    before = settings.lineage(config, "mmlu", "llama3-8b", "sft")
    config["dpo"]["beta"], config["engine"]["batch_size"] = 0.7, 3
    assert settings.lineage(config, "mmlu", "llama3-8b", "sft") == before
