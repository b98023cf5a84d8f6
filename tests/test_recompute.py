"""The evidence pages say what the released items give, and a changed number or item shows."""

import gzip
import re
import shutil

import pytest
from conftest import ROOT
from evidence import recompute

EVIDENCE = recompute.DOCS / "evidence"
BLOCKS = [
    ("decisive.md", "labels"), ("decisive.md", "contrasts"), ("decisive.md", "arms"), ("laboratory-2.md", "cells"),
    ("laboratory-2.md", "contrasts"), ("laboratory-2.md", "arms"), ("laboratory-2.md", "groups"),
    ("laboratory-models.md", "counted"), ("laboratory-models.md", "every"), ("laboratory-models.md", "calibration"),
    ("laboratory.md", "contrasts"), ("smollm2.md", "readout"),
]  # fmt: skip
QUOTES = [
    ("docs/evidence.md", "+.073 [+.057, +.090]"), ("docs/evidence.md", "-.041 [-.057, -.026]"),
    ("docs/evidence.md", ".894, .893"), ("docs/evidence.md", ".205, .274"), ("docs/evidence.md", "+0.005 [-0.007, +0.020]"),
    ("docs/evidence.md", "28568039f21ed76a56a808447c372ff2bae91a41430254ec56bdf9182e42fcc0"),
    ("docs/evidence/decisive.md", "+.063 [+.015, +.111]"), ("docs/evidence/laboratory-2.md", "-0.060 [-0.089, -0.031]"),
]  # fmt: skip


@pytest.fixture(scope="module")
def made():
    return recompute.tables()


@pytest.fixture
def docs(tmp_path):
    """A copy of the pages, to change."""
    shutil.copytree(EVIDENCE, tmp_path / "docs" / "evidence")
    shutil.copy(recompute.DOCS / "evidence.md", tmp_path / "docs")
    shutil.copy(ROOT / "README.md", tmp_path)
    return tmp_path / "docs"


def turned(text: str) -> str:
    """Its last digit is another."""
    return re.sub(r"\d(?=\D*$)", lambda digit: str((int(digit[0]) + 5) % 10), text)


@pytest.mark.slow
def test_the_pages_say_what_the_items_give(made):
    assert recompute.differing(made) == []


@pytest.mark.slow
@pytest.mark.parametrize(("page", "block"), BLOCKS)
def test_a_changed_number_of_a_table_is_found(page, block, made, docs):
    path = docs / "evidence" / page
    table = recompute.block(path.read_text(), block)
    number = re.findall(r"\d+\.\d{3}|\d+ more", table)[0]
    path.write_text(path.read_text().replace(table, table.replace(number, turned(number), 1)))
    (found, *_) = recompute.differing(made, docs)
    assert found.startswith(f"{page}: ")


@pytest.mark.slow
@pytest.mark.parametrize(("page", "quote"), QUOTES)
def test_a_changed_number_in_prose_is_found(page, quote, made, docs):
    path = docs.parent / page
    assert quote in path.read_text()
    path.write_text(path.read_text().replace(quote, turned(quote), 1))
    assert len(recompute.differing(made, docs)) >= 1


def test_an_item_that_changes_its_side_changes_the_tables(tmp_path):
    shutil.copy(recompute.ITEMS / "exams-2.jsonl.gz", tmp_path)
    page = (EVIDENCE / "decisive.md").read_text()

    def arms() -> list[str]:
        return [
            line for line in recompute.arms_table(recompute.real_questions(tmp_path)).splitlines() if "exams" in line
        ]

    published = [line for line in recompute.block(page, "arms").splitlines() if line.startswith("| exams-2 ")]
    assert arms() == published
    path = tmp_path / "exams-2.jsonl.gz"
    first, _, rest = gzip.decompress(path.read_bytes()).decode().partition("\n")
    other = {"true": "false", "false": "true"}
    first = re.sub(r'(?<="correct": )\w+', lambda value: other[value[0]], first)
    path.write_bytes(gzip.compress(f"{first}\n{rest}".encode()))
    assert all(one != other for one, other in zip(arms(), published, strict=True))


@pytest.mark.parametrize("folder", [recompute.ITEMS, recompute.ITEMS / "laboratory-2"], ids=lambda folder: folder.name)
def test_the_items_are_the_released_ones(folder):
    digests = dict(reversed(line.split("  ")) for line in (folder / "SHA256SUMS").read_text().splitlines())
    assert digests == {
        path.name: recompute.hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.gz")
    }


@pytest.mark.parametrize(
    ("low", "high", "adjusted", "verdict"),
    [
        (-0.05, -0.02, 0.001, "better"), (-0.009, -0.002, 0.01, "better, by less than the margin"),
        (0.012, 0.05, 0.001, "worse"), (-0.004, 0.006, 0.8, "no difference that matters"), (-0.02, 0.03, 0.8, "open"),
        (-0.05, -0.02, 0.06, "open"),
    ],
)  # fmt: skip
def test_a_verdict_follows_from_the_interval_and_the_margin(low, high, adjusted, verdict):
    assert recompute.verdict_of(low, high, adjusted) == verdict


def test_holm_adjusts_as_in_its_definition():
    adjusted = recompute.holm(recompute.pd.Series({"a": 0.01, "b": 0.04, "c": 0.03}))
    assert adjusted.to_dict() == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})


def test_the_evidence_imports_what_users_import():
    """The public names, and the trainings that docs/extending.md has methods of one's own import."""
    public = {"metrics", "rewards", "score", "surrogate", "tasks", "training"}
    folder = ROOT / "evidence"
    for path in folder.rglob("*.py"):
        found = re.findall(r"^ *from (orce(?:\.\w+)*) import (.+)|^ *import (orce\S*)", path.read_text(), re.MULTILINE)
        rooms = {f"{package}.{names}".split(".")[1].split(",")[0] for package, names, _ in found}
        assert rooms <= public and not any(plain for *_, plain in found), path
    assert not list(folder.rglob("__init__.py")), "scripts, and no package that somebody could build on"
