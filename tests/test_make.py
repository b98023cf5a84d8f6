"""`make` over the graph writes what Snakemake's commands write, and nothing twice."""

import contextlib
import os
from pathlib import Path
from unittest import mock

import pytest
import torch

from orce.artefacts import files
from orce.config import check, graph, settings
from orce.config.cells import Cell
from orce.config.graph import Stage
from orce.make import make

CELL = Path("results/mmlu/small")


@pytest.mark.slow
def test_a_run_in_this_process_has_the_bytes_of_snakemakes(straight, tmp_path):
    config = check.read_config([str(straight / name) for name in ("config.yaml", "small.yaml")])
    made: list[Stage] = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the jobs of that run
    fast = {"ORCE_SPEED": settings.to_argument(settings.speed(config))}
    with contextlib.chdir(tmp_path), mock.patch.dict(os.environ, fast):
        wanted = graph.stages(config, config.paper_tables)
        for stage in wanted:
            make(config, stage, made.append)
        assert sorted(made) == sorted(wanted), "each once"
        for method in ("likelihood", "p_true"):
            make(config, graph.row(config, Cell("mmlu", "small"), method), made.append)
        assert [one.rule for one in made[len(wanted) :]] == ["likelihoods", "derive", "derive"]
    torch.set_num_threads(threads)
    kinds = ("*.jsonl", "*.csv", "*.safetensors")
    same = [path.relative_to(straight) for kind in kinds for path in (straight / CELL).rglob(kind)]
    same = [path for path in same if not {".partial", "shards"} & {*path.parts} and "checkpoint" not in str(path)]
    assert len(same) >= 14
    for path in same:
        assert (tmp_path / path).read_bytes() == (straight / path).read_bytes(), path
    for path in (straight / CELL).glob("*/metrics.json"):
        ours, theirs = (files.read_json(root / path.relative_to(straight)) for root in (tmp_path, straight))
        assert ours | {"provenance": {}} == theirs | {"provenance": {}}, path
