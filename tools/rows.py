"""Print the rows that a run has so far, cell by cell: `python tools/rows.py [RESULTS]`. Works at any time."""

import sys
from pathlib import Path

from orce.reports.screen import rows_so_far

if __name__ == "__main__":
    results = Path(*sys.argv[1:] or ["results"])
    for cell in sorted({path.parents[1] for path in results.glob("*/*/*/metrics.json")}):
        print(*rows_so_far(cell), sep="\n")
