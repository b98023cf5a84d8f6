"""The pictures: what they plot is what the metrics say, equal input gives equal files, gaps are named and not fatal."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from conftest import ROOT, program, typed

from orce import metrics, rewards, stages
from orce.__main__ import main
from orce.artefacts import files, store
from orce.config import load
from orce.config.settings import to_argument
from orce.errors import BadInput
from orce.records import Candidate
from orce.reports import figures
from orce.stage_settings import Pictured, Pictures, parsed, plain
from orce.stages.figures import KINDS, Settings

CELL = Pictured(dataset="sums", model="small", label="sums, Small 1B")
METHODS = {"vanilla": "Vanilla", "sft": "SFT", "orce": "ORCE"}


def stated(n=200, seed=0, method="orce", **more):
    rng = np.random.default_rng(seed)
    confidence = rng.integers(0, 101, n) / 100
    correct, label = rng.random(n) < confidence, METHODS.get(method, method)
    return figures.Stated(method, label, confidence, correct, ("A",) * n, **more)


def words(figure) -> str:
    """Everything that stands in a figure."""
    from matplotlib.text import Text

    return "\n".join(text.get_text() for text in figure.findobj(Text))


def drawn(draw, *arguments):
    from matplotlib import style

    with style.context(figures.STYLE):
        return draw(*arguments)


def config(**tables) -> dict:
    text = (ROOT / "config.yaml").read_text()
    return yaml.safe_load(text) | ({"tables": tables, "paper_tables": list(tables)} if tables else {})


def write(folder: Path, method: str, confidences: list, correct: list) -> None:
    rows = enumerate(zip(confidences, correct, strict=True))
    lines = [{"id": str(i), "answer": "A", "correct": right, "confidence": c} for i, (c, right) in rows]
    store.write(folder / method / "confidences.jsonl", lines)


def test_bins_are_closed_on_the_right_and_their_points_sum_up_to_ece():
    one = stated()
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
    one = stated()
    panel = drawn(figures.draw_reliability, CELL, [one]).axes[0]
    _, count, confidence, accuracy = metrics.reliability_bins(one.confidence, one.correct)
    circles = panel.collections[1]
    assert np.allclose(circles.get_offsets(), np.column_stack([confidence, accuracy]))
    assert np.allclose(circles.get_sizes(), figures.SMALLEST + figures.LARGEST * count / 200)
    gaps = np.array(panel.collections[0].get_segments())
    assert np.allclose(gaps[:, :, 0], confidence[:, None])
    assert np.allclose(gaps[:, :, 1], np.column_stack([confidence, accuracy]))
    axes = drawn(figures.draw_risk_coverage, CELL, [one]).axes[0]
    line = next(line for line in axes.lines if line.get_label().startswith("ORCE"))
    area = metrics.aurc(one.confidence, one.correct)
    assert line.get_ydata().mean() == pytest.approx(area, abs=1e-12)
    assert line.get_label() == f"ORCE {area:.3f}"


def test_the_random_and_the_perfect_order_bound_the_curves():
    one = stated()
    error = 1 - one.correct.mean()
    _, random = metrics.risk_coverage_curve(np.zeros(200), one.correct)
    assert random == pytest.approx(np.full(200, error))
    _, perfect = metrics.risk_coverage_curve(one.correct, one.correct)
    _, risk = metrics.risk_coverage_curve(one.confidence, one.correct)
    assert (perfect <= risk + 1e-12).all()
    gap = risk.mean() - perfect.mean()
    assert gap == pytest.approx(metrics.e_aurc(one.confidence, one.correct), abs=1e-12)


def test_the_baselines_are_those_of_the_answers_that_most_methods_judge():
    three = [stated(method=method) for method in METHODS]
    other = figures.Stated("cot", "CoT", np.ones(200), np.zeros(200), ("B",) * 200)
    assert figures.most_judged([other, *three]) is three[0]
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


def test_what_is_unread_constant_or_all_right_is_candidatesand_named(tmp_path):
    write(tmp_path, "sft", [0.9, None, 0.1], [True, False, False])
    one = figures.read(tmp_path / "sft", "sft", "SFT", unparsed=0.5)
    assert one.confidence.tolist() == [0.9, 0.5, 0.1] and one.unread == 1
    assert "1 of 3 unread" in words(drawn(figures.draw_reliability, CELL, [one]))
    assert "SFT 0.389 (1 unread)" in words(drawn(figures.draw_risk_coverage, CELL, [one]))
    write(tmp_path, "sft", [0.9, 0.9, 0.9], [True, False, False])
    one = figures.read(tmp_path / "sft", "sft", "SFT", unparsed=0.5)
    assert "every confidence is the same" in words(drawn(figures.draw_reliability, CELL, [one]))
    one = figures.Stated("sft", "SFT", np.array([0.2, 0.4, 0.9]), np.ones(3), ("A",) * 3)
    assert "all answers are right" in words(drawn(figures.draw_reliability, CELL, [one]))
    assert "SFT 0.000" in words(drawn(figures.draw_risk_coverage, CELL, [one]))


def test_what_is_missing_is_named_in_its_panel_and_in_the_legend(tmp_path):
    gone = figures.read(tmp_path / "topk", "topk", "Top-k", unparsed=0.5)
    figure = drawn(figures.draw_reliability, CELL, [gone, stated()])
    assert "no confidences.jsonl" in words(figure) and "Top-k" in words(figure)
    assert len(figure.axes) == 2
    assert "missing: Top-k" in words(drawn(figures.draw_risk_coverage, CELL, [gone, stated()]))
    assert "no confidences" in words(drawn(figures.draw_risk_coverage, CELL, [gone]))


def test_a_broken_line_is_named_by_file_and_number(tmp_path):
    write(tmp_path, "sft", [0.9], [True])
    (tmp_path / "sft" / "confidences.manifest.json").unlink()  # a file of one's own has none
    with open(tmp_path / "sft" / "confidences.jsonl", "a") as handle:
        handle.write('{"id": "b", "answer": "A"}\n')
    with pytest.raises(BadInput, match=r"confidences.jsonl, line 2: no key 'correct'"):
        figures.read(tmp_path / "sft", "sft", "SFT", unparsed=0.5)


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

    long = stated(method="Token probability + Temperature")
    many = [stated(method=method, unread=3) for method in METHODS]
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
