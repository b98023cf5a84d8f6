"""The pictures: what they plot is what the metrics say, equal input gives equal files, gaps are named and not fatal."""

import json
import shutil
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import yaml
from conftest import ROOT, program, typed
from msgspec import structs

from orce import metrics, rewards, stages
from orce.__main__ import main
from orce.artefacts import files, store
from orce.config import load
from orce.config.settings import to_argument
from orce.errors import BadInput
from orce.metrics.summary import Stated
from orce.records import Candidate
from orce.reports import figures
from orce.stage_settings import Pictured, Pictures, parsed, plain
from orce.stages.figures import KINDS, Settings

CELL = Pictured(dataset="sums", model="small", label="sums, Small 1B")
METHODS = {"vanilla": "Vanilla", "sft": "SFT", "orce": "ORCE"}


def series(confidence, correct, method="orce", answer="A", unread=0):
    n, label = len(correct), METHODS.get(method, method)
    read = Stated(
        [*map(str, range(n))], [answer] * n, np.asarray(confidence), np.asarray(correct), None, None, unread, 0, False
    )
    return figures.Series(method, label, read)


def stated(method="orce", unread=0, n=200):
    rng = np.random.default_rng(0)
    confidence = rng.integers(0, 101, n) / 100
    return series(confidence, rng.random(n) < confidence, method, unread=unread)


def words(figure) -> str:
    """Everything that stands in a figure."""
    from matplotlib.text import Text

    return "\n".join(text.get_text() for text in figure.findobj(Text))


def drawn(draw, *arguments):
    with matplotlib.rc_context(figures.style()):
        return draw(*arguments)


def config(**tables) -> dict:
    text = (ROOT / "config.yaml").read_text()
    return yaml.safe_load(text) | ({"tables": tables, "paper_tables": list(tables)} if tables else {})


def write(folder: Path, method: str, confidences: list, correct: list) -> None:
    rows = enumerate(zip(confidences, correct, strict=True))
    lines = [{"id": str(i), "answer": "A", "correct": right, "confidence": c} for i, (c, right) in rows]
    store.write(folder / method / "confidences.jsonl", lines)


def test_bins_are_closed_on_the_right_and_their_points_sum_up_to_ece():
    one = stated().stated
    _, count, confidence, accuracy = metrics.reliability_bins(one.confidence, one.correct)
    assert count.sum() == 200 and len(count) == 10
    ece = (count * np.abs(confidence - accuracy)).sum() / 200
    assert ece == pytest.approx(metrics.expected_calibration_error(one.confidence, one.correct), abs=1e-12)
    confidence = np.array([0.0, 0.1, 0.11, 0.3, 0.31, 1.0])
    number, count, mean, accuracy = metrics.reliability_bins(confidence, [0, 1, 1, 1, 0, 1])
    assert number.tolist() == [0, 1, 2, 3, 9] and count.tolist() == [2, 1, 1, 1, 1]
    assert mean.tolist() == pytest.approx([0.05, 0.11, 0.3, 0.31, 1.0])
    assert accuracy.tolist() == [0.5, 1, 1, 0, 1]
    assert [part.tolist() for part in metrics.reliability_bins([], [])] == [[], [], [], []]


def test_the_circles_stand_at_the_points_and_the_curves_mean_is_the_aurc_of_the_tables():
    panel = drawn(figures.draw_reliability, CELL, [stated()]).axes[0]
    one = stated().stated
    _, count, confidence, accuracy = metrics.reliability_bins(one.confidence, one.correct)
    circles = panel.collections[1]
    assert np.allclose(circles.get_offsets(), np.column_stack([confidence, accuracy]))
    assert np.allclose(circles.get_sizes(), figures.SMALLEST + figures.LARGEST * count / 200)
    gaps = np.array(panel.collections[0].get_segments())
    assert np.allclose(gaps[:, :, 0], confidence[:, None])
    assert np.allclose(gaps[:, :, 1], np.column_stack([confidence, accuracy]))
    axes = drawn(figures.draw_risk_coverage, CELL, [stated()]).axes[0]
    line = next(line for line in axes.lines if line.get_label().startswith("ORCE"))
    area = metrics.aurc(one.confidence, one.correct)
    assert line.get_ydata().mean() == pytest.approx(area, abs=1e-12)
    assert line.get_label() == f"ORCE {area:.3f}"


def test_the_baselines_are_those_of_the_answers_that_most_methods_judge():
    three = [stated(method) for method in METHODS]
    other = series(np.ones(200), np.zeros(200), "cot", answer="B")
    assert figures.most_judged([other.stated, *(one.stated for one in three)]) is three[0].stated
    axes = drawn(figures.draw_risk_coverage, CELL, [other, *three]).axes[0]
    thin = [line for line in axes.lines if line.get_linewidth() == 0.5]
    assert [line.get_ydata().tolist() for line in thin] == [[1.0] * 200]  # its answers are all wrong, in any order


def test_nrd_cannot_tell_the_two_candidates_apart_and_the_spearman_reward_can():
    sc, nrd = figures.both_rewards(figures.CONFIDENCE, figures.KAPPA, np.array([0.25, 0.55]), figures.NEW_KAPPA)
    assert nrd[0] == nrd[1] and sc[0] > 0 > sc[1]
    text = words(drawn(figures.draw_reward, None, Path()))
    for value in sc:
        assert f"{value:+.4f}".replace("-", "−") in text
    assert "no candidates" in text


def test_the_reward_of_a_run_is_that_of_its_own_reference_set(tmp_path):
    rng = np.random.default_rng(1)
    kappa, said = rng.integers(0, 5, 30) / 4, rng.integers(0, 101, 30) / 100
    both = zip(kappa.tolist(), said.tolist(), strict=True)
    candidates = [Candidate("a", k, True, [0.2, 0.9], [-1.0, -2.0], ["20", "90"], c, []) for k, c in both]
    files.write_jsonl(tmp_path / "sums" / "small" / "candidates.jsonl", candidates)
    axes = drawn(figures.draw_reward, CELL, tmp_path).axes
    expected = 1000 * rewards.spearman_marginal(said, kappa, figures.PERCENTS, 0.0)
    assert any(len(line.get_ydata()) == 101 and np.allclose(line.get_ydata(), expected) for line in axes[3].lines)
    assert "sums, Small 1B" in words(axes[3].figure)


def drawn_twice(*shown) -> tuple[str, str]:
    return tuple(words(drawn(draw, CELL, shown)) for draw in (figures.draw_reliability, figures.draw_risk_coverage))


def test_what_is_unread_constant_all_right_or_missing_is_named():
    reliability, risk = drawn_twice(series([0.9, 0.5, 0.1], [1, 0, 0], "sft", unread=1))
    assert "1 of 3 unread" in reliability and "SFT 0.389 (1 unread)" in risk
    assert "every confidence is the same" in drawn_twice(series([0.9] * 3, [1, 0, 0]))[0]
    reliability, risk = drawn_twice(series([0.2, 0.4, 0.9], np.ones(3), "sft"))
    assert "all answers are right" in reliability and "SFT 0.000" in risk
    gone = figures.Series("topk", "Top-k", None)
    reliability, risk = drawn_twice(gone, stated())
    assert "no confidences.jsonl" in reliability and "Top-k" in reliability and "missing: Top-k" in risk
    assert "no confidences" in drawn_twice(gone)[1]


def test_a_picture_is_drawn_of_the_files_there_and_a_broken_line_named_by_file_and_number(tmp_path):
    write(tmp_path / "sums/small", "sft", [0.9, None, 0.1], [True, False, False])
    cell = structs.replace(CELL, methods=[("sft", "SFT"), ("topk", "Top-k")])
    plan = Pictures(cells=[cell], reward=None, unparsed_confidence=0.5)
    assert len([*figures.build(plan, tmp_path, tmp_path / "figures")]) == 6
    path = tmp_path / "sums/small/sft/confidences.jsonl"
    path.with_name("confidences.manifest.json").unlink()  # a file of one's own has none
    path.write_text('{"id": "b", "answer": "A"}\n')
    with pytest.raises(BadInput, match=r"confidences.jsonl, line 1: no key 'correct'"):
        [*figures.build(plan, tmp_path, tmp_path / "figures")]


def test_the_matrix_has_pictures_of_every_cell_with_its_main_tables_methods():
    names = stages.of("figures", typed(config())).names()
    cells = [f"{d}-{m}" for d in ("mmlu", "drop", "reclor", "logiqa") for m in ("llama3-8b", "qwen3-8b", "mistral-7b")]
    assert set(names) == {"reward"} | {f"{kind}-{cell}" for kind in KINDS for cell in cells}
    # As the step gets them: in one canonical form, with the keys of objects sorted.
    wanted = json.loads(to_argument(stages.of("figures", typed(config()))))
    first = wanted["cells"][0]
    assert list(dict(first["methods"])) == ["vanilla", "consistency", "topk", "cot", "conftuner", "sft", "orce"]
    assert wanted["reward"] == {"dataset": "mmlu", "model": "llama3-8b", "label": "MMLU, LLAMA-3 8B"}
    table = {"kind": "transfer", "dataset": "mmlu", "source": "llama3-8b", "models": ["qwen3-8b"], "methods": ["sft"]}
    wanted = stages.of("figures", typed(config(transfer=table)))
    assert [list(dict(cell.methods)) for cell in wanted.cells] == [["sft-from-llama3-8b"]]
    assert wanted.reward is None
    assert wanted.inputs() == ["results/mmlu/qwen3-8b/sft-from-llama3-8b/confidences.jsonl"]


def test_every_method_has_a_look_of_its_own():
    from orce.config import layout

    for kind in (layout.KINDS["main"], layout.KINDS["ablation"]):
        looks = [figures.look(method) for method in kind]
        for side in ("color", "marker", "dash"):
            assert len({str(getattr(look, side)) for look in looks}) == len(looks), side
    field = load.mapping(ROOT / "config" / "field.yaml")["tables"]["field-arithmetic"]["methods"]
    assert len({figures.look(method) for method in field}) == len(field)
    for method in ("sft+platt", "sft-from-llama3-8b+isotonic"):
        assert figures.look(method).color == figures.LOOKS["sft"].color
    assert figures.look("sft-from-llama3-8b") == figures.look("sft")


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
    """The same pictures drawn twice by the command, in processes that hash differently."""
    folder = tmp_path_factory.mktemp("figures")
    rng = np.random.default_rng(0)
    for method in ("vanilla", "orce"):
        confidence = (rng.integers(0, 101, 60) / 100).tolist()
        write(folder / "results/sums/small", method, [None, *confidence[1:]], (rng.random(60) < 0.5).tolist())
    wanted = {"cells": [plain(CELL) | {"methods": list(METHODS.items())}], "reward": None, "unparsed_confidence": 0.5}
    (folder / "plan.json").write_text(json.dumps(wanted))
    for seed in ("1", "2"):
        words = ["-m", "orce", "figures", "--settings", "@plan.json", "--out", f"figures{seed}"]
        program(sys.executable, *words, cwd=folder, check=True, PYTHONHASHSEED=seed)
    return folder, parsed(Settings, json.dumps(wanted)).names()


@pytest.mark.slow
def test_the_pictures_have_equal_bytes_twice_the_papers_widths_and_embedded_fonts(two_runs):
    folder, names = two_runs
    made = {f"{name}.{kind}" for name in names for kind in ("pdf", "png")}
    assert {path.name for path in (folder / "figures1").iterdir()} == made
    for name in made:
        assert files.file_digest(folder / "figures1" / name) == files.file_digest(folder / "figures2" / name), name
    for name, about in names.items():
        path = folder / "figures1" / f"{name}.pdf"
        content = path.read_bytes()
        assert b"CreationDate" not in content and b"/FontFile2" in content and b"/Type3" not in content
        assert b"/Subtype /Image" not in content, "vectors only"
        inches = figures.COLUMN if about["kind"] == "risk-coverage" else figures.PAGE
        if shutil.which("pdfinfo"):
            assert f"{72 * inches:g} x" in program("pdfinfo", path, check=True).stdout.split("Page size:")[1]


@pytest.mark.parametrize("draw", ["reward", "reliability", "risk-coverage", "long labels"])
def test_no_type_is_below_seven_points_and_none_leaves_the_picture(draw, tmp_path):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    long = stated("Token probability + Temperature")
    many = [stated(method, unread=3) for method in METHODS]
    figure = {
        "reward": lambda: drawn(figures.draw_reward, None, tmp_path),
        "reliability": lambda: drawn(figures.draw_reliability, CELL, many),
        "risk-coverage": lambda: drawn(figures.draw_risk_coverage, CELL, many),
        "long labels": lambda: drawn(figures.draw_risk_coverage, CELL, [long] * 21),
    }[draw]()
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    box = figure.bbox
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text().strip():
            assert text.get_fontsize() >= 7, text.get_text()
            extent = text.get_window_extent(renderer)
            assert extent.x0 >= box.x0 - 1 and extent.x1 <= box.x1 + 1, text.get_text()
            assert extent.y0 >= box.y0 - 1 and extent.y1 <= box.y1 + 1, text.get_text()


def test_a_missing_results_folder_is_one_clear_line(tmp_path, capsys):
    (tmp_path / "plan.json").write_text(to_argument(Pictures(cells=[], reward=None, unparsed_confidence=0.5)))
    words = ["figures", "--settings", f"@{tmp_path / 'plan.json'}", "--out", "f", "--results", "gone"]
    assert main(words) == 2 and "gone is not a folder" in capsys.readouterr().err
