"""The paper's numbers in orce/reports/published: typed without a slip, and rendered back by our own renderer.

The facts recomputed here (sizes of the test sets, correctness behind AURC) come from the numbers themselves, so that a
wrong digit would show.
"""

import re
from functools import cache

import numpy as np
import pytest
from scipy import optimize, stats

from orce.config import layout
from orce.reports import comparison, tables
from orce.reports.metrics_file import CellMetrics

TABLES = list(comparison.SPECS)
MODELS = {key: {"label": label} for key, label in comparison.MODELS.items()}
ROWS = [(table, *key, printed) for table in TABLES for key, printed in comparison.published(table).items()]
CELL = r"(?:\\(?P<mark>textbf|underline)\{)?(?P<text>-?\d\.\d{3}|\$(?P<m>\d\.\d{3})\\times10\^\{(?P<e>-\d+)\}\$)\}?"

# The one p whose n does not fit: an exponent typo of the paper (e-4 would fit).
WRONG_P = {("logiqa", "llama3-8b", "topk")}
# Printed in another style than the paper's other p-values of that size.
ODD_STYLE = {
    ("reclor", "qwen3-8b", "topk"): ("2.797e-03", "0.003"),
    ("logiqa", "mistral-7b", "cot"): ("3.21e-05", "3.210e-05"),
}
# AURC - E-AURC says 0.744 where the table says 0.749: the paper has two sets of answers there.
OTHER_ANSWERS = {("mmlu", "qwen3-8b", method) for method in ("vanilla", "conftuner", "sft", "orce")} | {
    ("transfer", "qwen3-8b", method) for method in ("vanilla", "conftuner-from-llama3-8b")
}
# Exact match behind DROP's AURC, where the table prints F1.
DROP_EXACT = {
    ("llama3-8b", "vanilla"): 0.520,
    ("qwen3-8b", "vanilla"): 0.514,
    ("mistral-7b", "vanilla"): 0.478,
    ("qwen3-8b", "cot"): 0.737,
}
# Marks of the paper that its own numbers contradict: {cell: (paper's mark, right mark)}.
WRONG_MARKS = {
    ("mmlu", "llama3-8b", "consistency", "accuracy"): ("", "second"),
    ("mmlu", "qwen3-8b", "consistency", "accuracy"): ("", "second"),
    ("mmlu", "mistral-7b", "consistency", "accuracy"): ("", "second"),
    ("mmlu", "qwen3-8b", "conftuner", "rho"): ("", "second"),
    ("mmlu", "mistral-7b", "consistency", "rho"): ("", "second"),
    ("mmlu", "mistral-7b", "conftuner", "aurc"): ("", "second"),
    ("mmlu", "mistral-7b", "sft", "aurc"): ("second", ""),
    ("logiqa", "llama3-8b", "vanilla", "accuracy"): ("", "best"),
    ("logiqa", "llama3-8b", "conftuner", "accuracy"): ("", "best"),
    ("logiqa", "llama3-8b", "consistency", "accuracy"): ("", "second"),
    ("logiqa", "mistral-7b", "topk", "accuracy"): ("", "second"),
    ("logiqa", "llama3-8b", "sft", "ece"): ("second", "best"),
    ("logiqa", "llama3-8b", "orce", "ece"): ("best", "second"),
    ("logiqa", "mistral-7b", "sft", "ece"): ("second", "best"),
    ("logiqa", "mistral-7b", "orce", "ece"): ("best", "second"),
    ("logiqa", "qwen3-8b", "conftuner", "aurc"): ("", "second"),
    ("logiqa", "qwen3-8b", "sft", "aurc"): ("second", ""),
    ("logiqa", "qwen3-8b", "conftuner", "e_aurc"): ("", "second"),
    ("logiqa", "qwen3-8b", "sft", "e_aurc"): ("second", ""),
    ("logiqa", "mistral-7b", "sft", "e_aurc"): ("", "second"),
    ("logiqa", "mistral-7b", "consistency", "e_aurc"): ("second", ""),
}


def size(table):
    return comparison.SIZES[comparison.SPECS[table].dataset]


def as_metrics(table, printed):
    number = {key: float(text) for key, text in printed.items() if key not in ("bold", "underlined")}
    spearman = {"rho": number.pop("rho"), "p": number.pop("p"), "log10_p": None}
    return {**number, "spearman": spearman, "n": size(table), "n_unparsed": {"answer": 0, "confidence": 0}}


def in_machine_form(match):
    return f"{match['m']}e-{-int(match['e']):02d}" if match["e"] else match["text"]


@cache
def rendered(table):
    """Our LaTeX of a published table, read back: {(model, method, column): (text, mark)}."""
    spec = comparison.SPECS[table]
    metrics = {
        path: CellMetrics.of(path, as_metrics(table, comparison.published(table)[row.model, row.method]))
        for row in spec.rows
        for path in [layout.cell_path(spec.dataset, row)]
    }
    text = tables.table_tex(tables.fill(spec, metrics, MODELS))
    lines = [line for line in text.splitlines() if re.match(r"& .*\d\.\d{3}", line)]
    found = {}
    for row, line in zip(spec.rows, lines, strict=True):
        texts = line.removesuffix(r" \\").split(" & ")[1:]
        for column, text in zip(layout.columns(spec), texts, strict=True):
            match = re.fullmatch(CELL, text)
            mark = {"textbf": "best", "underline": "second", None: ""}[match["mark"]]
            found[row.model, row.method, column.key] = in_machine_form(match), mark
    return found


def two_sided_p(rho, n):
    return 2 * stats.t.sf(abs(rho) * np.sqrt((n - 2) / (1 - rho * rho)), n - 2)


def implied_n(rho, p):
    return optimize.brentq(lambda n: np.log(max(two_sided_p(rho, n), 1e-320) / p), 3.01, 1e6)


def implied_sizes(printed):
    """Smallest and largest n that the printed rho and p allow, both being rounded."""
    rho, p, half = abs(float(printed["rho"])), float(printed["p"]), half_unit(printed["p"])
    return implied_n(rho + 0.0005, p + half), implied_n(rho - 0.0005, p - half)


def half_unit(text):
    mantissa, _, exponent = text.partition("e")
    return 0.5 * 10.0 ** (int(exponent or 0) - len(mantissa.split(".")[1]))


def implied_accuracy(printed, slack):
    """The accuracy whose best possible AURC, (1-a) + a ln a, is AURC - E-AURC."""
    best = float(printed["aurc"]) - float(printed["e_aurc"]) + slack
    return optimize.brentq(lambda a: (1 - a) + a * np.log(a) - best, 1e-6, 1 - 1e-9)


@pytest.mark.parametrize("table", TABLES)
def test_every_row_of_the_layout_is_published(table):
    spec = comparison.SPECS[table]
    assert [(row.model, row.method) for row in spec.rows] == list(comparison.published(table))
    assert len(spec.rows) == {"ablation": 6, "transfer": 8}.get(table, 21)


@pytest.mark.parametrize("table", TABLES)
def test_renderer_gives_the_papers_numbers_back(table):
    for (model, method), printed in comparison.published(table).items():
        for column in layout.columns(comparison.SPECS[table]):
            expected = printed[column.key]
            if column.key == "p" and (table, model, method) in ODD_STYLE:
                paper, expected = ODD_STYLE[table, model, method]
                assert printed["p"] == paper
            assert rendered(table)[model, method, column.key][0] == expected, (model, method, column.key)


def constant(table: str, model: str, key: str) -> bool:
    """Whether all rows of a model have the same value, which we do not call the best."""
    return len({printed[key] for name, other, _, printed in ROWS if (name, other) == (table, model)}) == 1


def test_marks_are_the_papers_but_for_its_slips():
    differing = {}
    for table, model, method, printed in ROWS:
        for column in layout.columns(comparison.SPECS[table]):
            bold, underlined = printed["bold"].split(), printed["underlined"].split()
            paper = "best" if column.key in bold else "second" if column.key in underlined else ""
            ours = rendered(table)[model, method, column.key][1]
            if paper != ours and not constant(table, model, column.key):
                differing[table, model, method, column.key] = paper, ours
    assert differing == WRONG_MARKS


def test_no_caption_calls_qwen3_8b_qwen_7b():
    caption = layout.caption(comparison.SPECS["transfer"], MODELS)
    assert caption.endswith("trained on LLAMA-3 8B and transferred to Qwen3 8B and Mistral 7B.")


def test_correlations_and_p_values_imply_the_test_sets():
    wrong = set()
    for table, model, method, printed in ROWS:
        if float(printed["p"]) > 0:
            low, high = implied_sizes(printed)
            if not low <= size(table) <= high:
                wrong.add((table, model, method))
    assert wrong == WRONG_P


def test_the_p_value_of_logiqa_llama_topk_has_a_wrong_exponent():
    printed = comparison.published("logiqa")["llama3-8b", "topk"]
    low, high = implied_sizes(printed)
    assert 2100 < low < high < 2170
    low, high = implied_sizes({**printed, "p": "4.708e-04"})
    assert low <= size("logiqa") <= high


@pytest.mark.parametrize("table, expected", [("mmlu", 14042), ("drop", 9536), ("reclor", 500), ("logiqa", 1572)])
def test_all_cells_of_a_table_together_pin_its_size(table, expected):
    fitting = [row for row in ROWS if row[0] == table and row[:3] not in WRONG_P and float(row[3]["p"]) > 0]
    bounds = [implied_sizes(printed) for *_, printed in fitting]
    low, high = max(low for low, _ in bounds), min(high for _, high in bounds)
    assert low <= expected <= high and high - low < 0.005 * expected + 1


def test_a_printed_zero_is_an_underflow():
    for table, model, method, printed in ROWS:
        if printed["p"] == "0.000":
            p = two_sided_p(abs(float(printed["rho"])) - 0.0005, size(table))
            assert p < tables.SMALLEST_P, (table, model, method)


def test_aurc_minus_e_aurc_gives_the_accuracy_back():
    wrong = set()
    for table, model, method, printed in ROWS:
        if table != "drop":
            low, high = implied_accuracy(printed, 0.001), implied_accuracy(printed, -0.001)
            if not low - 0.0005 <= float(printed["accuracy"]) <= high + 0.0005:
                wrong.add((table, model, method))
    assert wrong == OTHER_ANSWERS


def test_behind_drop_stands_exact_match_and_not_f1():
    for (model, method), printed in comparison.published("drop").items():
        assert implied_accuracy(printed, -0.001) < float(printed["f1"]) - 0.03, (model, method)
    for key, expected in DROP_EXACT.items():
        assert implied_accuracy(comparison.published("drop")[key], 0.0) == pytest.approx(expected, abs=0.001)


def test_rows_that_stand_in_two_tables_agree():
    mmlu = comparison.published("mmlu")
    for table in ("ablation", "transfer"):
        for key, printed in comparison.published(table).items():
            if key in mmlu:
                shared = {column: text for column, text in printed.items() if column not in ("bold", "underlined")}
                assert shared.items() <= mmlu[key].items()
