"""What tables, metrics.csv and the pictures say of a few items, with numbers worked out by loops and by scipy."""

import csv
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from stages_by_hand import WORDS, area, calibration, stage, stated, write

from orce.metrics.summary import read_stated
from orce.reports import figures
from orce.settings.stage import CellPicture

pytestmark = pytest.mark.usefixtures("folder")

RIGHT = [True, True, False, True, False, True, True, False, True, True, False, True]
METHODS = {  # confidences of three rows; one of ORCE's could not be read
    "vanilla": [0.9, 0.8, 0.9, 0.3, 0.7, 0.2, 0.9, 0.8, 0.5, 0.4, 0.9, 0.6],
    "orce-nrd": [0.9, 0.7, 0.3, 0.8, 0.4, 0.6, 0.9, 0.7, 0.8, 0.7, 0.2, 0.9],
    "orce": [0.9, 0.8, 0.1, None, 0.3, 0.7, 1.0, 0.2, 0.9, 0.8, 0.4, 0.8],
}
LABELS = {"vanilla": "Vanilla", "orce-nrd": "NRD", "orce": "ORCE"}
UNPARSED = 0.6
CELL = "results/words/m"


def confidences(method: str) -> np.ndarray:
    return np.array([UNPARSED if value is None else value for value in METHODS[method]])


@pytest.fixture
def measured(folder) -> list[str]:
    """metrics.json of the three rows."""
    head = "id,split,n_correct,n_samples,kappa,answer,answer_correct\n"
    rows = "".join(f"q{i},test,1,2,{int(right)},ant,1\n" for i, right in enumerate(RIGHT))
    Path("surrogate.csv").write_text(head + rows)
    for method, values in METHODS.items():
        records = [stated(f"q{i}", right, value) for i, (right, value) in enumerate(zip(RIGHT, values, strict=True))]
        stage("gather", shards=[write("shard.jsonl", records)], out=f"{CELL}/{method}/confidences.jsonl")
        settings = {"dataset": "words", "model": "m", "method": method, "bootstrap": 100, "seed": 1}
        settings["unparsed_confidence"] = UNPARSED
        stage(
            "evaluate", settings, confidences=f"{CELL}/{method}/confidences.jsonl", surrogate="surrogate.csv",
            out=f"{CELL}/{method}/metrics.json", extra=f"{CELL}/{method}/extra.json",
        )  # fmt: skip
    return [f"{CELL}/{method}/metrics.json" for method in METHODS]


def tables(**of_table) -> dict:
    rows = [["m", method, label, method == "orce"] for method, label in LABELS.items()]
    table = {"kind": "ablation", "dataset": "words", "models": ["m"], "methods": [*METHODS], "rows": rows} | of_table
    named = {"models": {"m": {"label": "Model M"}}, "tasks": {"words": WORDS}, "unparsed_confidence": UNPARSED}
    return {"tables": {"ablation": table}, "order": ["ablation"]} | named


def resampled(method: str) -> list[float]:
    """The 95 % interval of the AURC of a method minus ORCE's, from resamples of the items that both share."""
    rng, right, differences = np.random.default_rng(0), np.array(RIGHT), []
    for _ in range(1000):
        some = rng.integers(0, len(right), len(right))
        differences.append(area(confidences(method)[some], right[some]) - area(confidences("orce")[some], right[some]))
    return np.quantile(differences, [0.025, 0.975]).tolist()


DIFFERENCE = re.compile(r"(\w+) ([+-][\d.]+) \[([+-][\d.]+), ([+-][\d.]+)\]")


def test_a_row_has_its_five_metrics_and_an_ablation_the_difference_of_each_row_from_orce(measured):
    read = [f"{CELL}/{method}/confidences.jsonl" for method in METHODS]
    stage("table", tables(), metrics=measured, confidences=read, out="paper_tables")
    tex = Path("paper_tables/ablation.tex").read_text()
    best = area(np.array(RIGHT, float), RIGHT)
    for method, label in LABELS.items():
        stated, own = confidences(method), area(confidences(method), RIGHT)
        rho, p = stats.spearmanr(stated, RIGHT)
        (line,) = [line for line in tex.splitlines() if re.match(rf"& (\\text\w+{{)?{label}\b", line)]
        shown = [re.sub(r"\\(textbf|underline){([^}]*)}", r"\2", text).strip(" \\$") for text in line.split("&")[2:]]
        power = math.floor(math.log10(p))
        written = f"{p / 10**power:.3f}\\times10^{{{power}}}" if p < 0.001 else f"{p:.3f}"
        numbers = (calibration(stated, RIGHT, 10), rho, own, own - best, 8 / 12)
        before, after = [f"{value:.3f}" for value in numbers[:2]], [f"{value:.3f}" for value in numbers[2:]]
        assert shown == [*before, written, *after]
    found = {label: (difference, float(low), float(high)) for label, difference, low, high in DIFFERENCE.findall(tex)}
    assert found.keys() == {"Vanilla", "NRD"}
    for method in ("vanilla", "orce-nrd"):
        difference, *interval = found[LABELS[method]]
        assert difference == f"{area(confidences(method), RIGHT) - area(confidences('orce'), RIGHT):+.3f}"
        assert interval == pytest.approx(resampled(method), abs=0.03)
    stage("table", tables(), metrics=measured, out="without")
    assert not DIFFERENCE.search(Path("without/ablation.tex").read_text())


def test_the_document_has_the_same_rows(measured):
    stage("table", tables(), metrics=measured, out="paper_tables")
    stage("tables", tables(), metrics=measured, out="paper_tables")
    assert r"\input{ablation.tex}" in Path("paper_tables/tables.tex").read_text()
    shown = Path("paper_tables/tables.html").read_text()
    for method in METHODS:
        assert f"{area(confidences(method), RIGHT):.3f}" in shown
    assert Path("paper_tables/tables.pdf").read_bytes().startswith(b"%PDF")


def test_metrics_csv_has_a_line_for_each_metric_of_each_row_with_the_label_of_its_path(measured):
    labels = {path: label for path, label in zip(measured, LABELS.values(), strict=True)}
    stage("metrics-csv", {"labels": labels}, metrics=measured, out="metrics.csv")
    with open("metrics.csv", newline="") as handle:
        rows = [*csv.DictReader(handle)]
    assert [*rows[0]] == ["dataset", "model", "method", "label", "metric", "value", "low", "high", "n", "reason"]
    for method, label in LABELS.items():
        own = {row["metric"]: row for row in rows if row["method"] == method}
        found, extra = (json.loads(Path(f"{CELL}/{method}/{name}.json").read_text()) for name in ("metrics", "extra"))
        same = {"dataset": "words", "model": "m", "label": label, "n": "12"}
        assert all(row.items() >= same.items() for row in own.values())
        assert float(own["aurc"]["value"]) == pytest.approx(area(confidences(method), RIGHT))
        assert float(own["spearman"]["value"]) == pytest.approx(stats.spearmanr(confidences(method), RIGHT)[0])
        assert [float(own["aurc"][side]) for side in ("low", "high")] == found["intervals"]["aurc"]
        nll = [float(own["nll"][side]) for side in ("value", "low", "high")]
        assert nll == [extra["nll"], *extra["intervals"]["nll"]]
        unread = METHODS[method].count(None)
        assert (own["unparsed_answers"]["value"], own["unparsed_confidences"]["value"]) == ("0.0", f"{unread:.1f}")
        assert own["f1"]["value"] == "" and own["f1"]["reason"] == "this task has no F1"
    assert len(rows) == 3 * len(own)


def risk(stated, right) -> list[float]:
    """The error rate among the most confident i items, i = 1..n, each tie in its expectation."""
    return [sum_of / i for i, sum_of in enumerate(np.cumsum(expected_errors(stated, right)), 1)]


def expected_errors(stated, right) -> list[float]:
    """For each place in the order of confidence, the error rate of the items that may stand there."""
    places = []
    for value in sorted({*stated}, reverse=True):
        tie = [not own for confidence, own in zip(stated, right, strict=True) if confidence == value]
        places += [sum(tie) / len(tie)] * len(tie)
    return places


def drawn(measured) -> list[figures.Series]:
    return [
        figures.Series(method, label, read_stated(f"{CELL}/{method}/confidences.jsonl", UNPARSED))
        for method, label in LABELS.items()
    ]


PICTURED = CellPicture(dataset="words", model="m", label="Words")


def test_each_curve_is_the_risk_at_each_coverage_of_its_own_method(measured):
    (axes,) = figures.draw_risk_coverage(PICTURED, drawn(measured)).axes
    curves = {line.get_label().split()[0]: line for line in axes.lines}
    for method, label in LABELS.items():
        assert curves[label].get_xdata().tolist() == pytest.approx([i / 12 for i in range(1, 13)])
        assert curves[label].get_ydata().tolist() == pytest.approx(risk(confidences(method), RIGHT))
        assert curves[label].get_label().startswith(f"{label} {area(confidences(method), RIGHT):.3f}")
    assert curves["ORCE"].get_label().endswith(" (1 unread)")
    assert curves["Random"].get_ydata().tolist() == pytest.approx([4 / 12] * 12)
    assert curves["Perfect"].get_ydata().tolist() == pytest.approx(risk([float(right) for right in RIGHT], RIGHT))


def test_each_panel_has_the_mean_confidence_and_the_accuracy_of_the_bins_of_its_method(measured):
    panels = figures.draw_reliability(PICTURED, drawn(measured)).axes
    for panel, method in zip(panels, METHODS, strict=True):
        stated = confidences(method)
        bins = np.maximum(np.ceil(np.round(10 * stated, 9)), 1)
        expected = [[stated[bins == one].mean(), np.array(RIGHT)[bins == one].mean()] for one in np.unique(bins)]
        assert panel.collections[1].get_offsets().tolist() == [pytest.approx(point) for point in expected]
        sizes = panel.collections[1].get_sizes()
        assert np.argmax(sizes) == np.argmax(np.unique(bins, return_counts=True)[1])
        assert panel.get_title().split("\n")[1].startswith(f"ECE {calibration(stated, RIGHT, 10):.3f}")
