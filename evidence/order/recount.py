"""Three contrasts of docs/evidence/order.md counted again by the standard library alone: ``python evidence/order/recount.py``.

Exits with 1 where docs/evidence/tables/order-contrasts.csv has another difference.
"""

import csv
import gzip
import json
import sys
from fractions import Fraction
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ITEMS = ROOT / "evidence" / "items" / "order"
TABLE = ROOT / "docs" / "evidence" / "tables" / "order-contrasts.csv"
CONTRASTS = (("orce, C mean", "sft"), ("orce, C stated", "sft"), ("orce, C mean", "W/o gen"))


def aurc(path: Path, arm: str) -> Fraction:
    """The mean over i = 1..n of the expected error rate among the i most confident; ties stand in random order."""
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    confidences = sorted({line["confidences"][arm] for line in lines}, reverse=True)
    total, errors, taken = Fraction(0), Fraction(0), 0
    for confidence in confidences:
        tied = [line["correct"] for line in lines if line["confidences"][arm] == confidence]
        rate = Fraction(tied.count(False), len(tied))
        for _ in tied:
            errors += rate
            taken += 1
            total += errors / taken
    return total / len(lines)


def main() -> int:
    rows = {(row["contrast"], row["set"]): row for row in csv.DictReader(TABLE.open()) if row["reading"] == "stated"}
    different = 0
    for a, b in CONTRASTS:
        by_set = {}
        for name in ("arithmetic", "worldfacts"):
            paths = sorted(path for path in ITEMS.glob(f"{name}-*.jsonl.gz") if "validation" not in path.name)
            by_set[name] = sum(aurc(path, f"{a}:stated") - aurc(path, f"{b}:stated") for path in paths) / len(paths)
        by_set["both"] = sum(by_set.values()) / 2
        for name, value in by_set.items():
            published = rows[f"{a} - {b}", name]["difference of AURC"].split(" ")[0]
            counted = f"{float(value):+.3f}"
            print(f"{a} - {b}, {name}, as stated: {counted}, published {published}")
            different += counted != published
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
