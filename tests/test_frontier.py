"""What each confidence needs beside how well it ranks: the target `frontier`, on the field's published numbers."""

import runpy

import pandas as pd
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


def areas(name: str) -> pd.Series:
    """AUROC by (method, dataset) of a stored table."""
    rows = pd.read_csv(ROOT / "docs" / "field" / f"{name}.csv")
    return rows[rows.metric == "auroc"].set_index(["method", "dataset"])["value"]


def shown(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def test_the_decision_page_says_what_the_stored_tables_say(field):
    """Its numbers, which row is best on the demo's sets, and that no trained statement ranks as well as the answer's probability."""
    page = " ".join((ROOT / "docs" / "which.md").read_text().split())
    demo, facts, drawn = areas("metrics"), areas("wikidata"), areas("generated")
    means = demo[demo.index.get_level_values("dataset").isin(["arithmetic", "worldfacts"])].groupby("method").mean()
    first, second = means.sort_values(ascending=False).index[:2]
    assert f"(`{second}`) has a mean AUROC of {shown(means[second])}" in page
    assert f"(`{first}`, {shown(means[first])})" in page
    spoken = [name for name in means.index if needs.of_row(field, "arithmetic", name).judged]
    assert len(spoken) > 10 and means[spoken].max() < means["likelihood"] < means["sequence_probability"]
    value = {
        row: shown(facts[row, "qa-wikidata"]) for row in ("sequence_probability", "agreement", "likelihood", "probe")
    }
    assert f"of {value['sequence_probability']} and `agreement` {value['agreement']}, but `likelihood`" in page
    assert f"{value['likelihood']}: chance. A linear `probe` with 500 graded questions has {value['probe']}" in page
    for row in ("sequence_probability", "likelihood", "probe"):
        both = [shown(drawn[row, f"{name}-all"]) for name in ("arithmetic", "worldfacts")]
        assert " and ".join(both) in page
