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
from test_recount import recount

from orce.artefacts import store
from orce.config import layout
from orce.metrics.summary import read_stated
from orce.reports import figures, tables
from orce.runtime import preflight
from orce.settings.stage import CellPicture, from_mapping

RIGHT = [True, True, False, True, False, True, True, False, True, True, False, True]
METHODS = {  # confidences of three rows; one of ORCE's could not be read
    "vanilla": [0.9, 0.8, 0.9, 0.3, 0.7, 0.2, 0.9, 0.8, 0.5, 0.4, 0.9, 0.6],
    "orce-nrd": [0.9, 0.7, 0.3, 0.8, 0.4, 0.6, 0.9, 0.7, 0.8, 0.7, 0.2, 0.9],
    "orce": [0.9, 0.8, 0.1, None, 0.3, 0.7, 1.0, 0.2, 0.9, 0.8, 0.4, 0.8],
}
LABELS = {"vanilla": "Vanilla", "orce-nrd": "NRD", "orce": "ORCE"}
UNPARSED = 0.6
CELL = "results/words/m"
STATED = [f"{CELL}/{method}/confidences.jsonl" for method in METHODS]
TABLE = {
    "kind": "ablation", "dataset": "words", "models": ["m"], "methods": [*METHODS],
    "rows": [["m", method, label, method == "orce"] for method, label in LABELS.items()],
}  # fmt: skip
TABLES = {
    "tables": {"ablation": TABLE}, "order": ["ablation"], "models": {"m": {"label": "Model M"}}, "tasks": {"words": WORDS},
    "unparsed_confidence": UNPARSED,
}  # fmt: skip


def confidences(method: str) -> np.ndarray:
    return np.array([UNPARSED if value is None else value for value in METHODS[method]])


def evaluated(method: str, values: list) -> dict:
    """metrics.json of a row with some confidences."""
    records = [stated(f"q{i}", right, value) for i, (right, value) in enumerate(zip(RIGHT, values, strict=True))]
    stage("gather", shards=[write("shard.jsonl", records)], out=f"{CELL}/{method}/confidences.jsonl")
    settings = {"dataset": "words", "model": "m", "method": method, "bootstrap": 100, "seed": 1}
    settings |= {"unparsed_confidence": UNPARSED}
    stage(
        "evaluate", settings, confidences=f"{CELL}/{method}/confidences.jsonl", surrogate="surrogate.csv",
        out=f"{CELL}/{method}/metrics.json", extra=f"{CELL}/{method}/extra.json",
    )  # fmt: skip
    return json.loads(Path(f"{CELL}/{method}/metrics.json").read_text())


@pytest.fixture
def measured(folder) -> list[str]:
    """metrics.json of the three rows."""
    head = "id,split,n_correct,n_samples,kappa,answer,answer_correct\n"
    rows = "".join(f"q{i},test,1,2,{int(right)},ant,1\n" for i, right in enumerate(RIGHT))
    Path("surrogate.csv").write_text(head + rows)
    for method, values in METHODS.items():
        evaluated(method, values)
    return [f"{CELL}/{method}/metrics.json" for method in METHODS]


def test_the_default_of_an_unread_confidence_is_no_value_of_its_row(measured):
    assert evaluated("vanilla", [0.2, 0.7, None] * 4)["n_distinct"] == 2
    assert "n_distinct" not in evaluated("vanilla", [0.2, 0.7, 0.1, None] * 3)


DIFFERENCE = re.compile(r"(\w+) ([+-][\d.]+) \[([+-][\d.]+), ([+-][\d.]+)\]")


def test_a_row_has_its_five_metrics_and_an_ablation_the_difference_of_each_row_from_orce(measured):
    stage("table", TABLES, metrics=measured, confidences=STATED, out="paper_tables")
    tex = Path("paper_tables/ablation.tex").read_text()
    right, best = np.array(RIGHT), area(np.array(RIGHT, float), RIGHT)
    for method, label in LABELS.items():
        stated, own = confidences(method), area(confidences(method), RIGHT)
        rho, p = stats.spearmanr(stated, RIGHT)
        (line,) = [line for line in tex.splitlines() if re.match(rf"& (\\text\w+{{)?{label}\b", line)]
        shown = [re.sub(r"\\(textbf|underline){([^}]*)}", r"\2", text).strip(" \\$") for text in line.split("&")[2:]]
        power = math.floor(math.log10(p))
        written = f"{p / 10**power:.3f}\\times10^{{{power}}}" if p < 0.001 else f"{p:.3f}"
        numbers = (calibration(stated, RIGHT), rho, own, own - best, 8 / 12)
        before, after = [f"{value:.3f}" for value in numbers[:2]], [f"{value:.3f}" for value in numbers[2:]]
        assert shown == [*before, written, *after]
    found = {label: (difference, float(low), float(high)) for label, difference, low, high in DIFFERENCE.findall(tex)}
    assert found.keys() == {"Vanilla", "NRD"}
    resamples = np.random.default_rng(0).integers(0, len(right), (1000, len(right)))  # of the shared items
    for method in ("vanilla", "orce-nrd"):
        difference, *interval = found[LABELS[method]]
        of_method, of_orce = confidences(method), confidences("orce")
        assert difference == f"{area(of_method, right) - area(of_orce, right):+.3f}"
        differences = [area(of_method[some], right[some]) - area(of_orce[some], right[some]) for some in resamples]
        assert interval == pytest.approx(np.quantile(differences, [0.025, 0.975]).tolist(), abs=0.03)
    stage("table", TABLES, metrics=measured, out="without")
    assert not DIFFERENCE.search(Path("without/ablation.tex").read_text())
    store.write(STATED[1], [record | {"confidence": None} for record in store.read(STATED[1])])
    spec = from_mapping(layout.TableWithRows, TABLE)
    assert tables._differences(spec, {*STATED}, UNPARSED)[0].endswith(", NRD undefined.")


def test_the_document_has_the_same_rows_and_a_run_is_told_which_of_its_tables_it_replaces(measured, capsys):
    for name in ("table", "tables"):
        stage(name, TABLES, metrics=measured, out="paper_tables")
    page = Path("paper_tables/tables.html").read_text()
    assert all(f"{area(confidences(method), RIGHT):.3f}" in page for method in METHODS)
    assert Path("paper_tables/tables.pdf").read_bytes().startswith(b"%PDF")
    capsys.readouterr()
    preflight.tell_replaced(["mine"], {"results/metrics.csv"})
    preflight.tell_replaced(["mine", "ablation"], {"paper_tables/tables.tex"})
    assert capsys.readouterr().err == ""
    preflight.tell_replaced(["mine"], {"paper_tables/tables.tex"})
    assert "replaced: they show ablation, now mine;" in capsys.readouterr().err


def test_the_recount_takes_what_is_unread_as_the_run_does(measured, capsys):
    write(f"{CELL}/samples.jsonl", [{"id": f"q{i}", "split": "test", "answers": [], "correct": []} for i in range(12)])
    assert recount(Path(), []) == 0, capsys.readouterr().out


def test_metrics_csv_has_a_line_for_each_metric_of_each_row_and_says_which_older_results_lack(measured, capfd):
    labels = dict(zip(measured, LABELS.values(), strict=True))

    def made() -> list[dict]:
        stage("metrics-csv", {"labels": labels}, metrics=measured, out="metrics.csv")
        return [*csv.DictReader(Path("metrics.csv").read_text().splitlines())]

    rows = made()
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
    store.write_object(f"{CELL}/orce/extra.json", {name: value for name, value in extra.items() if name != "prr"})
    (older,) = (row for row in made() if "snakemake -R evaluate" in row["reason"])
    assert (older["method"], older["metric"], older["value"]) == ("orce", "prr", "")
    assert "1 values are missing: its file was made before this metric" in capfd.readouterr().err


def risk(stated, right) -> list[float]:
    """The error rate among the most confident i items, i = 1..n, each tie in its expectation."""
    errors = []
    for value in sorted({*stated}, reverse=True):
        tie = [not own for confidence, own in zip(stated, right, strict=True) if confidence == value]
        errors += [sum(tie) / len(tie)] * len(tie)
    return [sum(errors[:i]) / i for i in range(1, len(errors) + 1)]


def test_pictures_have_the_risks_and_the_bins_of_their_own_method(
    measured,
):
    read = [read_stated(path, UNPARSED) for path in STATED]
    series = [figures.Series(*both, own) for both, own in zip(LABELS.items(), read, strict=True)]
    cell = CellPicture(dataset="words", model="m", label="Words")
    (axes,) = figures.draw_risk_coverage(cell, series).axes
    curves = {line.get_label().split()[0]: line for line in axes.lines}
    for method, label in LABELS.items():
        assert curves[label].get_xdata().tolist() == pytest.approx([i / 12 for i in range(1, 13)])
        assert curves[label].get_ydata().tolist() == pytest.approx(risk(confidences(method), RIGHT))
        assert curves[label].get_label().startswith(f"{label} {area(confidences(method), RIGHT):.3f}")
    assert curves["ORCE"].get_label().endswith(" (1 unread)")
    assert curves["Random"].get_ydata().tolist() == pytest.approx([4 / 12] * 12)
    assert curves["Perfect"].get_ydata().tolist() == pytest.approx(risk([float(right) for right in RIGHT], RIGHT))
    for panel, method in zip(figures.draw_reliability(cell, series).axes, METHODS, strict=True):
        stated = confidences(method)
        bins = np.maximum(np.ceil(np.round(10 * stated, 9)), 1)
        expected = [[stated[bins == one].mean(), np.array(RIGHT)[bins == one].mean()] for one in np.unique(bins)]
        assert panel.collections[1].get_offsets().tolist() == [pytest.approx(point) for point in expected]
        assert panel.get_title().split("\n")[1].startswith(f"ECE {calibration(stated, RIGHT):.3f}")
