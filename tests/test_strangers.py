"""What a stranger sends fills no memory, obeys no terminal and no spreadsheet: each door, with the same few hostile texts."""

import csv
import re
import signal
import traceback
import tracemalloc
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from dry_run import called
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_any_data import written

from orce.__main__ import main
from orce.align import surrogate
from orce.apps.table import Table
from orce.artefacts import files, store, tables
from orce.errors import BadInput
from orce.reports import comparison
from orce.runtime import lease, process

MEGABYTE = 2**20
USUAL = pyarrow.default_memory_pool()
OF_ARROW = pyarrow.proxy_memory_pool(USUAL)  # of which tracemalloc sees nothing
ROW = '{"id": "%d", "question": "q?", "answers": ["x", "x"], "context": "%s"}\n'
LONG = ROW % (1, "a" * 16 * MEGABYTE)
MANY = "".join(ROW % (i, "a" * 10_000) for i in range(1600))
CELLS = f"question,answers\nq?,{'a' * 16 * MEGABYTE}\n"
CATEGORIES = pyarrow.DictionaryArray.from_arrays([0] * 64, ["a" * (MEGABYTE // 4)])
NESTED = pyarrow.ListArray.from_arrays([0, 32, 64], CATEGORIES)
# A file of some kilobytes, and what is said of it where 1 MiB is the most that it may unpack to.
BOMBS = {
    "a line, packed by gzip": ("x.jsonl.gz", LONG, "x.jsonl.gz, line 1: longer than 0.0625 MiB"),
    "a line, packed by zstd": ("x.jsonl.zst", LONG, "x.jsonl.zst, line 1: longer than 0.0625 MiB"),
    "a line that is not packed": ("x.jsonl", LONG, "line 1: longer than 0.0625 MiB"),
    "lines, packed": ("x.jsonl.gz", MANY, "x.jsonl.gz: unpacks to more than 1 MiB"),
    "a list, packed": ("x.json.gz", f"[{LONG}]", "x.json.gz: unpacks to more than 1 MiB"),
    "a cell, packed": ("x.csv.gz", CELLS, "x.csv.gz: unpacks to more than 1 MiB"),
    "Parquet": ("x.parquet", pyarrow.array(["a" * MEGABYTE] * 16), "x.parquet: unpacks to more than 1 MiB"),
    "Parquet, one value in each row": ("x.parquet", CATEGORIES, "x.parquet: unpacks to more than 1 MiB"),
    "Parquet, one value in each list": ("x.parquet", NESTED, "x.parquet: categories within lists"),
    "Parquet, a list of zeros": ("x.parquet", pyarrow.array([[0] * 2 * MEGABYTE]), "x.parquet: unpacks to more than 1 MiB"),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_a_file_that_unpacks_to_too_much_is_refused_unless_so_much_is_meant(name, folder, monkeypatch):
    path, content, message = BOMBS[name]
    if isinstance(content, str):
        written(Path(path), content)
    else:
        table = {"question": content, "answers": pyarrow.array([["x", "x"]] * len(content))}
        pyarrow.parquet.write_table(pyarrow.table(table), path, compression="zstd")
    monkeypatch.setenv("ORCE_LARGEST_FILE", "1048576")
    tracemalloc.start()
    pyarrow.set_memory_pool(OF_ARROW)
    code, said = called(main, ["measure", path, "--model", "", "--methods", "agreement", "--out", "o.jsonl"])
    pyarrow.set_memory_pool(USUAL)
    peak = tracemalloc.get_traced_memory()[1] + OF_ARROW.max_memory()
    tracemalloc.stop()
    (line,) = [line for line in said.splitlines() if path in line]
    assert code == 2 and message in line and not Path("o.jsonl").exists(), said
    assert ("set ORCE_LARGEST_FILE=4194304 (bytes)" in line) == (content is not NESTED)
    assert peak < 15 * MEGABYTE  # of 16 and more
    monkeypatch.setenv("ORCE_LARGEST_FILE", "1e9")
    if content is NESTED:
        with pytest.raises(BadInput, match="save them as texts"):
            tables.read(Path(path))
    else:
        assert len(tables.read(Path(path))) in (1, 16, 64, 1600)


def test_a_bound_that_is_no_number_is_one_line(monkeypatch):
    monkeypatch.setenv("ORCE_LARGEST_FILE", "4 GB")
    with pytest.raises(BadInput, match="ORCE_LARGEST_FILE is '4 GB'; expected a number of bytes, such as 4e9"):
        files.largest()


# A title of the window, a cleared screen, the same in C1 controls, a link, a bell, and text that runs from right to left.
ESCAPES = ["\x1b]0;owned\x07", "\x1b[2J", "\x9b2J", "\x9d8;;http://x\x9c", "\x07\x08\r", "\u202egnp.exe"]
FORMULAS = ["=cmd|' /C calc'!A0", "+SUM(1)", "-2+3+cmd", "@SUM(A1)"]
FORMULAS += ["\t=1+1", "\r=1+1", " =1+1", "＝1+1", "'=1+1", "''@x"]
HARMLESS = ["-5", "+1,200.50", "-3 %", "'-5'", "a=b", "it's", "'quoted'", "5-3", "[1, 2]", ""]
PARTS = st.sampled_from([*ESCAPES, *FORMULAS, *HARMLESS, "Paris", " ", "\n"])
hostile = st.lists(PARTS, min_size=1, max_size=4).map("".join)


def measured(texts: list[str]) -> Table:
    """A table of measured answers; each text is a question and an answer."""
    measured = {"correct": True, "confidence": {"agreement": 0.5}}
    records = [{"id": f"{i}", "question": text, "answer": text} | measured for i, text in enumerate(texts)]
    return Table(records, ["agreement"])


def failing(text: str) -> None:
    """An error of the library that nobody caught."""
    try:
        raise BadInput(f"x.jsonl: {text}")
    except BadInput:
        traceback.print_exc()


def measure(text: str, **changed) -> None:
    record = {"id": "1", "question": f"q {text}", "answers": [text, text], "reference": text} | changed
    files.write_jsonl("in.jsonl", [record])
    main(["measure", "in.jsonl", "--model", "", "--methods", "agreement", "--out", "out.csv"])


def lease_of(text: str) -> None:
    former = signal.getsignal(signal.SIGPIPE)
    lease.main(["0", "--", f"no {text}"])
    signal.signal(signal.SIGPIPE, former)


# Each door that prints, with a text that a stranger may have put there.
PRINTING = {
    "a table": lambda text: print(repr(measured([text]))),
    "an error that nobody caught": failing,
    "progress": lambda text: process.Progress(f"a {text}", 1).update(1, text),
    "a message": process.say,
    "a result": process.show,
    "a lease": lease_of,
    "a wrong command": lambda text: main([f"a {text}"]),
    "a wrong option": lambda text: main(["compare", "cell", f"--no{text}"]),
    "compare": lambda text: main(["compare", f"no {text}", "--methods", text, "vanilla"]),
    "records that are refused": lambda text: measure(text, answers=text),
    "measure": measure,
}


@pytest.mark.parametrize("door", PRINTING)
def test_a_strangers_text_can_start_no_escape_sequence(door, folder):
    @settings(max_examples=8, deadline=None, database=None)
    @given(hostile)
    @example("".join(ESCAPES))
    def printed(text):
        _, shown = called(PRINTING[door], text)
        assert shown and all(sign.isprintable() or sign == "\n" for sign in shown), shown

    printed()


def by_measure(texts: list[str]) -> list[str]:
    measured(texts).write("o.csv")
    return [row["question"] for _, row in tables.read(Path("o.csv"))]


def by_surrogate(texts: list[str]) -> list[str]:
    same = {"split": "sft", "n_correct": 1, "n_samples": 1, "kappa": -0.5, "answer_correct": 1}
    rows = [surrogate.Row(id=f"{i}", answer=text, raw=text, **same) for i, text in enumerate(texts)]
    with store.writing("o.csv", {}) as handle:
        surrogate.write_surrogate(handle, rows)
    read = surrogate.read_surrogate("o.csv")
    assert [row.raw for row in read] == texts and {row.kappa for row in read} == {-0.5}
    return [row.answer for row in read]


def by_comparison(texts: list[str]) -> list[str]:
    empty = dict.fromkeys(comparison.Compared._fields, 0.25)
    rows = [comparison.Compared(**empty | {"method": text}) for text in texts]
    Path("o.csv").write_text(comparison.to_csv(rows), newline="")
    return [row["method"] for _, row in tables.read(Path("o.csv"))]


def by_metrics_csv(texts: list[str]) -> list[str]:
    with Path("o.csv").open("w", newline="") as handle:
        tables.write_csv(handle, [("label", "value"), *((text, -0.5) for text in texts)])
    return [row["label"] for _, row in tables.read(Path("o.csv"))]


WRITING = {"measure": by_measure, "surrogate.csv": by_surrogate, "comparison.csv": by_comparison, "metrics.csv": by_metrics_csv}  # fmt: skip


@pytest.mark.parametrize("door", WRITING)
def test_no_cell_is_a_formula_and_our_own_doors_read_it_unchanged(door, folder):
    @settings(max_examples=10, deadline=None, database=None)
    @given(st.lists(hostile, min_size=1, max_size=8))
    @example([*FORMULAS, *HARMLESS, *ESCAPES])
    def cells_of(texts):
        assert WRITING[door](texts) == texts
        with Path("o.csv").open(newline="") as handle:
            cells = [cell for row in csv.reader(handle) for cell in row]
        computed = [cell for cell in cells if re.match(r"\s*[=+@＝-]|[\t\r]", cell)]
        assert all(re.fullmatch(r"\s*[-+][\d.,' %]*", cell) for cell in computed), computed

    cells_of()


def test_a_number_and_a_quoted_text_stay_as_they_are(folder):
    measured(HARMLESS).write("o.csv")
    with Path("o.csv").open(newline="") as handle:
        assert [row["question"] for row in csv.DictReader(handle)] == HARMLESS
