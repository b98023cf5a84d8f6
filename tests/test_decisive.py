"""The decisive experiment: its cells are cut apart, and its page says what the released items give."""

import json
import os
import re
from pathlib import Path

import pytest
from evidence.decisive import contrasts, data
from evidence.lab import models

from orce.errors import BadInput

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("ORCE_EVIDENCE_DATA", ROOT.parent / "shared" / "data"))
PAGES = ROOT / "docs" / "evidence"


def block(page: str, name: str) -> list[str]:
    text = (PAGES / page).read_text(encoding="utf-8")
    return re.findall(rf"<!-- evidence: {name} -->\n(.*?)<!-- end -->", text, re.DOTALL)[0].strip().splitlines()


@pytest.fixture(scope="module")
def computed() -> list[list[str]]:
    return [table.splitlines() for table in contrasts.tables(draws=20)]


def test_the_page_has_every_arm_as_the_items_give_it(computed):
    assert computed[0] == block("decisive.md", "arms")


def test_the_page_has_every_difference_as_the_items_give_it(computed):
    value = lambda line: line.split("[")[0]  # its interval takes all the draws: python evidence/decisive/contrasts.py
    assert list(map(value, computed[1])) == list(map(value, block("decisive.md", "contrasts")))


def test_the_laboratorys_table_over_models_is_what_its_csv_gives():
    for name, table in models.tables().items():
        assert table.splitlines() == block("laboratory-models.md", name)


def test_another_file_than_the_one_used_is_refused(tmp_path):
    (tmp_path / "cruxeval").mkdir()
    (tmp_path / "cruxeval" / "questions.jsonl").write_text("{}\n")
    with pytest.raises(BadInput, match="SHA-256"):
        data.read(tmp_path, "cruxeval/questions.jsonl")
    with pytest.raises(BadInput, match="not there"):
        data.read(tmp_path, "gpt35-exams/answers.jsonl")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cell", "apart"),
    [("wikidata", "subject"), ("wikidata-shift", "relation"), ("exams", "text"), ("cruxeval", "text")],
)
def test_no_subject_and_no_shifted_relation_is_on_both_sides(cell, apart, tmp_path):
    if not SHARED.exists():
        pytest.skip("the public sources are not here: docs/evidence/items.md")
    data.make(cell, SHARED, tmp_path)
    rows = lambda split: map(json.loads, (tmp_path / f"{split}.jsonl").read_text(encoding="utf-8").splitlines())
    of = {"subject": lambda row: data.relation(row["question"])[1], "relation": lambda row: row["group"]}
    key = of.get(apart, lambda row: row["question"])
    taught, tested = (
        {key(row) for split in splits for row in rows(split)} for splits in (("train", "validation"), ("test",))
    )
    assert taught and tested and not taught & tested
