"""The decisive experiment: its cells are cut apart, and its page says what the released items give."""

import json
import re
from pathlib import Path

import pytest
from evidence.decisive import contrasts, data, report
from evidence.lab import models

from orce.artefacts import files
from orce.errors import BadInput

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "evidence"


def block(page: str, name: str) -> list[str]:
    text = (PAGES / page).read_text(encoding="utf-8")
    return re.findall(rf"<!-- evidence: {name} -->\n(.*?)<!-- end -->", text, re.DOTALL)[0].strip().splitlines()


def test_the_page_has_every_arm_as_the_items_give_it():
    assert report.arms_table().splitlines() == block("decisive.md", "arms")


@pytest.mark.slow
def test_the_page_has_every_contrast_as_the_items_give_it():
    assert report.contrasts_table(contrasts.contrasts()).splitlines() == block("decisive.md", "contrasts")


QUOTING = [ROOT / "README.md", ROOT / "docs" / "evidence.md", PAGES / "decisive.md"]
SIGNED = r"[+-]\.\d{3}"  # in prose: +.010; the laboratory's differences have their zero


@pytest.mark.parametrize("page", QUOTING, ids=lambda page: page.name)
def test_every_difference_and_interval_that_a_page_quotes_is_in_the_table(page):
    table = "\n".join(block("decisive.md", "contrasts")).replace("0.", ".")
    given = set(re.findall(SIGNED, table)), set(re.findall(rf"{SIGNED} \[{SIGNED}, {SIGNED}\]", table))
    prose = re.sub(r"<!-- evidence.*?<!-- end -->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    prose = re.sub(r"\s+", " ", prose)
    quoted = re.findall(SIGNED, prose), re.findall(rf"{SIGNED} \[[^\]]*\]", prose)
    assert all(quoted), f"{page.name} quotes nothing"
    assert [set(mine) - theirs for mine, theirs in zip(quoted, given, strict=True)] == [set(), set()]


def test_the_laboratorys_intervals_on_the_first_screen_are_in_its_tables():
    readme, tables = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/evidence.md"))
    quoted = re.findall(r"[+-]0\.\d{3} \[[^\]]*\]", readme)
    assert quoted and all(f"| {one} |" in tables for one in quoted)


def test_every_area_of_the_table_of_rows_is_the_pages():
    rows = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8").partition("## Before the reward")[2]
    quoted = re.findall(r"(?<!\d)\.\d{3}", "".join(re.findall(r"\n\|.*", rows.partition("\n## ")[0])))
    assert quoted and set(quoted) <= {
        of[1:] for line in block("decisive.md", "arms") for of in re.findall(r"0\.\d{3}", line)
    }


def test_the_sums_are_those_of_the_released_items():
    assert (contrasts.ITEMS / report.SUMS).read_text() == report.sums()


@pytest.mark.slow
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


COUNTRIES = [f"land {i}" for i in range(40)]
PUBLISHED = {  # a few rows as the sources have them
    "qa_wikidata/questions.jsonl": [
        {"context": f"The {kind} of {land} is", "continuation": "x"}
        for kind in ("capital", "currency", "highest point", "anthem") for land in COUNTRIES
    ] + [{"context": f"{land} is {of}", "continuation": "x"} for of in ("capital of", "near") for land in COUNTRIES],
    "gpt35-exams/answers.jsonl": [
        {"exam": exam, "id": str(i), "problem": f"Which of {i}?", "gold": "A", "greedy": "A", "answers_t1.0": ["A", "N"]}
        for exam in ("aqua-rat", "logiqa-en") for i in range(40)
    ],
    "cruxeval/questions.jsonl": [
        {"id": f"s{i}", "code": f"def f(x): return {i // 2}", "input": str(i), "output": "1"} for i in range(80)
    ],
    "cruxeval/codellama-7b-output.jsonl": [
        {"id": f"s{i}", "answers": ["1", "2"], "correct": [True, False]} for i in range(80)
    ],
}  # fmt: skip


@pytest.fixture
def published(tmp_path, monkeypatch) -> Path:
    for name, rows in PUBLISHED.items():
        path = tmp_path / "published" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        monkeypatch.setitem(data.SOURCES, name, ("here", files.file_digest(path)))
    return tmp_path / "published"


@pytest.mark.parametrize(
    ("cell", "apart"),
    [
        ("wikidata", lambda row: data.relation(row["question"])[1]),
        ("wikidata-shift", lambda row: row["group"]),
        ("wikidata-shift", lambda row: bool(data.SHIFTED.search(row["question"]))),
        ("exams", lambda row: row["question"]),
        ("cruxeval", lambda row: row["question"].partition("\n")[0]),
    ],
)
def test_no_subject_relation_question_or_function_is_on_both_sides(cell, apart, published, tmp_path):
    data.make(cell, published, tmp_path)

    def of(*splits):
        lines = [line for split in splits for line in (tmp_path / f"{split}.jsonl").read_text().splitlines()]
        return set(map(apart, map(json.loads, lines)))

    taught, tested = of("train", "validation"), of("test")
    assert taught and tested and not taught & tested
