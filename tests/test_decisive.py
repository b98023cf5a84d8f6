"""The decisive experiment: its cells are cut apart, and its page says what the released items give."""

import hashlib
import json
import re
from pathlib import Path

import pandas as pd
import pytest
import yaml
from evidence.decisive import contrasts, data, report, run, told
from evidence.lab import models

from orce.artefacts import store
from orce.config import settings
from orce.errors import BadInput
from orce.judging import statements

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "evidence"


def block(page: str, name: str) -> list[str]:
    text = (PAGES / page).read_text(encoding="utf-8")
    return re.findall(rf"<!-- evidence: {name} -->\n(.*?)<!-- end -->", text, re.DOTALL)[0].strip().splitlines()


def test_the_page_has_every_arm_as_the_items_give_it():
    assert report.arms_table().splitlines() == block("decisive.md", "arms")


@pytest.mark.slow
def test_the_page_has_every_contrast_as_the_items_give_it():
    differences = contrasts.contrasts()
    assert report.contrasts_table(differences).splitlines() == block("decisive.md", "contrasts")
    assert report.labels_table(differences).splitlines() == block("decisive.md", "labels")


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


def test_another_revision_than_the_one_used_is_refused(tmp_path):
    (tmp_path / data.FUNCTIONS).parent.mkdir(parents=True)
    (tmp_path / data.FUNCTIONS).write_text("{}\n")
    with pytest.raises(
        BadInput, match="its SHA-256 is another; check 190faf16d175b5847b0af05d937872b1fb395942 of .*cruxeval out"
    ):
        data.read(tmp_path, data.FUNCTIONS)
    with pytest.raises(
        BadInput, match="aqua-rat-100 - temp-0.0.csv: not there; clone github.com/matthewrenze/jhu-llm-temp"
    ):
        data.read(tmp_path, data.DETAILS, exam=data.EXAMS, temperature=("0.0", "1.0"))


LANDS = [f"land {i}" for i in range(40)]
KINDS = ("capital", "currency", "highest point", "anthem")
EXAM = {
    "Problem ID": range(40),
    "Problem": [f"Which of {i}?" for i in range(40)],
    "Correct Answer": "A",
    "Agent Answer": "A",
}
EXAM |= {f"Answer {number}": "N" if number % 2 else "A" for number in range(1, 11)}


def as_lines(rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def published(tmp_path, monkeypatch) -> Path:
    """Clones with a few rows as the sources have them."""
    asked = [f"The {kind} of {land} is" for kind in KINDS for land in LANDS]
    asked += [f"{land} is {of}" for of in ("capital of", "near") for land in LANDS]
    functions = [
        {"id": f"s{i}", "code": f"def f(x): return {i // 2}", "input": str(i), "output": "1"} for i in range(80)
    ]
    made = {row["id"]: (["1", "2"], [True, False]) for row in functions}
    of = ({name: pair[n] for name, pair in made.items()} for n in (0, 1))
    texts = {
        data.WIKIDATA: as_lines({"context": context, "continuation": "x"} for context in asked),
        data.FUNCTIONS: as_lines(functions),
        data.PREDICTIONS: json.dumps(dict(zip(("raw_generations", "raw_scored_generations"), of, strict=True))),
    }
    table = pd.DataFrame(EXAM).to_csv(index=False)
    names = [data.DETAILS.format(exam=exam, temperature=t) for exam in data.EXAMS for t in ("0.0", "1.0")]
    for name, text in {**texts, **dict.fromkeys(names, table)}.items():
        path = tmp_path / "published" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name, text in {**texts, data.DETAILS: table * len(names)}.items():
        monkeypatch.setitem(data.DIGESTS, name, hashlib.sha256(text.encode()).hexdigest())
    return tmp_path / "published"


def test_what_a_judge_reads_of_an_exam_is_what_its_authors_read(published, tmp_path):
    data.make("exams", published, tmp_path)
    row = json.loads((tmp_path / "answers.jsonl").read_text().splitlines()[0])
    assert row["answers"] == ["none of these", "A"] * 5 and row["correct"] == [False, True] * 5
    assert row["greedy"] == {"answer": "A", "correct": True}


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


FACTS = {
    "The continent of Kenya": "Africa", "The continent of Japan": "Asia", "The continent of Italy": "Europe",
    "The continent of Egypt": "Africa", "The continent of Norway": "Europe", "The continent of China": "Asia",
    "The capital of Palau": "Ngerulmud", "The capital of Nauru": "Yaren", "The capital of Bhutan": "Thimphu",
    "The capital of Togo": "Lomé", "The capital of Chad": "N'Djamena", "The capital of Fiji": "Suva",
    "The continent of Nigeria": "Africa", "The capital of Mali": "Bamako",
    "The continent of Spain": "Europe", "The continent of India": "Asia", "The capital of Benin": "Porto-Novo",
    "The capital of Italy": "Rome",
}  # fmt: skip


@pytest.mark.slow
def test_a_judge_that_is_told_reads_the_rank_of_the_answers_probability(smollm2, tmp_path, monkeypatch):
    facts = [
        {"id": subject, "question": f"{subject} is", "references": [right], "group": subject.split()[1]}
        for subject, right in FACTS.items()
    ]
    for split, part in (("train", facts[:12]), ("validation", facts[12:14]), ("test", facts[14:])):
        (tmp_path / f"{split}.jsonl").write_text(as_lines(part))
    sizes = {"sft": ("train", 6), "rl": ("train", 6), "validation": ("validation", 2), "test": ("test", 4)}
    splits = {split: {"from": origin, "size": size} for split, (origin, size) in sizes.items()}
    config = tmp_path / "small.yaml"
    source = {"source": {"path": str(tmp_path)}, "splits": splits}
    config.write_text(yaml.safe_dump({"datasets": {"wikidata": source}, "sft": {"batch_size": 4}}))
    monkeypatch.setattr(run, "HERE", tmp_path / "decisive")
    (tmp_path / "decisive" / "models").mkdir(parents=True)
    (tmp_path / "decisive" / "models" / "smollm2").symlink_to(smollm2)
    known = run.Cell.of("wikidata", 1, (str(config),))
    known.run(("told",))
    with known.here():
        trained, tested = told.of_training(known), told.of_greedy(known, "test")
        cell = told.cell(known, trained)
        items = statements.items(known.prompts_of("test")[0].removeprefix("test="), cell.cell.samples)
        asked = statements.messages(items, settings.state(cell.config, *cell.cell, "sft"))
        said = {one["id"]: one["confidence"] for one in store.read(str(known.stated(told.MIX, "test")), ("id",))}
    assert len(trained) == 12 and len(tested) == len(said) == 4
    for (example, _), (message,) in zip(items, asked, strict=True):
        rank = 100 * sum(one < tested[example["id"]] for one in trained.values()) // 12
        assert f"more probable than {rank} % of its answers" in message["content"]
    assert (tmp_path / "decisive/cells/wikidata-1" / cell.cell.folder / "sft_all" / "test.jsonl").exists()
