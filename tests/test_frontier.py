"""What each confidence needs beside how well it ranks: the target `frontier`, on the field's published numbers."""

import runpy

import pytest
from conftest import ROOT
from msgspec import structs

from orce.__main__ import main
from orce.config import needs, settings
from orce.config.load import read_config
from orce.config.schema import Config
from orce.reports import frontier_page

FIELD = ["config.yaml", "config/demo.yaml", "config/field.yaml"]


@pytest.fixture
def field(monkeypatch) -> Config:
    monkeypatch.chdir(ROOT)
    return read_config(FIELD)


@pytest.mark.parametrize(
    "row, access, passes, judged, labels",
    [
        ("likelihood", "log-probabilities", 0, 0, 0),
        ("likelihood+temperature", "log-probabilities", 0, 0, 120),
        ("p_true", "log-probabilities", 7, 0, 0),
        ("semantic_entropy", "text", 6, 0, 0),
        ("token_agreement", "log-probabilities", 6, 0, 0),
        ("topk", "text", 1, 0, 0),
        ("vanilla", "text", 0, 1, 0),
        ("orce", "text", 0, 1, 300),
        ("orce-rlcr", "text", 0, 1, 300),
        ("sft+isotonic", "text", 0, 1, 420),
    ],
)
def test_what_a_row_needs_follows_from_its_kind(field, row, access, passes, judged, labels):
    assert structs.astuple(needs.of_row(field, "arithmetic", row)) == (access, passes, judged, labels)


def test_the_table_puts_the_best_ranking_first_and_names_the_price(field, tmp_path):
    chosen = settings.to_argument(needs.frontier(field, field.paper_tables))
    picture, table = tmp_path / "frontier.png", tmp_path / "frontier.md"
    metrics = ROOT / "docs" / "field" / "metrics.csv"
    command = ["frontier", "--settings", chosen, "--metrics", metrics, "--picture", picture, "--out", table]
    assert main(list(map(str, command))) == 0
    lines = [line for line in table.read_text().splitlines() if line.startswith("| ") and "AUROC" not in line]
    areas = [float(line.split("|")[2].split()[0]) for line in lines if "[" in line.split("|")[2]]
    first = areas[: next(i for i in range(1, len(areas)) if areas[i] > areas[i - 1])]
    assert first == sorted(first, reverse=True) and len(first) > 20
    assert any(line.endswith("| log-probabilities | 6 | 0 | 120 |") for line in lines)
    assert picture.stat().st_size > 10_000


def test_the_published_table_and_picture_have_every_row_of_the_stored_metrics():
    made = runpy.run_path(str(ROOT / "docs" / "frontier.py"))
    assert made["PAGE"].read_text() == made["page"](), "run: python docs/frontier.py"
    cells, needed = made["stored"]()
    assert list(cells) == ["arithmetic/smollm2", "worldfacts/smollm2", "qa-wikidata/smollm2"]
    panels = frontier_page.draw(cells, needed).axes
    assert [sum(line.get_marker() == "o" for line in panel.lines) for panel in panels] == [38, 38, 18]
    assert [len(panel.collections) for panel in panels] == [1, 1, 0], "ORCE's ring"
