"""Draw docs/images/frontier.png and write docs/field/frontier.md from the stored metrics of docs/field, on the demo's two data
sets and on facts of Wikidata: `python docs/frontier.py`, which `make images` does. Run it after a change of either table."""

from pathlib import Path

from matplotlib import style

from orce.config import needs
from orce.config.load import read_config
from orce.reports import figures, frontier_page

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "field" / "frontier.md"
PICTURE = ROOT / "docs" / "images" / "frontier.png"
STORED = {"field": "metrics", "field-wikidata": "wikidata"}  # {configuration of the run: its metrics.csv}
HEAD = """# Which confidence for which price

<!-- Made by docs/frontier.py from docs/field/metrics.csv and docs/field/wikidata.csv. -->

Every row of [the field](../field.md), best AUROC first, with 95 % intervals: 100 test questions of `arithmetic` and `worldfacts`,
1,000 of `qa-wikidata`. *Access* is what the row reads of the answer LLM, *passes* are those over a model for one question besides
the greedy answer's, *judge* is 1 where a model states the confidence, and *labels* are the graded questions that the row is fitted
on.
"""


def stored() -> tuple[frontier_page.Cells, frontier_page.Needs]:
    """The rows of the stored tables and what each of them needs."""
    cells, needed = {}, {}
    for name, board in STORED.items():
        config = read_config([ROOT / "config.yaml", ROOT / "config/demo.yaml", ROOT / f"config/{name}.yaml"])
        needed |= needs.frontier(config, config.paper_tables).needs
        cells |= frontier_page.read(ROOT / f"docs/field/{board}.csv")
    return cells, needed


def page() -> str:
    return HEAD + "\n" + frontier_page.table(*stored()).replace("\n### ", "\n## ").removeprefix("#")


if __name__ == "__main__":
    PAGE.write_text(page())
    with style.context(figures.STYLE):
        figures.save(frontier_page.draw(*stored()), PICTURE)
