"""Write the first table that `make demo` prints into the README: `python docs/readme.py [RUN]`, which `make images` does.

RUN is the folder of a finished `make demo` (default: the checkout). It stands between `<!-- output: demo -->` and `<!-- end -->`.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "README.md"
BLOCK = re.compile(r"(<!-- output: demo -->\n```text\n)(.*?)(```\n<!-- end -->)", re.DOTALL)
CELL = "arithmetic, smollm2, "
ROWS = 7  # the methods of the paper's main tables; the rewards of the ablation follow them


def table(run: Path) -> str:
    """Title, head and seven rows of the cell, and the last line, the legend, of what `make demo` prints at its end."""
    command = [sys.executable, str(ROOT / "tools" / "rows.py")]
    lines = subprocess.run(command, cwd=run, capture_output=True, text=True, check=True).stdout.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(CELL))
    return "".join(f"{line}\n" for line in [*lines[start : start + 2 + ROWS], lines[-1]])


def filled(page: str, run: Path) -> str:
    return BLOCK.sub(lambda found: found[1] + table(run) + found[3], page)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(), Path(*sys.argv[1:] or [ROOT])))
