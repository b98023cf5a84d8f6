"""The numbers of a finished run again, from its items and without orce: `python tools/recount.py [RUN] [PAGE...]`.

Accuracy, ECE, Brier, AURC, E-AURC, AUROC and Spearman of every results/DATASET/MODEL/METHOD of the folder RUN, by their definitions
in docs/metrics.md, from confidences.jsonl; its labels are held against samples.jsonl. The results are compared with metrics.json,
with the rows of paper_tables/*.tex, and with the rows that tools/rows.py prints, where a PAGE (README.md) shows them.
Exits with 1 where one says something else.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

EQUAL, ROUNDED = 1e-9, 0.0005 + 1e-9
IN_TABLES = ("ece", "spearman", "aurc", "e_aurc", "accuracy"), ("ece", "spearman", "aurc", "e_aurc", "f1")
ON_SCREEN = ("accuracy", "ece", "aurc", "auroc", "spearman")
TITLE = re.compile(r"^(\S+), (\S+), \d+ test questions(?:; confidence LLMs read by the \w+(?: or \w+)*)?$")
READINGS = ("mean", "stated")  # beside the configured one
ROW = re.compile(r"^  (\S+)(?: [†‡])*" + 5 * r" +(-|-?\d\.\d{3})" + r" +\d+$")
Values = dict[str, float | None]


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def recounted(c: np.ndarray, y: np.ndarray, f1: float | None) -> Values:
    """The metrics of confidences [n] and correctness 0 or 1 [n]; None where one is undefined. f1: the items' mean."""
    n, accuracy = len(y), y.mean()
    bins = np.maximum(np.ceil(np.round(10 * c, 9)), 1)
    gaps = [abs((c - y)[bins == number].sum()) for number in range(1, 11)]
    errors, least = int(n - y.sum()), 0.0
    for j in range(1, errors + 1):
        least += j / (n - errors + j) / n
    area = aurc(c, 1 - y)
    return {
        "accuracy": accuracy,
        "ece": sum(gaps) / n,
        "brier": ((c - y) ** 2).mean(),
        "aurc": area,
        "e_aurc": area - least,
        "auroc": auroc(c[y == 1], c[y == 0]),
        "spearman": spearman(c, y),
        "f1": f1,
    }


def aurc(c: np.ndarray, wrong: np.ndarray) -> float:
    """The mean risk of the i most confident, i = 1..n. In a tie it is the expectation over all orders."""
    total, answered, errors = 0.0, 0, 0.0
    for value in sorted(set(c.tolist()), reverse=True):
        tied = wrong[c == value]
        for j in range(1, len(tied) + 1):
            total += (errors + tied.sum() * j / len(tied)) / (answered + j)
        answered, errors = answered + len(tied), errors + tied.sum()
    return total / answered


def auroc(right: np.ndarray, wrong: np.ndarray) -> float | None:
    """The share of pairs of a right and a wrong answer in which the right one has more confidence; a tie is half a pair."""
    if not len(right) or not len(wrong):
        return None
    over = right[:, None] - wrong
    return float(((over > 0) + (over == 0) / 2).mean())


def spearman(c: np.ndarray, y: np.ndarray) -> float | None:
    """Pearson's correlation of average ranks."""
    a, b = (np.array([(values < value).sum() + ((values == value).sum() + 1) / 2 for value in values]) for values in (c, y))  # fmt: skip
    if len(y) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])


def labels(cell: Path, method: str, items: list[dict]) -> Iterator[str]:
    """Items whose label is not the one of the same answer in samples.jsonl."""
    tested = {record["id"]: record for record in lines(cell / "samples.jsonl") if record["split"] == "test"}
    if {item["id"] for item in items} != {*tested}:
        yield f"{cell / method}: its items are not the test questions of samples.jsonl"
    for item in items:
        record = tested.get(item["id"], {"answers": [], "correct": []})
        known = dict(zip(record["answers"], record["correct"], strict=True))
        if "greedy" in record:
            known[record["greedy"]["answer"]] = record["greedy"]["correct"]
        if item["correct"] != known.get(item["answer"], item["correct"]) or (
            item["answer"] is None and item["correct"]
        ):
            yield f"{cell / method}: the label of {item['id']}"


def differing(written: dict, values: Values, where: str) -> Iterator[str]:
    for name, value in values.items():
        number = written[name]["rho"] if name == "spearman" else written[name]
        if (number is None) != (value is None) or abs((number or 0) - (value or 0)) > EQUAL:
            yield f"{where}: {name} is {number}, and its items give {value}"


def shows(printed: list[str], values: Values, names: tuple[str, ...]) -> bool:
    """Whether printed numbers are the values, rounded."""
    for text, name in zip(printed, names, strict=True):
        value = values[name]
        if (value is None) != (text.strip("-") == "") or (value is not None and abs(float(text) - value) > ROUNDED):
            return False
    return True


def tables_in(text: str) -> Iterator[tuple[str, list[str]]]:
    """Label and numbers of each row of a table in LaTeX: ECE, Spearman, AURC, E-AURC and the last column, without p."""
    for row in re.findall(r"^& (.*) \\\\$", text, re.MULTILINE):
        label, *cells = row.split(" & ")
        if len(cells) == len(IN_TABLES[0]) + 1:
            ece, rho, _, *others = (re.sub(r"\\\w+\{(.*)\}", r"\1", cell) for cell in cells)
            yield label, [ece, rho, *others]


def main(run: Path, pages: list[Path]) -> int:
    wrong: list[str] = []
    cells: dict[tuple[str, str, str], Values] = {}
    others: list[Values] = []
    for path in sorted(run.glob("results/*/*/*/metrics.json")):
        written, items = json.loads(path.read_text(encoding="utf-8")), lines(path.with_name("confidences.jsonl"))
        unread = written["provenance"]["settings"]["unparsed_confidence"]  # what such a confidence counts as
        y = np.array([item["correct"] for item in items], float)
        c = np.array([unread if item["confidence"] is None else item["confidence"] for item in items], float)
        f1 = None if items[0]["f1"] is None else float(np.mean([item["f1"] for item in items]))
        dataset, model, method = path.parts[-4:-1]
        values = recounted(c, y, f1)
        if all(item["confidence"] is None for item in items):  # no metric of confidences that nobody has stated
            values = {name: value if name in ("accuracy", "f1") else None for name, value in values.items()}
        cells[dataset, model, method] = values
        wrong += [
            *labels(path.parents[1], method, items),
            *differing(written, cells[dataset, model, method], str(path)),
        ]
        for reading in READINGS:
            if reading in written:
                read = np.array([unread if item[reading] is None else item[reading] for item in items], float)
                others.append(recounted(read, y, f1))
                wrong += differing(written[reading], others[-1], f"{path}, {reading}")
    rows = 0
    known = [*cells.values(), *others]
    for path in sorted(run.glob("paper_tables/*.tex")):
        for label, printed in tables_in(path.read_text(encoding="utf-8")):
            rows += 1
            if not any(shows(printed, values, names) for values in known for names in IN_TABLES):
                wrong.append(f"{path}: no items give the row {label}: {' '.join(printed)}")
    for path in pages:
        cell = None
        for line in path.read_text(encoding="utf-8").splitlines():
            if title := TITLE.match(line):
                cell = title[1], title[2]
            if cell and (row := ROW.match(line)):
                rows += 1
                values = cells.get((*cell, row[1]))
                if values is None or not shows([*row.groups()[1:]], values, ON_SCREEN):
                    wrong.append(f"{path}: not what the items give: {', '.join(cell)}: {line.strip()}")
    print("\n".join([*wrong, f"{len(cells)} cells and {rows} printed rows: {len(wrong)} differences"]))
    return 1 if wrong or not cells else 0


if __name__ == "__main__":
    folder, *shown = sys.argv[1:] or ["."]
    sys.exit(main(Path(folder), [*map(Path, shown)]))
